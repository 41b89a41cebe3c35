"""Paths that users give to commands, and that are shown to them."""

import contextlib
import os
import re

# The folder that relative paths refer to, see `keep_folder`; None for that in
# which the process works.
_folder: str | None = None


def expanded(path: str | os.PathLike[str]) -> str:
  """Converts a path to text, with the user's home directory for ~."""
  return os.path.expanduser(os.fspath(path))


def keep_folder() -> None:
  """Makes relative paths refer to the current folder from now on.

  Commands call it at their start: environments and other code of users may
  change the working directory. Otherwise paths refer to the folder that is
  current when they are read.
  """
  global _folder
  # It may have been deleted.
  with contextlib.suppress(OSError):
    _folder = os.getcwd()


def absolute(path: str | os.PathLike[str]) -> str:
  """Converts a path to text, `expanded`, that means the same from now on."""
  return os.path.join(_folder or os.getcwd(), expanded(path))


def shown(path: str | os.PathLike[str]) -> str:
  """Shortens an absolute path below the folder of the command, for users."""
  folder = os.path.join(_folder or os.getcwd(), '')
  return os.fspath(path).removeprefix(folder)


def local(path: str | os.PathLike[str]) -> str:
  """Converts a path on this machine to text, `absolute`.

  Raises:
    ValueError: It is empty, for example because a variable of a script is not
      set; or it would create a folder named ~ or like the address of a bucket.
  """
  text = expanded(path)
  if text.split('/')[0] == '~':
    raise ValueError(
      f'{text}: this user has no home directory. Set the variable HOME, or '
      'give another path.'
    )
  if not text:
    raise ValueError('The path is empty: likely a variable in it is not set.')
  if re.match(r'[A-Za-z][A-Za-z0-9+.-]*://', text):
    raise ValueError(
      f'{text} is an address, but files are written to the disks of this '
      'machine alone: give a path there, such as one where it is mounted.'
    )
  return absolute(text)
