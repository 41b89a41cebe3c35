"""Tests of the time limit of steps of host environments."""

import gc
import os
import queue
import signal
import sys
import threading
from typing import Any
from unittest import mock

import jax
import launching
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import families
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import joined
from disco_rl.environments.host import timeouts


class Counter(base.HostEnvironment):
  """Observes its number of steps; hangs or raises at a given step."""

  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((), np.float32), 2)
  num_environments = 3

  def __init__(self, hangs_at: int = -1, raises_at: int = -1):
    self._hangs_at = hangs_at
    self._raises_at = raises_at
    self.steps = 0

  def reset(self) -> types.PyTree:
    return np.zeros(3, np.float32)

  def step(self, action: Any) -> types.TimeStep:
    self.steps += 1
    if self.steps == self._hangs_at:
      threading.Event().wait()
    if self.steps == self._raises_at:
      raise ValueError('out of levels')
    false = np.zeros(3, bool)
    return types.TimeStep(
      observation=np.full(3, self.steps, np.float32),
      reward=np.asarray(action, np.float32),
      is_terminal=false,
      is_last=false,
      mask=~false,
    )

  def close(self) -> None:
    self.steps = -1


def test_a_watched_environment_behaves_as_the_original() -> None:
  environment = timeouts.WatchedEnvironment(Counter, 'counter', seed=4)
  assert environment.spec == Counter.spec
  assert environment.num_environments == 3
  np.testing.assert_array_equal(environment.reset(), np.zeros(3))
  for step in (1, 2):
    timestep = environment.step(np.array([0, 1, 1]))
    np.testing.assert_array_equal(timestep.observation, [step] * 3)
    np.testing.assert_array_equal(timestep.reward, [0, 1, 1])
  assert environment.steps == 2
  environment.close()
  assert environment.steps == -1


class Meeting(Counter):
  """Steps once all others wait at the barrier."""

  def __init__(self, barrier: threading.Barrier):
    super().__init__()
    self._barrier = barrier

  def step(self, action: Any) -> types.TimeStep:
    self._barrier.wait(timeout=60)
    return super().step(action)


def test_joined_environments_step_in_parallel() -> None:
  barrier = threading.Barrier(3)
  environment = joined.JoinedEnvironment(
    [
      timeouts.WatchedEnvironment(lambda: Meeting(barrier), 'a', i)
      for i in range(2)
    ]
  )
  environment.start(np.arange(6))
  barrier.wait(timeout=60)  # They step before `finish` is called.
  timestep = environment.finish()
  np.testing.assert_array_equal(timestep.reward, np.arange(6))
  environment.close()


def test_an_environment_that_hangs_is_named() -> None:
  environment = timeouts.WatchedEnvironment(
    lambda: Counter(hangs_at=2), 'counter', seed=4, step_seconds=0.2
  )
  action = np.zeros(3, np.int32)
  environment.step(action)
  with pytest.raises(
    adapters.HostEnvironmentError,
    match='counter with seed 4 hangs: step 2 .* 0.2',
  ):
    environment.step(action)


@pytest.mark.parametrize('number', [1, 3])
def test_closing_does_not_wait_for_what_hangs(number: int) -> None:
  """It would wait for the limit again, and warn; all began at the same time."""
  counters = [Counter(hangs_at=1) for _ in range(number)]
  environment = joined.JoinedEnvironment(
    [
      timeouts.WatchedEnvironment(lambda x=x: x, 'counter', 4, 0.3)
      for x in counters
    ]
  )
  with pytest.raises(adapters.HostEnvironmentError, match='hangs'):
    environment.step(np.zeros(3 * number, np.int32))
  environment.close()
  assert [x.steps for x in counters] == [1] * number


def test_an_environment_that_was_idle_for_long_is_closed() -> None:
  counter = Counter()
  environment = timeouts.WatchedEnvironment(lambda: counter, 'counter', seed=4)
  environment.step(np.zeros(3, np.int32))
  late = mock.Mock(monotonic=lambda: environment._begun_at + 10**6)
  with mock.patch.object(timeouts, 'time', late):
    environment.close()
  assert counter.steps == -1


def test_the_time_of_a_stopped_process_does_not_count() -> None:
  environment = timeouts.WatchedEnvironment(
    Counter, 'counter', seed=4, step_seconds=20
  )
  answers, waits = environment._answers, []

  def get(timeout: float) -> Any:
    # As if the process were stopped for hours, as soon as it waits.
    waits.append(timeout)
    if len(waits) <= 3:
      raise queue.Empty
    return answers.get(timeout=timeout)

  environment._answers = mock.Mock(get=get)
  timestep = environment.step(np.ones(3, np.int32))
  np.testing.assert_array_equal(timestep.observation, 1)
  assert len(waits) == 4


