"""The programming interface: `import disco_rl`."""

from collections.abc import Callable
import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import Any
from unittest import mock

import dm_env
from dm_env import specs
import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small

import disco_rl
from disco_rl import types
from disco_rl.agent import learner as learner_lib
from disco_rl.agent import resolution
from disco_rl.api import rules
from disco_rl.environments import base
from disco_rl.environments import wrapping
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.jax_native import catch
from disco_rl.maths import optimizers
from disco_rl.training import checks
from disco_rl.training import config as training_config
from disco_rl.training import player as player_lib
from disco_rl.training import runner
from disco_rl.update_rules import disco
from examples import own_rule

CARTPOLE = 'CartPole-v1'
RULE = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=3.0)


def test_settings_of_rules() -> None:
  rule = disco_rl.load_rule('actor_critic', discount=0.5)
  assert rule.rule.discount == 0.5
  assert rule.params == {}
  assert rule.output_spec(3) == rule.rule.output_spec(3)
  with pytest.raises(ValueError, match="'discuont'. Nearest: discount"):
    disco_rl.load_rule('actor_critic', discuont=0.5)
  with pytest.raises(ValueError, match="Unknown rule 'actor_critc'"):
    disco_rl.load_rule('actor_critc')


class Bandit(dm_env.Environment):
  """Rewards the number of the action; two steps."""

  def __init__(self, seed: int = 0):
    del seed
    self._steps = 0

  def reset(self) -> dm_env.TimeStep:
    self._steps = 0
    return dm_env.restart(self._observe())

  def step(self, action: Any) -> dm_env.TimeStep:
    self._steps += 1
    if self._steps == 2:
      return dm_env.termination(float(action), self._observe())
    return dm_env.transition(float(action), self._observe())

  def observation_spec(self) -> Any:
    return specs.Array((2,), np.float32)

  def action_spec(self) -> Any:
    return specs.DiscreteArray(2)

  def _observe(self) -> np.ndarray:
    return np.array([self._steps, 0], np.float32)


class Walk:
  """In the style of gymnax: action 1 is rewarded; cells 0 to end - 1."""

  default_params = {'end': 3, 'limit': 10}

  def reset_env(self, key: Any, params: Any) -> Any:
    del key, params
    return jnp.int32(0), {'cell': 0, 'time': 0}

  def step_env(self, key: Any, state: Any, action: Any, params: Any) -> Any:
    del key
    state = {'cell': state['cell'] + action, 'time': state['time'] + 1}
    is_over = state['cell'] == params['end'] - 1
    return state['cell'], state, action, is_over, {}

  def action_space(self, params: Any) -> gymnasium.spaces.Discrete:
    del params
    return gymnasium.spaces.Discrete(2)


class LimitedWalk(Walk):
  def is_truncated(self, state: Any, params: Any) -> Any:
    return state['time'] == params['limit']

  def observation_space(self, params: Any) -> gymnasium.spaces.Discrete:
    del params
    return gymnasium.spaces.Discrete(5)


def make_env() -> gymnasium.Env:
  return gymnasium.make(CARTPOLE)


def make_vec(**settings: Any) -> gymnasium.vector.VectorEnv:
  return gymnasium.make_vec(
    CARTPOLE, 3, vectorization_mode='sync', vector_kwargs=settings
  )


SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP


@pytest.mark.parametrize(
  ('make', 'brought', 'shape', 'num_actions'),
  [
    (lambda: 'catch/4x3', None, (4, 3), 3),
    (lambda: f'gymnasium/{CARTPOLE}', None, (4,), 2),
    (lambda: catch.Catch(4, 3), None, (4, 3), 3),
    (lambda: gymnasium_adapter.make(CARTPOLE, 3, 0), 3, (4,), 2),
    (lambda: make_env, None, (4,), 2),
    (make_env, 1, (4,), 2),
    (make_vec, 3, (4,), 2),
    (lambda: make_vec(autoreset_mode=SAME_STEP), 3, (4,), 2),
    (lambda: Bandit, None, (2,), 2),
    (lambda: lambda s: Bandit(s), None, (2,), 2),
    (Bandit, 1, (2,), 2),
    (lambda: (Walk(), {'end': 3}), None, (), 2),
    (lambda: (LimitedWalk(), None), None, (5,), 2),
  ],
)
def test_environments_of_all_kinds(
  make: Callable[[], Any],
  brought: int | None,
  shape: tuple[int, ...],
  num_actions: int,
) -> None:
  source = wrapping.recognize(make())
  assert source.num_environments == brought
  environment = source.build(brought or 2, 5)
  assert environment.spec.observation.shape == shape
  assert environment.spec.num_actions == num_actions
  if isinstance(environment, base.HostEnvironment):
    assert environment.num_environments == (brought or 2)
    assert environment.reset().shape == (brought or 2, *shape)
    environment.step(np.zeros(brought or 2, np.int32))
    environment.close()


