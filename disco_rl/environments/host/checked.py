"""The user's own host environments, with checked data."""

import dataclasses

import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks

# Fields of a time step -> their types.
_FIELDS = {
  'reward': np.float32,
  'is_terminal': np.bool_,
  'is_last': np.bool_,
  'mask': np.bool_,
}


class CheckedEnvironment(base.HostEnvironment):
  """Checks all that an environment returns, as `adapters.Adapter` does.

  Resets and steps raise `adapters.HostEnvironmentError` for all faults.
  """

  def __init__(self, environment: base.HostEnvironment, seed: int):
    """Wraps an environment.

    Args:
      environment: The environment, which only this object uses from now on.
      seed: The seed for messages.
    """
    self.spec = environment.spec
    self.num_environments = environment.num_environments
    self.frames_per_second = environment.frames_per_second
    self._environment = environment
    self._name = type(environment).__name__
    self._seed = seed
    self._num_steps = 0

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`, and checks the observations."""
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      return self._checked(
        self._environment.reset(), np.zeros(self.num_environments, bool)
      )

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`, and checks the outcomes."""
    self.start(action)
    return self.finish()

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
      fields['observation'] = self._checked(
        timestep.observation, fields['is_last']
      )
    return dataclasses.replace(timestep, **fields)

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`."""
    return self._environment.save_state()

  def restore_state(self, state: types.PyTree) -> None:
    """Implements `HostEnvironment.restore_state`; may take long."""
    self._environment.restore_state(state)

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `HostEnvironment.encode`."""
    return self._environment.encode(observation)

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Implements `HostEnvironment.decode`."""
    return self._environment.decode(action)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._environment.render()

  def screen(self) -> str:
    """Implements `HostEnvironment.screen`."""
    return self._environment.screen()

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    with adapters.closing(self._name):
      self._environment.close()

  def _checked(
    self, observation: types.PyTree, is_last: np.ndarray
  ) -> types.PyTree:
    data_checks.check_observations(
      observation, self.spec.observation, self.num_environments
    )
    return data_checks.fill_masks(observation, is_last)
