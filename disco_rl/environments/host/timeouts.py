"""Time limits for the steps of host environments."""

from collections.abc import Callable
import functools
import math
import queue
import threading
import time
from typing import Any
import weakref

import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import wrapper

# For a batch; many times the duration in the slowest suite.
STEP_SECONDS = 300.0
# Clocks continue while a job is suspended: at most one wait of this length then
# counts toward the limit.
_WAIT_SECONDS = 1.0
# Python's message about signal handlers.
_MAIN_ONLY = 'signal only works in main thread'

# The number of a call, and the function; None: no more calls.
_Call = tuple[int, Callable[[], object]] | None
# The number of a call, and its result or exception.
_Answer = tuple[int, object, BaseException | None]


class WatchedEnvironment(wrapper.Wrapper):
  """Makes and uses an environment in a thread, with a time limit for steps.

  Windows, databases and event loops belong to the thread that made them. If a
  simulator hangs while it holds Python's interpreter lock, the whole process
  hangs.
  """

  def __init__(
    self,
    make: Callable[[], base.HostEnvironment],
    name: str,
    seed: int,
    step_seconds: float = STEP_SECONDS,
  ):
    """Makes an environment.

    Args:
      make: Makes the environment, without a time limit.
      name: The name for messages.
      seed: The seed for messages.
      step_seconds: The time limit of a step, a reset or a saved state.

    Raises:
      Exception: `make` raised it.
    """
    self._name = name
    self._seed = seed
    self._step_seconds = step_seconds
    self._num_steps = 0
    self._num_calls = 0
    # The number of the newest call that was answered, and when the one after it
    # was begun, by the clock of the machine.
    self._num_answered = 0
    self._begun_at = time.monotonic()
    self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
    self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    # A daemon: a simulator that hangs must not keep the process alive.
    threading.Thread(
      target=_serve,
      args=(self._calls, self._answers),
      name=name,
      daemon=True,
    ).start()
    # Notebooks make many environments that nobody closes.
    weakref.finalize(self, self._calls.put, None)
    self._begin(make)
    super().__init__(self._answer(math.inf))

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`.

    Raises:
      adapters.HostEnvironmentError: It took too long, or an environment raised.
    """
    return self._call(self._environment.reset)

  def start(self, action: np.ndarray) -> None:
    """Implements `HostEnvironment.start`; the thread begins to step."""
    self._num_steps += 1
    self._begin(functools.partial(self._environment.step, action))

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`.

    Raises:
      adapters.HostEnvironmentError: It took too long, or an environment raised.
    """
    return self._answer(self._step_seconds)

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`, with the limit of a step."""
    return self._call(self._environment.save_state)

  def restore_state(self, state: types.PyTree) -> None:
    """Implements `HostEnvironment.restore_state`, without a time limit."""
    self._begin(functools.partial(self._environment.restore_state, state))
    # It may repeat the actions of whole episodes.
    self._answer(math.inf)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._call(self._environment.render)

  def screen(self) -> str:
    """Implements `HostEnvironment.screen`."""
    return self._call(self._environment.screen)

  def close(self) -> None:
    """Implements `HostEnvironment.close`; does not wait again after a hang."""
    if self._hangs():
      self._calls.put(None)
      return
    with adapters.closing(self._name):
      self._call(self._environment.close)
    self._calls.put(None)

  def _call(self, function: Callable[[], object]) -> Any:
    self._begin(function)
    return self._answer(self._step_seconds)

  def _hangs(self) -> bool:
    """Returns whether a call was not answered within the time limit."""
    return (
      self._num_answered < self._num_calls
      and self._answers.empty()
      and time.monotonic() - self._begun_at >= self._step_seconds
    )

  def _begin(self, function: Callable[[], object]) -> None:
    if self._num_answered == self._num_calls:
      self._begun_at = time.monotonic()
    self._num_calls += 1
    self._calls.put((self._num_calls, function))

  def _answer(self, limit: float) -> Any:
    """Returns the result of the newest call; drops those of earlier calls."""
    number, left = 0, limit
    while number < self._num_calls:
      wait = min(left, _WAIT_SECONDS)
      try:
        number, result, error = self._answers.get(timeout=wait)
        self._num_answered = number
      except queue.Empty:
        left -= wait
      if left <= 0:
        raise adapters.HostEnvironmentError(
          f'{self._name} with seed {self._seed} hangs: step {self._num_steps} '
          f'since it was made took more than {self._step_seconds:g} seconds.'
        )
    if error is None:
      return result
    if _MAIN_ONLY in f'{error!r}':
      raise adapters.HostEnvironmentError(
        f'{self._name} with seed {self._seed}: {error!r}. Environments made '
        'by name run in a separate thread: pass a function that makes this one '
        'to Trainer, or remove its signal handlers.'
      ) from error
    raise error


def _serve(
  calls: 'queue.SimpleQueue[_Call]', answers: 'queue.SimpleQueue[_Answer]'
) -> None:
  """Makes calls until it receives None."""
  while (call := calls.get()) is not None:
    number, function = call
    try:
      answers.put((number, function(), None))
    except BaseException as error:  # Raised again by the caller.
      answers.put((number, None, error))
