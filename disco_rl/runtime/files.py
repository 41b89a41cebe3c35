"""Atomic replacement of files, and PRNG keys in files."""

from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import re
import uuid

import jax

from disco_rl import config as config_lib
from disco_rl import types

PathLike = str | os.PathLike[str]


class WorkdirError(ValueError):
  """Raised if a run's folder contains something else, or a damaged file."""


def expanded(path: PathLike) -> pathlib.Path:
  """Expands ~; raises ValueError as `config.local` does."""
  return pathlib.Path(config_lib.local(path))


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[pathlib.Path]:
  """Yields a temporary path, whose file replaces `path` on success.

  A reader of `path` finds the old content or the new one, never a part of it,
  even after a kill or a crash. An exception in the body leaves the old content
  and no temporary file. Concurrent writers of one path do not interfere. The
  target of a symbolic link is replaced, not the link.

  Yields:
    A path in the same folder, because only renames within a file system are
    atomic. The body writes and closes the file.
  """
  path = pathlib.Path(os.path.realpath(path))
  temporary = path.with_name(f'.{path.name}.{uuid.uuid4().hex}.tmp')
  try:
    with naming(path):
      yield temporary
    # Otherwise the new name could reach the disk before the content.
    flush_to_disk(temporary)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def check_writable(path: PathLike) -> None:
  """Raises OSError if a file cannot be created; call it before long work."""
  path = expanded(path).absolute()
  if path.is_dir():
    raise IsADirectoryError(errno.EISDIR, 'Is a folder', f'{path}')
  folder = next(x for x in path.parents if x.exists())
  if not folder.is_dir() or not os.access(folder, os.W_OK):
    raise PermissionError(errno.EACCES, 'Cannot create a file in', f'{folder}')


def remove_temporary(directory: pathlib.Path) -> None:
  """Removes files that `replacing` has left in a folder after a kill."""
  for path in directory.glob('.*.tmp'):
    if re.fullmatch(r'\..+\.[0-9a-f]{32}\.tmp', path.name):
      path.unlink(missing_ok=True)


def steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps of the complete checkpoints in a folder, sorted.

  Checkpoints that are being written have other names.
  """
  names = [path.name for path in checkpoints.glob('*')]
  return sorted(int(name) for name in names if name.isdecimal())


@contextlib.contextmanager
def naming(path: PathLike) -> Iterator[None]:
  """Adds a path to errors of the operating system, such as a full disk."""
  try:
    yield
  except OSError as error:
    if error.errno is None or error.filename is not None:
      raise
    raise OSError(error.errno, error.strerror, str(path)) from error


def flush_to_disk(path: pathlib.Path) -> bool:
  """Flushes the content of a file to the disk.

  Returns:
    Whether it is there; some mounted file systems do not support the request.
  """
  with path.open('rb+') as file, naming(path):
    try:
      os.fsync(file.fileno())
    except OSError as error:
      if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise
      return False
  return True


def to_data(x: types.PyTree) -> types.PyTree:
  """Converts PRNG keys to integer arrays, which can be stored."""
  return jax.random.key_data(x) if is_key(x) else x


def from_data(x: types.PyTree, like: types.PyTree) -> types.PyTree:
  """Inverts `to_data`; `like` tells whether the result is an array or a key."""
  return jax.random.wrap_key_data(x) if is_key(like) else x


def is_key(x: types.PyTree) -> bool:
  """Returns whether an array contains PRNG keys."""
  return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
