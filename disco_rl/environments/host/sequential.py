"""Simulators of one environment each, as one host environment."""

from collections.abc import Sequence
from typing import Any
from typing import Protocol

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments.host import adapters


class Simulator(Protocol):
  """One environment of a package.

  The simulator may write into an observation later, and its types only need to
  convert to those of the spec.
  """

  def reset(self) -> types.PyTree:
    """Begins an episode; returns its first observation."""

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    """Takes one action; not called after the end of an episode.

    Args:
      action: 0 .. A - 1.

    Returns:
      The observation, the reward, whether the episode was terminated, and
      whether it was truncated.
    """

  def close(self) -> None:
    """Frees the resources of the simulator."""


class SequentialEnvironment(adapters.Adapter):
  """Simulators that step one after the other, and reset in the next step."""

  def __init__(
    self,
    simulators: Sequence[Simulator],
    spec: types.EnvironmentSpec,
    name: str,
    seed: int,
  ):
    """Wraps simulators.

    Args:
      simulators: B of them, used by this object alone from now on.
      spec: of each; its observation consists of dictionaries and tuples.
        Observations are converted to it.
      name: for messages.
      seed: of the batch, for messages.
    """
    super().__init__(name, seed, spec, len(simulators))
    self._simulators = simulators

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    for simulator in self._simulators:
      simulator.close()

  def _reset(self) -> types.PyTree:
    return self._stack([simulator.reset() for simulator in self._simulators])

  def _step(self, action: np.ndarray) -> tuple[Any, ...]:
    outcomes = [
      (simulator.reset(), 0.0, False, False)
      if is_resetting
      else simulator.step(a)
      for simulator, a, is_resetting in zip(
        self._simulators, action.tolist(), self._is_resetting.tolist()
      )
    ]
    observations, *outcome = zip(*outcomes)
    return self._stack(observations), *outcome

  def _stack(self, observations: Sequence[types.PyTree]) -> types.PyTree:
    return _stack(self.spec.observation, observations, 'observation')


def _stack(spec: Any, values: Sequence[Any], path: str) -> types.PyTree:
  """Copies B observations into arrays [B, ...] with the spec's types.

  Args:
    spec: a tree of `jax.ShapeDtypeStruct`, of dictionaries and tuples.
    values: B trees, which may have further entries.
    path: of the spec, for messages.

  Returns:
    A tree like the spec's.

  Raises:
    KeyError: an entry is missing.
    ValueError: a value does not fit the spec.
  """
  if isinstance(spec, dict):
    return {
      key: _stack(leaf, [value[key] for value in values], f'{path}[{key!r}]')
      for key, leaf in spec.items()
    }
  if isinstance(spec, tuple):
    return tuple(
      _stack(leaf, [value[i] for value in values], f'{path}[{i}]')
      for i, leaf in enumerate(spec)
    )
  return _stack_leaf(spec, values, path)


def _stack_leaf(
  spec: jax.ShapeDtypeStruct, values: Sequence[Any], path: str
) -> np.ndarray:
  stacked = np.empty((len(values), *spec.shape), spec.dtype)
  for i, value in enumerate(map(np.asarray, values)):
    # Assignment would broadcast and round.
    if value.shape != spec.shape or not np.can_cast(
      value.dtype, spec.dtype, 'same_kind'
    ):
      raise ValueError(
        f'{path} of environment {i} is {value.dtype}{list(value.shape)}, where '
        f'the spec is {np.dtype(spec.dtype)}{list(spec.shape)}'
      )
    stacked[i] = value
  return stacked
