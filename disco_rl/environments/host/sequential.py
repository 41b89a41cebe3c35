"""Simulators of one environment each, side by side as a host environment."""

from collections.abc import Sequence
from typing import Any
from typing import Protocol

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters


class Simulator(Protocol):
  """What an adapter makes of one environment of a package.

  Observations may be written into by the simulator later, and need not have the
  types that the spec names, only such as convert to them.
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
    """Frees what the simulator holds."""


class SequentialEnvironment(base.HostEnvironment):
  """Simulators that step one after the other.

  An episode's last observation is seen. The step after it ignores its action
  and returns the first observation of the next episode; this transition has
  mask False, reward 0 and is_terminal True, so that nothing passes from one
  episode to the other. Truncated episodes are not terminal, and may be
  bootstrapped from.
  """

  def __init__(
    self,
    simulators: Sequence[Simulator],
    spec: types.EnvironmentSpec,
    name: str,
    seed: int,
  ):
    """Takes over simulators.

    Args:
      simulators: B of them, used by this object alone from now on.
      spec: of each; its observation is made of dictionaries and tuples.
        Observations are converted to it.
      name: for messages.
      seed: of the batch, for messages.
    """
    self._simulators = simulators
    self._name = name
    self._seed = seed
    self._num_steps = 0
    self.num_environments = len(simulators)
    self.spec = spec
    self._is_resetting = [False] * self.num_environments

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`.

    Raises:
      RuntimeError: if a simulator raised, or broke the spec.
    """
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      self._is_resetting = [False] * self.num_environments
      return self._stack([simulator.reset() for simulator in self._simulators])

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`.

    Raises:
      RuntimeError: if a simulator raised or broke the spec, or an action is out
        of range.
    """
    self._num_steps += 1
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      outcomes = map(
        self._step_one,
        self._simulators,
        adapters.in_range(action, self.spec.num_actions).tolist(),
        self._is_resetting,
      )
      observations, reward, terminated, truncated = zip(*outcomes)
      observation = self._stack(observations)
    is_dummy = np.array(self._is_resetting)
    is_last = np.logical_or(terminated, truncated)
    self._is_resetting = is_last.tolist()
    outcome: dict[str, Any] = {
      'reward': np.array(reward, np.float32),
      'is_terminal': np.logical_or(terminated, is_dummy),
      'is_last': is_last,
      'mask': ~is_dummy,
    }
    return types.TimeStep(observation=observation, **outcome)

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    for simulator in self._simulators:
      simulator.close()

  @staticmethod
  def _step_one(
    simulator: Simulator, action: int, is_resetting: bool
  ) -> tuple[types.PyTree, float, bool, bool]:
    if is_resetting:
      return simulator.reset(), 0.0, False, False
    return simulator.step(action)

  def _stack(self, observations: Sequence[types.PyTree]) -> types.PyTree:
    return _stack(self.spec.observation, observations, 'observation')


def _stack(spec: Any, values: Sequence[Any], path: str) -> types.PyTree:
  """Copies B observations into arrays [B, ...] with the spec's types.

  Args:
    spec: a tree of `jax.ShapeDtypeStruct`, of dictionaries and tuples.
    values: B trees, which may have entries that the spec does not name.
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
        f'the spec says {np.dtype(spec.dtype)}{list(spec.shape)}'
      )
    stacked[i] = value
  return stacked
