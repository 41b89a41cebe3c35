"""JAX-native environments that step on the host, to be rendered."""

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters


class OnHost(adapters.Adapter):
  """Copies of a JAX-native environment, which reset in the next step.

  Unlike `JaxEnvironment.step_autoreset`, they show the last state of every
  episode.
  """

  def __init__(
    self, environment: base.JaxEnvironment, num_environments: int, seed: int
  ):
    """Compiles nothing yet; the seed determines all random numbers."""
    name = type(environment).__name__
    super().__init__(name, seed, environment.spec, num_environments)
    self.frames_per_second = environment.frames_per_second
    self._environment = environment
    self.seed(seed)
    self._reset_all = jax.jit(jax.vmap(environment.reset))
    self._step_all = jax.jit(jax.vmap(environment.step))
    self._select = jax.jit(jax.vmap(_select))
    self._state: types.PyTree = None

  def seed(self, seed: int) -> None:
    """Sets the seed of all further random numbers; call `reset` next."""
    self._seed = seed
    self._key = jax.random.key(seed)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._environment.render(jax.tree.map(lambda x: x[0], self._state))

  def close(self) -> None:
    """Does nothing, because there are no resources to free."""

  def _reset(self) -> types.PyTree:
    self._state, observation = self._reset_all(self._keys())
    return jax.device_get(observation)

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    state, timestep = self._step_all(self._state, action, self._keys())
    ends = timestep.is_terminal, timestep.is_last
    stepped = state, timestep.observation, timestep.reward, *ends
    if self._is_resetting.any():
      nothing = jax.tree.map(jnp.zeros_like, stepped[2:])
      fresh = *self._reset_all(self._keys()), *nothing
      stepped = self._select(self._is_resetting, fresh, stepped)
    self._state, *outcome = stepped
    return tuple(jax.device_get(outcome))

  def _keys(self) -> types.Array:
    self._key, key = jax.random.split(self._key)
    return jax.random.split(key, self.num_environments)


def _select(
  condition: types.Array, new: types.PyTree, old: types.PyTree
) -> types.PyTree:
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)
