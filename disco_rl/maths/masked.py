"""Averages over the real transitions of a batch."""

from typing import Any

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import shared_batch


def mean(tree: Any, mask: types.Array) -> Any:
  """Means where the mask is set, over all devices that share the batch.

  All losses and all statistics of a batch are averaged by it. Devices add up
  sums and weights, as their masks differ.

  Args:
    tree: arrays [T, B, ...].
    mask: [T, B], or of any number of axes, bool or weights.

  Returns:
    The tree of sum(x * mask) / (sum(mask) + 1e-8), over the axes of the mask;
    0 where the mask is empty.
  """
  axes = tuple(range(mask.ndim))

  def weighted(x: types.Array) -> types.Array:
    weights = mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
    return jnp.sum(x * weights, axis=axes)

  sums, weight = shared_batch.total(
    (jax.tree.map(weighted, tree), jnp.sum(mask))
  )
  return jax.tree.map(lambda x: x / (weight + 1e-8), sums)


def next_is_real(mask: types.Array) -> types.Array:
  """Whether the next transition is of the same stream of real ones.

  Args:
    mask: [T, B] bool, the real transitions.

  Returns:
    [T, B] bool, False where a masked transition follows; after the last one
    nothing is known to follow, which counts as real.
  """
  return jnp.concatenate([mask[1:], jnp.ones_like(mask[:1])])
