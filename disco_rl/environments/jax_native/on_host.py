"""JAX-native environments that step on the host, to be rendered."""

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import data_checks


class OnHost(base.HostEnvironment):
  """Copies of a JAX-native environment, which reset in the next step.

  Unlike `JaxEnvironment.step_autoreset`, they show the last state of every
  episode. The transition that begins the next one is masked, as in
  `host.adapters.Adapter`.
  """

  def __init__(
    self, environment: base.JaxEnvironment, num_environments: int, seed: int
  ):
    """Compiles nothing yet; the seed determines all random numbers."""
    self.spec = environment.spec
    self.num_environments = num_environments
    self.frames_per_second = environment.frames_per_second
    self._environment = environment
    self.seed(seed)
    self._reset = jax.jit(jax.vmap(environment.reset))
    self._step = jax.jit(jax.vmap(environment.step))
    self._select = jax.jit(jax.vmap(_select))
    self._is_resetting = np.zeros(num_environments, bool)
    self._state: types.PyTree = None

  def seed(self, seed: int) -> None:
    """Sets the seed of all further random numbers; call `reset` next."""
    self._key = jax.random.key(seed)

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`."""
    self._is_resetting = np.zeros(self.num_environments, bool)
    self._state, observation = self._reset(self._keys())
    return jax.device_get(observation)

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`."""
    is_dummy = self._is_resetting
    state, timestep = self._step(self._state, action, self._keys())
    observation = timestep.observation
    if is_dummy.any():
      state, observation = self._select(
        is_dummy, self._reset(self._keys()), (state, observation)
      )
    self._state = state
    outcome = jax.device_get(timestep)
    self._is_resetting = outcome.is_last & ~is_dummy
    fields: dict[str, types.PyTree] = {
      'reward': np.where(is_dummy, np.float32(0), outcome.reward),
      'is_terminal': outcome.is_terminal | is_dummy,
      'is_last': self._is_resetting,
      'mask': ~is_dummy,
    }
    observation = data_checks.fill_masks(
      jax.device_get(observation), self._is_resetting
    )
    return types.TimeStep(observation=observation, **fields)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._environment.render(jax.tree.map(lambda x: x[0], self._state))

  def close(self) -> None:
    """Does nothing, because there are no resources to free."""

  def _keys(self) -> types.Array:
    self._key, key = jax.random.split(self._key)
    return jax.random.split(key, self.num_environments)


def _select(
  condition: types.Array, new: types.PyTree, old: types.PyTree
) -> types.PyTree:
  return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)
