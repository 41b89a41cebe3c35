"""Tests of the adapter of Gymnasium."""

from collections.abc import Iterator
import contextlib
import multiprocessing
import os
import re
import signal
import sys
import types
from typing import Any
from typing import NoReturn
from unittest import mock

import conformance
import gymnasium
from gymnasium import spaces
import jax
import numpy as np
import pytest

import disco_rl
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments import wrapping
from disco_rl.environments.host import adapters
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import gymnasium_spaces
from disco_rl.update_rules import actor_critic

SAME_STEP = gymnasium.vector.AutoresetMode.SAME_STEP
DISABLED = gymnasium.vector.AutoresetMode.DISABLED
PROBE = 'DiscoTest/Probe-v0'


class Probe(gymnasium.Env):
  """Observes the step and rewards the action; truncated after three steps."""

  action_space = spaces.Discrete(3, start=5)
  observation_space = spaces.Dict(
    {
      'count': spaces.Discrete(4, start=-1),
      'image': spaces.Box(0, 254, (2, 3), np.uint8),
      'noise': spaces.Tuple((spaces.Box(0.0, 1.0, (2,), np.float64),)),
    }
  )

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
    return self._observe(), float(action), False, self._count == 3, {}


@pytest.fixture(autouse=True)
def _registered_probe() -> Iterator[None]:
  gymnasium.register(PROBE, entry_point=Probe)
  yield
  del gymnasium.registry[PROBE]


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


def test_next_step_mode() -> None:
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
  # The last observation of an episode is returned, then the first of the next.
  fell = np.abs(observation[1:, :, 2]) > np.deg2rad(12)
  np.testing.assert_array_equal(fell, timestep.is_last)
  assert _is_cart_pole_start(observation[1:][~timestep.mask]).all()


@pytest.mark.parametrize('mode', [SAME_STEP, DISABLED])
def test_same_step_mode(mode: Any) -> None:
  trajectory = conformance.check(
    lambda seed: _environments('CartPole-v1', 96, seed, autoreset_mode=mode), 60
  )
  timestep, observation = trajectory.timestep, trajectory.observation
  assert np.all(timestep.mask)
  np.testing.assert_array_equal(timestep.reward, 1)
  np.testing.assert_array_equal(timestep.is_terminal, timestep.is_last)
  assert _is_cart_pole_start(observation[1:][timestep.is_last]).all()


def test_truncation_is_not_termination() -> None:
  trajectory = conformance.check(lambda seed: _environments(PROBE, 96, seed), 8)
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


def test_truncated_steps_are_masked_where_the_last_observation_is_lost() -> (
  None
):
  trajectory = conformance.check(
    lambda seed: _environments(PROBE, 96, seed, autoreset_mode=SAME_STEP), 6
  )
  timestep, count = trajectory.timestep, trajectory.observation['count']
  np.testing.assert_array_equal(count[:, 0].argmax(-1), [0, 1, 2] * 2 + [0])
  conformance.check_mark_of_time_limit(timestep, 3)


def test_steps_that_reset_are_not_rewarded_by_wrappers() -> None:
  env = gymnasium.wrappers.vector.TransformReward(
    gymnasium.make_vec(PROBE, 2, vectorization_mode='sync'), lambda r: r + 1
  )
  environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=0)
  environment.reset()
  rewards = [environment.step(np.zeros(2, np.int32)).reward for _ in range(5)]
  np.testing.assert_array_equal(np.stack(rewards)[:, 0], [6, 6, 6, 0, 6])


def test_observation_spaces_become_trees_of_arrays() -> None:
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


def test_the_seed_is_used_in_the_first_reset_alone() -> None:
  """Otherwise each episode of an environment begins in the same way."""
  env = gymnasium.make_vec('CartPole-v1', 96, vectorization_mode='sync')
  environments = (
    _environments('CartPole-v1', 96, seed=3),
    registry.make('gymnasium/CartPole-v1', 96, seed=3),
  )
  for seed in (adapters.sub_seeds(3, 96).tolist(), None):
    want, _ = env.reset(seed=seed)
    for environment in environments:
      assert isinstance(environment, base.HostEnvironment)
      np.testing.assert_array_equal(environment.reset(), want)


def test_vector_environments_of_one_seed_get_one() -> None:
  env = gymnasium.make_vec(
    'CartPole-v1', 4, vectorization_mode='vector_entry_point'
  )
  assert not isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv)
  want, _ = env.reset(seed=int(adapters.sub_seeds(3, 4)[0]))
  environment = gymnasium_adapter.GymnasiumEnvironment(env, seed=3)
  np.testing.assert_array_equal(environment.reset(), want)


