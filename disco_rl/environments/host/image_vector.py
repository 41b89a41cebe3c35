"""Vector environments of images, such as those of ALE and EnvPool."""

import math
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments.host import adapters


class ImageVectorEnvironment(adapters.Adapter):
  """A vector environment of the Gymnasium API that resets in the next step.

  Observations are single frames, [H, W, C] uint8.
  """

  frames_per_second = 15.0

  def __init__(
    self,
    env: Any,
    name: str,
    seed: int,
    frame_shape: tuple[int, int, int],
    max_abs_reward: float = math.inf,
    actions: np.ndarray | None = None,
  ):
    """Wraps a vector environment.

    Args:
      env: The vector environment, which only this object uses from now on. Its
        frames are new arrays in every step, in any shape that reshapes to
        `frame_shape`.
      name: The name for messages.
      seed: The seed of the batch, with which the environment was made.
      frame_shape: (H, W, C).
      max_abs_reward: The bound to which rewards are clipped.
      actions: The environment's action for each of the agents' actions; None:
        they are the same.
    """
    self._env = env
    self._max_abs_reward = max_abs_reward
    own = int(env.single_action_space.n)
    self._actions = np.arange(own) if actions is None else actions
    spec = types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct(frame_shape, np.uint8),
      num_actions=len(self._actions),
    )
    super().__init__(name, seed, spec, env.num_envs)
    self._frames = np.zeros((env.num_envs, *frame_shape), np.uint8)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    self._env.close()
    # Some simulators only end their threads when they are garbage collected.
    del self._env

  def render(self) -> np.ndarray:
    """Returns the frame that the agent sees."""
    return np.broadcast_to(self._frames[0], (*self._frames.shape[1:3], 3))

  def _reset(self) -> np.ndarray:
    frame, _ = self._env.reset()
    return self._reshaped(frame)

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    frame, reward, is_terminated, is_truncated, _ = self._env.step(
      self._actions[action].astype(action.dtype)
    )
    reward = np.clip(reward, -self._max_abs_reward, self._max_abs_reward)
    return self._reshaped(frame), reward, is_terminated, is_truncated

  def _reshaped(self, frame: np.ndarray) -> np.ndarray:
    shape = self.num_environments, *self.spec.observation.shape
    self._frames = np.reshape(frame, shape)
    return self._frames
