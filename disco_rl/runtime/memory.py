"""How much memory there is, and how much of it was used."""

import os
import resource
import sys

import jax


def peak_bytes() -> int:
  """Largest memory of the device so far; of the process where it is a CPU."""
  statistics = jax.local_devices()[0].memory_stats()
  if statistics and 'peak_bytes_in_use' in statistics:
    return statistics['peak_bytes_in_use']
  # Kibibytes on Linux, bytes on macOS.
  unit = 1 if sys.platform == 'darwin' else 1024
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_bytes() -> int:
  """Memory of a device; where it is a CPU, its share of the machine's."""
  statistics = jax.local_devices()[0].memory_stats()
  if statistics and 'bytes_limit' in statistics:
    return statistics['bytes_limit']
  machine = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  return machine // jax.local_device_count()


def tree_bytes(tree: object) -> int:
  """Of all leaves, arrays or their shapes."""
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