class Level(Bandit):
  """A class like those of other packages: the seed follows settings."""

  def __init__(self, size: int = 3, seed: int = 0):
    super().__init__(seed)
    MADE.append((size, seed))


MADE: list[tuple[int, int]] = []


@pytest.mark.parametrize(
  ('make', 'sizes', 'number'),
  [
    (Level, {3}, 3),
    (lambda size=4, *, seed: Level(size, seed), {4}, 3),
    (lambda number: Level(5, number), {5}, 3),
    (functools.partial(Level, 6), {6}, 3),
    (functools.partial(Level, size=7), {7}, 3),
    (functools.partial(Level, seed=9), {3}, 1),
    (lambda random_seed=0: Level(3, random_seed), {3}, 3),
    (lambda *, rng_seed=0: Level(3, rng_seed), {3}, 3),
    (lambda size=8: Level(size), {8}, 1),
    (lambda **settings: Level(**settings), {3}, 1),
  ],
)
def test_a_seed_is_found_wherever_it_is(
  make: Any, sizes: set[int], number: int
) -> None:
  """If all copies are the same, a warning says so."""
  MADE.clear()
  with contextlib.ExitStack() as stack:
    if number == 1:
      message = 'Level of dm_env is made without a seed'
      stack.enter_context(pytest.warns(UserWarning, match=message))
    wrapping.recognize(make).build(3, 7).close()
  assert {size for size, _ in MADE} == sizes
  assert len({seed for _, seed in MADE}) == number


def test_the_style_of_gymnax() -> None:
  environment = wrapping.recognize((LimitedWalk(), {'end': 3, 'limit': 2}))
  environment = environment.build(1, 0)
  key = jax.random.key(0)
  state, observation = environment.reset(key)
  np.testing.assert_array_equal(observation, [1, 0, 0, 0, 0])
  ends = []
  for action in (1, 0):
    state, timestep = environment.step(state, jnp.int32(action), key)
    ends.append((bool(timestep.is_terminal), bool(timestep.is_last)))
  assert ends == [(False, False), (False, True)]
  state, timestep = environment.step(state, jnp.int32(1), key)
  assert timestep.is_terminal
  assert timestep.reward.dtype == jnp.float32
  np.testing.assert_array_equal(timestep.observation, [0, 0, 1, 0, 0])
  # It goes through the same checks as environments of this project do.
  state, timestep = environment.step_autoreset(state, jnp.int32(1), key)
  assert state['cell'].dtype == jnp.int32


class Continuous(Walk):
  def action_space(self, params: Any) -> Any:
    del params
    return gymnasium.spaces.Box(-1, 1)


ENV = make_env()


class Blind(gymnasium.Env):
  observation_space = gymnasium.spaces.Box(0, 1, (0,))
  action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.parametrize(
  ('environment', 'settings', 'error', 'message'),
  [
    (3.0, {}, TypeError, '3.0 of type float is not a known env.* a name'),
    (lambda: 3.0, {}, TypeError, 'The function made 3.0 of type float'),
    (lambda: ENV, {}, ValueError, 'returned the same .* make a new'),
    ('cach', {}, ValueError, "Unknown environment 'cach'. Nearest.* catch"),
    (
      lambda: gymnasium.make('Pendulum-v1'),
      {},
      ValueError,
      'Pendulum.* only Discrete',
    ),
    (Blind, {}, ValueError, 'Observations have no numbers'),
    ((Continuous(), None), {}, ValueError, 'Continuous has actions Box'),
    ((Bandit(), None), {}, ValueError, 'Bandit lacks reset_env, step_env'),
    (make_vec, {'rule': 'actor_critc'}, ValueError, 'Unknown rule'),
    ('catch', {'torso': 'inpala'}, ValueError, 'Unknown torso .* impala'),
    ('catch', {'learnin_rate': 1.0}, ValueError, 'Nearest: learning_rate'),
    ('catch', {'replay_on_disk': True}, ValueError, 'has no setting'),
    ('catch', {'unroll_length': 0}, ValueError, 'unroll_length=0 .* least 1'),
    ('catch', {'batch_size': 0}, ValueError, 'batch_size=0 .* least 1'),
    (
      'catch',
      {'num_environments': 0},
      ValueError,
      'num_environments=0 .* leas',
    ),
    (make_vec(), {'num_environments': 2}, ValueError, '=2, but .* has 3'),
    (
      'catch',
      {'torso': lambda observation: observation},
      ValueError,
      r'returned shape \(1, 8, 8\) for 1 observations; .* \[1, width\]',
    ),
  ],
)
def test_bad_input_is_named(
  environment: Any,
  settings: dict[str, Any],
  error: type[Exception],
  message: str,
) -> None:
  with pytest.raises(error, match=message):
    disco_rl.Trainer(environment, **{'rule': RULE, **settings})


