"""One run on many machines, through JAX's own distributed runtime.

All processes run the same program on the same global arrays, each on its own
devices. Environments on the host are stepped by the process whose devices hold
their agents.
"""

from collections.abc import Iterator
import contextlib
import pathlib
import tempfile

import jax
from jax.experimental import multihost_utils
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
    ValueError: No cluster is detected and an argument is missing.
    RuntimeError: The coordinator cannot be reached.
  """
  try:
    jax.distributed.initialize(
      coordinator,
      num_processes,
      process,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
    )
  except ValueError as error:
    raise ValueError(
      f'No cluster was detected: {error} Give --coordinator, '
      '--num_processes and --process, or start under SLURM, Open MPI or '
      'Kubernetes, or on TPUs.'
    ) from error


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
  placed = jax.make_array_from_callback(data.shape, sharding, lambda i: data[i])
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


def own_part(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Returns the part of global arrays on this process's devices."""
  if not is_distributed():
    return tree
  return multihost_utils.global_array_to_host_local_array(tree, mesh, spec)


def from_parts(
  tree: types.PyTree, mesh: jax.sharding.Mesh, spec: PartitionSpec
) -> types.PyTree:
  """Makes global arrays from each process's part; the inverse of `own_part`."""
  return multihost_utils.host_local_array_to_global_array(tree, mesh, spec)
