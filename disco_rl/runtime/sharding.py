"""Sharding of agents, and of each agent's batches, over devices.

The devices form a mesh with two axes. Along `agents`, each row has an equal
shard of a group of agents; `SPLIT` arrays have a leading axis of agents. Along
`batch`, devices compute the same agents, but each learns from its shard of
every batch. The rule's parameters are replicated.

Groups are on all rows, one after another, or each on rows of its own, at the
same time: `divide` chooses what takes less time.

Within a program every device sees only its own shard; `maths.shared_batch`
completes sums and means over trajectories.
"""

from collections.abc import Callable
from collections.abc import Sequence
import os

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from disco_rl import types
from disco_rl.maths import shared_batch
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed

AGENTS = 'agents'
BATCH = shared_batch.AXIS
SPLIT = PartitionSpec(AGENTS)
REPLICATED = PartitionSpec()
# For batches [n, T, B, ...].
SPLIT_BATCH = PartitionSpec(AGENTS, None, BATCH)


def divide_cpu(devices: int) -> None:
  """Makes a CPU count as several devices, which compute in parallel.

  The operations of small networks are too short for several cores; agents on
  separate devices keep all cores busy. Must be called before JAX is used.
  The variable JAX_NUM_CPU_DEVICES takes precedence.
  """
  is_done = jax.config.values['jax_num_cpu_devices'] == devices
  if devices > 1 and not is_done and 'JAX_NUM_CPU_DEVICES' not in os.environ:
    jax.config.update('jax_num_cpu_devices', devices)


def make_mesh(batch_devices: int = 1) -> jax.sharding.Mesh:
  """Makes a mesh of all devices, [devices / batch_devices, batch_devices].

  Args:
    batch_devices: The number of devices of one machine that share the batches
      of an agent.

  Raises:
    ValueError: It does not divide the devices of this machine.
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


def rows_of_groups(sizes: Sequence[int], rows: int) -> list[int] | None:
  """Divides rows of devices among groups, in proportion to their agents.

  All agents count as the same work: they make equally many updates.

  Args:
    sizes: The number of agents of each group.
    rows: The number of rows.

  Returns:
    The number of rows of each group, which divides its agents; None if it takes
    as little time to compute the groups on all rows, one after another.
  """
  one_after_another = sum(-(-size // rows) for size in sizes)
  for longest in range(1, one_after_another):
    on_a_row = [
      max(n for n in range(1, longest + 1) if size % n == 0) for size in sizes
    ]
    found = [size // n for size, n in zip(sizes, on_a_row)]
    if sum(found) <= rows:
      return found
  return None


def divide(
  mesh: jax.sharding.Mesh, sizes: Sequence[int]
) -> list[jax.sharding.Mesh]:
  """Returns the devices of each group: all, or by `rows_of_groups`."""
  rows = rows_of_groups(sizes, mesh.shape[AGENTS])
  if rows is None:
    return len(sizes) * [mesh]
  parts = np.split(mesh.devices, np.cumsum(rows))
  return [jax.sharding.Mesh(part, mesh.axis_names) for part in parts[:-1]]


def mesh_for(num_agents: int) -> jax.sharding.Mesh:
  """Makes a mesh of the largest number of local devices that divides agents."""
  devices = jax.local_devices()
  count = max(n for n in range(1, len(devices) + 1) if num_agents % n == 0)
  return jax.sharding.Mesh(np.array(devices[:count])[:, None], (AGENTS, BATCH))


def check(num_agents: int, mesh: jax.sharding.Mesh, what: str) -> None:
  """Raises ValueError if agents cannot be divided equally among devices.

  The message names them as '{num_agents} agents {what}'.
  """
  shards = mesh.shape[AGENTS]
  if num_agents % shards == 0:
    return
  nearest = _nearest(num_agents, shards)
  each = ''
  if mesh.shape[BATCH] > 1:
    each = f' groups of batch_devices={mesh.shape[BATCH]}'
  raise ValueError(
    f'{num_agents} agents {what} cannot be divided equally among '
    f'{shards}{each or " devices"}: choose agents so that there are {nearest} '
    'of them, or fewer devices (cpu_devices, CUDA_VISIBLE_DEVICES), or set '
    f'group_multiple={shards}, which pads groups with agents.'
  )


def check_batch(size: int, mesh: jax.sharding.Mesh, name: str) -> None:
  """Raises ValueError if trajectories cannot be divided equally."""
  shards = mesh.shape[BATCH]
  if size % shards:
    raise ValueError(
      f'{name}={size} cannot be divided equally among '
      f'batch_devices={shards}: choose {_nearest(size, shards)}.'
    )


def _nearest(size: int, shards: int) -> str:
  """Lists the positive multiples of the shards around a size."""
  below = size // shards * shards
  return ' or '.join(str(n) for n in (below, below + shards) if n)


def to_devices(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Places arrays on the devices as programs expect them.

  This matters on a single device too: arrays from a checkpoint are committed to
  it, and uncommitted arrays would need another program.
  """
  place = _placement(mesh, spec)
  if isinstance(place, NamedSharding) and distributed.is_distributed():
    return jax.tree.map(lambda x: distributed.place(x, place), tree)
  return jax.device_put(tree, place)


