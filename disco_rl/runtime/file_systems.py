"""Abilities of the file system of a folder, found out before they are needed.

Network drives, encrypted folders and mounted object stores lack some of what
disks do. Runs can do without some of that.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import errno
import fcntl
import mmap
import os
import pathlib
import re
import shutil
import uuid

from disco_rl.runtime import files

# Space on the disk, or what a user may take of it.
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclasses.dataclass(frozen=True)
class Abilities:
  """Abilities of a file system that runs use.

  Attributes:
    flushes: Whether files and folders can be flushed to the disk.
    locks: Whether files can be locked.
  """

  flushes: bool
  locks: bool


def probe(folder: pathlib.Path) -> Abilities:
  """Tries in an existing folder what runs do there, and removes all traces.

  Raises:
    files.WorkdirError: The file system cannot do what runs need.
    OSError: The disk is full, or does not let this user write.
  """
  # Removed by the next run after a kill.
  place = folder / f'.{uuid.uuid4().hex}.tmp'
  with _trying(folder, 'create folders in'):
    place.mkdir()
  try:
    file, inner = place / 'file', place / 'inner'
    with _trying(folder, 'write files in'):
      file.write_bytes(b'old\n')
    with _trying(folder, 'append to files in'), file.open('ab') as stream:
      stream.write(b'new\n')
    with _trying(folder, 'replace files in'):
      (place / 'other').write_bytes(b'')
      os.replace(place / 'other', file)
    with _trying(folder, 'rename folders in'):
      inner.mkdir()
      inner.rename(place / 'renamed')
    flushed = [files.flush_to_disk(path) for path in (file, place)]
    return Abilities(flushes=all(flushed), locks=_can_lock(file))
  finally:
    shutil.rmtree(place, ignore_errors=True)


def check_mapping(folder: pathlib.Path) -> None:
  """Checks that files in a folder, which is made, can be mapped into memory.

  Raises:
    files.WorkdirError: They cannot.
    OSError: No file can be written there.
  """
  folder.mkdir(parents=True, exist_ok=True)
  path = folder / f'.{uuid.uuid4().hex}.tmp'
  try:
    path.write_bytes(bytes(mmap.PAGESIZE))
    with (
      _trying(folder, 'map files into memory in'),
      path.open('r+b') as file,
      mmap.mmap(file.fileno(), 0) as mapped,
    ):
      mapped[0] = 1
      mapped.flush()
  finally:
    path.unlink(missing_ok=True)


def is_full(error: BaseException | None) -> bool:
  """Returns whether a full disk, or a quota, caused an error."""
  while error is not None:
    if isinstance(error, OSError) and error.errno in _FULL:
      return True
    if any(reason_in(f'{error}') == os.strerror(code) for code in _FULL):
      return True
    error = error.__cause__ or error.__context__
  return False


def reason_in(message: str) -> str | None:
  """Returns the operating system's reason in a message of TensorStore."""
  found = re.search(r"os_error_code='(\d+)'", message)
  return found and os.strerror(int(found[1]))


@contextlib.contextmanager
def _trying(folder: pathlib.Path, what: str) -> Iterator[None]:
  """Raises WorkdirError instead of errors of what a file system cannot do."""
  try:
    with files.naming(folder):
      yield
  except OSError as error:
    if is_full(error) or error.errno in (errno.EROFS, errno.ENOENT):
      raise
    raise files.WorkdirError(
      f'It is not possible to {what} {folder} ({error.strerror}), which runs '
      'need: likely its file system does not support it. Choose a --workdir on '
      'another disk.'
    ) from error


def _can_lock(path: pathlib.Path) -> bool:
  """Returns whether both kinds of locks work, which libraries use."""
  with path.open('rb+') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      fcntl.flock(file, fcntl.LOCK_UN)
      fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
      return False
  return True