@pytest.mark.parametrize(
  ('settings', 'num_environments'),
  [
    ({}, 8),
    ({'batch_size': 64}, 64),
    ({'num_environments': 1}, 1),
    ({'num_environments': 1, 'updates_per_rollout': 4}, 1),
    ({'num_environments': 200}, 200),
    ({'batch_size': 1}, 1),
  ],
)
def test_defaults_fit_the_number_of_environments(
  settings: dict[str, Any], num_environments: int
) -> None:
  spec = catch.Catch(4, 3).spec
  _, config = resolution.resolve(RULE, settings, lambda _: spec)
  assert config.num_environments == num_environments
  assert config.replay_capacity % num_environments == 0
  assert max(config.num_on_policy) <= num_environments


@pytest.fixture(scope='module')
def trainer() -> disco_rl.Trainer:
  """On the device, with a core."""
  return disco_rl.Trainer(
    'catch/4x3', RULE, **small.AGENT, core_lstm=4, learning_rate=1e-2, seed=3
  )


def test_training_returns_metrics_by_update(trainer: disco_rl.Trainer) -> None:
  # Numbers of JAX and of NumPy count as those of Python do.
  series = trainer.train(jnp.int32(5), log_every=np.array(2))
  since = trainer.updates - 5
  assert since == 0
  np.testing.assert_array_equal(series['update'], [2, 4, 5])
  np.testing.assert_array_equal(series['environment_steps'], [16, 32, 40])
  # An episode of Catch on four rows takes three steps.
  np.testing.assert_array_equal(series['episodes'], [4, 10, 12])
  assert {len(values) for values in series.values()} == {3}
  assert np.isfinite(series['loss']).all()


def test_a_callback_may_take_its_row_apart(trainer: disco_rl.Trainer) -> None:
  steps: list[int] = []
  series = trainer.train(
    2, log_every=1, callback=lambda row: steps.append(row.pop('update'))
  )
  np.testing.assert_array_equal(series['update'], steps)


