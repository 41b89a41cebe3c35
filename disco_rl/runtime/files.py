"""Files and folders that may be from strangers, atomic writing, PRNG keys."""

from collections.abc import Iterator
import contextlib
import difflib
import errno
import os
import pathlib
import re
import shutil
import stat
import uuid

import jax

from disco_rl import paths as paths_lib
from disco_rl import types

PathLike = str | os.PathLike[str]

# Answers of file systems that do not support a request, such as to flush files.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NO_FLUSHING_OF_FOLDERS = (
  *UNSUPPORTED,
  *(errno.EACCES, errno.EBADF, errno.EISDIR, errno.EPERM),
)


# The number of files that a message names.
_MAX_LISTED = 6


class WorkdirError(ValueError):
  """Raised if a run's folder contains something else, or a damaged file."""


def damaged(path: PathLike, content: str) -> WorkdirError:
  """Returns the error for a file of a run that holds something else."""
  return WorkdirError(
    f'{path} is damaged, or was not written by a run: it holds {content}. '
    'Restore the file, or choose another folder.'
  )


def expanded(path: PathLike) -> pathlib.Path:
  """Makes a path absolute, also for ~; raises ValueError as `paths.local`."""
  return pathlib.Path(paths_lib.local(path))


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
  # Without the name of the file, which may be as long as names can be.
  temporary = path.with_name(f'.{uuid.uuid4().hex}.tmp')
  try:
    with naming(path):
      yield temporary
      # Otherwise the new name could reach the disk before the content.
      _flush(temporary)
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)


def check_writable(path: PathLike) -> None:
  """Checks that a file can be written; call it before long work.

  The file and missing folders are made, and removed again.

  Raises:
    OSError: It cannot be written, for example because its name is too long.
  """
  path = pathlib.Path(os.path.realpath(expanded(path)))
  made: list[pathlib.Path] = []
  try:
    # `exists` would take a name that is too long for one that is free.
    missing = [folder for folder in path.parents if not folder.is_dir()]
    for folder in reversed(missing):
      if folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, f'{folder} is a file')
      folder.mkdir()
      made.append(folder)
    if path.is_dir():
      raise IsADirectoryError(errno.EISDIR, 'Is a folder', f'{path}')
    # Written files are new ones, which replace what is there.
    trials = [path.with_name(f'.{uuid.uuid4().hex}.tmp')]
    if not os.path.lexists(path):
      trials.append(path)
    for trial in trials:
      trial.touch(exist_ok=False)
      made.append(trial)
  except IsADirectoryError:
    raise
  except OSError as error:
    raise OSError(
      error.errno, f'Cannot create a file ({error.strerror})', f'{path}'
    ) from error
  finally:
    for one in reversed(made):
      # Another program may have put files into a folder.
      with contextlib.suppress(OSError):
        one.rmdir() if one.is_dir() else one.unlink()


def check_folder(path: pathlib.Path) -> None:
  """Raises OSError if a folder cannot be made or written to; makes nothing."""
  path = path.absolute()
  missing = []
  # Raises an error for a name that is too long.
  while not path.exists():
    missing.append(path)
    path = path.parent
  limit = os.pathconf(path, 'PC_NAME_MAX')
  for folder in missing:
    if len(os.fsencode(folder.name)) > limit:
      code = errno.ENAMETOOLONG
      raise OSError(code, os.strerror(code), f'{folder}')
  if not os.access(path, os.W_OK):
    raise PermissionError(errno.EACCES, 'Cannot write to the folder', f'{path}')


def remove_temporary(directory: pathlib.Path) -> None:
  """Removes what a killed run has left in a folder."""
  for path in directory.glob('.*.tmp'):
    # Earlier versions put the name of the file before the digits.
    if not re.fullmatch(r'\.(.+\.)?[0-9a-f]{32}\.tmp', path.name):
      continue
    if path.is_dir():
      shutil.rmtree(path, ignore_errors=True)
    else:
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
  """Flushes the content of a file, or the names in a folder, to the disk.

  Returns:
    Whether it is there; some file systems do not support the request.

  Raises:
    OSError: The disk is full or broken.
  """
  with naming(path):
    return _flush(path)


def _flush(path: pathlib.Path) -> bool:
  is_folder = path.is_dir()
  try:
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
      os.fsync(descriptor)
    finally:
      os.close(descriptor)
  except OSError as error:
    if error.errno not in (
      _NO_FLUSHING_OF_FOLDERS if is_folder else UNSUPPORTED
    ):
      raise
    return False
  return True


@contextlib.contextmanager
def if_it_can_flush() -> Iterator[None]:
  """Ignores that a file system cannot flush files, for libraries that do."""
  try:
    yield
  except OSError as error:
    if error.errno not in UNSUPPORTED:
      raise


