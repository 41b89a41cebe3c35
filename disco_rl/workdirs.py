"""The folder of a run: whose it is, and that it stays one run's."""

from collections.abc import Collection
from collections.abc import Mapping
import json
import pathlib
from typing import Any

from disco_rl import metrics


class WorkdirError(ValueError):
  """The folder of the run holds something else."""


def claim(
  workdir: pathlib.Path,
  description: Mapping[str, Any],
  free: Collection[str],
) -> None:
  """Writes config.json, or checks that the folder holds this very run.

  Args:
    workdir: the folder.
    description: the settings as the user gave them.
    free: settings that may change when a run is resumed.

  Raises:
    WorkdirError: the folder holds something else; it stays as it is.
  """
  path = workdir / 'config.json'
  if path.exists():
    _check_same(workdir, metrics.read_json(path), description, free)
  for name in ('metrics.csv', 'checkpoints'):
    if not path.exists() and (workdir / name).exists():
      raise WorkdirError(
        f'{workdir} has {name}, but no config.json that tells whose it is. '
        'Choose another --workdir.'
      )
  workdir.mkdir(parents=True, exist_ok=True)
  metrics.write_json(path, description)


def _check_same(
  workdir: pathlib.Path,
  earlier: Mapping[str, Any],
  description: Mapping[str, Any],
  free: Collection[str],
) -> None:
  """Raises WorkdirError if the run in the folder has other settings."""
  # As it would be read: lists for tuples, null for what is not finite.
  now = json.loads(json.dumps(description), parse_constant=lambda _: None)
  different = sorted(
    name
    for name in {*earlier, *now} - {*free}
    if earlier.get(name) != now.get(name)
  )
  if different:
    raise WorkdirError(
      f'{workdir} holds a run with other settings: '
      + '; '.join(
        f'{name} was {earlier.get(name)!r}, is {now.get(name)!r}'
        for name in different
      )
      + '. Choose another --workdir, or repeat those settings to resume it.'
    )
