"""Append-only logs of rows of bytes, in memory or in memory-mapped files.

Rows are numbered from 0 on, in the order in which they are appended; the newest
ones, as many as the capacity, can be read. On disk each row is followed by a
checksum of its number and its bytes. A row that was saved is never written
again: whoever recorded the number of rows when `save` returned can restore them
at any later time, whatever was appended since, until their files are deleted.
"""

import abc
from collections.abc import Iterator
import contextlib
import os
import pathlib
import zlib

import numpy as np

from disco_rl.runtime import files

# A file holds this fraction of the capacity: many files would mean many open
# ones, few would keep many rows that nobody needs any longer.
_FILES = 16
_CHECKSUM = np.dtype('<u4')


class RowLogError(RuntimeError):
  """A file of a log cannot be written, is missing, or is damaged."""


class RowFiles:
  """The files of a log, of equally many rows each; no content is cached."""

  def __init__(self, directory: files.PathLike, row_bytes: int, capacity: int):
    """Makes nothing yet.

    Args:
      directory: of this log alone.
      row_bytes: of a row.
      capacity: of the log.
    """
    self._directory = pathlib.Path(directory)
    self.shape = (-(-capacity // _FILES), row_bytes + _CHECKSUM.itemsize)
    self.num_bytes = self.shape[0] * self.shape[1]

  def path(self, number: int) -> pathlib.Path:
    """The file of a row."""
    return self._directory / f'{number // self.shape[0]:012}.rows'

  def offset(self, number: int) -> int:
    """Where a row begins in its file."""
    return number % self.shape[0] * self.shape[1]

  def spans(self, first: int, end: int) -> Iterator[range]:
    """The numbers of rows, in a range for each file."""
    while first < end:
      after = min(end, (first // self.shape[0] + 1) * self.shape[0])
      yield range(first, after)
      first = after

  def prepare(self, number: int) -> pathlib.Path:
    """Makes the file of a row, of full size, unless it has rows before that.

    Returns:
      Its path.

    Raises:
      RowLogError: it cannot be made.
    """
    path = self.path(number)
    if number % self.shape[0] and _size(path) == self.num_bytes:
      return path
    with self.writing(path):
      self._directory.mkdir(parents=True, exist_ok=True)
      try:
        with path.open('wb') as file:
          self._allocate(file.fileno())
      except OSError:
        path.unlink(missing_ok=True)
        raise
      _sync(self._directory)
    return path

  def check(self, path: pathlib.Path) -> None:
    """Raises RowLogError if a file is missing or has another size."""
    size = _size(path)
    if size is None:
      raise RowLogError(f'{path} is missing, so that not all rows are there.')
    if size != self.num_bytes:
      raise RowLogError(
        f'{path} has {size} bytes, expected {self.num_bytes}: it was cut off, '
        'or written with other settings.'
      )

  def delete_below(self, number: int) -> None:
    """Deletes the files that hold no row from `number` on."""
    with self.writing(self._directory):
      for path in self._directory.glob('*.rows'):
        if path.name < self.path(number).name:
          path.unlink()

  @contextlib.contextmanager
  def writing(self, path: pathlib.Path) -> Iterator[None]:
    """Raises RowLogError in place of an error of the file system."""
    try:
      yield
    except OSError as error:
      raise RowLogError(
        f'{path} cannot be written: {error}. If the disk is full, '
        f'free space for files of {self.num_bytes / 1e6:.0f} MB, or lower the '
        'capacity. Rows that were saved before stay.'
      ) from error

  def _allocate(self, descriptor: int) -> None:
    # Writing to a mapped file kills the process if the disk is full by then.
    if hasattr(os, 'posix_fallocate'):
      os.posix_fallocate(descriptor, 0, self.num_bytes)
      return
    for _ in range(self.shape[0]):  # macOS.
      os.write(descriptor, bytes(self.shape[1]))


class RowLog(abc.ABC):
  """A log of rows; see the module, and `make`.

  Attributes:
    end: number of rows ever appended, which is the number of the next one.
  """

  def __init__(self, row_bytes: int, capacity: int, row_files: RowFiles | None):
    self.end = 0
    self._saved = 0
    self._row_bytes = row_bytes
    self._capacity = capacity
    self._row_files = row_files

  def append(self, rows: np.ndarray) -> None:
    """Appends rows [n, row_bytes] uint8.

    Raises:
      RowLogError: a file cannot be made.
    """
    for row in rows:
      kept = self._new_row(self.end)
      kept[: self._row_bytes] = row
      kept[self._row_bytes :].view(_CHECKSUM)[0] = self._checksum(self.end)
      self.end += 1

  def read(self, numbers: np.ndarray) -> np.ndarray:
    """Returns copies of the rows of these numbers, [B, row_bytes] uint8."""
    rows = np.empty((len(numbers), self._row_bytes), np.uint8)
    for row, number in zip(rows, numbers.tolist()):
      row[:] = self._row(number)[: self._row_bytes]
    return rows

  def save(self) -> None:
    """Writes the rows that were appended since the last time, to the disk.

    Raises:
      RowLogError: they cannot be written; those saved before stay.
    """
    first = max(self._saved, self.end - self._capacity)
    for numbers in self._files.spans(first, self.end):
      with self._files.writing(self._files.path(numbers.start)):
        self._write(numbers)
    self._saved = self.end

  def restore(self, first: int, end: int) -> None:
    """Returns to the state in which `end` rows had been appended.

    After an error another state can be restored.

    Args:
      first: number of the first row to load; the rows before it are lost.
      end: at most `first` + capacity.

    Raises:
      RowLogError: a file is missing or damaged.
    """
    for numbers in self._files.spans(first, end):
      path = self._files.path(numbers.start)
      self._files.check(path)
      try:
        self._load(numbers)
      except OSError as error:
        raise RowLogError(f'{path} cannot be read: {error}.') from error
      for number in numbers:
        stored = self._row(number)[self._row_bytes :].view(_CHECKSUM)[0]
        if stored != self._checksum(number):
          raise RowLogError(
            f'{path} is damaged: the checksum of row {number} differs.'
          )
    self._saved = self.end = end

  def delete_below(self, number: int) -> None:
    """Deletes the files that hold no row from `number` on."""
    self._files.delete_below(number)

  def _checksum(self, number: int) -> int:
    # Of the number too, which a row of another place does not have.
    content = self._row(number)[: self._row_bytes]
    return zlib.crc32(content.data, number % 2**32)

  @property
  def _files(self) -> RowFiles:
    if self._row_files is None:
      raise ValueError('A log without a directory cannot be saved or restored.')
    return self._row_files

  @abc.abstractmethod
  def _row(self, number: int) -> np.ndarray:
    """A row and its checksum, [row_bytes + 4]; not a copy."""

  def _new_row(self, number: int) -> np.ndarray:
    """The row that is appended next."""
    return self._row(number)

  @abc.abstractmethod
  def _write(self, numbers: range) -> None:
    """Writes rows of one file to the disk."""

  @abc.abstractmethod
  def _load(self, numbers: range) -> None:
    """Reads rows of one file, which exists."""


class _MemoryLog(RowLog):
  """A ring in memory."""

  def __init__(self, row_bytes: int, capacity: int, row_files: RowFiles | None):
    super().__init__(row_bytes, capacity, row_files)
    self._rows = np.zeros((capacity, row_bytes + _CHECKSUM.itemsize), np.uint8)

  def _row(self, number: int) -> np.ndarray:
    return self._rows[number % self._capacity]

  def _write(self, numbers: range) -> None:
    with self._files.prepare(numbers.start).open('r+b') as file:
      file.seek(self._files.offset(numbers.start))
      for number in numbers:
        file.write(self._row(number).data)
      file.flush()
      os.fsync(file.fileno())

  def _load(self, numbers: range) -> None:
    with self._files.path(numbers.start).open('rb') as file:
      file.seek(self._files.offset(numbers.start))
      for number in numbers:
        file.readinto(self._row(number).data)


class _MappedLog(RowLog):
  """Memory-mapped files: the operating system keeps in memory what fits."""

  def __init__(self, row_bytes: int, capacity: int, row_files: RowFiles):
    super().__init__(row_bytes, capacity, row_files)
    self._maps: dict[pathlib.Path, np.memmap] = {}

  def _row(self, number: int) -> np.ndarray:
    mapped = self._maps[self._files.path(number)]
    return mapped[number % len(mapped)]

  def _new_row(self, number: int) -> np.ndarray:
    if self._files.path(number) not in self._maps:
      self._map(self._files.prepare(number))
      oldest = self._files.path(max(0, number + 1 - self._capacity))
      for path in [path for path in self._maps if path < oldest]:
        del self._maps[path]
    return self._row(number)

  def _write(self, numbers: range) -> None:
    self._maps[self._files.path(numbers.start)].flush()

  def _load(self, numbers: range) -> None:
    self._map(self._files.path(numbers.start))

  def _map(self, path: pathlib.Path) -> None:
    self._maps[path] = np.memmap(path, mode='r+', shape=self._files.shape)


def make(
  row_bytes: int,
  capacity: int,
  directory: files.PathLike | None,
  is_mapped: bool,
) -> RowLog:
  """Makes an empty log.

  Args:
    row_bytes: of a row.
    capacity: number of rows that can be read.
    directory: of this log alone; made when a file is. None: the log is in
      memory, and cannot be saved or restored.
    is_mapped: rows are in files of the directory from the beginning, not in
      memory.

  Returns:
    The log.

  Raises:
    ValueError: a log in files has no directory.
  """
  if directory is None:
    if is_mapped:
      raise ValueError('A log in memory-mapped files needs a directory.')
    return _MemoryLog(row_bytes, capacity, None)
  row_files = RowFiles(directory, row_bytes, capacity)
  kind = _MappedLog if is_mapped else _MemoryLog
  return kind(row_bytes, capacity, row_files)


def memory_bytes(row_bytes: int, capacity: int) -> int:
  """Memory of a log that is not in files."""
  return capacity * (row_bytes + _CHECKSUM.itemsize)


def disk_bytes(row_bytes: int, capacity: int) -> int:
  """Size of the files of a log: its newest rows span one file more."""
  rows_per_file = -(-capacity // _FILES)
  return (_FILES + 1) * rows_per_file * (row_bytes + _CHECKSUM.itemsize)


def _size(path: pathlib.Path) -> int | None:
  return path.stat().st_size if path.is_file() else None


def _sync(directory: pathlib.Path) -> None:
  """Flushes the names of new files, without which their content is lost."""
  descriptor = os.open(directory, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
