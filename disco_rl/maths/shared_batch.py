"""Sums and means over batches that several devices share.

A program that `jax.shard_map` maps over an axis called `AXIS` of several
devices computes on shards of each batch [T, B, ...]. Sums and means over
trajectories are completed over the devices by `total` and `mean`; without such
an axis both return their argument.

On each device, a gradient with respect to replicated values is the device's
part times the number of devices, because the derivative of a sum over devices
is again a sum over devices. `mean` turns it into the full gradient.
"""

from typing import TypeVar

import jax
from jax import flatten_util

AXIS = 'batch'

_Tree = TypeVar('_Tree')


def is_shared() -> bool:
  """Returns whether devices share batches in the program being traced."""
  mesh = jax.sharding.get_abstract_mesh()
  return AXIS in mesh.manual_axes and mesh.shape[AXIS] > 1


def local_shard(batch: _Tree) -> _Tree:
  """Returns this device's shard of a batch, trees [T, B, ...]."""
  if not is_shared():
    return batch
  shards = jax.lax.axis_size(AXIS)

  def own(x: jax.Array) -> jax.Array:
    size = x.shape[1] // shards
    start = jax.lax.axis_index(AXIS) * size
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)

  return jax.tree.map(own, batch)


def total(tree: _Tree) -> _Tree:
  """Sums small trees over the devices that share a batch."""
  if not is_shared():
    return tree
  # One vector takes one message; XLA may not merge the messages of leaves.
  vector, unravel = flatten_util.ravel_pytree(tree)
  return unravel(jax.lax.psum(vector, AXIS))


def mean(tree: _Tree) -> _Tree:
  """Averages over the devices that share a batch; see above for gradients."""
  return jax.lax.pmean(tree, AXIS) if is_shared() else tree
