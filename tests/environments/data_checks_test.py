"""What host environments return is checked before agents learn from it."""

import contextlib
import dataclasses
import decimal
import fractions
import re
import types as types_lib
from typing import Any
import warnings

import dm_env
from dm_env import specs
import gymnasium
from gymnasium import spaces
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import wrapping
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks

NUMBER, INDEX, STEP = 4, 2, 3
ACTIONS = np.zeros(NUMBER, np.int32)
OBSERVATION = {'x': np.zeros(2, np.float32), 'n': 1}


class Faulty(gymnasium.Env):
  """Returns what it is given at a step, 0 for a reset."""

  observation_space = spaces.Dict(
    {'x': spaces.Box(-9, 9, (2,)), 'n': spaces.Discrete(3)}
  )
  action_space = spaces.Discrete(2)

  def __init__(self, step: int = -1, **changes: Any):
    self._faulty, self._changes, self._num_steps = step, changes, 0

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    del seed, options
    self._num_steps = 0
    return self._outcome()['observation'], {}

  def step(self, action: Any) -> Any:
    del action
    self._num_steps += 1
    return (*self._outcome().values(), {})

  def _outcome(self) -> dict[str, Any]:
    outcome: dict[str, Any] = {
      'observation': OBSERVATION,
      'reward': 1.0,
      'terminated': False,
      'truncated': False,
    }
    if self._num_steps != self._faulty:
      return outcome
    if 'error' in self._changes:
      raise self._changes['error']
    return {**outcome, **self._changes}


def environments(step: int, **changes: Any) -> list[gymnasium.Env]:
  return [
    Faulty(step, **changes) if i == INDEX else Faulty() for i in range(NUMBER)
  ]


def play(environment: base.HostEnvironment, steps: int = STEP) -> None:
  environment.reset()
  for _ in range(steps):
    environment.step(ACTIONS)


FAULTS: list[tuple[dict[str, Any], str]] = [
  ({'reward': np.nan}, 'returned the reward nan, expected a finite number'),
  ({'reward': -np.inf}, 'the reward -inf'),
  ({'reward': 1e300}, 'the reward 1e[+]300'),
  ({'reward': decimal.Decimal('NaN')}, r"the reward Decimal\('NaN'\)"),
  ({'reward': 10**400}, 'the reward 1000'),
  ({'reward': None}, 'the reward None'),
  ({'reward': '1.0'}, "the reward '1.0'"),
  ({'reward': [1.0, 2.0]}, r'the reward \[1.0, 2.0\]'),
  ({'reward': np.ones(1)}, r'the reward array\(\[1.\]\)'),
  ({'terminated': None}, 'the terminated None'),
  ({'truncated': np.nan}, 'the truncated nan'),
  (
    {'observation': {**OBSERVATION, 'x': np.array([0.0, np.nan])}},
    r"NaN or infinity in its observation\['x'\]",
  ),
  (
    {'observation': {**OBSERVATION, 'x': np.array([0.0, -1e20])}},
    r"returned -1e[+]20 in its observation\['x'\], whose square",
  ),
  (
    {'observation': {**OBSERVATION, 'x': np.array([1764336001.5, 0])}},
    'holds 1764336001.5, which float32 rounds to 1764336000.0',
  ),
  (
    {'observation': {**OBSERVATION, 'x': np.zeros(3)}},
    r"2 of 4: observation\['x'\] is .*\[3\], .* float32\[2\]",
  ),
  ({'observation': {**OBSERVATION, 'x': None}}, r"\['x'\] is object\[\]"),
  ({'observation': {**OBSERVATION, 'n': 'one'}}, r"\['n'\] .* int32\[\]"),
  ({'observation': {**OBSERVATION, 'n': 7}}, 'the observation 7, outside of'),
  ({'observation': {'x': OBSERVATION['x']}}, "lacks 'n'"),
  ({'observation': None}, 'lacks '),
  ({'error': ZeroDivisionError('x / 0')}, r"ZeroDivisionError\('x / 0'\)"),
]


@pytest.mark.parametrize(('changes', 'message'), FAULTS)
def test_the_environment_index_and_step_are_named(
  changes: dict[str, Any], message: str
) -> None:
  make = iter(environments(STEP, **changes)).__next__
  environment = wrapping.recognize(make).build(NUMBER, 5)
  play(environment, STEP - 1)
  with pytest.raises(adapters.HostEnvironmentError, match=message) as caught:
    environment.step(ACTIONS)
  error = str(caught.value)
  assert 'Faulty' in error
  assert 'seed 5' in error
  assert f'environment {INDEX}' in error
  assert f'at step {STEP} ' in error
  assert 'learning rate' not in error


