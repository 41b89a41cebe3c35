"""Agents that wait in the host's memory while others are computed.

Trees [n, ...] of NumPy arrays, but for PRNG keys, which stay JAX arrays.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.runtime import files


def take(tree: Any, indices: np.ndarray) -> Any:
  """Copies of some entries, [len(indices), ...]."""
  return jax.tree.map(lambda x: x[indices], tree)


def put(tree: Any, indices: np.ndarray, entries: Any) -> Any:
  """Overwrites entries in place; the inverse of `take`.

  Args:
    tree: [n, ...]; not to be used afterwards.
    indices: of the entries.
    entries: [len(indices), ...], on the host or on a device.

  Returns:
    The tree with these entries.
  """

  def put_leaf(kept: Any, new: Any) -> Any:
    if files.is_key(kept):
      return kept.at[indices].set(new)
    kept[indices] = np.asarray(new)
    return kept

  return jax.tree.map(put_leaf, tree, entries)


def park(tree: Any) -> Any:
  """Copies arrays into the host's memory, where `put` may overwrite them."""
  return jax.tree.map(lambda x: x if files.is_key(x) else np.array(x), tree)


def collect(parts: Sequence[Any], indices: Sequence[np.ndarray]) -> Any:
  """Joins the entries of several trees, each at its own indices."""
  order = np.argsort(np.concatenate(indices))

  def join(*x: Any) -> Any:
    if files.is_key(x[0]):
      return jnp.concatenate(x)[order]
    return np.concatenate(x)[order]

  return jax.tree.map(join, *parts)
