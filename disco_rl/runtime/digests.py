"""Sizes and checksums of files, by which damage is noticed later."""

import json
import pathlib
from typing import NamedTuple
import zlib

from disco_rl.runtime import files

_NAME = 'digests.json'
_CHUNK_BYTES = 2**22


class DamageError(ValueError):
  """A file is not as it was when its digest was recorded."""


class Digest(NamedTuple):
  """The size and the checksum of the first bytes of a file.

  Attributes:
    size: number of bytes.
    crc32: their checksum.
  """

  size: int
  crc32: int


def of_file(path: pathlib.Path, size: int | None = None) -> Digest:
  """Digest of a file, or of its first bytes.

  Args:
    path: The file.
    size: number of bytes; fewer are read if the file is shorter. None: all.

  Returns:
    The digest of what was read.

  Raises:
    OSError: the file cannot be read.
  """
  left = path.stat().st_size if size is None else size
  done, crc32 = 0, 0
  with path.open('rb') as file:
    while chunk := file.read(min(left - done, _CHUNK_BYTES)):
      crc32 = zlib.crc32(chunk, crc32)
      done += len(chunk)
  return Digest(done, crc32)


def record(directory: pathlib.Path) -> None:
  """Writes the digests of all files below a folder to a file in it."""
  digests = {
    str(path.relative_to(directory)): of_file(path)
    for path in sorted(directory.rglob('*'))
    if path.is_file()
  }
  with files.replacing(directory / _NAME) as temporary:
    temporary.write_text(json.dumps(digests, indent=2), encoding='utf-8')


def check(directory: pathlib.Path) -> bool:
  """Compares the files below a folder with their digests.

  Args:
    directory: the folder; other files than those recorded do not matter.

  Returns:
    Whether there is a record.

  Raises:
    DamageError: a file differs; names it.
    OSError: a file is missing or cannot be read.
    ValueError: the record is damaged.
  """
  path = directory / _NAME
  if not path.exists():
    return False
  for name, digest in json.loads(path.read_text(encoding='utf-8')).items():
    found = of_file(directory / name)
    if found != Digest(*digest):
      raise DamageError(
        f'{name} has {found.size} bytes with the checksum {found.crc32:08x}, '
        f'expected {digest}'
      )
  return True
