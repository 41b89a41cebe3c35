"""Host environments of several agents, concatenated into one batch."""

from collections.abc import Sequence

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base


class JoinedEnvironment(base.HostEnvironment):
  """Host environments with equal specs; their batches are concatenated."""

  def __init__(self, environments: Sequence[base.HostEnvironment]):
    """Wraps environments; raises ValueError if specs or batch sizes differ."""
    specs = {
      (
        str(e.spec.observation),
        e.spec.num_actions,
        e.spec.frame_stack,
        e.num_environments,
      )
      for e in environments
    }
    if len(specs) != 1:
      raise ValueError(f'Environments to be joined differ: {sorted(specs)}.')
    self._environments = environments
    self.spec = environments[0].spec
    self.num_environments = sum(e.num_environments for e in environments)

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`."""
    return _concatenate([e.reset() for e in self._environments])

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`; all step at the same time."""
    self.start(action)
    return self.finish()

  def start(self, action: np.ndarray) -> None:
    """Implements `HostEnvironment.start`."""
    actions = np.split(action, len(self._environments))
    for environment, own in zip(self._environments, actions):
      environment.start(own)

  def finish(self) -> types.TimeStep:
    """Implements `HostEnvironment.finish`."""
    return _concatenate([e.finish() for e in self._environments])

  def save_state(self) -> types.PyTree | None:
    """Implements `HostEnvironment.save_state`; None if one cannot be saved."""
    states = [e.save_state() for e in self._environments]
    return None if any(state is None for state in states) else states

  def restore_state(self, state: types.PyTree) -> None:
    """Implements `HostEnvironment.restore_state`."""
    for environment, own in zip(self._environments, state):
      environment.restore_state(own)

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    for environment in self._environments:
      environment.close()


def _concatenate(trees: Sequence[types.PyTree]) -> types.PyTree:
  return jax.tree.map(lambda *x: np.concatenate(x), *trees)
