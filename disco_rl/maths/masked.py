"""Averages over the real transitions of a batch."""

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import shared_batch


def mean(tree: types.PyTree, mask: types.Array) -> types.PyTree:
  """Computes means where the mask is set, over all devices of the batch.

  All losses and statistics of a batch are such means. Devices add up sums and
  weights, because their masks differ.

  Args:
    tree: A tree of arrays [T, B, ...].
    mask: [T, B], or any number of axes, bool or weights.

  Returns:
    The tree of sum(x * mask) / (sum(mask) + 1e-8) over the axes of the mask; 0
    if the mask is empty.
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
  """Returns whether the next transition is real and continues this one, [T, B].

  The transition after the last one is unknown, and is treated as real.
  """
  return jnp.concatenate([mask[1:], jnp.ones_like(mask[:1])])
