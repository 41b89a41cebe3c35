"""The two kinds of environment: on the device, and on the host."""

import abc
from typing import Any

import jax
import jax.numpy as jnp

from disco_rl import types


class JaxEnvironment(abc.ABC):
  """One environment as pure functions; callers vmap, jit and scan it.

  Episodes follow one another without a pause: `step` after the end of an
  episode is taken care of by `step_autoreset`, whose transitions are all real.

  An environment is itself a tree (`types.record`): what tells tasks of one
  shape apart are arrays, so that many tasks stack and are mapped over; what
  decides shapes or code are fields marked static.
  """

  @property
  @abc.abstractmethod
  def spec(self) -> types.EnvironmentSpec:
    """Observations and actions of one environment."""

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
    """As `step`; where the episode ends, the next one begins in the same step.

    The observation returned is then the first of the next episode, so that
    nothing can be bootstrapped from the last one: time limits count as
    terminations.
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
    return state, types.TimeStep(
      observation=observation,
      reward=timestep.reward,
      is_terminal=timestep.is_last,
      is_last=timestep.is_last,
      mask=timestep.mask,
    )


class HostEnvironment(abc.ABC):
  """A batch of environments that step together on the host, in NumPy.

  It must not write into arrays that it has returned: callers read them later,
  up to the end of a rollout.

  Attributes:
    spec: of one environment.
    num_environments: B, the leading axis of everything that passes.
  """

  spec: types.EnvironmentSpec
  num_environments: int
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

  def start(self, action: Any) -> None:
    """Starts a step, which `finish` ends; in between others can do so, too.

    Where an environment has no thread of its own, all happens in `finish`.
    """
    self._action = action

  def finish(self) -> types.TimeStep:
    """Ends the step that was started; returns what `step` does."""
    return self.step(self._action)

  @abc.abstractmethod
  def close(self) -> None:
    """Frees what the environments hold; the object is unusable afterwards."""
