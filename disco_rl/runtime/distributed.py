"""One run on many machines, through JAX's own distributed runtime.

All processes run the same program on the same global arrays, each on its own
devices. Environments on the host are stepped by the process whose devices hold
their agents.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import os
import pathlib
import re
import tempfile

import jax
from jax.experimental import multihost_utils
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from disco_rl import types
from disco_rl.runtime import files
from disco_rl.runtime import reports

with reports.callers_logging():
  from orbax.checkpoint import multihost

# A process that sends no heartbeat for this long counts as lost.
_HEARTBEAT_SECONDS = 30
_COMPILING_SECONDS = 3600


def connect(
  coordinator: str | None, num_processes: int | None, process: int | None
) -> None:
  """Connects this process to the others; call it before any other use of JAX.

  Args:
    coordinator: HOST:PORT of process 0. None for all three arguments where JAX
      detects the cluster: SLURM, Open MPI, Kubernetes, TPUs.
    num_processes: The total number of processes.
    process: The index of this process.

  Raises:
    ValueError: No cluster is detected and an argument is missing, an argument
      is not valid, or the GPUs of a machine cannot be divided equally among its
      processes.
    RuntimeError: The coordinator cannot be reached.
  """
  if coordinator and not re.search(r'.:\d+$', coordinator):
    raise ValueError(
      f'--coordinator={coordinator} must be HOST:PORT, with a free port of the '
      'machine of process 0.'
    )
  if (
    process is not None
    and num_processes is not None
    and process >= num_processes
  ):
    raise ValueError(
      f'--process={process} must be lower than --num_processes={num_processes}:'
      ' processes count from 0.'
    )
  own_gpus = gpus_of_task(os.environ)
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process,
      local_device_ids=own_gpus,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )
  except ValueError as error:
    raise ValueError(
      f'No cluster was detected: {error} Give --coordinator, '
      '--num_processes and --process, or start under SLURM, Open MPI or '
      'Kubernetes, or on TPUs.'
    ) from error


def gpus_of_task(variables: Mapping[str, str]) -> list[int] | None:
  """Returns the GPUs of a task that SLURM or Open MPI has started.

  Without them, JAX would attach to one GPU per task: to the GPU whose number is
  that of the task on its machine.

  Args:
    variables: The environment variables of this process.

  Returns:
    The indices among the GPUs that the process can see; an empty list for all
    of them, as if the task was alone on its machine or the launcher hides the
    GPUs of others; None to leave the choice to JAX, as elsewhere or if the user
    has set JAX_LOCAL_DEVICE_IDS.

  Raises:
    ValueError: The GPUs cannot be divided equally among the tasks.
  """
  if variables.get('JAX_LOCAL_DEVICE_IDS'):
    return None
  if 'OMPI_MCA_orte_hnp_uri' in variables:  # By which JAX recognizes Open MPI.
    task = int(variables['OMPI_COMM_WORLD_LOCAL_RANK'])
    tasks = int(variables.get('OMPI_COMM_WORLD_LOCAL_SIZE', task + 1))
    of_machine = None
  elif 'SLURM_LOCALID' in variables and 'SLURM_STEP_NODELIST' in variables:
    task = int(variables['SLURM_LOCALID'])
    tasks = _tasks_here(variables)
    # The GPUs of all tasks of the step on this machine.
    of_machine = int(variables.get('SLURM_GPUS_ON_NODE') or 0) or None
  else:
    return None
  if tasks == 1:
    return []
  visible = _num_visible(variables)
  if None not in (visible, of_machine) and visible != of_machine:
    return []  # As with --gpus-per-task, each task sees only its own.
  gpus = visible or of_machine or _num_gpus()
  if not gpus:
    return None
  if gpus % tasks:
    raise ValueError(
      f'The {gpus} GPUs of this machine cannot be divided equally among its '
      f'{tasks} tasks: start one task on each machine, as launch/slurm.sh '
      'does, or a number of tasks that divides the GPUs.'
    )
  share = gpus // tasks
  return list(range(task * share, (task + 1) * share))


def _tasks_here(variables: Mapping[str, str]) -> int:
  """Returns the number of tasks of a step of SLURM on this machine."""
  # For example '2(x3),1': three machines with two tasks, and one with one.
  listed: list[int] = []
  text = variables.get('SLURM_STEP_TASKS_PER_NODE', '')
  for tasks, times in re.findall(r'(\d+)(?:\(x(\d+)\))?', text):
    listed += int(times or 1) * [int(tasks)]
  machine = int(variables.get('SLURM_NODEID', 0))
  if machine < len(listed):
    return listed[machine]
  machines = int(variables.get('SLURM_STEP_NUM_NODES', 1))
  return -(-int(variables['SLURM_NTASKS']) // machines)


def _num_visible(variables: Mapping[str, str]) -> int | None:
  """Returns how many GPUs variables let a process see; None if all."""
  for name in ('CUDA_VISIBLE_DEVICES', 'ROCR_VISIBLE_DEVICES'):
    if name in variables:
      return len([x for x in variables[name].split(',') if x.strip()])
  return None


def _num_gpus() -> int:
  """Returns the number of NVIDIA's GPUs of this machine."""
  # JAX could tell, but would attach to them.
  names = os.listdir('/dev') if os.path.isdir('/dev') else ()
  return sum(re.fullmatch(r'nvidia\d+', name) is not None for name in names)


