"""The base class of host environments that wrap another one."""

from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.environments import base


class Wrapper(base.HostEnvironment):
  """A host environment like the wrapped one; subclasses change what differs.

  A step is always a `start` and a `finish`, which subclasses may change.
  """

  def __init__(self, environment: base.HostEnvironment):
    """Wraps an environment, which only this object uses from now on."""
    self._environment = environment
    self.spec = environment.spec
    self.num_environments = environment.num_environments
    self.frames_per_second = environment.frames_per_second

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`."""
    return self._environment.reset()

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`; raises the errors of `finish`."""
    self.start(action)
    return self.finish()

  def start(self, action: np.ndarray) -> None:
    """Implements `HostEnvironment.start`."""
    self._environment.start(action)

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`."""
    return self._environment.finish()

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`."""
    return self._environment.save_state()

  def restore_state(self, state: types.PyTree) -> None:
    """Implements `HostEnvironment.restore_state`; may take long."""
    self._environment.restore_state(state)

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `HostEnvironment.encode`."""
    return self._environment.encode(observation)

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Implements `HostEnvironment.decode`."""
    return self._environment.decode(action)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._environment.render()

  def screen(self) -> str:
    """Implements `HostEnvironment.screen`."""
    return self._environment.screen()

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    self._environment.close()

  def __getattr__(self, name: str) -> Any:
    """Returns other attributes of the environment, such as statistics.

    Raises:
      AttributeError: There is none, or the name begins with an underscore:
        copies are asked for such names before they have an environment.
    """
    if name.startswith('_'):
      raise AttributeError(name)
    return getattr(self._environment, name)
