"""A host environment whose steps may take only so long."""

from collections.abc import Callable
import queue
import threading
from typing import Any

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters

# Of a batch: many times what the slowest suite takes.
STEP_SECONDS = 300.0

# A result, or what was raised in its place.
_Answer = tuple[Any, BaseException | None]


class WatchedEnvironment(base.HostEnvironment):
  """Steps an environment in a thread of its own, and does not wait for ever.

  A simulator that hangs while it holds Python's interpreter lock cannot be
  watched: then the whole process hangs.
  """

  def __init__(
    self,
    environment: base.HostEnvironment,
    name: str,
    seed: int,
    step_seconds: float = STEP_SECONDS,
  ):
    """Takes over an environment.

    Args:
      environment: used by this object alone from now on.
      name: for messages.
      seed: for messages.
      step_seconds: that a step or a reset may take.
    """
    self.spec = environment.spec
    self.num_environments = environment.num_environments
    self._environment = environment
    self._name = name
    self._seed = seed
    self._step_seconds = step_seconds
    self._num_steps = 0
    self._calls: queue.SimpleQueue[Callable[[], Any] | None] = (
      queue.SimpleQueue()
    )
    self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    # A daemon: a simulator that hangs must not keep the program from ending.
    threading.Thread(
      target=_serve, args=(self._calls, self._answers), daemon=True
    ).start()

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`.

    Raises:
      adapters.HostEnvironmentError: it took too long, or an environment raised.
    """
    return self._call(self._environment.reset)

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`.

    Raises:
      adapters.HostEnvironmentError: it took too long, or an environment raised.
    """
    self.start(action)
    return self.finish()

  def start(self, action: Any) -> None:
    """As `HostEnvironment.start`; steps meanwhile."""
    self._num_steps += 1
    self._calls.put(lambda: self._environment.step(action))

  def finish(self) -> types.TimeStep:
    """As `HostEnvironment.finish`; raises what `step` does."""
    return self._answer()

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    self._call(self._environment.close)
    self._calls.put(None)

  def __getattr__(self, name: str) -> Any:
    """What one suite alone has, such as statistics of its own."""
    return getattr(self._environment, name)

  def _call(self, function: Callable[[], Any]) -> Any:
    self._calls.put(function)
    return self._answer()

  def _answer(self) -> Any:
    try:
      result, error = self._answers.get(timeout=self._step_seconds)
    except queue.Empty:
      raise adapters.HostEnvironmentError(
        f'{self._name} with seed {self._seed} hangs: step {self._num_steps} '
        f'since it was made took more than {self._step_seconds:g} seconds.'
      ) from None
    if error is not None:
      raise error
    return result


def _serve(
  calls: 'queue.SimpleQueue[Callable[[], Any] | None]',
  answers: 'queue.SimpleQueue[_Answer]',
) -> None:
  """Makes calls until there are no more."""
  while (function := calls.get()) is not None:
    try:
      answers.put((function(), None))
    except BaseException as error:  # Raised again where it was called for.
      answers.put((None, error))
