"""Tests of disco_rl/environments."""

from collections.abc import Iterator
import re
import sys
from typing import Any

import conformance
import gymnasium
from gymnasium import spaces
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import gridworld_tasks

NUM_ENVIRONMENTS = 96
SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP
DISABLED = gymnasium.vector.AutoresetMode.DISABLED
PROBE = 'DiscoTest/Probe-v0'


class Probe(gymnasium.Env):
  """Pays its action, counts its steps, and is truncated after the third."""

  action_space = spaces.Discrete(3, start=5)
  observation_space = spaces.Dict(
    {
      'count': spaces.Discrete(4, start=-1),
      'image': spaces.Box(0, 255, (2, 3), np.uint8),
      'noise': spaces.Tuple((spaces.Box(0.0, 1.0, (2,), np.float64),)),
    }
  )

  def __init__(self, fails_at: int | None = None):
    self._fails_at = fails_at

  def _observe(self) -> dict[str, Any]:
    return {
      'count': np.int64(self._count - 1),
      'image': np.full((2, 3), 250 + self._count, np.uint8),
      'noise': (self.np_random.random(2),),
    }

  def reset(
    self, *, seed: int | None = None, options: dict[str, Any] | None = None
  ) -> tuple[dict[str, Any], dict[str, Any]]:
    super().reset(seed=seed, options=options)
    self._count = 0
    return self._observe(), {}

  def step(
    self, action: Any
  ) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
    self._count += 1
    if self._count == self._fails_at:
      raise ArithmeticError('the probe broke')
    return self._observe(), float(action), False, self._count == 3, {}


@pytest.fixture(autouse=True)
def _registered_probe() -> Iterator[None]:
  gymnasium.register(PROBE, entry_point=lambda **kwargs: Probe(**kwargs))
  yield
  del gymnasium.registry[PROBE]


@pytest.fixture(scope='module')
def catch_trajectory() -> conformance.Trajectory:
  environment = catch.Catch()
  return conformance.check(lambda _: environment, num_steps=21)


def _environments(
  env_id: str, num_environments: int, seed: int, **vector_kwargs: Any
) -> gymnasium_adapter.GymnasiumEnvironment:
  env = gymnasium.make_vec(
    env_id,
    num_environments,
    vectorization_mode='sync',
    vector_kwargs=vector_kwargs,
  )
  return gymnasium_adapter.GymnasiumEnvironment(env, seed)


def _is_cart_pole_start(observation: np.ndarray) -> np.ndarray:
  return (np.abs(observation) <= 0.05).all(-1)