def shapes(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Returns shapes of arrays from `to_devices`, to compile programs."""
  place = _placement(mesh, spec)
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree
  )


def part_on(tree: types.PyTree, mesh: jax.sharding.Mesh) -> types.PyTree:
  """Returns replicated arrays on some of their devices, without copies.

  Arrays, or shapes, that are on no other devices are returned as they are.
  """
  place = _placement(mesh, REPLICATED)

  def part(x: types.PyTree) -> types.PyTree:
    if x.sharding is None or x.sharding.device_set <= place.device_set:
      return x
    if isinstance(x, jax.ShapeDtypeStruct):
      return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    return _assemble(x.shape, x.dtype, place, _by_device([x]))

  return jax.tree.map(part, tree)


def join_rows(
  trees: Sequence[types.PyTree], like: types.PyTree, mesh: jax.sharding.Mesh
) -> types.PyTree:
  """Joins trees [rows of a group, ...], without copies, to [rows, ...].

  Args:
    trees: The trees of groups whose rows are disjoint; None for a group that
      has no device of this process.
    like: A tree with the shapes and types of a row, [...].
    mesh: The devices; zeros are on those that no group has.
  """
  place = _placement(mesh, SPLIT)

  def join(x: jax.Array, *of_groups: jax.Array) -> jax.Array:
    shards = _by_device(of_groups)
    for device in set(mesh.local_devices) - set(shards):
      shards[device] = jax.device_put(np.zeros((1, *x.shape), x.dtype), device)
    return _assemble((mesh.shape[AGENTS], *x.shape), x.dtype, place, shards)

  return jax.tree.map(join, like, *(tree for tree in trees if tree is not None))


def _by_device(arrays: Sequence[jax.Array]) -> dict[jax.Device, jax.Array]:
  """Returns the shards of arrays on this process's devices."""
  return {s.device: s.data for x in arrays for s in x.addressable_shards}


def _assemble(
  shape: tuple[int, ...],
  dtype: types.DType,
  place: jax.sharding.Sharding,
  shards: dict[jax.Device, jax.Array],
) -> jax.Array:
  """Makes an array from its shards on this process's devices."""
  own = [x for device, x in shards.items() if device in place.device_set]
  # A process may have none of them.
  return jax.make_array_from_single_device_arrays(
    shape, place, own, dtype=dtype
  )


def _placement(
  mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> jax.sharding.Sharding:
  # The device may be one of another process.
  if mesh.size == 1 and not distributed.is_distributed():
    return jax.sharding.SingleDeviceSharding(mesh.devices.item())
  return NamedSharding(mesh, spec)


def per_device(
  function: Callable[..., types.PyTree],
  mesh: jax.sharding.Mesh,
  in_specs: types.PyTree,
  out_specs: types.PyTree,
) -> Callable[..., types.PyTree]:
  """Maps a function over the devices' shards of its arguments.

  `in_specs` and `out_specs` are specs such as `SPLIT`, or trees of specs.
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


class Programs:
  """Makes programs that each device runs on its own shard."""

  def __init__(self, mesh: jax.sharding.Mesh):
    """Makes no programs yet."""
    self._mesh = mesh

  def make(
    self,
    function: Callable[..., types.PyTree],
    in_specs: types.PyTree,
    out_specs: types.PyTree = SPLIT,
    donate_argnums: int | tuple[int, ...] = (),
    runs_often: bool = True,
  ) -> compilation.Program:
    """Makes a program of a function, mapped over devices by `per_device`."""
    mapped = per_device(function, self._mesh, in_specs, out_specs)
    return compilation.Program(mapped, donate_argnums, runs_often)
