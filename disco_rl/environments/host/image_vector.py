"""Vector environments of images, as the adapters of simulators build them."""

import contextlib
import math
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import frame_stack


class ImageVectorEnvironment(base.HostEnvironment):
  """Stacks the frames of a vector environment of the Gymnasium API.

  Observations are [H, W, S * C] uint8, the last S frames of C channels, the
  newest last; they are black before the first frame of an episode.

  The vector environment must reset in the next step. Transitions are then those
  of `GymnasiumEnvironment` in that mode: the one after the last of an episode
  is masked, and truncation is not termination.
  """

  def __init__(
    self,
    env: Any,
    name: str,
    seed: int,
    frame_shape: tuple[int, int, int],
    frame_stack: int,
    reset_seeds: np.ndarray | None = None,
    max_abs_reward: float = math.inf,
  ):
    """Takes over a vector environment.

    Args:
      env: is used by this object alone from now on. Its frames are new arrays
        at every step, of any shape that reshapes to `frame_shape`.
      name: for messages.
      seed: of the batch, for messages.
      frame_shape: (H, W, C).
      frame_stack: S.
      reset_seeds: [B] int32, for the first reset; later ones continue the
        random streams. None: the environment was seeded when it was made.
      max_abs_reward: to which rewards are clipped.
    """
    self._env = env
    self._name = name
    self._seed = seed
    self._reset_seeds = reset_seeds
    self._max_abs_reward = max_abs_reward
    self._num_steps = 0
    self.num_environments = env.num_envs
    height, width, self._channels = frame_shape
    self.spec = types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct(
        (height, width, frame_stack * self._channels), np.uint8
      ),
      num_actions=int(env.single_action_space.n),
    )
    self._stack = np.zeros(
      (self.num_environments, *self.spec.observation.shape), np.uint8
    )
    self._is_resetting = np.zeros(self.num_environments, bool)

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`; returns [B, H, W, S * C] uint8.

    Raises:
      RuntimeError: if an environment raised.
    """
    with self._located_errors():
      frame, _ = self._env.reset(seed=self._reset_seeds)
    self._reset_seeds = None
    self._is_resetting = np.zeros(self.num_environments, bool)
    return self._push(frame, is_first=np.ones_like(self._is_resetting))

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`.

    Raises:
      RuntimeError: if an environment raised, or an action is out of range.
    """
    self._num_steps += 1
    with self._located_errors():
      frame, reward, terminated, truncated, _ = self._env.step(
        adapters.in_range(action, self.spec.num_actions)
      )
    is_dummy = self._is_resetting
    self._is_resetting = np.logical_or(terminated, truncated)
    reward = np.clip(reward, -self._max_abs_reward, self._max_abs_reward)
    outcome: dict[str, Any] = {
      'reward': np.where(is_dummy, 0.0, reward).astype(np.float32),
      'is_terminal': np.logical_or(terminated, is_dummy),
      'is_last': self._is_resetting,
      'mask': ~is_dummy,
    }
    return types.TimeStep(observation=self._push(frame, is_dummy), **outcome)

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    self._env.close()
    # Some simulators end their threads only when they are collected.
    del self._env

  def _push(self, frame: Any, is_first: np.ndarray) -> np.ndarray:
    """Adds the newest frames.

    Args:
      frame: [B, ...].
      is_first: [B] bool, where the frames before it are blanked.

    Returns:
      [B, H, W, S * C], a new array.
    """
    frame = np.reshape(frame, (*self._stack.shape[:-1], self._channels))
    if frame.shape == self._stack.shape:  # A stack of one.
      return frame
    stack = frame_stack.push(self._stack, frame)
    stack[is_first, ..., : -self._channels] = 0
    self._stack = stack
    return stack

  def _located_errors(self) -> contextlib.AbstractContextManager[None]:
    return adapters.located_errors(self._name, self._seed, self._num_steps)
