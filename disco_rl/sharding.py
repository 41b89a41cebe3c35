"""Spreading a population over devices: equal shares along its leading axis.

Every device runs the same program on its share of the agents; what they have in
common, the rule, is replicated. What is `split` has a leading axis of agents.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

AXIS = 'agents'
SPLIT = PartitionSpec(AXIS)
REPLICATED = PartitionSpec()


def all_devices() -> jax.sharding.Mesh:
  """The devices of this run in one row."""
  return jax.sharding.Mesh(np.array(jax.devices()), (AXIS,))


def check(num_agents: int, mesh: jax.sharding.Mesh, what: str) -> None:
  """Raises ValueError if agents cannot be shared out equally.

  Args:
    num_agents: to be spread.
    mesh: devices.
    what: the agents are, for the message.
  """
  if num_agents % mesh.size == 0:
    return
  below = num_agents // mesh.size * mesh.size
  nearest = ' or '.join(str(n) for n in (below, below + mesh.size) if n)
  raise ValueError(
    f'{num_agents} agents {what} cannot be shared out equally among '
    f'{mesh.size} devices: choose agents so that there are {nearest} of them, '
    'or fewer devices (CUDA_VISIBLE_DEVICES, JAX_NUM_CPU_DEVICES).'
  )


def put(tree: Any, mesh: jax.sharding.Mesh, spec: PartitionSpec) -> Any:
  """Moves arrays to where programs on the devices want them.

  To a single device, too: what comes from a checkpoint is bound to one, and a
  program for arrays that are not would be another one, compiled again.
  """
  if mesh.size == 1:
    return jax.device_put(tree, mesh.devices.item())
  return jax.device_put(tree, NamedSharding(mesh, spec))


def per_device(
  function: Callable[..., Any],
  mesh: jax.sharding.Mesh,
  in_specs: Any,
  out_specs: Any,
) -> Callable[..., Any]:
  """Lets each device run a function on its share of the arguments.

  Types are not tracked by device: within the function derivatives with respect
  to what is replicated are each device's own, and no sum over devices is
  slipped in.

  Args:
    function: of shares; returns shares.
    mesh: devices.
    in_specs: `SPLIT` or `REPLICATED` for each argument.
    out_specs: for each result.

  Returns:
    The function of whole arrays.
  """
  if mesh.size == 1:
    return function
  return jax.shard_map(
    function,
    mesh=mesh,
    in_specs=in_specs,
    out_specs=out_specs,
    check_vma=False,
  )


def total(tree: Any, mesh: jax.sharding.Mesh) -> Any:
  """Sums one tree for each device, over a leading axis, in one all-reduce."""

  def add(share: Any) -> Any:
    flat, restore = ravel_pytree(jax.tree.map(lambda x: x[0], share))
    return restore(jax.lax.psum(flat, AXIS) if mesh.size > 1 else flat)

  return per_device(add, mesh, (SPLIT,), REPLICATED)(tree)


def as_share(tree: Any) -> Any:
  """One device's tree as its share of a tree for each device; see `total`."""
  return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
