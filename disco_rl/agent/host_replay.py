"""A replay buffer in host memory or in files, for environments on the host.

This is the counterpart of `replay`, with the same contents and batches, but
each frame of a stack is stored once, and not on a device:

  buffer = HostReplay(row_format, capacity)
  unpack = jax.jit(row_format.unpack)
  buffer.add(rollout)
  (slots,) = agent.sample_slots(key, buffer.added - buffer.start)
  batch = unpack(buffer.gather(np.asarray(slots)))

A trajectory is a row of bytes, which the host stores and the device unpacks;
see `trajectory_rows`.
"""

from typing import NamedTuple

import numpy as np

from disco_rl import types
from disco_rl.agent import trajectory_rows
from disco_rl.runtime import files
from disco_rl.runtime import row_log


class HostReplay:
  """The newest trajectories of one agent; changed in place, by one thread.

  It remains in use when the agent is reset. A checkpoint contains `start` and
  `added`; the trajectories are in files of the directory, and each save writes
  only new ones.

  Attributes:
    start: The number of trajectories added before the last reset.
  """

  def __init__(
    self,
    row_format: trajectory_rows.RowFormat,
    capacity: int,
    directory: files.PathLike | None = None,
    is_mapped: bool = False,
  ):
    """Makes an empty buffer.

    Args:
      row_format: The layout of trajectories, by `trajectory_rows.make_format`.
      capacity: The number of trajectories.
      directory: The folder of this buffer only; None: it cannot be saved or
        restored.
      is_mapped: Whether trajectories are in memory-mapped files of the
        directory, not in memory.

    Raises:
      ValueError: A buffer in files has no directory.
    """
    self.start = 0
    self._capacity = capacity
    self._format = row_format
    self._log = row_log.RowLog(
      self._format.dtype.itemsize, capacity, directory, is_mapped
    )

  @property
  def added(self) -> int:
    """The number of trajectories ever added, including before resets."""
    return self._log.end

  @property
  def filled(self) -> int:
    """The number of trajectories that can be sampled."""
    return min(self.added - self.start, self._capacity)

  def add(self, rollout: types.Rollout) -> None:
    """Adds E trajectories, which replace the oldest.

    Args:
      rollout: The rollout of this agent, [T or T+1, E, ...].

    Raises:
      ValueError: Shapes, types or frame stacks do not match the spec.
      row_log.RowLogError: A file cannot be created.
    """
    self._log.append(self._format.pack(rollout))

  def gather(self, slots: np.ndarray) -> np.ndarray:
    """Copies trajectories, for `RowFormat.unpack` to turn into a batch.

    Args:
      slots: [B] integers below `filled`: a trajectory's number since the reset,
        modulo the capacity, as in `replay.ReplayState`.

    Returns:
      [B, bytes of a trajectory] uint8, a new array.

    Raises:
      IndexError: A slot is empty.
    """
    slots = np.asarray(slots, np.int64)
    if np.any((slots < 0) | (slots >= self.filled)):
      raise IndexError(f'slots {slots}, but only {self.filled} are filled')
    newest = self.added - self.start - 1
    ages = (newest - slots) % self._capacity
    return self._log.read(self.start + newest - ages)

  def contents(self) -> np.ndarray:
    """Returns all trajectories by slot, [capacity, bytes of one] uint8."""
    rows = np.zeros((self._capacity, self._format.dtype.itemsize), np.uint8)
    rows[: self.filled] = self.gather(np.arange(self.filled))
    return rows

  def replace_contents(self, rows: np.ndarray, start: int, added: int) -> None:
    """Continues with the `contents` and counts of another buffer, in memory."""
    number = added - start
    filled = min(number, self._capacity)
    self._log = row_log.RowLog(self._format.dtype.itemsize, self._capacity)
    self._log.append(rows[np.arange(number - filled, number) % self._capacity])
    # The oldest has number 0 in the new log, and keeps its slot.
    self.start = filled - number

  def reset(self) -> None:
    """Empties the buffer, for an agent that was reset."""
    self.start = self.added

  def save(self) -> None:
    """Writes trajectories added since the last save to disk.

    After that, even after a kill, `start` and `added` can be restored.

    Raises:
      row_log.RowLogError: They cannot be written; earlier saves are kept.
    """
    self._log.save()

  def restore(self, start: int, added: int) -> None:
    """Restores the contents of a checkpoint with these counts.

    Later trajectories are lost. After an error, an older checkpoint can be
    restored.

    Raises:
      row_log.RowLogError: A file is missing or damaged.
    """
    self._log.restore(self._oldest(start, added), added)
    self.start = start

  def delete_unneeded(self, start: int, added: int) -> None:
    """Deletes files that no checkpoint with these or later counts needs.

    Raises:
      row_log.RowLogError: A file cannot be deleted.
    """
    self._log.delete_below(self._oldest(start, added))

  def _oldest(self, start: int, added: int) -> int:
    """Returns the number of the oldest trajectory that is kept."""
    return max(start, added - self._capacity)


class Footprint(NamedTuple):
  """Bytes of one agent's replay.

  Attributes:
    memory: The bytes in host memory.
    disk: The bytes in files, without trajectories added since the oldest
      checkpoint that is kept.
  """

  memory: int
  disk: int


def footprint(
  row_format: trajectory_rows.RowFormat, capacity: int, is_mapped: bool = False
) -> Footprint:
  """Computes the size of a buffer; see `HostReplay` for the arguments."""
  row_bytes = row_format.dtype.itemsize
  return Footprint(
    memory=0 if is_mapped else row_log.memory_bytes(row_bytes, capacity),
    disk=row_log.disk_bytes(row_bytes, capacity),
  )
