"""Offloads agents and updates to host memory while others are computed.

Agents outside the current micro-batch are trees [n, ...] of NumPy arrays,
except that PRNG keys remain JAX arrays. Updates are only offloaded if `offload`
is set.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.runtime import files
from disco_rl.runtime import memory


def take(tree: types.PyTree, indices: np.ndarray | int) -> types.PyTree:
  """Selects entries, [len(indices), ...] or [...]; copies for an array."""
  return jax.tree.map(lambda x: x[indices], tree)


def put(
  tree: types.PyTree, indices: np.ndarray, entries: types.PyTree
) -> types.PyTree:
  """Overwrites entries in place; the inverse of `take`.

  The result replaces the tree, which must not be used afterwards.
  """

  def put_leaf(kept: types.PyTree, new: types.PyTree) -> types.PyTree:
    if files.is_key(kept):
      return kept.at[indices].set(new)
    kept[indices] = np.asarray(new)
    return kept

  return jax.tree.map(put_leaf, tree, entries)


def offloaded(tree: types.PyTree) -> types.PyTree:
  """Copies arrays to host memory, where `put` may overwrite them."""
  return jax.tree.map(lambda x: x if files.is_key(x) else np.array(x), tree)


def collect(
  parts: Sequence[types.PyTree], indices: Sequence[np.ndarray]
) -> types.PyTree:
  """Joins the entries of several trees, each at its own indices."""
  order = np.argsort(np.concatenate(indices))

  def join(*x: types.PyTree) -> types.PyTree:
    if files.is_key(x[0]):
      return jnp.concatenate(x)[order]
    return np.concatenate(x)[order]

  return jax.tree.map(join, *parts)


class TrajectoryStore:
  """The updates of the agents of a micro-batch, from first to last.

  It keeps the state before every k-th update, all batches, and the gradients if
  k = 1; in host memory if `offload` is set.
  """

  def __init__(self, config: inner_loop_lib.InnerLoopConfig):
    self._config = config
    self._updates: list[inner_loop_lib.Trajectory] = []

  def add(self, update: inner_loop_lib.Trajectory) -> None:
    """Keeps the part of an update that cannot be recomputed."""
    update = kept(self._config, len(self._updates), update)
    if self._config.offload:
      update = _move(update, 'pinned_host')
    self._updates.append(update)

  def backwards(self) -> Iterator[tuple[inner_loop_lib.Trajectory, ...]]:
    """Yields the k updates of each segment, on the device, last segment first.

    A segment is released once the next one is taken.
    """
    k = self._config.save_every
    while self._updates:
      segment = tuple(self._updates[-k:])
      del self._updates[-k:]
      yield _move(segment, 'device') if self._config.offload else segment


def kept(
  config: inner_loop_lib.InnerLoopConfig,
  index: int,
  update: inner_loop_lib.Trajectory,
) -> inner_loop_lib.Trajectory:
  """Returns the part of update `index` that cannot be recomputed.

  The other parts are None; `update` may be its shapes.
  """
  nothing: types.PyTree = None
  if index % config.save_every:
    update = dataclasses.replace(update, states=nothing)
  if config.save_every > 1:
    update = dataclasses.replace(update, gradients=None)
  return update


def device_bytes(
  config: inner_loop_lib.InnerLoopConfig,
  segment: Sequence[inner_loop_lib.Trajectory],
) -> int:
  """Counts the bytes of N updates on a device, from the kept parts of k."""
  if config.offload:
    return 0
  segments = config.inner_updates // config.save_every
  return segments * memory.device_bytes(segment)


def _move(tree: types.PyTree, memory_kind: str) -> types.PyTree:
  """Moves arrays between the memories of their devices."""
  return jax.tree.map(
    lambda x: jax.device_put(x, x.sharding.with_memory_kind(memory_kind)), tree
  )
