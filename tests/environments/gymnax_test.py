"""Tests of disco_rl/environments/jax_native/gymnax_adapter.py."""

from collections.abc import Callable
import dataclasses
from typing import Any

import conformance
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments.jax_native import gymnax_adapter

gymnax = pytest.importorskip(
  'gymnax', reason="gymnax is not installed: pip install -e '.[gymnax]'"
)

# gymnax's own limits are up to 2,500 steps.
STEP_LIMIT = 12
NUM_STEPS = 2 * STEP_LIMIT + 1
OTHERS = tuple(f'gymnax/{env_id}' for env_id in gymnax_adapter.OTHERS)


def _make(name: str, **params: int) -> gymnax_adapter.GymnaxEnvironment:
  """An environment, some of whose parameters are not those of gymnax."""
  environment = registry.make(name, num_environments=1, seed=0)
  assert isinstance(environment, gymnax_adapter.GymnaxEnvironment)
  params = jax.tree.map(
    lambda x, old: jnp.asarray(x, old.dtype),
    params,
    {key: getattr(environment.params, key) for key in params},
  )
  return dataclasses.replace(
    environment, params=environment.params.replace(**params)
  )


def _check(
  name: str, num_environments: int = 96, **params: int
) -> conformance.Trajectory:
  environment = _make(name, **params)
  return conformance.check(lambda _: environment, NUM_STEPS, num_environments)


def _gymnax_rollout(
  environment: gymnax_adapter.GymnaxEnvironment,
) -> Callable[[Any, Any], Any]:
  """Plays as `conformance.jax_rollout`, by gymnax's own `reset` and `step`."""
  env, _ = gymnax.make(environment.env.name)
  params = environment.params

  def rollout(key: Any, action: Any) -> Any:
    reset_key, step_key = jax.random.split(key)
    reset_keys = jax.random.split(reset_key, action.shape[1])
    first, state = jax.vmap(env.reset, (0, None))(reset_keys, params)

    def step(state: Any, x: Any) -> Any:
      action, keys = x
      observation, state, reward, *ends, _ = jax.vmap(
        env.step, (0, 0, 0, None)
      )(keys, state, action, params)
      return state, (observation, reward, jnp.logical_or(*ends))

    keys = jax.random.split(step_key, action.shape)
    return first, jax.lax.scan(step, state, (action, keys))[1]

  return rollout


