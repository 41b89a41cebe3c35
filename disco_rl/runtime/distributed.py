"""One run on many machines, through JAX's own distributed runtime.

All processes run the same program on the same global arrays, each on its own
devices. Environments on the host are stepped by the process whose devices their
agents live on.
"""

from collections.abc import Iterator
import contextlib
import pathlib
import tempfile
from typing import Any

import jax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
from orbax.checkpoint import multihost

from disco_rl.runtime import files

# A machine that has not been heard of for so long is gone.
_HEARTBEAT_SECONDS = 30
_COMPILING_SECONDS = 3600


def connect(
  coordinator: str | None, num_processes: int | None, process: int | None
) -> None:
  """Joins the run; call it before anything else of JAX.

  Args:
    coordinator: HOST:PORT where process 0 can be reached; None, and so the
      others, where JAX knows the cluster: SLURM, Open MPI, Kubernetes, TPUs.
    num_processes: in all.
    process: number of this one.

  Raises:
    ValueError: neither is given, or they do not go together.
    RuntimeError: the others cannot be reached.
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
      f'The machines of this run are not known: {error} Give --coordinator, '
      '--num_processes and --process, or start it under SLURM, Open MPI or '
      'Kubernetes, or on TPUs.'
    ) from error


def is_distributed() -> bool:
  """Whether other processes take part in this run."""
  return jax.process_count() > 1


def is_first() -> bool:
  """Whether this process speaks and writes for all."""
  return jax.process_index() == 0


@contextlib.contextmanager
def folder(workdir: pathlib.Path) -> Iterator[pathlib.Path]:
  """Where this process writes what all know.

  Args:
    workdir: of the run, on a file system that all share.

  Yields:
    The folder for the first process, for others one that is deleted at the end.
  """
  if is_first():
    yield workdir
    return
  with tempfile.TemporaryDirectory() as temporary:
    yield pathlib.Path(temporary)


def wait(what: str) -> None:
  """Until all processes have come so far, whatever they compile meanwhile.

  Devices that wait for one another in a program give up after half a minute.

  Args:
    what: they have done; never the same again.
  """
  if is_distributed():
    multihost.get_barrier_sync_fn()(
      key=what, timeout_ms=1000 * _COMPILING_SECONDS
    )


def largest(x: int) -> int:
  """The largest of the processes' numbers."""
  if not is_distributed():
    return x
  return int(np.max(multihost_utils.process_allgather(np.asarray(x))))


def place(x: Any, sharding: NamedSharding) -> jax.Array:
  """An array that all processes have, as one on the devices of all.

  Args:
    x: the same in all processes; may hold PRNG keys.
    sharding: over the devices.

  Returns:
    The array.
  """
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return jax.device_put(x, sharding)
  data = np.asarray(files.to_data(x))
  placed = jax.make_array_from_callback(data.shape, sharding, lambda i: data[i])
  return files.from_data(placed, x)


def fetch(tree: Any) -> Any:
  """Arrays on the devices of all, as NumPy arrays that every process has."""
  if not is_distributed():
    return jax.device_get(tree)

  def everywhere(x: Any) -> Any:
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
      return x
    assert isinstance(x.sharding, NamedSharding)
    replicated = NamedSharding(x.sharding.mesh, PartitionSpec())
    return jax.device_put(x, replicated)

  return jax.device_get(jax.tree.map(everywhere, tree))


def own_part(tree: Any, mesh: jax.sharding.Mesh, spec: PartitionSpec) -> Any:
  """What this process's devices hold of arrays on the devices of all."""
  if not is_distributed():
    return tree
  return multihost_utils.global_array_to_host_local_array(tree, mesh, spec)


def from_parts(tree: Any, mesh: jax.sharding.Mesh, spec: PartitionSpec) -> Any:
  """Undoes `own_part`: each process has what its devices are to hold."""
  return multihost_utils.host_local_array_to_global_array(tree, mesh, spec)
