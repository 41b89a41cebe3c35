"""Append-only logs of rows of bytes, in memory or in memory-mapped files.

Rows are numbered from 0 in the order of appending, and the newest `capacity`
rows can be read. In memory they form a ring; on disk each file contains a block
of them. Each row is followed by a checksum of its number and its bytes. A saved
row is never overwritten, so a caller that stores the number of rows at `save`
can restore that state later, even after rows have been appended, until its
files are deleted.
"""

from collections.abc import Iterator
import contextlib
import math
import os
import pathlib
import zlib

import numpy as np

from disco_rl.runtime import file_systems
from disco_rl.runtime import files

# A block has this fraction of the capacity: small blocks need many open files,
# large blocks keep many rows that are no longer needed.
_BLOCKS = 16
_CHECKSUM = np.dtype('<u4')


class RowLogError(RuntimeError):
  """Raised if a file of a log cannot be written, is missing, or is damaged."""


class RowLog:
  """A log of rows, as the module describes.

  Attributes:
    end: The number of rows ever appended, which is the next row's number.
  """

  def __init__(
    self,
    row_bytes: int,
    capacity: int,
    directory: files.PathLike | None = None,
    is_mapped: bool = False,
  ):
    """Makes an empty log.

    Args:
      row_bytes: The size of a row.
      capacity: The number of rows that can be read.
      directory: The folder of this log only, created with its first file; None:
        the log cannot be saved or restored.
      is_mapped: Whether rows are always in files, not in memory.

    Raises:
      ValueError: A log in files has no directory, or its file system cannot map
        files into memory.
      OSError: No file can be written there.
    """
    if is_mapped:
      if directory is None:
        raise ValueError('A log in memory-mapped files needs a directory.')
      file_systems.check_mapping(pathlib.Path(directory))
    self.end = self._saved = 0
    self._row_bytes = row_bytes
    self._capacity = capacity
    self._directory = None if directory is None else pathlib.Path(directory)
    self._shape = _block_shape(row_bytes, capacity)
    # The mapped files by the number of the block, or the ring.
    self._blocks: dict[int, np.memmap] = {}
    self._ring: np.ndarray | None = None
    if not is_mapped:
      self._ring = np.zeros((capacity, self._shape[1]), np.uint8)

  def append(self, rows: np.ndarray) -> None:
    """Appends rows [n, row_bytes] uint8.

    Raises:
      RowLogError: A file cannot be created.
    """
    for row in rows:
      if self._ring is None:
        self._map_new(self.end)
      kept = self._row(self.end)
      kept[: self._row_bytes] = row
      kept[self._row_bytes :].view(_CHECKSUM)[0] = self._checksum(self.end)
      self.end += 1

  def read(self, numbers: np.ndarray) -> np.ndarray:
    """Returns copies of the rows with these numbers, [B, row_bytes] uint8."""
    rows = np.empty((len(numbers), self._row_bytes), np.uint8)
    for row, number in zip(rows, numbers.tolist()):
      row[:] = self._row(number)[: self._row_bytes]
    return rows

  def save(self) -> None:
    """Writes the rows appended since the last call to disk.

    Raises:
      RowLogError: They cannot be written; earlier ones remain saved.
    """
    first = max(self._saved, self.end - self._capacity)
    for numbers in self._spans(first, self.end):
      with self._writing(self._path(numbers.start)):
        if self._ring is None:
          self._blocks[self._index(numbers.start)].flush()
          continue
        with self._prepare(numbers.start).open('r+b') as file:
          file.seek(self._offset(numbers.start))
          for number in numbers:
            file.write(self._row(number).data)
        files.flush_to_disk(self._path(numbers.start))
    self._saved = self._check_saved(self.end)

  def restore(self, first: int, end: int) -> None:
    """Restores the state with `end` rows.

    Rows before `first` are lost. After an error, another state can be restored.

    Raises:
      RowLogError: A file is missing or damaged.
    """
    self._blocks = {}
    for numbers in self._spans(first, end):
      path = self._path(numbers.start)
      self._check_size(path)
      try:
        self._load(path, numbers)
      except OSError as error:
        raise RowLogError(f'{path} cannot be read: {error}.') from error
      for number in numbers:
        stored = self._row(number)[self._row_bytes :].view(_CHECKSUM)[0]
        if stored != self._checksum(number):
          raise RowLogError(
            f'{path} is damaged: the checksum of row {number} differs.'
          )
    self._saved = self.end = self._check_saved(end)

  def delete_below(self, number: int) -> None:
    """Deletes the files that contain only rows before `number`."""
    oldest = self._path(number)
    with self._writing(oldest.parent):
      for path in oldest.parent.glob('*.rows'):
        if path.name < oldest.name:
          path.unlink()

  # Where rows are stored.

  def _spans(self, first: int, end: int) -> Iterator[range]:
    """Yields ranges of row numbers, one for each block."""
    while first < end:
      after = min(end, (self._index(first) + 1) * self._shape[0])
      yield range(first, after)
      first = after

  def _index(self, number: int) -> int:
    """Returns the block of a row."""
    return number // self._shape[0]

  def _offset(self, number: int) -> int:
    """Returns the offset of a row in its file."""
    return number % self._shape[0] * self._shape[1]

  def _row(self, number: int) -> np.ndarray:
    """Returns a view of a row and its checksum."""
    if self._ring is not None:
      return self._ring[number % self._capacity]
    return self._blocks[self._index(number)][number % self._shape[0]]

  def _checksum(self, number: int) -> int:
    # Starting from the number detects misplaced rows.
    content = self._row(number)[: self._row_bytes]
    return zlib.crc32(content.data, number % 2**32)

  def _map_new(self, number: int) -> None:
    """Maps the file of a row if it is new, and drops files that are too old."""
    if self._index(number) in self._blocks:
      return
    self._map(self._prepare(number), number)
    oldest = self._index(max(0, number + 1 - self._capacity))
    self._blocks = {i: x for i, x in self._blocks.items() if i >= oldest}

  # Files.

  def _path(self, number: int) -> pathlib.Path:
    """Returns the file of a row."""
    self._check_saved(number)
    assert self._directory is not None
    return self._directory / f'{self._index(number):012}.rows'

  def _check_saved(self, number: int) -> int:
    """Returns the number; raises ValueError if there is no directory."""
    if self._directory is None:
      raise ValueError('A log without a directory cannot be saved or restored.')
    return number

  def _map(self, path: pathlib.Path, number: int) -> None:
    mapped = np.memmap(path, mode='r+', shape=self._shape)
    self._blocks[self._index(number)] = mapped

  def _load(self, path: pathlib.Path, numbers: range) -> None:
    """Reads rows from an existing file."""
    if self._ring is None:
      self._map(path, numbers.start)
      return
    with path.open('rb') as file:
      file.seek(self._offset(numbers.start))
      for number in numbers:
        file.readinto(self._row(number).data)

  def _prepare(self, number: int) -> pathlib.Path:
    """Creates the file of a row at full size, unless it has earlier rows.

    Raises:
      RowLogError: It cannot be created.
    """
    path, size = self._path(number), self._shape[0] * self._shape[1]
    if self._offset(number) and _size(path) == size:
      return path
    with self._writing(path):
      path.parent.mkdir(parents=True, exist_ok=True)
      try:
        with path.open('wb') as file:
          _allocate(file.fileno(), size)
      except OSError:
        path.unlink(missing_ok=True)
        raise
      # Without the names of new files their content is lost.
      files.flush_to_disk(path.parent)
    return path

  def _check_size(self, path: pathlib.Path) -> None:
    """Raises RowLogError if a file is missing or has another size."""
    size, expected = _size(path), self._shape[0] * self._shape[1]
    if size is None:
      raise RowLogError(f'{path} is missing; the replay is incomplete.')
    if size != expected:
      raise RowLogError(
        f'{path} has {size} bytes, expected {expected}: it was cut off, or '
        'written with other settings.'
      )

  @contextlib.contextmanager
  def _writing(self, path: pathlib.Path) -> Iterator[None]:
    """Raises RowLogError instead of an error of the file system."""
    try:
      yield
    except OSError as error:
      remedy = ''
      if file_systems.is_full(error):
        size = math.ceil(self._shape[0] * self._shape[1] / 1e6)
        remedy = (
          f'Free space for files of {size} MB, or choose a lower '
          'replay_capacity. '
        )
      raise RowLogError(
        f'The replay {path} cannot be written: {error.strerror}. {remedy}What '
        'was saved before is kept.'
      ) from error


def memory_bytes(row_bytes: int, capacity: int) -> int:
  """Returns the memory of a log that is not in mapped files."""
  return capacity * (row_bytes + _CHECKSUM.itemsize)


def disk_bytes(row_bytes: int, capacity: int) -> int:
  """Returns the size of a log's files, including an additional block."""
  rows, size = _block_shape(row_bytes, capacity)
  return (_BLOCKS + 1) * rows * size


def _block_shape(row_bytes: int, capacity: int) -> tuple[int, int]:
  """Returns the rows in a block, and the bytes of a row with its checksum."""
  return -(-capacity // _BLOCKS), row_bytes + _CHECKSUM.itemsize


def _size(path: pathlib.Path) -> int | None:
  return path.stat().st_size if path.is_file() else None


def _allocate(descriptor: int, size: int) -> None:
  # If the disk is full, writing to a mapped file kills the process.
  try:
    if hasattr(os, 'posix_fallocate'):  # Not on macOS.
      os.posix_fallocate(descriptor, 0, size)
      return
  except OSError as error:
    # The file system does not reserve space.
    if error.errno not in files.UNSUPPORTED:
      raise
  while size > 0:
    size -= os.write(descriptor, bytes(min(2**20, size)))
