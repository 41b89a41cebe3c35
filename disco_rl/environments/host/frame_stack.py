"""Several frames at once, for environments on the host."""

import dataclasses
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base


class FrameStack(base.HostEnvironment):
  """Shows the last S observations of environments, or frames, as one.

  Each leaf [B, ...] of the observation becomes [B, ..., S], of the same type,
  the newest frame last. The first frame of an episode stands in for those
  before it: blank ones would mean something, such as a map full of glyph 0.

  The environments must mask the transition that begins an episode, as
  `SequentialEnvironment` does.
  """

  def __init__(self, environment: base.HostEnvironment, num_frames: int):
    """Takes over environments.

    Args:
      environment: used by this object alone from now on.
      num_frames: S.
    """
    self._environment = environment
    self._num_frames = num_frames
    self._stack: types.PyTree = None
    self.num_environments = environment.num_environments
    self.spec = types.EnvironmentSpec(
      observation=jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*x.shape, num_frames), x.dtype),
        environment.spec.observation,
      ),
      num_actions=environment.spec.num_actions,
    )

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`; returns the stacks."""
    self._stack = jax.tree.map(
      lambda frame: np.repeat(frame[..., None], self._num_frames, axis=-1),
      self._environment.reset(),
    )
    return self._stack

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`; the observation is that of the class."""
    timestep = self._environment.step(action)
    is_first = ~timestep.mask

    def next_stack(stack: np.ndarray, frame: np.ndarray) -> np.ndarray:
      frame = frame[..., None]
      stack = push(stack, frame)
      stack[is_first] = frame[is_first]
      return stack

    self._stack = jax.tree.map(next_stack, self._stack, timestep.observation)
    return dataclasses.replace(timestep, observation=self._stack)

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    self._environment.close()


def push(stack: np.ndarray, frame: np.ndarray) -> np.ndarray:
  """Adds the newest frame to a stack, which loses the oldest.

  Args:
    stack: [..., S * C], contiguous, S frames of C channels, the newest last.
    frame: [..., C].

  Returns:
    [..., S * C], a new array.
  """
  channels = frame.shape[-1]
  pushed = np.empty_like(stack)
  # One shift of all bytes, and a loop over channels, are several times faster
  # than many short copies. Into the channels of the newest frame the shift
  # carries other pixels, which the loop overwrites.
  pushed.reshape(-1)[:-channels] = stack.reshape(-1)[channels:]
  for channel in range(-channels, 0):
    pushed[..., channel] = frame[..., channel]
  return pushed