def test_a_factory_of_the_users_own() -> None:
  trajectory = conformance.check(
    lambda seed: wrapping.recognize(Probe).build(4, seed), 8, 4
  )
  np.testing.assert_array_equal(
    trajectory.timestep.is_last[:, 0], [0, 0, 1, 0] * 2
  )
  environment: Any = wrapping.recognize(Probe).build(4, 5)
  noise = environment.reset()['noise'][0]
  np.testing.assert_array_equal(
    noise, _environments(PROBE, 4, 5).reset()['noise'][0]
  )


class Dials(Probe):
  """Rewards the two numbers of an action, as the digits of a number."""

  action_space = spaces.MultiDiscrete([2, 3], start=[0, 1])

  def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    assert self.action_space.contains(action)
    outcome = super().step(0)
    return outcome[0], float(action @ [10, 1]), *outcome[2:]


def test_combinations_of_numbers_are_actions() -> None:
  single: Any = wrapping.recognize(Dials).build(6, 0)
  vector = gymnasium_adapter.GymnasiumEnvironment(
    gymnasium.vector.SyncVectorEnv([Dials] * 6), seed=0
  )
  for environment in (single, vector):
    assert environment.spec.num_actions == 6
    environment.reset()
    reward = environment.step(np.arange(6, dtype=np.int32)).reward
    np.testing.assert_array_equal(reward, [1, 2, 3, 11, 12, 13])
  rule = actor_critic.ActorCritic(num_bins=3)
  trainer = disco_rl.Trainer(Dials, rule, hidden_sizes=(4,))
  assert Dials.action_space.contains(trainer.act(Dials().reset()[0]))
  assert trainer.evaluate(2, max_steps=6).lengths.tolist() == [3, 3]


