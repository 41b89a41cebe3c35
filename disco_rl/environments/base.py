"""The two interfaces of environments: on the device, and on the host."""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types


class RenderError(ValueError):
  """Raised if an environment cannot be rendered; the message is one line."""


class AnyEnvironment:
  """The base of both interfaces: the speed of films, and conversions."""

  frames_per_second = 5.0

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Converts observations of a wrapped environment to those of the spec.

    Args:
      observation: An observation of the environment that this one wraps, or [B,
        ...]; it may have been converted already.
    """
    return observation

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Converts actions [B] or [], counted from 0, to those of a wrapped one.

    Returns:
      [B] or []; [B, n] or [n] if an action consists of n numbers.
    """
    return action

  def close(self) -> None:
    """Frees the resources; JAX-native environments have none."""


class JaxEnvironment(AnyEnvironment, abc.ABC):
  """One environment as pure functions; callers vmap, jit and scan it.

  `step` tells how episodes end: by a termination, which agents should foresee,
  or by a time limit, which they do not observe. `step_autoreset` also resets
  the environment if an episode ends.

  An environment is itself a pytree (`types.record`). Fields in which tasks of
  equal shapes differ are arrays, so that tasks can be stacked and vmapped over;
  fields that determine shapes or code are static.
  """

  @property
  @abc.abstractmethod
  def spec(self) -> types.EnvironmentSpec:
    """The observations and actions of one environment."""

  @abc.abstractmethod
  def reset(self, key: types.Array) -> tuple[types.PyTree, types.PyTree]:
    """Begins an episode.

    Returns:
      The environment's state, a tree of arrays, and the first observation.
    """

  @abc.abstractmethod
  def step(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Takes one action; undefined after the end of an episode.

    Args:
      state: The environment's state, which is not changed.
      action: [] int32.
      key: PRNG key.

    Returns:
      The next state and the outcome.
    """

  def step_autoreset(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Takes one action, and resets in the same step if the episode ends.

    The observation is then the first of the next episode; see
    `mark_time_limit` for time limits.
    """
    step_key, reset_key = jax.random.split(key)
    del key
    stepped, timestep = self.step(state, action, step_key)
    fresh, first_observation = self.reset(reset_key)
    state, observation = jax.tree.map(
      lambda new, old: jnp.where(timestep.is_last, new, old),
      (fresh, first_observation),
      (stepped, timestep.observation),
    )
    return state, mark_time_limit(timestep, observation)

  def render(self, state: types.PyTree) -> np.ndarray:
    """Draws a state; called on the host, never within a compiled program.

    Args:
      state: The environment's state, without batch axes.

    Returns:
      [H, W, 3] uint8; small pictures are scaled up when they are shown.

    Raises:
      RenderError: The environment cannot be rendered.
    """
    del state
    raise RenderError(f'There are no pictures of {type(self).__name__}.')

  def reset_batch(
    self, key: types.Array, num_environments: int
  ) -> tuple[types.PyTree, types.PyTree]:
    """Begins an episode in each of the E environments of an agent.

    Returns:
      The state, without an axis E in shared parts, and the first observations,
      [E, ...].
    """
    return jax.vmap(self.reset)(jax.random.split(key, num_environments))

  def step_batch(
    self, state: types.PyTree, action: types.Array, keys: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Runs `step_autoreset` in each of the E environments of an agent.

    Args:
      state: The state from `reset_batch`.
      action: [E] int32.
      keys: [E] PRNG keys.

    Returns:
      The next state and the outcomes [E, ...].
    """
    return jax.vmap(self.step_autoreset)(state, action, keys)


def mark_time_limit(
  timestep: types.TimeStep, first_observation: types.PyTree
) -> types.TimeStep:
  """Converts the outcome of a step in which the environment also resets.

  The last observation of the episode is not shown, so nothing can be learned
  from a step that ended by a time limit: it is masked, and the step before it
  bootstraps from the value of the observation between the two. An environment
  that resets in a separate step has equally many masked steps.

  Args:
    timestep: The outcome of the step.
    first_observation: The first observation of the next episode if this one
      ended, otherwise that of the timestep.

  Returns:
    The outcome with this observation.
  """
  is_cut_short = timestep.is_last & ~timestep.is_terminal
  return dataclasses.replace(
    timestep,
    observation=first_observation,
    is_terminal=timestep.is_last,
    mask=timestep.mask & ~is_cut_short,
  )


class HostEnvironment(AnyEnvironment, abc.ABC):
  """A batch of environments that step together on the host, in NumPy.

  It must not write into arrays that it has returned, which callers read until
  the end of a rollout.

  Attributes:
    spec: The spec of one environment.
    num_environments: B, the leading axis of actions and outcomes.
  """

  spec: types.EnvironmentSpec
  num_environments: int
  _action: Any = None

  @abc.abstractmethod
  def reset(self) -> types.PyTree:
    """Begins an episode in every environment; returns observations [B, ...]."""

  @abc.abstractmethod
  def step(self, action: np.ndarray) -> types.TimeStep:
    """Takes one action in every environment, resetting those that ended.

    Args:
      action: [B] int32 NumPy array.

    Returns:
      Outcomes as NumPy arrays with leading axis B.
    """

  def save_state(self) -> types.PyTree | None:
    """Returns the whole state for checkpoints, if it can be saved.

    Returns:
      A tree of NumPy arrays with constant shapes, including random numbers;
      None, the default, if the environment cannot be saved.
    """
    return None

  def restore_state(self, state: types.PyTree) -> None:
    """Restores what `save_state` of an equal environment returned."""
    raise NotImplementedError(f'{type(self).__name__} cannot be restored.')

  def render(self) -> np.ndarray:
    """Draws the current state of the first environment of the batch.

    Returns:
      [H, W, 3] uint8; small pictures are scaled up when they are shown.

    Raises:
      RenderError: The environment cannot be rendered, or was made without
        `can_render`.
    """
    raise RenderError(f'There are no pictures of {type(self).__name__}.')

  def screen(self) -> str:
    """Returns the first environment as text; '' if it has no text.

    Raises:
      RenderError: It was made without `can_render`.
    """
    return ''

  def start(self, action: np.ndarray) -> None:
    """Starts a step, which `finish` ends, so that several can run in parallel.

    By default the environment steps in `finish`, without a separate thread.
    """
    self._action = action

  def finish(self) -> types.TimeStep:
    """Ends the step that `start` began; returns the result of `step`."""
    return self.step(self._action)

  @abc.abstractmethod
  def close(self) -> None:
    """Frees the resources of the environments, which are then unusable."""
