"""Atari games that render the whole screen, in colour."""

import numpy as np

from disco_rl import types
from disco_rl.environments import base


class ScreenEnvironment(base.HostEnvironment):
  """Plays a game twice in parallel: for the agent, and for the viewer.

  The vector environment scales frames in its own threads, and returns no
  others. Emulators are deterministic given their seeds, including sticky
  actions: the second game, with whole frames, is the same as the first.
  """

  def __init__(
    self, environment: base.HostEnvironment, screen: base.HostEnvironment
  ):
    """Wraps two batches, which only this object uses from now on.

    Args:
      environment: The batch that the agent sees.
      screen: A batch with the same size, seed and settings, but whole frames.
    """
    self.spec = environment.spec
    self.num_environments = environment.num_environments
    self.frames_per_second = screen.frames_per_second
    self._environment = environment
    self._screen = screen

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`."""
    self._screen.reset()
    return self._environment.reset()

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`."""
    self._screen.step(action)
    return self._environment.step(action)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._screen.render()

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    self._screen.close()
    self._environment.close()