class Late(Counter):
  """Its first step ends once it may."""

  def __init__(self) -> None:
    super().__init__()
    self.may_end = threading.Event()

  def step(self, action: Any) -> types.TimeStep:
    self.may_end.wait(timeout=60)
    return super().step(action)


def test_the_answer_of_a_late_call_is_not_that_of_the_next() -> None:
  late = Late()
  environment = timeouts.WatchedEnvironment(
    lambda: late, 'late', 4, step_seconds=1
  )
  with pytest.raises(adapters.HostEnvironmentError, match='step 1'):
    environment.step(np.zeros(3, np.int32))
  late.may_end.set()
  timestep = environment.step(np.ones(3, np.int32))
  np.testing.assert_array_equal(timestep.observation, 2)
  np.testing.assert_array_equal(timestep.reward, 1)
  np.testing.assert_array_equal(environment.reset(), 0)


def test_exceptions_are_raised_again() -> None:
  environment = timeouts.WatchedEnvironment(
    lambda: Counter(raises_at=1), 'counter', seed=4
  )
  with pytest.raises(ValueError, match='out of levels'):
    environment.step(np.zeros(3, np.int32))


def test_an_environment_that_hangs_does_not_keep_the_process_alive() -> None:
  program = (
    'import numpy as np, timeouts_test as t;'
    'make = lambda: t.Counter(hangs_at=1);'
    't.timeouts.WatchedEnvironment(make, "counter", 0, 0.2)'
    '.step(np.zeros(3, np.int32))'
  )
  path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
  ended = launching.run_python('-c', program, PYTHONPATH=path)
  assert ended.returncode == 1
  assert 'counter with seed 0 hangs' in ended.stderr


class Bound(Counter):
  """Records the threads that make, step, save, restore and close it."""

  def __init__(self, used_by: list[int]) -> None:
    super().__init__()
    self._used_by = used_by
    used_by.append(threading.get_ident())

  def step(self, action: Any) -> types.TimeStep:
    self._used_by.append(threading.get_ident())
    return super().step(action)

  def save_state(self) -> types.PyTree:
    self._used_by.append(threading.get_ident())
    return np.asarray(self.steps)

  def restore_state(self, state: types.PyTree) -> None:
    self._used_by.append(threading.get_ident())
    self.steps = int(state)

  def close(self) -> None:
    self._used_by.append(threading.get_ident())
    raise OSError('the window is gone')


def test_one_thread_makes_and_uses_an_environment() -> None:
  used_by: list[int] = []
  with mock.patch.dict(families.FAMILIES):
    for _ in range(2):  # A cell of a notebook may be run again.
      registry.register('bound', lambda *_: Bound(used_by), 'host')
    environment = registry.make('bound', 3, seed=0)
  environment.step(np.zeros(3, np.int32))
  assert environment.save_state() == 1
  environment.restore_state(np.asarray(5))
  timestep = environment.step(np.zeros(3, np.int32))
  np.testing.assert_array_equal(timestep.observation, 6)
  with pytest.warns(UserWarning, match='bound raised when it was closed'):
    environment.close()
  assert used_by == used_by[:1] * 6
  assert used_by[0] != threading.get_ident()


class Slow(Counter):
  """Takes half a second to restore, and forever to save."""

  def save_state(self) -> types.PyTree:
    threading.Event().wait()

  def restore_state(self, state: types.PyTree) -> None:
    threading.Event().wait(timeout=0.5)
    self.steps = state


def test_saving_has_the_limit_of_a_step_and_restoring_none() -> None:
  environment = timeouts.WatchedEnvironment(
    Slow, 'slow', seed=4, step_seconds=0.2
  )
  environment.restore_state(7)
  assert environment.steps == 7
  with pytest.raises(adapters.HostEnvironmentError, match='slow .* hangs'):
    environment.save_state()


def test_an_environment_that_nobody_closes_takes_no_thread() -> None:
  environment = timeouts.WatchedEnvironment(Counter, 'nobody', seed=4)
  environment.step(np.zeros(3, np.int32))
  (thread,) = [x for x in threading.enumerate() if x.name == 'nobody']
  del environment
  gc.collect()
  thread.join(timeout=60)
  assert not thread.is_alive()


def test_what_only_the_main_thread_may_do_has_a_remedy() -> None:
  def make() -> Counter:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return Counter()

  with pytest.raises(
    adapters.HostEnvironmentError, match='counter .*main thread.*a function'
  ):
    timeouts.WatchedEnvironment(make, 'counter', seed=4)


def test_the_registry_limits_the_time_of_host_environments() -> None:
  environment = registry.make('gymnasium/CartPole-v1', 2, seed=0)
  assert isinstance(environment, timeouts.WatchedEnvironment)
  environment.close()
