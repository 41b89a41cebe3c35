"""Frame stacking for host environments."""

import dataclasses

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import wrapper


def stack(
  environment: base.HostEnvironment, num_frames: int, is_image: bool = False
) -> base.HostEnvironment:
  """Makes a `FrameStack`; returns the environment for a single frame."""
  if num_frames == 1:
    return environment
  return FrameStack(environment, num_frames, is_image)


class FrameStack(wrapper.Wrapper):
  """Stacks the last S observations (frames), the newest last.

  Images [B, H, W, C] become [B, H, W, S * C], and frames before the first one
  of an episode are black. In other observations each leaf [B, ...] becomes [B,
  ..., S], and the first frame of an episode is repeated for those before it,
  because zeros would have a meaning, such as a map full of glyph 0.

  The environments must mask the transition that begins an episode, as
  `adapters.Adapter` does in the mode "next step".
  """

  def __init__(
    self,
    environment: base.HostEnvironment,
    num_frames: int,
    is_image: bool = False,
  ):
    """Wraps environments, to stack S = `num_frames` observations."""
    super().__init__(environment)
    self._is_image = is_image
    self.spec = stacked_spec(environment.spec, num_frames, is_image)
    self._stack = self._blank()

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`; returns the stacks."""
    frame = self._environment.reset()
    self._stack = self._blank()
    return self._push(frame, np.ones(self.num_environments, bool))

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`; the observation is the stacks."""
    timestep = self._environment.finish()
    return dataclasses.replace(
      timestep, observation=self._push(timestep.observation, ~timestep.mask)
    )

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`, with the stacks."""
    state = self._environment.save_state()
    return None if state is None else {'frames': state, 'stack': self._stack}

  def restore_state(self, state: types.PyTree) -> None:
    """Implements `HostEnvironment.restore_state`."""
    self._environment.restore_state(state['frames'])
    self._stack = jax.tree.map(np.array, state['stack'])

  def _blank(self) -> types.PyTree:
    return jax.tree.map(
      lambda x: np.zeros((self.num_environments, *x.shape), x.dtype),
      self.spec.observation,
    )

  def _push(
    self, frame: types.PyTree, is_first: np.ndarray | types.Array
  ) -> types.PyTree:
    """Adds frames; `is_first` [B] marks the first ones of episodes."""

    def next_stack(old: np.ndarray, frame: np.ndarray) -> np.ndarray:
      if self._is_image:
        new = push(old, frame)
        new[is_first, ..., : -frame.shape[-1]] = 0
      else:
        new = push(old, frame[..., None])
        new[is_first] = frame[is_first][..., None]
      return new

    self._stack = jax.tree.map(next_stack, self._stack, frame)
    return self._stack


def stacked_spec(
  spec: types.EnvironmentSpec, num_frames: int, is_image: bool = False
) -> types.EnvironmentSpec:
  """Computes the spec of `stack` from the spec of single frames."""
  if num_frames == 1:
    return spec

  def stacked(frame: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    *shape, channels = frame.shape if is_image else (*frame.shape, 1)
    return jax.ShapeDtypeStruct((*shape, num_frames * channels), frame.dtype)

  return dataclasses.replace(
    spec,
    observation=jax.tree.map(stacked, spec.observation),
    frame_stack=num_frames,
  )


def push(stack: np.ndarray, frame: np.ndarray) -> np.ndarray:
  """Adds the newest frame to a stack, and drops the oldest.

  Args:
    stack: The stack, [..., S * C], contiguous, with S frames of C channels, the
      newest last.
    frame: The newest frame, [..., C].

  Returns:
    [..., S * C], a new array.
  """
  channels = frame.shape[-1]
  pushed = np.empty_like(stack)
  # One shift of all bytes and a loop over channels are several times faster
  # than many short copies. The shift moves other pixels into the channels of
  # the newest frame, which the loop overwrites.
  pushed.reshape(-1)[:-channels] = stack.reshape(-1)[channels:]
  for channel in range(-channels, 0):
    pushed[..., channel] = frame[..., channel]
  return pushed
