"""The user's own host environments, with checked data."""

import dataclasses

import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import wrapper

# Fields of a time step -> their types.
_FIELDS = {
  'reward': np.float32,
  'is_terminal': np.bool_,
  'is_last': np.bool_,
  'mask': np.bool_,
}


class CheckedEnvironment(wrapper.Wrapper):
  """Checks all that an environment returns, as `adapters.Adapter` does.

  Resets and steps raise `adapters.HostEnvironmentError` for all faults.
  """

  def __init__(self, environment: base.HostEnvironment, seed: int):
    """Wraps an environment; the seed is for messages."""
    super().__init__(environment)
    self._name = type(environment).__name__
    self._seed = seed
    self._num_steps = 0

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`, and checks the observations."""
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      return data_checks.checked(
        self._environment.reset(),
        self.spec.observation,
        np.zeros(self.num_environments, bool),
      )

  def start(self, action: np.ndarray) -> None:
    """Implements `HostEnvironment.start`."""
    self._num_steps += 1
    self._environment.start(action)

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`, and checks the outcomes."""
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      timestep = self._environment.finish()
      fields: dict[str, types.PyTree] = {
        name: data_checks.numbers(
          name, getattr(timestep, name), self.num_environments
        ).astype(dtype)
        for name, dtype in _FIELDS.items()
      }
      fields['observation'] = data_checks.checked(
        timestep.observation, self.spec.observation, fields['is_last']
      )
    return dataclasses.replace(timestep, **fields)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    with adapters.closing(self._name):
      self._environment.close()
