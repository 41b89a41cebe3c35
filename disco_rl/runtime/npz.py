"""npz archives: arrays by name in one file, and a note about them.

Files are not trusted: code in them never runs, and nothing is unpacked without
the caller's consent.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import json
import math
import os
import pathlib
from typing import IO
from typing import Any
from typing import NamedTuple
import zipfile

import numpy as np

from disco_rl import paths
from disco_rl.runtime import files

# Other compression methods unpack without a bound on the size.
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# The largest ratio of unpacked to stored size. Trained weights barely compress
# (`write` does not even try), but arrays of zeros compress 1,000 times.
_MAX_EXPANSION = 20
# Reading a header takes a millisecond. An agent has some hundred arrays.
_MAX_ARRAYS = 4096

# The name of the array with the note, JSON in UTF-8, and its maximal size.
NOTE = 'format'
_MAX_NOTE_BYTES = 2**16


class ArchiveError(ValueError):
  """Raised if a file is not an npz archive, is damaged, or has other arrays."""


class Header(NamedTuple):
  """The shape and type of an array, from its header."""

  shape: tuple[int, ...]
  dtype: np.dtype


def write(
  path: files.PathLike, arrays: Mapping[str, object], note: Mapping[str, object]
) -> None:
  """Writes arrays by name, and a note about them.

  The file is written atomically; missing parent folders are created.
  """
  check_name(path)
  target = files.expanded(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(target) as temporary, temporary.open('wb') as file:
    content: dict[str, Any] = {**arrays, NOTE: note_array(note)}
    np.savez(file, **content)


def note_array(note: Mapping[str, object]) -> np.ndarray:
  """Encodes a note for a file, [bytes] uint8."""
  return np.frombuffer(json.dumps(note, default=dict).encode(), np.uint8)


def check_name(path: files.PathLike) -> None:
  """Raises ValueError if a path does not end in '.npz'."""
  if pathlib.Path(path).suffix != '.npz':
    raise ValueError(f'{path}: the name of the file must end in .npz.')


def read(
  path: files.PathLike,
  check: Callable[[Mapping[str, Header], Mapping[str, object]], object],
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
  """Reads arrays by name, and the note, empty if there is none.

  Args:
    path: The path of the file.
    check: Called with the headers of all arrays and the note before any array
      is unpacked; raises an error if they are unexpected.

  Raises:
    OSError: There is no such file, or it cannot be opened.
    ArchiveError: The file is not an npz archive, or is damaged.
  """
  # Not a `pathlib.Path`, which would change the name in errors.
  where = paths.absolute(path)
  files.check_regular(where)
  with open(where, 'rb') as file:
    with _refusing(path):
      archive = zipfile.ZipFile(file)
      members = archive.infolist()
      if len(members) > _MAX_ARRAYS:
        raise ValueError(f'{len(members):,} arrays, more than {_MAX_ARRAYS:,}')
      headers = {}
      for member in members:
        with archive.open(member) as stream:
          name = member.filename.removesuffix('.npy')
          headers[name] = _read_header(member, stream)
      if len(headers) < len(members):
        raise ValueError('duplicate array name')
      note = _read_note(archive, headers)
    check({name: headers[name] for name in headers if name != NOTE}, note)
    with _refusing(path):
      _check_expansion(members, os.fstat(file.fileno()).st_size)
      return _read_arrays(archive, headers), note


def _read_arrays(
  archive: zipfile.ZipFile, names: Collection[str]
) -> dict[str, np.ndarray]:
  """Unpacks all arrays except the note."""
  members = zip(names, archive.infolist())
  return {
    name: _read_array(archive, member)
    for name, member in members
    if name != NOTE
  }


def _read_note(
  archive: zipfile.ZipFile, headers: Mapping[str, Header]
) -> dict[str, Any]:
  """Reads the note; raises ValueError if it is not one."""
  if NOTE not in headers:
    return {}
  shape, dtype = headers[NOTE]
  if dtype != np.uint8 or len(shape) != 1 or shape[0] > _MAX_NOTE_BYTES:
    raise ValueError(f'{NOTE} is {dtype}{list(shape)}')
  member = archive.getinfo(f'{NOTE}.npy')
  note = json.loads(_read_array(archive, member).tobytes().decode())
  if not isinstance(note, dict):
    raise ValueError(f'{NOTE} is not a JSON object')
  return note


@contextlib.contextmanager
def _refusing(path: files.PathLike) -> Iterator[None]:
  try:
    yield
  # For damaged files, zipfile and NumPy raise nearly any error.
  except Exception as error:
    raise ArchiveError(
      f'{path} is not an npz archive of arrays, or is damaged: {error!r}. '
      'Likely a download or copy was interrupted, or saved a web page or a '
      'Git LFS pointer instead: get the file again.'
    ) from error


def _check_expansion(members: list[zipfile.ZipInfo], size: int) -> None:
  """Raises ValueError if a file of this size unpacks to much more."""
  unpacked = sum(member.file_size for member in members)
  if unpacked > _MAX_EXPANSION * size:
    raise ValueError(f'{size} bytes unpack to {unpacked}')


def _read_header(member: zipfile.ZipInfo, stream: IO[bytes]) -> Header:
  """Reads the header of an array; raises ValueError if it is not safe."""
  name = member.filename
  if member.compress_type not in _COMPRESSIONS:
    raise ValueError(f'{name} is compressed by a method other than deflate')
  if np.lib.format.read_magic(stream) != (1, 0):
    raise ValueError(f'{name} is not an array of the first version of npy')
  shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
  if dtype.hasobject:
    raise ValueError(
      f'{name} holds objects, which are pickled and can run code'
    )
  size = stream.tell() + math.prod(shape) * dtype.itemsize
  if size != member.file_size:
    raise ValueError(f'{name} takes {member.file_size} bytes, expected {size}')
  return Header(shape, dtype)


def _read_array(
  archive: zipfile.ZipFile, member: zipfile.ZipInfo
) -> np.ndarray:
  """Reads an array whose header was read before."""
  with archive.open(member) as stream:
    # Reads at most the size in the header, even if the archive has more.
    return np.lib.format.read_array(stream, allow_pickle=False)  # noqa: TID251