class TestGymnaxEnvironment:
  @pytest.mark.parametrize(
    'name',
    [
      'minatar/breakout',
      *(
        pytest.param(f'minatar/{game}', marks=pytest.mark.slow)
        for game in ('asterix', 'freeway', 'seaquest')
      ),
    ],
  )
  def test_minatar(self, name: str) -> None:
    params = {'max_steps_in_episode': STEP_LIMIT}
    if name == 'minatar/seaquest':
      params['init_spawn_speed'] = 2  # Enemies, the only chance, come late.
    played = _check(name, **params)
    observation, is_last = played.observation, played.timestep.is_last
    assert observation.dtype == bool
    assert observation.shape[2:4] == (10, 10)
    # What the agent moves is one cell of the first channel.
    np.testing.assert_array_equal(observation[..., 0].sum((-2, -1)), 1)
    assert is_last[:STEP_LIMIT].any(0).all(), 'the limit ends no episode'
    first = is_last.argmax(0)
    assert (first <= STEP_LIMIT - 1).all()

  @pytest.mark.parametrize(
    'name', ['bsuite/catch', 'bsuite/umbrella_chain', 'gymnax/Acrobot-v1']
  )
  def test_vectors_and_boards(self, name: str) -> None:
    _check(name, num_environments=8, max_steps_in_episode=STEP_LIMIT)

  def test_deep_sea(self) -> None:
    # Only slipping is random: the map of the actions is that of the package.
    played = _check('bsuite/deep_sea', num_environments=8, deterministic=False)
    np.testing.assert_array_equal(played.timestep.is_last[7::8], True)
    np.testing.assert_array_equal(played.observation[:-1].sum((-2, -1)), 1)

  @pytest.mark.parametrize(
    'name', ['minatar/space_invaders', 'bsuite/discounting_chain']
  )
  def test_games_without_chance(self, name: str) -> None:
    """They pass all checks but the last, that the seed is of consequence."""
    with pytest.raises(AssertionError, match='the seed is unused'):
      _check(name, max_steps_in_episode=STEP_LIMIT)

  @pytest.mark.parametrize(
    'name', ['minatar/breakout', 'gymnax/FrozenLake-misc']
  )
  def test_episodes_are_those_of_gymnax(self, name: str) -> None:
    environment = _make(name, max_steps_in_episode=STEP_LIMIT)
    num_actions = environment.spec.num_actions
    # As many environments as above, so that the program is the same.
    action = conformance.random_actions(num_actions, NUM_STEPS, 96)
    first, timestep = jax.jit(conformance.jax_rollout(environment))(
      jax.random.key(0), action
    )
    want_first, (observation, reward, is_last) = jax.jit(
      _gymnax_rollout(environment)
    )(jax.random.key(0), action)
    got = jnp.concatenate([first[None], timestep.observation])
    want = jnp.concatenate([want_first[None], observation])
    if name == 'gymnax/FrozenLake-misc':
      got = got.argmax(-1)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(timestep.reward, reward)
    np.testing.assert_array_equal(timestep.is_last, is_last)
    assert is_last.any()

  @pytest.mark.parametrize(
    'name, limit, has_fallen, is_terminal',
    [
      ('gymnax/CartPole-v1', 1, False, False),
      ('gymnax/CartPole-v1', 500, True, True),
      # Here the time is observed.
      ('gymnax/DiscountingChain-bsuite', 1, False, True),
    ],
  )
  def test_limits_that_are_not_observed_do_not_terminate(
    self, name: str, limit: int, has_fallen: bool, is_terminal: bool
  ) -> None:
    environment = _make(name, max_steps_in_episode=limit)
    state, _ = environment.reset(jax.random.key(0))
    if has_fallen:
      state = state.replace(theta=jnp.float32(1.0))
    _, timestep = environment.step(state, jnp.int32(0), jax.random.key(1))
    assert timestep.is_last
    assert timestep.is_terminal == is_terminal

  def test_the_memory_chain_must_be_remembered(self) -> None:
    """The cue is in the first two observations, the first being repeated."""
    played = _check('bsuite/memory_chain')
    observation, timestep = played.observation, played.timestep
    cue = observation[..., 2]
    np.testing.assert_array_equal(timestep.is_last[:12, 0], [*[0] * 5, 1] * 2)
    np.testing.assert_array_equal(cue[0], cue[1])
    assert set(np.unique(cue[0])) == {-1, 1}
    np.testing.assert_array_equal(cue[2:6], 0)
    # But for the cue, episodes look alike.
    assert (observation[:24, :, :2] == observation[:24, :1, :2]).all()
    # Only the last step has a reward, for the action of the cue.
    is_right = played.action[5] == (cue[0] > 0)
    np.testing.assert_array_equal(timestep.reward[:5], 0)
    np.testing.assert_array_equal(timestep.reward[5], np.where(is_right, 1, -1))

  def test_tasks_of_one_kind_stack(self) -> None:
    tasks = [
      _make('bsuite/memory_chain', memory_length=length) for length in (2, 4)
    ]
    assert jax.tree.structure(tasks[0]) == jax.tree.structure(tasks[1])
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *tasks)
    assert stacked.spec == tasks[0].spec
    play = jax.vmap(
      lambda task: conformance.jax_rollout(task)(
        jax.random.key(0), jnp.zeros((5, 2), jnp.int32)
      )
    )
    _, timestep = jax.jit(play)(stacked)
    np.testing.assert_array_equal(
      timestep.is_last[:, :, 0], [[0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    )

  @pytest.mark.parametrize(
    'name', ['minatar/breakout', 'bsuite/memory_chain', *OTHERS]
  )
  def test_types_do_not_change_after_the_first_step(self, name: str) -> None:
    environment = _make(name)
    key = jax.random.key(0)
    first = jax.eval_shape(environment.reset, key)
    state, timestep = jax.eval_shape(
      environment.step_autoreset, first[0], jnp.int32(0), key
    )
    assert (state, timestep.observation) == first
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(first))


class TestMake:
  def test_continuous_actions_are_refused(self) -> None:
    with pytest.raises(
      ValueError, match='Pendulum-v1 .*Box.*only Discrete .*CartPole-v1'
    ):
      registry.make('gymnax/Pendulum-v1', 1, seed=0)

  @pytest.mark.parametrize(
    'env_id, reason',
    [('MNISTBandit-bsuite', 'downloads'), ('SimpleBandit-bsuite', 'new arms')],
  )
  def test_what_cannot_be_played_is_refused(
    self, env_id: str, reason: str
  ) -> None:
    with pytest.raises(ValueError, match=f'{env_id} .*: it .*{reason}'):
      registry.make(f'gymnax/{env_id}', 1, seed=0)