def test_an_agent_in_training_is_not_replaced(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'agent.npz'
  trainer.save(path)
  for act in (lambda _: trainer.load(path), lambda _: trainer.train(1)):
    updates = trainer.updates
    with pytest.raises(RuntimeError, match='is training: .*after .train. has'):
      trainer.train(1, callback=act)
    assert trainer.updates == updates + 1
  trainer.load(path)


def test_an_agent_of_a_run_begins_episodes() -> None:
  trainer: Any = mock.Mock()
  trainer._memory = player_lib.Memory(jax.random.key(0), 5, 'of before', 2)
  of_the_run: Any = mock.Mock()
  disco_rl.Trainer.take_over(trainer, of_the_run, 3, 24)
  assert (trainer.updates, trainer._steps) == (3, 24)
  resume = trainer._training.cohort.resume
  resume.assert_called_once_with(of_the_run)
  assert trainer._train_state is resume.return_value
  assert (trainer._memory.core_state, trainer._memory.batch_size) == (None, 0)


def test_training_continues_exactly_from_a_file(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'new' / 'agent.npz'
  trainer.save(path)
  updates = trainer.updates
  first = trainer.train(3)
  trainer._memory = player_lib.Memory(trainer._memory.key, 5, 'of before', 2)
  trainer.load(path)
  # Episodes of the other agent do not go on.
  assert (trainer._memory.core_state, trainer._memory.batch_size) == (None, 0)
  assert trainer.updates == updates
  again = trainer.train(3)
  jax.tree.map(np.testing.assert_array_equal, first, again)
  with np.load(path, allow_pickle=False) as archive:
    assert archive["['updates']"] == updates


def test_numbers_of_numpy_and_paths_of_the_home_directory(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setenv('HOME', str(tmp_path))
  monkeypatch.chdir(tmp_path)
  made = disco_rl.Trainer(
    'catch/4x3',
    disco_rl.load_rule('actor_critic', discount=np.float32(0.5)),
    seed=np.arange(3)[2],
    batch_size=np.int64(4),
    learning_rate=jnp.float32(0.25),
    hidden_sizes=np.array([4]),
    preprocessing={'atari': {'frame_skip': np.int64(2)}},
  )
  made.save('~/agents/agent.npz')
  made.policy().save('~/agents/policy.npz')
  made.load('~/agents/agent.npz')
  for name in ('agent', 'policy'):
    stored = disco_rl.load_policy(f'~/agents/{name}.npz').description
    assert stored.seed == 2
    assert stored.rule_settings['discount'] == 0.5
    assert stored.settings['learning_rate'] == 0.25
    assert stored.settings['batch_size'] == 4
    assert tuple(stored.settings['hidden_sizes']) == (4,)
    assert stored.preprocessing == {'atari': {'frame_skip': 2}}
  assert {path.name for path in tmp_path.iterdir()} == {'agents'}


def test_acting(trainer: disco_rl.Trainer) -> None:
  observations = np.eye(12)[:5].reshape(5, 4, 3)
  assert trainer.act(observations[0], greedy=True, is_first=True) in range(3)
  assert isinstance(trainer.act(observations[0]), int)
  greedy = lambda: trainer.act(observations, greedy=True, is_first=True)
  first = greedy()
  assert first.shape == (5,)
  np.testing.assert_array_equal(greedy(), first)
  sampled = np.stack(
    [trainer.act(observations, is_first=True) for _ in range(20)]
  )
  assert len(np.unique(sampled)) == 3
  with pytest.raises(ValueError, match='3 observations after 5 .* is_first'):
    trainer.act(observations[:3])


class Still(base.JaxEnvironment):
  """Is only looked at."""

  @property
  def spec(self) -> types.EnvironmentSpec:
    return SPEC

  reset = step = None


def test_a_core_is_reset_where_episodes_begin() -> None:
  network = small.network(SPEC, types.OutputSpec({}, {}), core_lstm=2)
  network = dataclasses.replace(
    network,
    # Its actions count its calls.
    step=lambda *args: (jnp.eye(A)[args[2][:, 0].astype(int)], args[2] + 1),
    initial_state=lambda size: jnp.zeros((size, 1)),
  )
  player = player_lib.Player(network, Still(), None, {})
  memory = player_lib.Memory(jax.random.key(0))
  act = lambda is_first: player.act(
    {'x': {'y': jnp.zeros(1)}}, memory, np.zeros((2, 2)), True, is_first
  ).tolist()
  calls = [act(False), act(False), act([True, False]), act(False), act(True)]
  assert calls == [[0, 0], [1, 1], [0, 2], [1, 3], [0, 0]]
  memory.reset_core()
  assert act(False) == [0, 0]


@pytest.mark.parametrize(
  ('observation', 'message'),
  [
    (np.zeros(4), r'observation has shape \(4,\), expected \(4, 3\)'),
    (np.zeros((2, 3, 3)), r'shape \(2, 3, 3\), expected \(2, 4, 3\)'),
    ({'x': np.zeros((4, 3))}, 'structure .*x.* as in the spec'),
    (np.eye(4, 3) * np.nan, r'observation is nan at \[0, 0, 0\]'),
    (np.array([[[0.0] * 3] * 4] * 2) - [0, 0, 1e39], r'-inf at \[0, 0, 2\]'),
  ],
)
def test_wrong_observations_are_named(
  trainer: disco_rl.Trainer, observation: Any, message: str
) -> None:
  with pytest.raises(ValueError, match=message):
    trainer.act(observation)


@pytest.mark.parametrize('name', ['updates', 'log_every', 'save_every'])
def test_counts_of_updates_must_be_whole_and_positive(
  trainer: disco_rl.Trainer, name: str
) -> None:
  arguments = {'updates': 1, 'save_to': 'x.npz'}
  with pytest.raises(ValueError, match=f'{name}=0 must be at least 1'):
    trainer.train(**{**arguments, name: 0})
  with pytest.raises(ValueError, match=f'{name}=1.5 must be a whole number'):
    trainer.train(**{**arguments, name: 1.5})


def test_the_file_is_checked_before_training(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  updates = trainer.updates
  with pytest.raises(ValueError, match='agent.zip: .* must end in .npz'):
    trainer.train(1, save_to='agent.zip')
  with pytest.raises(ValueError, match='gs://a/agent.npz is an address'):
    trainer.train(1, save_to='gs://a/agent.npz')
  (tmp_path / 'file').touch()
  with pytest.raises(OSError, match='Cannot create a file .*file is a file'):
    trainer.train(1, save_to=tmp_path / 'file' / 'agent.npz')
  for name in ('x' * 300, f'{"x" * 300}/agent'):
    with pytest.raises(OSError, match='Cannot create a file .* too long'):
      trainer.train(1, save_to=tmp_path / 'new' / f'{name}.npz')
  assert [path.name for path in tmp_path.iterdir()] == ['file']
  assert trainer.updates == updates


def test_a_change_of_the_working_directory_does_not_scatter_saves(
  trainer: disco_rl.Trainer,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'elsewhere').mkdir()
  trainer.train(
    4,
    log_every=2,
    save_to='agent.npz',
    save_every=2,
    callback=lambda _: os.chdir(tmp_path / 'elsewhere'),
  )
  updates = trainer.updates
  assert not list((tmp_path / 'elsewhere').iterdir())
  trainer.load(tmp_path / 'agent.npz')
  assert trainer.updates == updates


def test_environments_that_change_the_working_directory_are_reported(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  monkeypatch.chdir(tmp_path)  # Restored afterwards.
  (tmp_path / 'assets').mkdir()

  def make() -> gymnasium.Env[Any, Any]:
    os.chdir(tmp_path / 'assets')
    return gymnasium.make('CartPole-v1')

  disco_rl.Trainer(make, RULE, **small.AGENT).close()
  warned = f'the working directory from {tmp_path} to {tmp_path}/assets'
  assert capsys.readouterr().err.count(warned) == 1


@pytest.mark.parametrize('seed', [-1, 0.5, '3', None])
def test_seeds_are_checked(seed: Any) -> None:
  with pytest.raises(ValueError, match=f'seed={seed!r} must be'):
    disco_rl.Trainer('catch', RULE, seed=seed)


class Both(gymnasium.Env):
  """Observations of all spaces; accepts its own actions alone."""

  action_space = gymnasium.spaces.Discrete(3, start=5)
  observation_space = gymnasium.spaces.Dict(
    {
      'cell': gymnasium.spaces.Discrete(4, start=1),
      'rest': gymnasium.spaces.Tuple(
        (
          gymnasium.spaces.MultiDiscrete([2, 3]),
          gymnasium.spaces.MultiBinary(2),
          gymnasium.spaces.Box(0, 1, (2,), np.float64),
        )
      ),
    }
  )

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    super().reset(seed=seed, options=options)
    self.observation_space.seed(0)
    return self.observation_space.sample(), {}

  def step(self, action: Any) -> Any:
    assert self.action_space.contains(action), action
    return self.observation_space.sample(), 1.0, False, False, {}


def test_a_trainer_acts_in_its_environment() -> None:
  env = Both()
  with disco_rl.Trainer(Both, RULE, **small.AGENT) as trainer:
    observation, _ = env.reset()
    actions = set()
    for _ in range(10):
      action = trainer.act(observation)
      actions.add(action)
      observation, *_ = env.step(np.int64(action))
    assert actions == {5, 6, 7}
    batch = jax.tree.map(lambda *x: np.stack(x), observation, observation)
    assert trainer.act(batch).shape == (2,)
    with pytest.raises(ValueError, match='observation has the structure'):
      trainer.act({'cell': 1})
    with pytest.raises(ValueError, match='observation 9, outside of its space'):
      trainer.act({**observation, 'cell': 9})


def test_a_closed_trainer_does_not_train() -> None:
  with disco_rl.Trainer(Bandit, RULE, **small.AGENT) as trainer:
    assert repr(trainer) == '<Trainer: Bandit ActorCritic, 0 steps>'
  assert repr(trainer) == '<Trainer: Bandit ActorCritic, 0 steps, closed>'
  with pytest.raises(RuntimeError, match='trainer is closed: make a new one'):
    trainer.train(1)
  trainer.close()


T, B, A = 3, 2, 4
SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((2,), jnp.float32), num_actions=A
)


def rollout() -> types.Rollout:
  """An environment as a user may make one, with NumPy."""
  generator = np.random.default_rng(0)
  return disco_rl.Rollout(
    observation=generator.normal(size=(T + 1, B, 2)),
    action=generator.integers(A, size=(T + 1, B)),
    logits=np.zeros((T + 1, B, A)),
    reward=generator.normal(size=(T, B)),
    is_terminal=np.zeros((T, B), bool),
    mask=np.ones((T, B), bool),
  )


NETWORK = small.network(SPEC, RULE.output_spec(A))


def test_single_updates_equal_those_of_the_learner() -> None:
  learner = disco_rl.Learner(NETWORK, SPEC, RULE, learning_rate=0.01)
  states, logs = [learner.init(jax.random.key(0))], []
  for is_first in (True, False):
    with mock.patch.object(checks, 'check_outputs') as check:
      state, log = learner.update(states[-1], rollout())
    assert check.called == is_first
    states.append(state)
    logs.append(log)
  optimizer = optimizers.agent_optimizer(0.01, max_gradient_norm=0.5)
  rule = learner._rule.rule  # With the settings that the card recommends.
  want = functools.partial(learner_lib.update, NETWORK, rule, optimizer)

  # Within a program of the user's own, too.
  @jax.jit
  def wanted(state: Any) -> Any:
    batch = jax.tree.map(jnp.asarray, rollout())
    return want({}, state, batch), learner.update(state, rollout())

  for before, after, log in zip(states, states[1:], logs):
    (state, update), inner = wanted(before)
    for result in ((state, dict(update.logs)), inner):
      jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-2, atol=1e-4),
        (after, dict(log)),
        result,
      )


def test_steps_of_other_optimizers() -> None:
  default = disco_rl.Learner(NETWORK, SPEC, RULE, learning_rate=0.01)
  state = default.init(jax.random.key(0))
  gradient, rule_state, logs = default.gradient(state, rollout())
  after, after_logs = default.update(state, rollout())
  # The first step of Adam is the gradient's sign.
  moved = lambda rate, like: jax.tree.map(
    lambda x, g: x - rate * like(g), state.params, gradient
  )
  close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6)
  sign = lambda g: g / (np.abs(g) + 1e-8)
  jax.tree.map(close, after.params, moved(0.01, sign))
  jax.tree.map(close, after.rule_state, rule_state)
  assert set(after_logs) - set(logs) == {'gradient_norm', 'update_norm'}

  sgd = disco_rl.Learner(NETWORK, SPEC, RULE, optimizer=optax.sgd(0.5))
  after, _ = sgd.update(sgd.init(jax.random.key(0)), rollout())
  jax.tree.map(close, after.params, moved(0.5, lambda g: g))
  with pytest.raises(
    ValueError, match="learning_rate=0.1 is for the package's"
  ):
    disco_rl.Learner(
      NETWORK, SPEC, RULE, optimizer=optax.sgd(0.5), learning_rate=0.1
    )


@pytest.mark.parametrize(
  ('name', 'value', 'message'),
  [
    ('reward', np.zeros(3), r'reward has shape \(3,\), expected \[T, B\]'),
    ('reward', np.zeros((0, 2)), r'reward has shape \(0, 2\)'),
    ('reward', np.zeros((T, B), int), 'reward is of type int64, .* floating'),
    ('action', np.zeros((T, B), int), r'action .*\(3, 2\), expected \(4, 2\)'),
    ('action', np.zeros((T + 1, B)), 'action is of type float64, .* integer'),
    ('logits', np.zeros((4, 2, 5)), r'\(4, 2, 5\), expected \(4, 2, 4\)'),
    ('mask', np.zeros((T, B)), 'mask is of type float64, expected bool'),
    ('reward', np.full((T, B), np.nan), r'reward\[0, 0\] is nan, .* a finite'),
    ('reward', jnp.zeros((T, B)).at[2, 1].set(jnp.inf), r'\[2, 1\] is inf'),
    ('action', np.full((T + 1, B), A), r'action\[0, 0\] is 4, expected 0 to 3'),
    ('action', np.full((T + 1, B), -1), 'is -1, expected 0 to 3, .* 4 actions'),
    ('is_terminal', np.zeros((T, 1), bool), r'terminal .* expected \(3, 2\)'),
    (
      'observation',
      np.zeros((4, 2, 3)),
      r'observation .* expected \(4, 2, 2\)',
    ),
    ('observation', (np.zeros(1),), 'observation has the structure'),
    ('observation', np.zeros((4, 2, 2), int), 'int32, expected float32'),
    ('core_state', {'x': np.zeros((2, 3))}, r"\['x'\] .* \[1, 2, ...\]"),
  ],
)
def test_rollouts_of_wrong_shape_are_named(
  name: str, value: Any, message: str
) -> None:
  wrong = dataclasses.replace(rollout(), **{name: value})
  learner = disco_rl.Learner(NETWORK, SPEC, RULE)
  with pytest.raises(ValueError, match=f'rollout.*{message}'):
    learner.update(None, wrong)


@pytest.mark.parametrize(
  ('unroll', 'message'),
  [
    (lambda *_: {}, 'must return two mappings, .* got dict'),
    (lambda *_: ({}, {}), "no 'logits' among all outputs .* There are none"),
    (
      lambda *_: ({'logits': jnp.zeros((T, B, A))}, {}),
      r"'logits' among all outputs .* \(3, 2, 4\), expected \(4, 2, 4\)",
    ),
    (
      lambda *args: (NETWORK.unroll(*args)[0], {}),
      "no 'logits' among outputs of the taken",
    ),
  ],
)
def test_networks_of_wrong_outputs_are_named(
  unroll: Callable[..., Any], message: str
) -> None:
  network = dataclasses.replace(NETWORK, unroll=unroll)
  learner = disco_rl.Learner(network, SPEC, RULE)
  state = jax.eval_shape(learner.init, jax.random.key(0))
  with pytest.raises(ValueError, match=message):
    learner.update(state, rollout())


# Rules of one's own.


def make_rule(**methods: Any) -> Any:
  """Actor-critic with other methods."""
  return type('MyRule', (own_rule.LambdaActorCritic,), methods)()


def change(method: str, i: int, function: Callable[[Any], Any]) -> Any:
  """Actor-critic with a change of the i-th result of a method."""
  original = getattr(own_rule.LambdaActorCritic, method)

  def changed(*args: Any) -> Any:
    results = list(original(*args))
    results[i] = function(results[i])
    return tuple(results)

  return make_rule(**{method: changed})


def test_a_rule_object_is_learned_from() -> None:
  rule = make_rule()
  assert disco_rl.load_rule(rule) == rules.LoadedRule(rule, {})
  trainer = disco_rl.Trainer('catch/4x3', rule, **small.AGENT)
  assert np.isfinite(trainer.train(1)['value_loss']).all()
  network = small.network(SPEC, rule.output_spec(A))
  learner = disco_rl.Learner(network, SPEC, rule)
  _, logs = learner.update(learner.init(jax.random.key(0)), rollout())
  assert np.isfinite(logs['value_loss'])


def test_parameters_of_a_rule_object() -> None:
  initial = {'m': {'w': jnp.zeros(2)}}
  rule = make_rule(init_params=lambda *_: initial)
  loaded = disco_rl.load_rule(rule, {'m': {'w': np.ones(2, np.float32)}})
  disco_rl.Learner(NETWORK, SPEC, loaded)
  for params in (None, {'m': {'w': np.ones(3, np.float32)}}):
    with pytest.raises(ValueError, match='not match the tree of MyRule.init'):
      disco_rl.load_rule(rule, params)
  with pytest.raises(ValueError, match=r"it lacks params\['[a-z_]*/"):
    disco_rl.Trainer('catch/4x3', disco.Disco(), **small.AGENT)
  with pytest.raises(ValueError, match='not match the tree of MyRule.init'):
    disco_rl.load_rule(rules.LoadedRule(rule, {}))
  flat: Any = {'m/w': np.ones(2, np.float32)}
  with pytest.raises(ValueError, match=r"lacks params\['m'\]\['w'\]\. Pass"):
    disco_rl.load_rule(rule, flat)


@pytest.mark.parametrize(
  ('rule', 'message'),
  [
    (make_rule(output_spec=lambda *_: {'v': 1}), 'output_spec returned .*v'),
    (
      make_rule(output_spec=lambda *_: types.OutputSpec({}, {})),
      "targets reads 'v', .* has the outputs logits",
    ),
    (make_rule(targets=lambda *_: ()), r'targets returned \(\), .* tuple of 3'),
    (
      make_rule(loss=lambda *_: 0.0),
      'loss returned 0.0, expected a tuple of 2',
    ),
    (
      change('targets', 0, lambda x: dataclasses.replace(x, value=x.value[0])),
      r'targets: target.value has shape \(3,\), expected \[T, B\] = \[5, 3\]',
    ),
    (
      change('targets', 1, lambda _: jnp.zeros(2)),
      'trees of MyRule.init_state and MyRule.targets differ',
    ),
    (
      change('targets', 2, lambda _: {'value': jnp.zeros(3)}),
      r"targets: log\['value'\] has shape \(3,\), expected \[T, B\]",
    ),
    (change('loss', 0, lambda x: x.T), r'loss: loss has shape \(3, 5\)'),
    (change('loss', 1, lambda _: {'x': jnp.zeros(3)}), r"loss: log\['x'\]"),
    (
      change('loss', 1, lambda _: {'x': 'a'}),
      r"log\['x'\] is 'a', expected num",
    ),
  ],
)
def test_methods_of_wrong_results_are_named(rule: Any, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    disco_rl.Trainer('catch/4x3', rule, **small.AGENT)
  with pytest.raises(ValueError, match=message):
    disco_rl.Learner(NETWORK, SPEC, rule)


@pytest.mark.parametrize('rule', [3, own_rule.LambdaActorCritic])
def test_what_is_no_rule_is_refused(rule: Any) -> None:
  with pytest.raises(TypeError, match='Expected a rule name, .*not a class'):
    disco_rl.load_rule(rule)


def test_64_bits_are_refused(trainer: disco_rl.Trainer) -> None:
  starts = (
    lambda: disco_rl.Trainer('catch/4x3', RULE, **small.AGENT),
    lambda: disco_rl.Learner(NETWORK, SPEC, RULE),
    lambda: trainer.train(1),
    lambda: runner.TrainingRun(training_config.TrainingConfig()),
  )
  with jax.enable_x64(True):
    for start in starts:
      with pytest.raises(ValueError, match='64 bits.*jax_enable_x64 .*turn it'):
        start()


@pytest.mark.parametrize(
  ('refusal', 'setting'),
  [
    (jax.numpy_rank_promotion('raise'), 'jax_numpy_rank_promotion is .raise.'),
    (jax.numpy_dtype_promotion('strict'), 'jax_numpy_dtype_promotion is'),
    (jax.transfer_guard('disallow'), 'jax_transfer_guard_host_to_device is'),
  ],
)
def test_settings_of_jax_that_stop_programs_are_named(
  refusal: contextlib.AbstractContextManager, setting: str
) -> None:
  with refusal, pytest.raises(ValueError, match=f'{setting}.*: turn it off'):
    disco_rl.Trainer('catch/4x3', RULE, **small.AGENT)


def test_settings_are_for_named_rules() -> None:
  with pytest.raises(TypeError, match='Settings .discount. are only for'):
    disco_rl.load_rule(make_rule(), discount=0.5)
  for rule in ('actor_critic', RULE):
    with pytest.raises(TypeError, match='Parameters are only for rule objects'):
      disco_rl.load_rule(rule, {})


@pytest.mark.parametrize('rule', [RULE.rule, disco.Disco()])
def test_heads_are_those_that_rules_require(rule: Any) -> None:
  spec = rule.output_spec(A)

  def unroll(x: types.Rollout) -> Any:
    return disco_rl.Heads(A, spec)(x.observation, x.action)

  transformed = hk.without_apply_rng(hk.transform(unroll))
  params = jax.eval_shape(transformed.init, jax.random.key(0), rollout())
  outputs = jax.eval_shape(transformed.apply, params, rollout())
  checks.check_outputs(outputs, spec, A, (T, B))
  assert set(outputs[0]) == {'logits', *spec.state, *spec.action}
  has_model = any('action_model' in module for module in params)
  assert has_model == bool(spec.action), 'parameters that nothing uses'