def test_too_many_combinations_are_refused(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  space = spaces.MultiDiscrete([11, 10, 10])
  monkeypatch.setattr(Probe, 'action_space', space)
  with pytest.raises(ValueError, match='1,100 combinations.*ActionWrapper'):
    _environments(PROBE, 2, seed=0)


@pytest.mark.parametrize('vectorization', ['async', 'vector_entry_point'])
def test_registered_environments_can_step_as_one(vectorization: str) -> None:
  environment: Any = registry.make(
    'gymnasium/CartPole-v1',
    2,
    seed=3,
    preprocessing={'gymnasium': {'vectorization': vectorization}},
  )
  with contextlib.closing(environment):
    observation = environment.reset()
    timestep = environment.step(np.zeros(2, np.int32))
  assert observation.shape == (2, 4)
  assert _is_cart_pole_start(observation).all()
  # Pushed to the left.
  assert (timestep.observation[:, 1] < observation[:, 1] - 0.1).all()


def test_what_raises_when_it_is_closed_loses_nothing(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  close = mock.Mock(side_effect=OSError('no window'))
  monkeypatch.setattr(Probe, 'close', close)
  vector = gymnasium.make_vec(PROBE, 2, vectorization_mode='sync')
  for environment in (
    gymnasium_adapter.GymnasiumEnvironment(vector, seed=0),
    gymnasium_adapter.SingleEnvironments([Probe(), Probe()], seed=0),
  ):
    close.reset_mock()
    with pytest.warns(UserWarning, match='when it was closed: OSError'):
      environment.close()
    assert close.called
  assert close.call_count == 2


@pytest.mark.parametrize(
  ('space', 'message'),
  [
    (spaces.Discrete(10**6 + 1), r'Discrete\(1000001\): at most 1,000,000'),
    (spaces.MultiDiscrete([10**6, 1]), 'at most 1,000,000 values'),
    (spaces.Dict({1: spaces.Box(0, 1), 'a': spaces.Box(0, 1)}), 'of one type'),
  ],
)
def test_spaces_that_cannot_be_are_named(space: Any, message: str) -> None:
  with pytest.raises(ValueError, match=f'mine.*{message}'):
    gymnasium_spaces.make(space, spaces.Discrete(2), 'mine')
  if isinstance(space, spaces.Discrete):
    with pytest.raises(ValueError, match=f'action space {message}'):
      gymnasium_spaces.make(spaces.Box(0, 1), space, 'mine')


def test_unsupported_observations_are_located(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  space = spaces.Dict({'mission': spaces.Tuple((spaces.Text(3),))})
  monkeypatch.setattr(Probe, 'observation_space', space)
  with pytest.raises(
    ValueError, match=re.escape(f"{PROBE}['mission'][0]") + '.*Text.*only Box'
  ):
    _environments(PROBE, 2, seed=0)


@pytest.mark.parametrize('metadata', [{}, None])
def test_environments_that_hide_how_they_reset_are_refused(
  metadata: Any,
) -> None:
  env = gymnasium.make_vec(PROBE, 2, vectorization_mode='sync')
  env.metadata = metadata
  with pytest.raises(ValueError, match='None, which does not say how'):
    gymnasium_adapter.GymnasiumEnvironment(env, seed=0)


def test_single_environments_need_no_metadata() -> None:
  env: Any = Probe()
  env.metadata = None
  environment = gymnasium_adapter.SingleEnvironments([env], seed=0)
  assert environment.frames_per_second == 30.0


def test_nothing_is_built_by_validation(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  build = mock.Mock(side_effect=AssertionError('built'))
  monkeypatch.setattr(Probe, '__init__', build)
  registry.validate(f'gymnasium/{PROBE}')
  with pytest.raises(adapters.HostEnvironmentError, match=f'{PROBE}.*built'):
    registry.make(f'gymnasium/{PROBE}', num_environments=1, seed=0)


def leave(*_: Any, **__: Any) -> NoReturn:
  sys.exit(0)


class Odd(BaseException):
  """Neither an `Exception` nor one of Python's own reasons to end."""


@pytest.mark.parametrize('error', [KeyboardInterrupt, Odd])
def test_environments_that_end_programs_are_errors(
  monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
  environment = registry.make(f'gymnasium/{PROBE}', num_environments=1, seed=3)
  environment.reset()
  monkeypatch.setattr(Probe, 'step', mock.Mock(side_effect=error))
  with pytest.raises(
    adapters.HostEnvironmentError,
    match=f'{PROBE} with seed 3 raised at step 1 .*{error.__name__}',
  ):
    environment.step(np.zeros(1, np.int32))
  environment.close()


@pytest.mark.parametrize('is_recorded', [False, True])
def test_interrupts_by_the_user_are_no_errors_of_environments(
  is_recorded: bool,
) -> None:
  """Unless they are recorded: then only an environment can raise them."""
  expected = adapters.HostEnvironmentError if is_recorded else KeyboardInterrupt
  handler = signal.SIG_DFL if is_recorded else signal.default_int_handler
  former = signal.signal(signal.SIGINT, handler)
  with pytest.raises(expected), adapters.located_errors('x', 0, 0):
    raise KeyboardInterrupt
  signal.signal(signal.SIGINT, former)


def test_environments_that_leave_are_errors(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """A run would end without a word, as if it had been successful."""
  name = f'gymnasium/{PROBE}'
  with monkeypatch.context() as patch:
    patch.setattr(Probe, '__init__', leave)
    with pytest.raises(ValueError, match=f'{name} .*sys.exit.0. while it was'):
      registry.make(name, num_environments=1, seed=0)
  monkeypatch.setattr(Probe, 'step', leave)
  environment = registry.make(name, num_environments=1, seed=3)
  environment.reset()
  with pytest.raises(
    adapters.HostEnvironmentError, match=f'{PROBE} with seed 3 .*SystemExit'
  ):
    environment.step(np.zeros(1, np.int32))
  environment.close()


def test_a_module_is_imported_only_if_the_user_names_it(
  tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Names may be from the file of a stranger, and importing runs code."""
  module = tmp_path / 'registers_a_probe.py'
  module.write_text(
    'import gymnasium\n'
    "gymnasium.register('DiscoTest/Module-v0', entry_point='none:None')\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  name = 'gymnasium/registers_a_probe:DiscoTest/Module-v0'
  for find in (registry.validate, lambda x: registry.make(x, 1, 0)):
    with pytest.raises(ValueError, match='--import=registers_a_probe'):
      find(name)
  assert 'registers_a_probe' not in sys.modules
  assert registry.import_module(name) == 'registers_a_probe'
  registry.validate(name)
  assert 'DiscoTest/Module-v0' in gymnasium.registry
  del gymnasium.registry['DiscoTest/Module-v0']
  del sys.modules['registers_a_probe']


class Odd(Probe):
  """Its attributes are unusual."""

  def __str__(self) -> str:
    raise AttributeError('_count')


@pytest.mark.parametrize(
  ('metadata', 'pace'),
  [
    (['rgb_array'], None),
    (None, None),
    ({'render_fps': 'fast'}, "'fast'"),
    ({'render_fps': -1}, '-1'),
    ({'render_modes': None, 'render_fps': float('nan')}, 'nan'),
  ],
)
def test_odd_metadata_does_not_end_training(
  metadata: Any, pace: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(Odd, 'metadata', metadata)
  with contextlib.ExitStack() as stack:
    if pace is not None:
      message = f"Odd has metadata.'render_fps'. = {pace}, expected a positive"
      stack.enter_context(pytest.warns(UserWarning, match=message))
    environment: Any = wrapping.recognize(Odd).build(2, 0)
  assert environment.frames_per_second == 30
  environment.reset()
  with pytest.raises(base.RenderError, match='Odd .* without render_mode'):
    environment.render()


@pytest.mark.parametrize('name', ['observation_space', 'action_space'])
def test_spaces_that_are_missing_are_named(
  name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.delattr(Probe, name)
  with pytest.raises(TypeError, match=f'Odd has no {name}'):
    wrapping.recognize(Odd).build(2, 0)


def test_functions_of_gymnasium_that_need_an_id_are_refused() -> None:
  for function in (gymnasium.make, gymnasium.make_vec):
    with pytest.raises(TypeError, match=r"the id .* gymnasium.make\('ID'"):
      wrapping.recognize(function).build(2, 0)

  def of_level(level: int) -> gymnasium.Env:
    raise LookupError(level)

  with pytest.raises(LookupError) as caught:
    wrapping.recognize(of_level).build(2, 0)
  assert "'level' has no default" in caught.value.__notes__[0]


WRAPPERS = gymnasium.wrappers


@pytest.mark.parametrize(
  ('wrap', 'name'),
  [
    (WRAPPERS.NormalizeObservation, 'NormalizeObservation'),
    (WRAPPERS.NormalizeReward, 'NormalizeReward'),
    (
      lambda env: WRAPPERS.TimeLimit(WRAPPERS.NormalizeObservation(env), 9),
      'NormalizeObservation',
    ),
    (lambda env: WRAPPERS.ClipReward(env, -1, 1), ''),
  ],
)
def test_running_statistics_are_warned_of(
  wrap: Any, name: str, recwarn: pytest.WarningsRecorder
) -> None:
  make = lambda: wrap(gymnasium.make('CartPole-v1'))
  vector = gymnasium.vector.SyncVectorEnv([make])
  for env in (make, vector):
    recwarn.clear()
    wrapping.recognize(env).build(1, 0)
    warned = [str(x.message) for x in recwarn]
    message = f'{name} of .* keeps running statistics'
    assert [bool(re.search(message, x)) for x in warned] == [True] * bool(name)


def test_a_process_that_died_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
  vector: Any = gymnasium.make_vec('CartPole-v1', 2, vectorization_mode='sync')
  environment = gymnasium_adapter.GymnasiumEnvironment(vector, 0)
  pipes = [os.pipe() for _ in range(2)]
  os.close(pipes[1][1])  # The second process has ended.
  vector.processes = [
    types.SimpleNamespace(sentinel=reads, exitcode=code)
    for (reads, _), code in zip(pipes, (None, -9))
  ]
  message = r'the process of environment 1 \(exit code -9\) of 2 died'
  for error in (EOFError(), BrokenPipeError(), ConnectionResetError()):
    monkeypatch.setattr(vector, 'reset', mock.Mock(side_effect=error))
    with pytest.raises(adapters.HostEnvironmentError, match=message):
      environment.reset()
  for number in (*pipes[0], pipes[1][0]):
    os.close(number)


def test_scripts_without_a_guard_are_named(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  settings = gymnasium_adapter.Preprocessing(vectorization='async')
  failing = mock.Mock(side_effect=ConnectionResetError())
  monkeypatch.setattr(gymnasium, 'make_vec', failing)
  with pytest.raises(
    adapters.HostEnvironmentError, match="of `if __name__ == '__main__':`"
  ):
    gymnasium_adapter.make('CartPole-v1', 2, 0, settings)
  # The processes that import the script say nothing.
  process = multiprocessing.current_process()
  monkeypatch.setattr(process, '_inheriting', True, raising=False)
  monkeypatch.setattr(os, '_exit', mock.Mock(side_effect=SystemExit))
  with pytest.raises(SystemExit):
    gymnasium_adapter.make('CartPole-v1', 2, 0, settings)
