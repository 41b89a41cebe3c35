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
from disco_rl.agent import learner
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.runtime import files


def select(tree: types.PyTree, indices: np.ndarray | int) -> types.PyTree:
  """Selects entries, [len(indices), ...] or [...]; copies for an array."""
  return jax.tree.map(lambda x: x[indices], tree)


def overwrite(
  tree: types.PyTree, indices: np.ndarray, entries: types.PyTree
) -> types.PyTree:
  """Overwrites entries in place; the inverse of `select`.

  The result replaces the tree, which must not be used afterwards.
  """

  def overwrite_leaf(kept: types.PyTree, new: types.PyTree) -> types.PyTree:
    if files.is_key(kept):
      return kept.at[indices].set(new)
    kept[indices] = np.asarray(new)
    return kept

  return jax.tree.map(overwrite_leaf, tree, entries)


def offloaded(tree: types.PyTree) -> types.PyTree:
  """Copies arrays to host memory, where `overwrite` may overwrite them."""
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


@types.record
class Segment:
  """The kept part of k updates; the rest can be recomputed.

  Attributes:
    state: The learner state before the first of them.
    batches: Their batches.
    gradient: The gradient of the agent's loss in the only update, if k = 1 and
      the estimator needs it.
  """

  state: learner.LearnerState
  batches: tuple[types.Rollout, ...]
  gradient: types.Params | None

  def stack(self) -> inner_loop_lib.Trajectory:
    """Returns the segment as a part of a trajectory."""
    gradients = None if self.gradient is None else chunks.stack([self.gradient])
    return inner_loop_lib.Trajectory(
      self.state, chunks.stack(self.batches), gradients
    )


def begin_segment(
  config: inner_loop_lib.InnerLoopConfig, update: inner_loop_lib.Trajectory
) -> Segment:
  """Returns a segment with its first update, which may be mere shapes."""
  gradient = update.gradients if config.save_every == 1 else None
  return Segment(update.states, (update.batches,), gradient)


def add_batch(segment: Segment, batch: types.Rollout) -> Segment:
  """Returns the segment with the batch of one more update."""
  return dataclasses.replace(segment, batches=(*segment.batches, batch))


class TrajectoryStore:
  """The updates of the agents of a micro-batch, in segments of k.

  They are in host memory if `offload` is set.
  """

  def __init__(self, config: inner_loop_lib.InnerLoopConfig):
    self._config = config
    self._segments: list[Segment] = []

  def add(self, update: inner_loop_lib.Trajectory) -> None:
    """Keeps the part of an update that cannot be recomputed."""
    segments, k = self._segments, self._config.save_every
    if segments and len(segments[-1].batches) < k:
      batch = self._move(update.batches, 'pinned_host')
      segments[-1] = add_batch(segments[-1], batch)
    else:
      first = begin_segment(self._config, update)
      segments.append(self._move(first, 'pinned_host'))

  def backwards(self) -> Iterator[Segment]:
    """Yields the segments on the device, from last to first.

    A segment is released once the next one is taken.
    """
    while self._segments:
      yield self._move(self._segments.pop(), 'device')

  def _move(self, tree: types.PyTree, memory_kind: str) -> types.PyTree:
    """Moves arrays to a memory of their devices, if `offload` is set."""
    if not self._config.offload:
      return tree
    return jax.tree.map(
      lambda x: jax.device_put(x, x.sharding.with_memory_kind(memory_kind)),
      tree,
    )
