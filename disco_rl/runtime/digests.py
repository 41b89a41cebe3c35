"""Sizes and checksums of files, to detect damage later."""

from collections.abc import Mapping
import json
import pathlib
from typing import NamedTuple
import zlib

from disco_rl.runtime import files
from disco_rl.runtime import json_files

_NAME = 'digests.json'
_CHUNK_BYTES = 2**22
# In the summary of a run: the final digests of its metrics, which for a
# discovery include the returns of held-out agents.
_SUMMARY = 'summary.json'
_KEY = 'digests'
_METRICS = ('metrics.csv', 'held_out/metrics.csv')


class DamageError(ValueError):
  """Raised if a file has changed since its digest was recorded."""


class Digest(NamedTuple):
  """The size and the checksum of the first bytes of a file.

  Attributes:
    size: The number of bytes.
    crc32: The checksum of these bytes.
  """

  size: int
  crc32: int


def of_file(path: pathlib.Path, size: int | None = None) -> Digest:
  """Computes the digest of a file, or of its first bytes."""
  files.check_regular(path)
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
    directory: The folder; files that were not recorded are ignored.

  Returns:
    Whether there is a record.

  Raises:
    DamageError: A file differs; the message names it.
    OSError: A file is missing or cannot be read.
    ValueError: The record is damaged.
  """
  path = directory / _NAME
  if not path.exists():
    return False
  for name, digest in json_files.read(path).items():
    _compare(directory / name, name, Digest(*digest))
  return True


def write_summary(
  workdir: pathlib.Path, summary: Mapping[str, object]
) -> dict[str, object]:
  """Writes summary.json of a run that has written all of its metrics.

  Returns:
    The summary with `digests` of the metrics files, by which `check_summary`
    detects damage: name -> size in bytes and CRC-32.
  """
  of_metrics = {
    name: of_file(workdir / name)
    for name in _METRICS
    if (workdir / name).exists()
  }
  complete = {**summary, _KEY: of_metrics}
  json_files.write(workdir / _SUMMARY, complete)
  return complete


def check_summary(workdir: pathlib.Path) -> None:
  """Checks that the metrics of a run have not changed since it ended.

  Rows that a longer run has added since are ignored. Runs that have not ended
  yet are not checked.

  Raises:
    files.WorkdirError: A metrics file differs or is missing, or the summary is
      damaged; the message names the file.
    OSError: A file cannot be read.
  """
  path = workdir / _SUMMARY
  if not path.exists():
    return
  recorded = json_files.read(path).get(_KEY, {})
  if not isinstance(recorded, dict):
    raise _changed(path, f'{_KEY} is {recorded!r}')
  for name in _METRICS:
    if name in recorded:
      try:
        expected = Digest(*recorded[name])
        _compare(workdir / name, 'the file', expected, expected.size)
      except (FileNotFoundError, TypeError, DamageError) as error:
        raise _changed(workdir / name, f'{error}') from error


def _compare(
  path: pathlib.Path, name: str, expected: Digest, size: int | None = None
) -> None:
  """Raises DamageError if a file, or its first bytes, differ."""
  found = of_file(path, size)
  if found != expected:
    raise DamageError(
      f'{name} has {found.size} bytes with the checksum {found.crc32:08x}, '
      f'expected {[*expected]}'
    )


def _changed(path: pathlib.Path, what: str) -> files.WorkdirError:
  return files.WorkdirError(
    f'{path} has changed since its run ended, according to {_SUMMARY}: '
    f"{what}. Restore the file, or delete the run's folder to repeat it."
  )
