"""Batches that several devices share, each with some of the trajectories.

A program that `jax.shard_map` maps over an axis called `AXIS` of several
devices computes on shards of each batch [T, B, ...]. Sums and means over
trajectories are completed over the devices by `total` and `mean`; without such
an axis both do nothing.

A gradient with respect to replicated values is each device's part of it times
the number of devices, as the derivative of a sum over devices is again such a
sum: `mean` makes it whole.
"""

from typing import TypeVar

import jax
from jax import flatten_util

AXIS = 'batch'

_Tree = TypeVar('_Tree')


def is_shared() -> bool:
  """Whether devices share batches in the program that is being traced."""
  mesh = jax.sharding.get_abstract_mesh()
  return AXIS in mesh.manual_axes and mesh.shape[AXIS] > 1


def own_shard(batch: _Tree) -> _Tree:
  """This device's shard of a batch, trees [T, B, ...]."""
  if not is_shared():
    return batch
  shards = jax.lax.axis_size(AXIS)

  def own(x: jax.Array) -> jax.Array:
    size = x.shape[1] // shards
    start = jax.lax.axis_index(AXIS) * size
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)

  return jax.tree.map(own, batch)


def total(tree: _Tree) -> _Tree:
  """The sum over the devices that share a batch; of a tree of few numbers."""
  if not is_shared():
    return tree
  # One vector takes one message, where XLA does not join those of the leaves.
  vector, unravel = flatten_util.ravel_pytree(tree)
  return unravel(jax.lax.psum(vector, AXIS))


def mean(tree: _Tree) -> _Tree:
  """The mean over the devices that share a batch; see above for gradients."""
  return jax.lax.pmean(tree, AXIS) if is_shared() else tree
