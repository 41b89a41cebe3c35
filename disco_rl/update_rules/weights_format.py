"""The format of a file of weights: an npz archive of float32 arrays.

Files come from anywhere, so nothing that they claim is trusted: no code of
theirs is run, and what can't be read is refused with its likely cause.
"""

import collections
from collections.abc import Sequence
import io
import zipfile

import jax.numpy as jnp
import numpy as np


class WeightsError(ValueError):
  """A file or a tree of arrays is not the weights of an update rule."""


# Disco103 takes 3 MB. An archive may claim to unpack to any size, so the claim
# is refused before memory is spent on it.
MAX_BYTES = 2**30

# First bytes of files that are mistaken for weights -> what they are.
_FOREIGN = {
  b'version https://git-lfs': 'a Git LFS pointer; `git lfs pull` gets the file',
  b'\x93NUMPY': 'a single array; weights are an npz archive of many',
  b'\x89HDF': 'an HDF5 file',
  b'\x80': 'a pickle, which is never read because it could run code',
  b'PK': 'an archive cut short, as by an interrupted download or copy',
  b'<': 'a web page, as where a link to a page about the file was followed',
}


def read(data: bytes, path: str) -> dict[str, np.ndarray]:
  """Arrays of an npz archive by their keys, of whatever shape and type.

  Args:
    data: the bytes of the file.
    path: of the file, for messages.

  Raises:
    WeightsError: the archive or an array in it can't be read.
  """
  with _open(data, path) as archive:
    members = archive.infolist()
    _check_members(members, path)
    return {_key(m): _read_array(archive, m, path) for m in members}


def to_float32(array: np.ndarray, key: str, where: str) -> np.ndarray:
  """A copy in float32 and C order; WeightsError where that loses the values."""
  if array.dtype == np.dtype('V2'):
    # An npy file has no name for bfloat16: it comes back as two opaque bytes.
    array = array.view(jnp.bfloat16)
  if not jnp.issubdtype(array.dtype, jnp.floating):
    raise WeightsError(
      f'{where}: {key}: {array.dtype} of shape {array.shape}, expected float32 '
      'of that shape. Likely quantised, or not a parameter at all.'
    )
  with np.errstate(over='ignore'):
    result = np.array(array, np.float32, order='C')
  bad = result.size - np.count_nonzero(np.isfinite(result))
  if bad:
    raise WeightsError(
      f'{where}: {key}: {bad} of the values of shape {result.shape} are not '
      'finite in float32, expected none. Likely saved after training had '
      'diverged: take an earlier checkpoint.'
    )
  return result


def _open(data: bytes, path: str) -> zipfile.ZipFile:
  try:
    return zipfile.ZipFile(io.BytesIO(data))
  # Of bytes that it can't make sense of, zipfile raises nearly anything.
  except Exception as error:
    raise WeightsError(
      f'{path}: not a readable npz archive ({error}). Likely '
      f'{_guess_content(data)}.'
    ) from error


def _guess_content(data: bytes) -> str:
  if not data:
    return 'an empty file, left by an interrupted download or copy'
  guesses = (v for k, v in _FOREIGN.items() if data.lstrip().startswith(k))
  return next(guesses, 'a file of another kind, or a damaged one')


def _check_members(members: Sequence[zipfile.ZipInfo], path: str) -> None:
  size = sum(member.file_size for member in members)
  if size > MAX_BYTES:
    raise WeightsError(
      f'{path}: unpacks to {size} bytes, more than the {MAX_BYTES} that the '
      'weights of a rule may take. Likely damaged, or made to do harm.'
    )
  for key, count in collections.Counter(map(_key, members)).items():
    if count > 1:
      raise WeightsError(f'{path}: {key} is there twice; likely damaged.')


def _key(member: zipfile.ZipInfo) -> str:
  return member.filename.removesuffix('.npy')


def _read_array(
  archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str
) -> np.ndarray:
  try:
    data = io.BytesIO(archive.read(member))
    # Objects are refused here: to unpickle them would run code of the file.
    return np.lib.format.read_array(data, allow_pickle=False)  # noqa: TID251
  # As above, and so do the decompressors and NumPy's parser of headers.
  except Exception as error:
    raise WeightsError(
      f'{path}: {_key(member)}: not a readable array ({error}). Likely the '
      'file is damaged, or was not written by `weights.save`.'
    ) from error
