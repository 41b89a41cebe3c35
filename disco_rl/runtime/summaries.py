"""Summaries of finished runs, which know the metrics that they end with."""

from collections.abc import Mapping
import pathlib
from typing import Any

from disco_rl import types
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import metrics

_NAME = 'summary.json'
_KEY = 'digests'
# Those of a training, and of the new agents of a discovery.
_METRICS = ('metrics.csv', 'held_out/metrics.csv')


def write(workdir: pathlib.Path, summary: Mapping[str, Any]) -> dict[str, Any]:
  """Writes summary.json of a run that has written all of its metrics.

  Args:
    workdir: the folder of the run.
    summary: what it says about the run.

  Returns:
    The summary with `digests` of the files of metrics, by which `check` notices
    damage: name -> size in bytes and CRC-32.
  """
  of_metrics = {
    name: digests.of_file(workdir / name)
    for name in _METRICS
    if (workdir / name).exists()
  }
  complete = {**summary, _KEY: of_metrics}
  metrics.write_json(workdir / _NAME, complete)
  return complete


def check(workdir: pathlib.Path) -> None:
  """Compares the metrics of a run with what they were when it ended.

  Rows that a longer run has added since do not matter. Runs that have not ended
  yet are not checked.

  Args:
    workdir: the folder of the run.

  Raises:
    files.WorkdirError: a file of metrics differs or is missing, or the summary
      is damaged; names the file.
    OSError: a file cannot be read.
  """
  path = workdir / _NAME
  if not path.exists():
    return
  recorded = metrics.read_json(path).get(_KEY, {})
  if not isinstance(recorded, dict):
    raise _changed(path, f'{_KEY} is {recorded!r}')
  for name in _METRICS:
    if name in recorded:
      _check_file(workdir / name, recorded[name])


def _check_file(path: pathlib.Path, recorded: types.PyTree) -> None:
  try:
    expected = digests.Digest(*recorded)
    found = digests.of_file(path, expected.size)
  except (FileNotFoundError, TypeError) as error:
    raise _changed(path, f'{error}') from error
  if found != expected:
    raise _changed(
      path,
      f'its first {found.size} bytes have the checksum {found.crc32:08x}, '
      f'expected {expected}',
    )


def _changed(path: pathlib.Path, what: str) -> files.WorkdirError:
  return files.WorkdirError(
    f'{path} is not as it was when its run ended, according to {_NAME}: {what}.'
    " Restore the file, or delete the run's folder to repeat it."
  )