def test_resets_are_checked() -> None:
  changes = {'observation': {**OBSERVATION, 'x': np.array([0.0, np.inf])}}
  make = iter(environments(0, **changes)).__next__
  environment = wrapping.recognize(make).build(NUMBER, 5)
  with pytest.raises(
    adapters.HostEnvironmentError, match='environment 2 of 4 .*NaN or infinity'
  ):
    environment.reset()


def test_rewards_are_whatever_float_takes() -> None:
  rewards = (fractions.Fraction(1, 2), decimal.Decimal('0.25'), True, 2)
  make = iter([Faulty(1, reward=reward) for reward in rewards]).__next__
  environment = wrapping.recognize(make).build(NUMBER, 5)
  environment.reset()
  rewards = environment.step(ACTIONS).reward
  np.testing.assert_array_equal(rewards, [0.5, 0.25, 1, 2])


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'reward': np.float16(np.inf)}, 'returned the reward .*inf'),
    ({'observation': np.float16([0, np.inf])}, 'NaN or infinity in its obs'),
  ],
)
def test_numbers_of_16_bits_are_checked(
  changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  space = spaces.Box(-9, 9, (2,), np.float16)
  monkeypatch.setattr(Faulty, 'observation_space', space)
  monkeypatch.setitem(globals(), 'OBSERVATION', np.zeros(2, np.float16))
  fine = {'reward': np.float16(6e4)}
  make = iter([Faulty(2, **{**fine, **changes})]).__next__
  environment = wrapping.recognize(make).build(1, 0)
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    environment.reset()
    environment.step(ACTIONS[:1])
    with pytest.raises(adapters.HostEnvironmentError, match=message):
      environment.step(ACTIONS[:1])


@pytest.mark.parametrize(
  ('dtype', 'number'), [(np.int64, 2**31), (np.uint64, 2**40 + 7)]
)
def test_no_integer_is_cut_to_32_bits(
  dtype: Any, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
  space = spaces.Box(0, 2**62, (2,), dtype)
  monkeypatch.setattr(Faulty, 'observation_space', space)
  for is_vector in (False, True):
    for value in (number - 2**31 + 1, number):
      env = Faulty(STEP, observation=np.array([value, 1], dtype))
      monkeypatch.setitem(globals(), 'OBSERVATION', np.zeros(2, dtype))
      whole = gymnasium.vector.SyncVectorEnv([lambda e=env: e])
      host: Any = wrapping.recognize(whole if is_vector else env).build(1, 0)
      host.reset()
      for _ in range(STEP - 1):
        host.step(np.zeros(1, np.int32))
      if value < 2**31:
        np.testing.assert_array_equal(
          host.step(np.zeros(1, np.int32)).observation, [[value, 1]]
        )
        continue
      message = f'holds {value}, which u?int32 cannot hold'
      with pytest.raises(adapters.HostEnvironmentError, match=message):
        host.step(np.zeros(1, np.int32))


class BoardsOfGymnax:
  """Observes a board of uint8 on the device."""

  default_params = ()

  def __init__(self, shape: tuple[int, ...], high: int):
    self._space = types_lib.SimpleNamespace(high=high)
    self._board = jnp.full(shape, high, jnp.uint8)

  def reset_env(self, key: Any, params: Any) -> Any:
    del key, params
    return self._board, ()

  step_env = None

  def action_space(self, params: Any) -> Any:
    del params
    return types_lib.SimpleNamespace(n=2)

  def observation_space(self, params: Any) -> Any:
    del params
    return self._space


@pytest.mark.parametrize(
  ('shape', 'high', 'dtype', 'is_warned'),
  [
    ((30, 40, 2), 1, np.float32, False),
    ((30, 40, 2), 127, np.float32, False),
    ((30, 40, 2), 255, np.uint8, False),
    ((4,), 1, np.uint8, False),
    ((7, 7, 3), 10, np.uint8, False),
    ((7, 7, 3), 255, np.uint8, True),
    ((128,), 255, np.uint8, True),
  ],
)
def test_bounds_and_shapes_tell_boards_from_pictures(
  shape: tuple[int, ...],
  high: int,
  dtype: Any,
  is_warned: bool,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """uint8 that networks should not scale is small, or becomes float32."""
  spec = jax.ShapeDtypeStruct(shape, dtype)
  board = np.full(shape, high, np.uint8)
  space = spaces.Box(0, high, shape, np.uint8)
  monkeypatch.setattr(Faulty, 'observation_space', space)
  monkeypatch.setattr(Faulty, '_outcome', lambda _: {'observation': board})
  monkeypatch.setattr(
    FaultyDmEnv,
    'observation_spec',
    lambda _: specs.BoundedArray(shape, np.uint8, 0, high),
  )
  monkeypatch.setattr(FaultyDmEnv, 'reset', lambda _: dm_env.restart(board))
  for env in (
    Faulty(),
    gymnasium.vector.SyncVectorEnv([Faulty]),
    FaultyDmEnv(),
  ):
    with warnings.catch_warnings(record=True) as caught:
      warnings.simplefilter('always')
      host: Any = wrapping.recognize(env).build(1, 0)
    assert ['unscaled' in str(x.message) for x in caught] == [True] * is_warned
    assert host.spec.observation == spec
    np.testing.assert_array_equal(host.reset(), board[None])
    np.testing.assert_array_equal(host.encode(board), board)
  device: Any = wrapping.recognize((BoardsOfGymnax(shape, high), ()))
  assert device.build(1, 0).spec.observation == spec


@pytest.mark.parametrize(
  ('number', 'is_refused'),
  [
    (1764336000.0, False),
    (1764336001.0, True),
    (-(2.0**24) - 1, True),
    (2.0**24 - 0.25, False),
    (1e10, False),
    (0.1, False),
  ],
)
def test_no_clock_stands_still(
  number: float, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Not even one that declares float32."""
  for dtype in (np.float64, np.float32):
    space = spaces.Box(-np.inf, np.inf, (2,), dtype)
    monkeypatch.setattr(Faulty, 'observation_space', space)
    monkeypatch.setitem(globals(), 'OBSERVATION', np.array([0, number]))
    host: Any = wrapping.recognize(Faulty()).build(1, 0)
    if not is_refused:
      np.testing.assert_array_equal(
        host.reset(), np.array([[0, number]], np.float32)
      )
      continue
    with pytest.raises(adapters.HostEnvironmentError, match='float32 rounds'):
      host.reset()
    with pytest.raises(ValueError, match='float32 rounds'):
      host.encode(np.array([0, number]))


@pytest.mark.parametrize(
  ('start', 'change', 'is_lost'),
  [
    (2460000.5, 1 / 1440, True),  # Minutes, in days since 4713 BC.
    (1e7, 0.1, False),  # It goes on, though not in each step.
    (490_093.0, 1 / 3600, True),  # Seconds, in hours since 1970.
    (0.0, 1e-9, False),
    (100.0, 1e-15, False),
    (1.0, 0.001, False),
    (5.0, 0.0, False),
  ],
)
def test_numbers_that_stand_still_are_warned_of(
  start: float,
  change: float,
  is_lost: bool,
  monkeypatch: pytest.MonkeyPatch,
  recwarn: pytest.WarningsRecorder,
) -> None:
  space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
  monkeypatch.setattr(Faulty, 'observation_space', space)
  host: Any = wrapping.recognize(Faulty).build(2, 0)
  for step in range(12):
    observation = np.array([step, start + change * step])
    monkeypatch.setitem(globals(), 'OBSERVATION', observation)
    host.step(np.zeros(2, np.int32)) if step else host.reset()
  warned = [str(x.message) for x in recwarn]
  message = 'observation holds a number that went on from .* always saw'
  assert [bool(re.search(message, x)) for x in warned] == [True] * is_lost


def test_the_interface_of_gym_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
  host = wrapping.recognize(Faulty()).build(1, 0)
  host.reset()
  monkeypatch.setattr(Faulty, 'step', lambda *_: (OBSERVATION, 1.0, False, {}))
  with pytest.raises(
    adapters.HostEnvironmentError, match='step returned 4 values, .* truncated'
  ):
    host.step(np.zeros(1, np.int32))
  for old in (np.zeros(2, np.float32), [0.0, 1.0], OBSERVATION):
    monkeypatch.setattr(Faulty, 'reset', lambda *_, x=old, **__: x)
    with pytest.raises(
      adapters.HostEnvironmentError, match=r'reset returned .*\(observation, in'
    ):
      wrapping.recognize(Faulty()).build(1, 0).reset()


@pytest.mark.parametrize('mask', [[False, True], False])
def test_masks_of_masked_arrays_are_not_seen(
  mask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
  observation = np.ma.masked_array([1.0, 2.0], mask)
  monkeypatch.setitem(globals(), 'OBSERVATION', {'x': observation, 'n': 1})
  host: Any = wrapping.recognize(Faulty()).build(1, 0)
  with contextlib.ExitStack() as stack:
    if mask:
      message = r"observation\['x'\] is a masked array"
      stack.enter_context(pytest.warns(UserWarning, match=message))
    np.testing.assert_array_equal(host.reset()['x'], [[1, 2]])


def test_vector_environments_are_checked() -> None:
  vector = gymnasium.vector.SyncVectorEnv(
    [lambda env=env: env for env in environments(STEP, reward=np.nan)]
  )
  with pytest.raises(adapters.HostEnvironmentError, match='2 of 4 .*nan'):
    play(wrapping.recognize(vector).build(NUMBER, 0))


class FaultyDmEnv(dm_env.Environment):
  """Its second reward is None."""

  def reset(self) -> dm_env.TimeStep:
    self._reward: Any = 1.0
    return dm_env.restart(np.zeros(2))

  def step(self, action: Any) -> dm_env.TimeStep:
    del action
    reward, self._reward = self._reward, None
    return dm_env.transition(reward, np.zeros(2))

  def observation_spec(self) -> Any:
    return specs.Array((2,), np.float64)

  def action_spec(self) -> Any:
    return specs.DiscreteArray(2)


def test_dm_env_is_checked() -> None:
  environment = wrapping.recognize(FaultyDmEnv()).build(1, 0)
  environment.reset()
  environment.step(ACTIONS[:1])
  with pytest.raises(
    adapters.HostEnvironmentError,
    match='FaultyDmEnv .* step 2 .* 0 of 1 returned the reward None',
  ):
    environment.step(ACTIONS[:1])


class Own(base.HostEnvironment):
  """A batch of a user's own, with a fault in the second step."""

  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((2,), np.float32), 2)
  num_environments = NUMBER

  def __init__(self, field: str, value: Any):
    self._fault, self._num_steps = {field: value}, 0

  def reset(self) -> Any:
    return np.zeros((NUMBER, 2), np.float32)

  def step(self, action: Any) -> types.TimeStep:
    del action
    self._num_steps += 1
    timestep = types.TimeStep(
      observation=self.reset(),
      reward=np.zeros(NUMBER, np.float32),
      is_terminal=np.zeros(NUMBER, bool),
      is_last=np.zeros(NUMBER, bool),
      mask=np.ones(NUMBER, bool),
    )
    fault = self._fault if self._num_steps == 2 else {}
    return dataclasses.replace(timestep, **fault)

  def close(self) -> None:
    pass


@pytest.mark.parametrize(
  ('field', 'value', 'message'),
  [
    ('reward', np.array([0, 0, np.nan, 0]), '2 of 4 returned the reward .*nan'),
    ('reward', np.zeros(3), r'reward is array.*, expected 4 numbers'),
    ('is_last', None, 'is_last is None, expected 4 numbers'),
    ('observation', np.zeros((4, 2)), r'is float64\[4, 2\], expected float32'),
    ('observation', np.zeros((4, 3), np.float32), r'\[4, 3\], expected .*4, 2'),
    ('observation', {'x': np.zeros((4, 2))}, 'has the structure'),
  ],
)
def test_host_environments_of_users_are_checked(
  field: str, value: Any, message: str
) -> None:
  environment = wrapping.recognize(Own(field, value)).build(NUMBER, 0)
  environment.reset()
  assert environment.step(ACTIONS).reward.tolist() == [0.0] * NUMBER
  with pytest.raises(adapters.HostEnvironmentError, match=message) as caught:
    environment.step(ACTIONS)
  assert 'Own with seed 0 raised at step 2' in str(caught.value)


@pytest.mark.parametrize(
  'values', [[1, 2], (True, False), np.zeros(2, np.uint8), [np.float64(3), 1]]
)
def test_all_kinds_of_numbers_pass(values: Any) -> None:
  found = data_checks.numbers('reward', values, 2)
  np.testing.assert_array_equal(found, np.array(values))
