"""Several simulators of one environment each, as one host environment."""

from collections.abc import Sequence
from typing import Any
from typing import Protocol

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.environments.host import data_checks


class Simulator(Protocol):
  """One environment of a package; optional methods can be inherited.

  The simulator may overwrite an observation later, and its types only need to
  be convertible to those of the spec.
  """

  def reset(self) -> types.PyTree:
    """Begins an episode; returns its first observation."""

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    """Takes one action; not called after the end of an episode.

    Args:
      action: The action, from 0 to A - 1.

    Returns:
      The observation, the reward, whether the episode was terminated, and
      whether it was truncated.
    """

  def close(self) -> None:
    """Frees the resources of the simulator."""

  def render(self) -> np.ndarray:
    """Draws the environment; see `HostEnvironment.render`."""
    raise base.RenderError('There are no pictures of this environment.')

  def screen(self) -> str:
    """Returns the environment as text; see `HostEnvironment.screen`."""
    return ''


class SequentialEnvironment(adapters.Adapter):
  """Simulators that step sequentially, and reset in the next step."""

  def __init__(
    self,
    simulators: Sequence[Simulator],
    spec: types.EnvironmentSpec,
    name: str,
    seed: int,
    raw: types.PyTree = None,
  ):
    """Wraps simulators.

    Args:
      simulators: The B simulators, which only this object uses from now on.
      spec: The spec of each environment, with observations of dictionaries and
        tuples, to which those of the simulators are converted.
      name: The name for messages.
      seed: The seed of the batch, for messages.
      raw: The spec of observations before `encode`; None: that of `spec`.
    """
    super().__init__(name, seed, spec, len(simulators))
    self._simulators = simulators
    self._raw = spec.observation if raw is None else raw

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    for simulator in self._simulators:
      with adapters.closing(self._name):
        simulator.close()

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._simulators[0].render()

  def screen(self) -> str:
    """Implements `HostEnvironment.screen`."""
    return self._simulators[0].screen()

  def _reset(self) -> types.PyTree:
    number = self.num_environments
    observations, *_ = zip(
      *self._outcomes(np.zeros(number, np.int32), np.ones(number, bool))
    )
    return self._stack(observations)

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    observations, *outcome = zip(*self._outcomes(action, self._is_resetting))
    return self._stack(observations), *outcome

  def _outcomes(
    self, action: np.ndarray, is_resetting: np.ndarray
  ) -> list[tuple[Any, ...]]:
    """Steps or resets each simulator; see `Simulator.step` for the results."""
    outcomes: list[tuple[Any, ...]] = []
    for simulator, a, is_first in zip(
      self._simulators, action.tolist(), is_resetting.tolist()
    ):
      try:
        observation, *outcome = (
          (simulator.reset(), 0.0, False, False)
          if is_first
          else simulator.step(a)
        )
        fitting = data_checks.select(self._raw, observation, _fitting)
      except Exception as error:
        is_located = isinstance(error, data_checks.SimulatorError)
        raise data_checks.SimulatorError(
          f'environment {len(outcomes)} of {self.num_environments}: '
          f'{error if is_located else repr(error)}'
        ) from error
      outcomes.append((fitting, *outcome))
    return outcomes

  def _stack(self, observations: Sequence[types.PyTree]) -> types.PyTree:
    # Copies, because simulators may overwrite their observations.
    stacked = jax.tree.map(lambda *x: np.stack(x), *observations)
    return self.encode(stacked)


def _fitting(
  spec: jax.ShapeDtypeStruct, value: types.PyTree, path: str
) -> np.ndarray:
  """Returns an entry of an observation in the type of its spec."""
  array = np.asarray(value)
  # Stacking would broadcast and round.
  if array.shape != spec.shape or not np.can_cast(
    array.dtype, spec.dtype, 'same_kind'
  ):
    raise data_checks.SimulatorError(
      f'{path} is {array.dtype}{list(array.shape)}, where the spec is '
      f'{np.dtype(spec.dtype)}{list(spec.shape)}'
    )
  return data_checks.narrowed(array, spec.dtype)
