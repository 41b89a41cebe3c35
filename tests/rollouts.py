"""Random rollouts of small environments."""

import dataclasses
from typing import Any

import numpy as np

from disco_rl import types


def draw(
  seed: int, length: int, batch_size: int, num_actions: int, **changes: Any
) -> types.Rollout:
  """Draws a rollout without ends of episodes; changes replace its fields."""
  rng = np.random.default_rng(seed)
  size, later = (length, batch_size), (length + 1, batch_size)
  rollout = types.Rollout(
    observation=rng.normal(size=(*later, 2)).astype(np.float32),
    action=rng.integers(num_actions, size=later, dtype=np.int32),
    logits=rng.normal(size=(*later, num_actions)).astype(np.float32),
    reward=rng.normal(size=size).astype(np.float32),
    is_terminal=np.zeros(size, bool),
    mask=np.ones(size, bool),
  )
  return dataclasses.replace(rollout, **changes)
