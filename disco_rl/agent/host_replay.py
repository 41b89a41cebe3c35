"""A replay buffer in host memory or in files, for environments on the host.

The counterpart of `replay`, with the same contents and batches, but each frame
of a stack is there once, and no device holds it:

  unpack = jax.jit(host_replay.unpack)
  host_replay.add(rollout)
  (slots,) = agent.draw_slots(key, host_replay.added)
  batch = unpack(host_replay.gather(np.asarray(slots)))
"""

from typing import NamedTuple

import numpy as np

from disco_rl import types
from disco_rl.agent import trajectory_rows
from disco_rl.runtime import files
from disco_rl.runtime import row_log


class HostReplay:
  """The newest trajectories of one agent; changed in place, by one thread.

  It outlives the agent's resets. A checkpoint holds `start` and `added`; the
  trajectories themselves stay in the directory, where only those added since
  the last time are written.

  Attributes:
    start: number of trajectories added before the agent was last reset.
  """

  def __init__(
    self,
    spec: types.EnvironmentSpec,
    core_state: types.PyTree,
    length: int,
    capacity: int,
    directory: files.PathLike | None = None,
    is_mapped: bool = False,
  ):
    """Makes an empty buffer.

    Args:
      spec: of the agent's environment.
      core_state: tree of [1, ...], of the core of its network.
      length: T.
      capacity: number of trajectories.
      directory: of this buffer alone; None: it cannot be saved or restored.
      is_mapped: trajectories are in memory-mapped files of the directory, not
        in memory.

    Raises:
      ValueError: a buffer in files has no directory.
    """
    self.start = 0
    self._capacity = capacity
    self._format = trajectory_rows.make(spec, core_state, length)
    self._log = row_log.make(
      self._format.dtype.itemsize, capacity, directory, is_mapped
    )

  @property
  def added(self) -> int:
    """Number of trajectories ever added, by the agent before resets too."""
    return self._log.end

  @property
  def filled(self) -> int:
    """Number of trajectories that can be sampled."""
    return min(self.added - self.start, self._capacity)

  def add(self, rollout: types.Rollout) -> None:
    """Adds E trajectories in place of the oldest.

    Args:
      rollout: [T or T+1, E, ...], of this agent.

    Raises:
      ValueError: shapes, types or frame stacks are not those of the spec.
      row_log.RowLogError: a file cannot be made.
    """
    self._log.append(self._format.pack(rollout))

  def gather(self, slots: np.ndarray) -> np.ndarray:
    """Copies trajectories, for `unpack` to turn into a batch.

    Args:
      slots: [B] integers, each less than `filled`: a trajectory's number since
        the reset, modulo the capacity, as `replay.ReplayState` has them.

    Returns:
      [B, bytes of a trajectory] uint8, a new array.

    Raises:
      IndexError: a slot is empty.
    """
    slots = np.asarray(slots, np.int64)
    if np.any((slots < 0) | (slots >= self.filled)):
      raise IndexError(f'slots {slots} of {self.filled} that are filled')
    newest = self.added - self.start - 1
    ages = (newest - slots) % self._capacity
    return self._log.read(self.start + newest - ages)

  def contents(self) -> np.ndarray:
    """All trajectories by slot, [capacity, bytes of a trajectory] uint8."""
    rows = np.zeros((self._capacity, self._format.dtype.itemsize), np.uint8)
    rows[: self.filled] = self.gather(np.arange(self.filled))
    return rows

  def replace_contents(self, rows: np.ndarray, start: int, added: int) -> None:
    """Continues as another buffer would, of which nothing is on disk.

    Args:
      rows: the other's `contents`.
      start: of the other.
      added: of the other.
    """
    number = added - start
    filled = min(number, self._capacity)
    self._log = row_log.make(
      self._format.dtype.itemsize, self._capacity, None, is_mapped=False
    )
    self._log.append(rows[np.arange(number - filled, number) % self._capacity])
    # The oldest has number 0 in the new log, and keeps its slot.
    self.start = filled - number

  def unpack(self, rows: types.Array) -> types.Rollout:
    """Turns what `gather` returns into a batch [T or T+1, B, ...].

    A pure function, for use in a compiled program: frames are stacked on the
    device, which receives each of them once. On CPUs most of the time goes into
    new memory: donate the batch before if it is no longer needed.
    """
    return self._format.unpack(rows)

  def reset(self) -> None:
    """Empties the buffer, for an agent that was reset."""
    self.start = self.added

  def save(self) -> None:
    """Writes what was added since the last time, to the disk.

    From then on, also after a kill, `start` and `added` can be restored.

    Raises:
      row_log.RowLogError: it cannot be written; what was saved before stays.
    """
    self._log.save()

  def restore(self, start: int, added: int) -> None:
    """Returns to the contents of a checkpoint; later ones are lost.

    After an error, an older checkpoint can be restored.

    Args:
      start: of the buffer when it was saved.
      added: of the buffer when it was saved.

    Raises:
      row_log.RowLogError: a file is missing or damaged.
    """
    self._log.restore(self._oldest(start, added), added)
    self.start = start

  def delete_unneeded(self, start: int, added: int) -> None:
    """Deletes files that neither a checkpoint nor later ones need.

    Args:
      start: in the oldest checkpoint that is kept.
      added: in the oldest checkpoint that is kept.

    Raises:
      row_log.RowLogError: a file cannot be deleted.
    """
    self._log.delete_below(self._oldest(start, added))

  def _oldest(self, start: int, added: int) -> int:
    """Number of the oldest trajectory that is held."""
    return max(start, added - self._capacity)


class Footprint(NamedTuple):
  """Bytes of one agent's replay.

  Attributes:
    memory: of the host, if trajectories are not in memory-mapped files.
    disk: of their files, if they are, or if they are saved. Trajectories that
      were added since the oldest checkpoint that is kept come on top.
  """

  memory: int
  disk: int


def footprint(
  spec: types.EnvironmentSpec,
  core_state: types.PyTree,
  length: int,
  capacity: int,
) -> Footprint:
  """Computes the size of a buffer; see `HostReplay` for the arguments."""
  row_bytes = trajectory_rows.make(spec, core_state, length).dtype.itemsize
  return Footprint(
    memory=row_log.memory_bytes(row_bytes, capacity),
    disk=row_log.disk_bytes(row_bytes, capacity),
  )
