"""Averages over the real transitions of a batch."""

import jax.numpy as jnp

from disco_rl import types
from disco_rl.runtime import sharding


def mean(x: types.Array, mask: types.Array) -> types.Array:
  """Mean of x where the mask is set, over all devices that share the batch.

  All losses are averaged by it.

  Args:
    x: [T, B], or any shape.
    mask: of the shape of x, bool or weights.

  Returns:
    [] sum(x * mask) / sum(mask); 0 where the mask is empty.
  """
  weighted, weight = sharding.total((jnp.sum(x * mask), jnp.sum(mask)))
  return weighted / (weight + 1e-8)