class TestCatch:
  def test_episodes_last_until_the_ball_lands(
    self, catch_trajectory: conformance.Trajectory
  ) -> None:
    timestep = catch_trajectory.timestep
    lasts = np.zeros((21, NUM_ENVIRONMENTS), bool)
    lasts[6::7] = True
    np.testing.assert_array_equal(timestep.is_last, lasts)
    np.testing.assert_array_equal(timestep.is_terminal, lasts)
    np.testing.assert_array_equal(np.abs(timestep.reward), lasts)

  def test_every_episode_begins_with_a_new_ball_and_a_centred_paddle(
    self, catch_trajectory: conformance.Trajectory
  ) -> None:
    first = catch_trajectory.observation[::7]
    np.testing.assert_array_equal(first[:, :, 1:-1], 0)
    paddle = np.broadcast_to(np.arange(8) == 4, first[:, :, -1].shape)
    np.testing.assert_array_equal(first[:, :, -1], paddle)
    np.testing.assert_array_equal(first[:, :, 0].sum(-1), 1)
    assert (first[:, :, 0].sum(1) > 0).all(), 'some columns have no ball'
    assert (first[1, :, 0] != first[0, :, 0]).any()
    # The ball is in the top row at no other time.
    top = catch_trajectory.observation[:, :, 0].any(-1)
    np.testing.assert_array_equal(top[:, 0], np.arange(22) % 7 == 0)

  def test_the_paddle_moves_with_the_actions_and_stops_at_the_walls(
    self, catch_trajectory: conformance.Trajectory
  ) -> None:
    paddle, hits = np.full(NUM_ENVIRONMENTS, 4), set()
    for t, action in enumerate(catch_trajectory.action):
      moved = paddle + action - 1
      paddle = np.clip(moved, 0, 7) if t % 7 < 6 else np.full_like(paddle, 4)
      bottom_row = catch_trajectory.observation[t + 1, :, -1]
      np.testing.assert_array_equal(bottom_row.argmax(-1), paddle)
      if t % 7 < 6:
        hits |= set(moved[moved != paddle].tolist())
    assert hits == {-1, 8}, 'the actions never press against a wall'

  @pytest.mark.parametrize('rows, columns', [(8, 8), (10, 5)])
  def test_a_scripted_policy_catches_or_avoids_every_ball(
    self, rows: int, columns: int
  ) -> None:
    environment = catch.Catch(rows, columns)

    def play(key: Any, avoids: Any) -> tuple[Any, Any, Any]:
      """Plays one episode; the policy sees the observation alone."""
      state, first = environment.reset(key)
      ball = jnp.argmax(first[0])
      far_wall = jnp.where(ball < columns // 2, columns - 1, 0)
      target = jnp.where(avoids, far_wall, ball)

      def step(carry: Any, _: None) -> tuple[Any, Any]:
        state, observation = carry
        action = 1 + jnp.sign(target - jnp.argmax(observation[-1]))
        state, timestep = environment.step(state, action, key)
        carry = (state, timestep.observation)
        return carry, (timestep.reward, timestep.is_last)

      carry, (reward, is_last) = jax.lax.scan(
        step, (state, first), length=rows - 1
      )
      return carry[1], reward, is_last

    keys = jax.random.split(jax.random.key(0), NUM_ENVIRONMENTS)
    played = jax.jit(jax.vmap(jax.vmap(play, (0, None)), (None, 0)))(
      keys, jnp.array([False, True])
    )
    last_observation, reward, is_last = jax.tree.map(np.asarray, played)
    want = np.zeros_like(reward)
    want[0, :, -1], want[1, :, -1] = 1, -1
    np.testing.assert_array_equal(reward, want)
    np.testing.assert_array_equal(is_last, want != 0)
    np.testing.assert_array_equal(last_observation[:, :, :-1], 0)
    # A caught ball covers the paddle.
    cells = last_observation.sum((-2, -1))
    np.testing.assert_array_equal(cells[0], 1)
    np.testing.assert_array_equal(cells[1], 2)

  @pytest.mark.parametrize('rows, columns', [(1, 5), (5, 0)])
  def test_boards_without_room_are_refused(
    self, rows: int, columns: int
  ) -> None:
    with pytest.raises(ValueError, match=f'rows={rows}, columns={columns}'):
      catch.Catch(rows, columns)


class TestGymnasiumEnvironment:
  def test_next_step_mode(self) -> None:
    trajectory = conformance.check(
      lambda seed: registry.make('gymnasium/CartPole-v1', 96, seed), 60
    )
    timestep, observation = trajectory.timestep, trajectory.observation
    # Exactly one masked transition after every end, and none elsewhere.
    np.testing.assert_array_equal(timestep.mask[1:], ~timestep.is_last[:-1])
    np.testing.assert_array_equal(timestep.reward, timestep.mask)
    np.testing.assert_array_equal(
      timestep.is_terminal, timestep.is_last | ~timestep.mask
    )
    # The last observation of an episode is seen, then the first of the next.
    fell = np.abs(observation[1:, :, 2]) > np.deg2rad(12)
    np.testing.assert_array_equal(fell, timestep.is_last)
    assert _is_cart_pole_start(observation[1:][~timestep.mask]).all()

  @pytest.mark.parametrize('mode', [SAME_STEP, DISABLED])
  def test_same_step_mode(self, mode: Any) -> None:
    trajectory = conformance.check(
      lambda seed: _environments('CartPole-v1', 96, seed, autoreset_mode=mode),
      60,
    )
    timestep, observation = trajectory.timestep, trajectory.observation
    assert np.all(timestep.mask)
    np.testing.assert_array_equal(timestep.reward, 1)
    np.testing.assert_array_equal(timestep.is_terminal, timestep.is_last)
    assert _is_cart_pole_start(observation[1:][timestep.is_last]).all()

  def test_truncation_is_not_termination(self) -> None:
    trajectory = conformance.check(
      lambda seed: _environments(PROBE, 96, seed), 8
    )
    timestep, count = trajectory.timestep, trajectory.observation['count']
    counts = [0, 1, 2, 3, 0, 1, 2, 3, 0]
    np.testing.assert_array_equal(count[:, 0].argmax(-1), counts)
    np.testing.assert_array_equal(timestep.is_last[:, 0], [0, 0, 1, 0] * 2)
    np.testing.assert_array_equal(timestep.is_terminal[:, 0], [0, 0, 0, 1] * 2)
    np.testing.assert_array_equal(timestep.mask[:, 0], [1, 1, 1, 0] * 2)
    # The first action of the space is 5, and is passed on as such.
    np.testing.assert_array_equal(
      timestep.reward, np.where(timestep.mask, trajectory.action + 5, 0)
    )

  def test_truncation_is_termination_where_the_last_observation_is_lost(
    self,
  ) -> None:
    trajectory = conformance.check(
      lambda seed: _environments(PROBE, 96, seed, autoreset_mode=SAME_STEP), 6
    )
    timestep, count = trajectory.timestep, trajectory.observation['count']
    np.testing.assert_array_equal(count[:, 0].argmax(-1), [0, 1, 2] * 2 + [0])
    np.testing.assert_array_equal(timestep.is_last[:, 0], [0, 0, 1] * 2)
    np.testing.assert_array_equal(timestep.is_terminal, timestep.is_last)

  def test_steps_that_reset_are_not_rewarded_by_wrappers(self) -> None:
    env = gymnasium.wrappers.vector.TransformReward(
      gymnasium.make_vec(PROBE, 2, vectorization_mode='sync'), lambda r: r + 1
    )
    environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=0)
    environment.reset()
    rewards = [environment.step(np.zeros(2, np.int32)).reward for _ in range(5)]
    np.testing.assert_array_equal(np.stack(rewards)[:, 0], [6, 6, 6, 0, 6])

  def test_observation_spaces_become_trees_of_arrays(self) -> None:
    environment = _environments(PROBE, 2, seed=0)
    assert environment.spec.num_actions == 3
    assert environment.spec.observation == {
      'count': jax.ShapeDtypeStruct((4,), np.float32),
      'image': jax.ShapeDtypeStruct((2, 3), np.uint8),
      'noise': (jax.ShapeDtypeStruct((2,), np.float32),),
    }
    observation = environment.reset()
    np.testing.assert_array_equal(observation['count'], [[1, 0, 0, 0]] * 2)
    np.testing.assert_array_equal(observation['image'], 250)

  def test_observations_are_not_written_into_later(self) -> None:
    environment = _environments(PROBE, 2, seed=0, copy=False)
    first = environment.reset()
    environment.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(first['image'], 250)

  def test_the_seed_is_used_in_the_first_reset_alone(self) -> None:
    env = gymnasium.make_vec('CartPole-v1', 96, vectorization_mode='sync')
    environment = _environments('CartPole-v1', 96, seed=3)
    for seed in (adapters.sub_seeds(3, 96).tolist(), None):
      want, _ = env.reset(seed=seed)
      np.testing.assert_array_equal(environment.reset(), want)

  def test_batches_of_neighbouring_seeds_share_no_environment(self) -> None:
    first = [_environments(PROBE, 4, seed).reset() for seed in (3, 4)]
    noise = np.concatenate([x['noise'][0] for x in first])
    assert len(np.unique(noise)) == noise.size

  def test_vector_environments_of_one_seed_get_one(self) -> None:
    env = gymnasium.make_vec(
      'CartPole-v1', 4, vectorization_mode='vector_entry_point'
    )
    assert not isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv)
    want, _ = env.reset(seed=int(adapters.sub_seeds(3, 4)[0]))
    environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=3)
    np.testing.assert_array_equal(environment.reset(), want)

  def test_a_factory_of_the_users_own(self) -> None:
    trajectory = conformance.check(
      lambda seed: gymnasium_adapter.from_factory(Probe, 4, seed), 8, 4
    )
    np.testing.assert_array_equal(
      trajectory.timestep.is_last[:, 0], [0, 0, 1, 0] * 2
    )
    noise = gymnasium_adapter.from_factory(Probe, 4, 5).reset()['noise'][0]
    np.testing.assert_array_equal(
      noise, _environments(PROBE, 4, 5).reset()['noise'][0]
    )

  def test_a_factory_of_what_raises_is_named(self) -> None:
    environment = gymnasium_adapter.from_factory(lambda: Probe(1), 2, seed=7)
    environment.reset()
    with pytest.raises(RuntimeError, match='Probe.* with seed 7 .* step 1 '):
      environment.step(np.zeros(2, np.int32))

  def test_reset_forgets_an_episode_that_had_ended(self) -> None:
    environment = _environments(PROBE, 2, seed=0)
    environment.reset()
    for _ in range(3):
      timestep = environment.step(np.zeros(2, np.int32))
    assert timestep.is_last.all()
    environment.reset()
    timestep = environment.step(np.zeros(2, np.int32))
    assert timestep.mask.all()
    np.testing.assert_array_equal(timestep.reward, 5)

  def test_an_environment_that_raises_is_named(self) -> None:
    env = gymnasium.make_vec(PROBE, 2, vectorization_mode='sync', fails_at=3)
    environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=7)
    environment.reset()
    for _ in range(2):
      environment.step(np.zeros(2, np.int32))
    with pytest.raises(
      RuntimeError, match=f'{PROBE} with seed 7 .* step 3 .*the probe broke'
    ) as raised:
      environment.step(np.zeros(2, np.int32))
    assert isinstance(raised.value.__cause__, ArithmeticError)

  def test_close_closes_the_environment(self) -> None:
    env = gymnasium.make_vec(PROBE, 2, vectorization_mode='sync')
    gymnasium_adapter.GymnasiumEnvironment(env, seed=0).close()
    assert env.closed

  def test_actions_that_are_not_discrete_are_refused(self) -> None:
    with pytest.raises(
      ValueError, match=r'Pendulum-v1 .*Box\(-2.0, 2.0.*only Discrete is'
    ):
      registry.make('gymnasium/Pendulum-v1', 2, seed=0)

  def test_unsupported_observations_are_located(
    self, monkeypatch: pytest.MonkeyPatch
  ) -> None:
    space = spaces.Dict({'mission': spaces.Tuple((spaces.Text(3),))})
    monkeypatch.setattr(Probe, 'observation_space', space)
    with pytest.raises(
      ValueError, match=re.escape(f"{PROBE}['mission'][0]") + '.*Text.*only Box'
    ):
      _environments(PROBE, 2, seed=0)

  def test_environments_that_hide_how_they_reset_are_refused(self) -> None:
    env = gymnasium.make_vec(PROBE, 2, vectorization_mode='sync')
    env.metadata = {}
    with pytest.raises(ValueError, match='None, which does not say how'):
      gymnasium_adapter.GymnasiumEnvironment(env, seed=0)


