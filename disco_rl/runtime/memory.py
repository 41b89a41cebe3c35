"""Available and used memory, in bytes."""

from collections.abc import Iterator
import contextlib
import math
import os
import pathlib
import resource
import sys

import jax

from disco_rl import types

_ROOT = pathlib.Path('/')


def peak_bytes() -> int:
  """Returns the peak memory of the first device, or of the process on a CPU."""
  statistics = jax.local_devices()[0].memory_stats()
  if statistics and 'peak_bytes_in_use' in statistics:
    return statistics['peak_bytes_in_use']
  # Kibibytes on Linux, bytes on macOS.
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_bytes() -> int:
  """Returns the memory of a device; on a CPU, its share of the machine's."""
  statistics = jax.local_devices()[0].memory_stats()
  if statistics and 'bytes_limit' in statistics:
    return statistics['bytes_limit']
  return host_bytes() // jax.local_device_count()


def host_bytes() -> int:
  """Returns the memory of the machine, or of its container or job if less."""
  limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]
  for group in _control_groups():
    for name in ('memory.max', 'memory.limit_in_bytes'):
      # Without a limit, there is no such file or number.
      with contextlib.suppress(OSError, ValueError):
        limits.append(int((group / name).read_text()))
  return min(limits)


def _control_groups() -> Iterator[pathlib.Path]:
  """Yields the folders of this process's control groups on Linux."""
  try:
    lines = (_ROOT / 'proc/self/cgroup').read_text().splitlines()
  except OSError:
    return
  for _, kinds, path in (line.split(':', 2) for line in lines):
    if kinds and 'memory' not in kinds.split(','):
      continue
    folder = _ROOT / 'sys/fs/cgroup' / ('memory' if kinds else '')
    own = pathlib.PurePath(path.lstrip('/'))
    # Within a container only the outermost of them exists.
    yield from (folder / group for group in (own, *own.parents))


def tree_bytes(tree: object) -> int:
  """Returns the total size of leaves: arrays, or `jax.ShapeDtypeStruct`."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def device_bytes(tree: object) -> int:
  """Returns the size on each device of leaves that may be sharded."""

  def size(leaf: types.PyTree) -> int:
    placed = getattr(leaf, 'sharding', None)
    shape = placed.shard_shape(leaf.shape) if placed else leaf.shape
    return math.prod(shape) * leaf.dtype.itemsize

  return sum(map(size, jax.tree.leaves(tree)))


def gib(size: float) -> str:
  """Formats a number of bytes."""
  return f'{size / 2**30:.2f} GiB'
