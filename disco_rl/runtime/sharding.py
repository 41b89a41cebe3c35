"""Spreading a population over devices, and an agent's batch over a few.

The devices form a grid. Along `agents` each has an equal share of the
population; what is `SPLIT` has a leading axis of agents. Along `batch` devices
live the same lives, but each learns from a share of every batch. What all have
in common, the rule, is replicated.

Within a program every device sees its own share. What is summed over
trajectories is summed over devices by `total` and `mean`, which do nothing
where no batch is shared out. A gradient with respect to what devices have in
common is each device's part of it times their number, as the derivative of a
sum over devices is again such a sum: `mean` makes it whole.
"""

from collections.abc import Callable
import os
from typing import Any

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from disco_rl.runtime import distributed

AGENTS = 'agents'
BATCH = 'batch'
SPLIT = PartitionSpec(AGENTS)
REPLICATED = PartitionSpec()
# Of batches [n, T, B, ...].
SPLIT_BATCH = PartitionSpec(AGENTS, None, BATCH)


def divide_cpu(devices: int) -> None:
  """Lets a CPU count as several devices, which compute side by side.

  The operations of small networks are too short for cores to share; agents on
  devices of their own keep all cores busy. To be called before JAX is used.

  Args:
    devices: their number. The variable JAX_NUM_CPU_DEVICES comes first.

  Raises:
    RuntimeError: JAX has been used.
  """
  if devices > 1 and 'JAX_NUM_CPU_DEVICES' not in os.environ:
    jax.config.update('jax_num_cpu_devices', devices)


def make_mesh(batch_devices: int = 1) -> jax.sharding.Mesh:
  """All devices of this run.

  Args:
    batch_devices: that share the batches of the same agents, of one machine.

  Returns:
    The grid, [devices / batch_devices, batch_devices].

  Raises:
    ValueError: they cannot be arranged so.
  """
  local = jax.local_device_count()
  if local % batch_devices:
    possible = [n for n in range(1, local + 1) if local % n == 0]
    raise ValueError(
      f'batch_devices={batch_devices} must divide the {local} devices of this '
      f'machine: choose one of {possible}.'
    )
  devices = np.array(jax.devices()).reshape(-1, batch_devices)
  return jax.sharding.Mesh(devices, (AGENTS, BATCH))


def mesh_for(num_agents: int) -> jax.sharding.Mesh:
  """As many of this machine's devices as can share out agents equally."""
  devices = jax.local_devices()
  count = max(n for n in range(1, len(devices) + 1) if num_agents % n == 0)
  return jax.sharding.Mesh(np.array(devices[:count])[:, None], (AGENTS, BATCH))


def check(num_agents: int, mesh: jax.sharding.Mesh, what: str) -> None:
  """Raises ValueError if agents cannot be shared out equally.

  Args:
    num_agents: to be spread.
    mesh: devices.
    what: the agents are, for the message.
  """
  shares = mesh.shape[AGENTS]
  if num_agents % shares == 0:
    return
  nearest = _nearest(num_agents, shares)
  each = ''
  if mesh.shape[BATCH] > 1:
    each = f' groups of batch_devices={mesh.shape[BATCH]}'
  raise ValueError(
    f'{num_agents} agents {what} cannot be shared out equally among '
    f'{shares}{each or " devices"}: choose agents so that there are {nearest} '
    'of them, or fewer devices (cpu_devices, CUDA_VISIBLE_DEVICES).'
  )


def check_batch(size: int, mesh: jax.sharding.Mesh, name: str) -> None:
  """Raises ValueError if trajectories cannot be shared out equally.

  Args:
    size: their number.
    mesh: devices.
    name: of the setting that says it.
  """
  shares = mesh.shape[BATCH]
  if size % shares:
    raise ValueError(
      f'{name}={size} cannot be shared out equally among '
      f'batch_devices={shares}: choose {_nearest(size, shares)}.'
    )


def _nearest(size: int, shares: int) -> str:
  """The positive multiples of the shares around a size."""
  below = size // shares * shares
  return ' or '.join(str(n) for n in (below, below + shares) if n)


def put(tree: Any, mesh: jax.sharding.Mesh, spec: PartitionSpec) -> Any:
  """Moves arrays to where programs on the devices want them.

  To a single device, too: what comes from a checkpoint is bound to one, and a
  program for arrays that are not would be another one, compiled again.
  """
  if mesh.size == 1:
    return jax.device_put(tree, mesh.devices.item())
  sharding = NamedSharding(mesh, spec)
  if distributed.is_distributed():
    return jax.tree.map(lambda x: distributed.place(x, sharding), tree)
  return jax.device_put(tree, sharding)


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
    in_specs: `SPLIT`, ... for each argument, or trees of them.
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


def shares_batch() -> bool:
  """Whether the program that is being traced shares out batches."""
  mesh = jax.sharding.get_abstract_mesh()
  return BATCH in mesh.manual_axes and mesh.shape[BATCH] > 1


def batch_share(tree: Any) -> Any:
  """This device's share of a batch, trees [T, B, ...]."""
  if not shares_batch():
    return tree
  shares = jax.lax.axis_size(BATCH)

  def own(x: jax.Array) -> jax.Array:
    size = x.shape[1] // shares
    start = jax.lax.axis_index(BATCH) * size
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)

  return jax.tree.map(own, tree)


def total(tree: Any) -> Any:
  """Sum over the devices that share a batch."""
  return jax.lax.psum(tree, BATCH) if shares_batch() else tree


def mean(tree: Any) -> Any:
  """Mean over the devices that share a batch; see above for gradients."""
  return jax.lax.pmean(tree, BATCH) if shares_batch() else tree


def sum_over_devices(tree: Any, mesh: jax.sharding.Mesh) -> Any:
  """Sums trees [shares, ...], one for each share of agents; one all-reduce."""

  def add(share: Any) -> Any:
    flat, restore = ravel_pytree(jax.tree.map(lambda x: x[0], share))
    return restore(jax.lax.psum(flat, AGENTS) if mesh.size > 1 else flat)

  return per_device(add, mesh, (SPLIT,), REPLICATED)(tree)


def as_summand(tree: Any) -> Any:
  """One device's tree as its share of `sum_over_devices`'s."""
  return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
