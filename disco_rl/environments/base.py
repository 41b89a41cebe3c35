"""The two kinds of environment: on the device, and on the host."""

import abc
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types


class RenderError(ValueError):
  """An environment cannot be drawn; the message says why, in one line."""


class JaxEnvironment(abc.ABC):
  """One environment as pure functions; callers vmap, jit and scan it.

  `step` says how episodes end: a termination is one that agents are to foresee,
  a time limit that they do not observe is none. `step_autoreset` steps, and
  resets where an episode ends.

  An environment is itself a pytree (`types.record`). Fields in which tasks of
  equal shapes differ are arrays, so that tasks can be stacked and vmapped over;
  fields that determine shapes or code are static.
  """

  # The pace at which pictures of it are shown.
  frames_per_second = 5.0

  @property
  @abc.abstractmethod
  def spec(self) -> types.EnvironmentSpec:
    """Observations and actions of one environment."""

  def encode(self, observation: Any) -> types.PyTree:
    """Converts observations that others made of this environment to the spec's.

    Args:
      observation: An observation of the environment that this one wraps, or [B,
        ...]; also one that has been converted.
    """
    return observation

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Converts actions, which count from 0, to those of the one it wraps."""
    return action

  @abc.abstractmethod
  def reset(self, key: types.Array) -> tuple[Any, types.PyTree]:
    """Begins an episode.

    Args:
      key: PRNG key.

    Returns:
      The environment's state, a tree of arrays, and the first observation.
    """

  @abc.abstractmethod
  def step(
    self, state: Any, action: types.Array, key: types.Array
  ) -> tuple[Any, types.TimeStep]:
    """Takes one action; not defined after the end of an episode.

    Args:
      state: the environment's state.
      action: [] int32.
      key: PRNG key.

    Returns:
      The next state and the outcome.
    """

  def step_autoreset(
    self, state: Any, action: types.Array, key: types.Array
  ) -> tuple[Any, types.TimeStep]:
    """As `step`, but resets in the same step where the episode ends.

    The observation is then the first of the next episode; see `cut_short` for
    time limits.
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
    return state, cut_short(timestep, observation)

  def render(self, state: Any) -> np.ndarray:
    """Draws a state; called on the host, never within a compiled program.

    Args:
      state: the environment's state, arrays without further axes.

    Returns:
      [H, W, 3] uint8; small pictures are scaled up where they are shown.

    Raises:
      RenderError: there are no pictures of this environment.
    """
    del state
    raise RenderError(f'There are no pictures of {type(self).__name__}.')

  def reset_batch(
    self, key: types.Array, num_environments: int
  ) -> tuple[Any, types.PyTree]:
    """Begins an episode in each of the E environments of an agent.

    Args:
      key: PRNG key.
      num_environments: E.

    Returns:
      Their state; what they share has no axis E. First observations, [E, ...].
    """
    return jax.vmap(self.reset)(jax.random.split(key, num_environments))

  def step_batch(
    self, state: Any, action: types.Array, keys: types.Array
  ) -> tuple[Any, types.TimeStep]:
    """As `step_autoreset`, in each of the E environments of an agent.

    Args:
      state: The state from `reset_batch`.
      action: [E] int32.
      keys: [E] PRNG keys.

    Returns:
      The next state and the outcomes [E, ...].
    """
    return jax.vmap(self.step_autoreset)(state, action, keys)


def cut_short(
  timestep: types.TimeStep, first_observation: types.PyTree
) -> types.TimeStep:
  """The outcome where an environment resets in the step that ends an episode.

  The last observation is not shown, so that nothing can be learnt from a step
  at whose end a time limit struck: it is masked, and the step before it
  bootstraps from the value of the observation between the two. An environment
  that resets in a step of its own has as many masked steps.

  Args:
    timestep: the outcome of the step.
    first_observation: The first observation of the next episode where this one
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


class HostEnvironment(abc.ABC):
  """A batch of environments that step together on the host, in NumPy.

  It must not write into arrays that it has returned: callers read them until
  the end of a rollout.

  Attributes:
    spec: The spec of one environment.
    num_environments: B, the leading axis of actions and outcomes.
    frames_per_second: the pace at which pictures of them are shown.
  """

  spec: types.EnvironmentSpec
  num_environments: int
  frames_per_second: float = 5.0
  _action: Any = None

  @abc.abstractmethod
  def reset(self) -> types.PyTree:
    """Begins an episode in every environment; returns observations [B, ...]."""

  @abc.abstractmethod
  def step(self, action: Any) -> types.TimeStep:
    """Takes one action in every environment, resetting those that ended.

    Args:
      action: [B] int32 NumPy array.

    Returns:
      Outcomes as NumPy arrays with leading axis B.
    """

  def save_state(self) -> types.PyTree | None:
    """All that the next steps depend on, for checkpoints.

    Returns:
      A tree of NumPy arrays whose shapes are the same at any time, random
      numbers included; None, the default: the environment cannot be saved.
    """
    return None

  def restore_state(self, state: types.PyTree) -> None:
    """Continues from what an equal environment's `save_state` returned."""
    raise NotImplementedError(f'{type(self).__name__} cannot be restored.')

  def encode(self, observation: Any) -> types.PyTree:
    """Converts observations of the simulators to those of the spec.

    Args:
      observation: as a simulator returns it, or [B, ...]; also one that has
        been converted.
    """
    return observation

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Converts actions [B] or [], which count from 0, to those of simulators.

    Returns:
      [B] or []; [B, n] or [n] where an action consists of n numbers.
    """
    return action

  def render(self) -> np.ndarray:
    """Draws the first environment of the batch, as it is now.

    Returns:
      [H, W, 3] uint8; small pictures are scaled up where they are shown.

    Raises:
      RenderError: there are no pictures of this environment, or it was made
        without `can_render`.
    """
    raise RenderError(f'There are no pictures of {type(self).__name__}.')

  def screen(self) -> str:
    """The first environment as text, '' where it is not played in a terminal.

    Raises:
      RenderError: it was made without `can_render`.
    """
    return ''

  def start(self, action: Any) -> None:
    """Starts a step, which `finish` ends, so that several can step in parallel.

    An environment without a thread of its own steps in `finish`.
    """
    self._action = action

  def finish(self) -> types.TimeStep:
    """Ends the step that `start` began; returns the result of `step`."""
    return self.step(self._action)

  @abc.abstractmethod
  def close(self) -> None:
    """Frees the environments' resources; the object is unusable afterwards."""