def describe_devices() -> str:
  """Describes the devices of all processes, in a line for the user."""
  devices = jax.devices()
  numbers = collections.Counter(device.process_index for device in devices)
  kinds = ', '.join(sorted({device.device_kind for device in devices}))
  each = sorted(set(numbers.values()))
  return (
    f'Processes: {jax.process_count()}. Devices: '
    f'{" or ".join(map(str, each))} each, {len(devices)} in all ({kinds}).'
  )


def is_distributed() -> bool:
  """Returns whether this run has more than one process."""
  return jax.process_count() > 1


def is_first() -> bool:
  """Returns whether this is process 0, which reports and writes files."""
  return jax.process_index() == 0


@contextlib.contextmanager
def folder(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a folder for files that all processes write, such as metrics.

  It is the run's folder in process 0, and a temporary one in the others.
  """
  if is_first():
    yield workdir
    return
  with tempfile.TemporaryDirectory() as temporary:
    yield pathlib.Path(temporary)


def wait(what: str) -> None:
  """Waits until all processes have reached the point with this unique name.

  Compilation may delay a process for minutes, and collective operations on
  devices time out after half a minute.
  """
  if is_distributed():
    multihost.get_barrier_sync_fn()(
      key=what, timeout_ms=1000 * _COMPILING_SECONDS
    )


def largest(x: int) -> int:
  """Returns the maximum of x over all processes."""
  if not is_distributed():
    return x
  return int(np.max(multihost_utils.process_allgather(np.asarray(x))))


def place(x: types.PyTree, sharding: NamedSharding) -> jax.Array:
  """Makes a global array from one that every process has."""
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return jax.device_put(x, sharding)
  data = np.asarray(files.to_data(x))
  placed = jax.make_array_from_callback(
    data.shape, sharding, lambda i: data[i], dtype=data.dtype
  )
  return files.from_data(placed, x)


def fetch(tree: types.PyTree) -> types.PyTree:
  """Fetches global arrays; every process gets the whole NumPy arrays."""
  if not is_distributed():
    return jax.device_get(tree)

  def everywhere(x: types.PyTree) -> types.PyTree:
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
      return x
    assert isinstance(x.sharding, NamedSharding)
    replicated = NamedSharding(x.sharding.mesh, PartitionSpec())
    return jax.device_put(x, replicated)

  return jax.device_get(jax.tree.map(everywhere, tree))


def has_all_processes(mesh: jax.sharding.Mesh) -> bool:
  """Returns whether every process has devices of a mesh."""
  present = {device.process_index for device in mesh.devices.flat}
  return len(present) == jax.process_count()


def is_only_here(x: jax.Array) -> bool:
  """Returns whether other processes have no part of an array."""
  return is_distributed() and x.is_fully_addressable


def gather(
  tree: types.PyTree, members: range, num_members: int
) -> types.PyTree:
  """Joins the parts of all processes, in all of them; parts may be empty.

  Args:
    tree: This process's part, [len(members), ...].
    members: The indices of its members; no two processes have the same.
    num_members: n, of all processes.

  Returns:
    NumPy arrays and keys [n, ...].
  """

  def join(x: types.PyTree) -> types.PyTree:
    data = np.asarray(files.to_data(x))
    whole = np.zeros((num_members, *data.shape[1:]), data.dtype)
    whole[members.start : members.stop] = data
    # Sums of bytes are exact: only one process has others than zero.
    joined = _sum_over_processes(np.atleast_1d(whole).view(np.uint8))
    return files.from_data(joined.view(data.dtype), x)

  return jax.tree.map(join, tree)


def _sum_over_processes(x: np.ndarray) -> np.ndarray:
  devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
  mesh = jax.sharding.Mesh(devices, ('processes', 'devices'))
  parts = multihost_utils.host_local_array_to_global_array(
    x[None], mesh, PartitionSpec('processes')
  )
  return np.array(_sum_of_parts(mesh)(parts))


@functools.cache
def _sum_of_parts(
  mesh: jax.sharding.Mesh,
) -> Callable[[jax.Array], jax.Array]:
  """Compiles, once for each shape, a sum that all devices get."""
  return jax.jit(
    lambda parts: jnp.sum(parts, axis=0, dtype=parts.dtype),
    out_shardings=NamedSharding(mesh, PartitionSpec()),
  )


def local_part(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Returns the part of global arrays on this process's devices.

  Without the leading axis's entries, [0, ...], if it has none of the mesh.
  """
  if not is_distributed():
    return tree
  if not mesh.local_devices:
    return jax.tree.map(_none_of, tree)
  return multihost_utils.global_array_to_host_local_array(tree, mesh, spec)


def _none_of(x: types.PyTree) -> types.PyTree:
  """Returns an array or keys like x, [n, ...] -> [0, ...]."""
  data = jax.eval_shape(files.to_data, x)
  return files.from_data(np.zeros((0, *data.shape[1:]), data.dtype), x)


def from_parts(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Makes global arrays from each process's part; inverse of `local_part`."""
  return multihost_utils.host_local_array_to_global_array(tree, mesh, spec)