def to_data(x: types.PyTree) -> types.PyTree:
  """Converts PRNG keys to integer arrays, which can be stored."""
  return jax.random.key_data(x) if is_key(x) else x


def from_data(x: types.PyTree, like: types.PyTree) -> types.PyTree:
  """Inverts `to_data`; `like` tells whether the result is an array or a key."""
  return jax.random.wrap_key_data(x) if is_key(like) else x


def is_key(x: types.PyTree) -> bool:
  """Returns whether an array contains PRNG keys."""
  return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def check_regular(path: PathLike) -> None:
  """Checks that a path leads to a file, before it is opened.

  A pipe would wait for a writer forever, and a device may be endless.

  Raises:
    OSError: It does not exist, or is a folder, a pipe, a socket or a device.
  """
  check_exists(path)
  mode = os.stat(path).st_mode
  if stat.S_ISDIR(mode):
    raise IsADirectoryError(errno.EISDIR, 'Is a folder', f'{path}')
  if not stat.S_ISREG(mode):
    raise OSError(errno.EINVAL, 'Is a pipe or a device', f'{path}')


def check_exists(path: PathLike, cause: str = '') -> None:
  """Checks that a path leads to something.

  Args:
    path: The path of a file or folder.
    cause: The likely cause and the remedy; empty: those of a mistyped path.

  Raises:
    FileNotFoundError: It leads to nothing.
    ValueError: It has characters that no path has, such as zero bytes.
  """
  try:
    os.stat(path)
  # The second: a parent of the path is a file.
  except (FileNotFoundError, NotADirectoryError):
    raise FileNotFoundError(
      f'{path} does not exist. {cause or _why_missing(pathlib.Path(path))}'
    ) from None
  except ValueError as error:  # It has characters that no path has.
    raise ValueError(f'{os.fspath(path)!r} is no path: {error}.') from error


def _why_missing(path: pathlib.Path) -> str:
  """Returns the likely cause why nothing is at a path, and the remedy."""
  if path.is_symlink():
    return f'It is a link to {os.readlink(path)}: restore what it leads to.'
  path = path.absolute()
  *_, first = [x for x in (path, *path.parents) if not x.is_dir()]
  if first != path:
    return (
      f'{first} is not a folder: likely the path is mistyped, what writes it '
      'has not begun, or the path is meant from another folder than this one, '
      f'{pathlib.Path.cwd()}.'
    )
  with contextlib.suppress(OSError):
    names = sorted(os.listdir(path.parent))
    alike = [x for x in names if path.suffix and x.endswith(path.suffix)]
    near = difflib.get_close_matches(path.name, names)
    if shown := list(dict.fromkeys([*near, *alike]))[:_MAX_LISTED]:
      return f'Likely the name is mistyped: its folder has {", ".join(shown)}.'
  return (
    'Likely the path is mistyped, or the file was moved or not yet written.'
  )


def read_limited(path: PathLike, most_bytes: int) -> bytes:
  """Reads a whole file.

  Raises:
    OSError: It does not exist, is not a file, or cannot be read.
    ValueError: It has more bytes than that.
  """
  check_regular(path)
  with open(path, 'rb') as file:
    content = file.read(most_bytes + 1)
  if len(content) > most_bytes:
    raise ValueError(f'more than {most_bytes:,} bytes')
  return content


def check_tree(folder: pathlib.Path, *, is_written: bool) -> None:
  """Checks everything below the folder of a run, which may be from a stranger.

  The folder itself may be a link, or lie below one. Folders named wandb are
  skipped: Weights & Biases makes links to its logs in them.

  Args:
    folder: The folder.
    is_written: Whether the program will write to the folder. Then links that
      lead out of it are refused: it would overwrite files elsewhere.

  Raises:
    WorkdirError: There is such a link, a pipe, a socket or a device.
    OSError: A folder cannot be read.
  """
  root = os.path.realpath(folder)
  pending = [os.fspath(folder)]
  while pending:
    # A run that goes on may delete a checkpoint.
    with (
      contextlib.suppress(FileNotFoundError),
      os.scandir(pending.pop()) as entries,
    ):
      for entry in entries:
        if entry.is_symlink() and is_written:
          target = os.path.realpath(entry.path)
          if os.path.commonpath((root, target)) != root:
            raise WorkdirError(
              f'{entry.path} is a link to {target}, outside of the folder of '
              'the run: files there would be overwritten. Remove the link; to '
              'keep a run on another disk, make its whole folder a link.'
            )
        if entry.is_dir(follow_symlinks=False):
          if entry.name != 'wandb':
            pending.append(entry.path)
        elif (
          os.path.exists(entry.path)
          and not entry.is_file()
          and not entry.is_dir()
        ):
          raise WorkdirError(
            f'{entry.path} is a pipe, a socket or a device, which no run '
            'writes: remove it, or choose another folder.'
          )