class TestRegistry:
  def test_every_listed_name_is_valid_where_its_package_is(self) -> None:
    names = registry.names()
    assert {'catch', 'gridworld/00', f'gymnasium/{PROBE}'} < set(names)
    assert {'atari/pong', 'procgen/easy/maze'} < set(names)
    for name in names:
      try:
        registry.validate(name)
      except ImportError:
        assert name.split('/')[0] not in ('catch', 'gridworld', 'gymnasium')

  def test_catch_has_the_size_of_its_name(self) -> None:
    for name, shape in (('catch', (8, 8)), ('catch/10x5', (10, 5))):
      environment = registry.make(name, num_environments=1, seed=0)
      assert environment.spec.observation.shape == shape

  def test_grid_worlds_are_those_of_their_names(self) -> None:
    for name in ('gridworld/03', 'gridworld/held_out_17'):
      environment = registry.make(name, num_environments=1, seed=0)
      want = gridworld_tasks.make(name.removeprefix('gridworld/'))
      assert want is not None
      assert jax.tree.structure(environment) == jax.tree.structure(want)
      jax.tree.map(np.testing.assert_array_equal, environment, want)

  def test_gymnasium_gets_the_number_and_the_seed(self) -> None:
    environment = registry.make(f'gymnasium/{PROBE}', 4, seed=5)
    assert isinstance(environment, base.HostEnvironment)
    assert environment.num_environments == 4
    noise = environment.reset()['noise'][0]
    np.testing.assert_array_equal(
      noise, _environments(PROBE, 4, 5).reset()['noise'][0]
    )

  @pytest.mark.parametrize(
    'name, nearest',
    [
      ('cach', 'catch'),
      ('catch/8', 'catch'),
      ('catch/', 'catch'),
      ('CartPole-v1', 'gymnasium/CartPole-v1'),
      ('gymnasium/CartPole', 'gymnasium/CartPole-v1'),
      ('gymnasium/FrozenLak-v1', 'gymnasium/FrozenLake-v1'),
      ('gymnasium', 'gymnasium/'),
      ('atari/Breakout', 'atari/breakout'),
      ('atari', 'atari57'),
      ('procgen/easy/easy/maze', 'procgen/easy/maze'),
      ('gridworld/57', 'gridworld/'),
      ('atari75', 'atari57'),
      ('zzz', 'none is near'),
    ],
  )
  def test_unknown_names_are_answered_with_the_nearest(
    self, name: str, nearest: str
  ) -> None:
    message = (
      f"'{name}'. Nearest names: [^.]*{nearest}[^.]*[.] Forms of names: "
    )
    with pytest.raises(ValueError, match=message):
      registry.validate(name)
    with pytest.raises(ValueError, match=message):
      registry.make(name, num_environments=1, seed=0)

  def test_nothing_is_built_by_validation(
    self, monkeypatch: pytest.MonkeyPatch
  ) -> None:
    def build(self: Probe) -> None:
      raise AssertionError('built')

    monkeypatch.setattr(Probe, '__init__', build)
    registry.validate(f'gymnasium/{PROBE}')
    with pytest.raises(AssertionError, match='built'):
      registry.make(f'gymnasium/{PROBE}', num_environments=1, seed=0)

  def test_impossible_sizes_and_numbers_are_refused(self) -> None:
    with pytest.raises(ValueError, match='rows=1, columns=5'):
      registry.validate('catch/1x5')
    with pytest.raises(ValueError, match='num_environments.*0'):
      registry.make('catch', num_environments=0, seed=0)

  def test_a_module_is_imported_to_register_its_environments(
    self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
  ) -> None:
    module = tmp_path / 'registers_a_probe.py'
    module.write_text(
      'import gymnasium\n'
      "gymnasium.register('DiscoTest/Module-v0', entry_point='none:None')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry.validate('gymnasium/registers_a_probe:DiscoTest/Module-v0')
    del gymnasium.registry['DiscoTest/Module-v0']
    del sys.modules['registers_a_probe']

  def test_the_missing_extra_is_named(
    self, monkeypatch: pytest.MonkeyPatch
  ) -> None:
    # What the import system keeps for a module that cannot be imported.
    monkeypatch.setitem(sys.modules, 'gymnasium', None)
    with pytest.raises(
      ImportError, match=re.escape("pip install 'disco_rl[gymnasium]'")
    ):
      registry.validate('gymnasium/CartPole-v1')
    assert not any(name.startswith('gymnasium/') for name in registry.names())
    with pytest.raises(ValueError, match='Nearest names: catch'):
      registry.validate('cach')
