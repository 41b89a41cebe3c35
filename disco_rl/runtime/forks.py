"""Forks: runs that begin from another run's state, with other settings.

A fork begins with a copy of the newest checkpoint of its source and of the
files that belong to it, and is then resumed like any run. The folder of the
source does not change, and that run may continue.
"""

from collections.abc import Collection
from collections.abc import Mapping
import pathlib
import shutil
from typing import Any

from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import reports
from disco_rl.runtime import workdirs

# The entry of config.json with the origin of a fork.
KEY = 'forked_from'
# Files that a checkpoint relies on, if they exist.
_FILES = ('metrics.csv', 'held_out/metrics.csv', 'replay', 'rule.npz')


def describe(
  workdir: pathlib.Path,
  source: str | None,
  settings: Mapping[str, Any],
  kept: Collection[str],
  last_step: int,
) -> dict[str, Any]:
  """Returns the settings of a run, for a fork including its origin.

  Args:
    workdir: The folder of the run, which may already exist.
    source: The folder to fork from, as the user gave it; None when a fork is
      resumed without it, or for other runs.
    settings: The settings of the run.
    kept: The names of the settings that a fork shares with its source.
    last_step: The final number of updates or meta-steps of the run.

  Returns:
    The settings, and under `KEY` the `workdir` of the source and the `step` of
    its checkpoint.

  Raises:
    files.WorkdirError: The source has no checkpoints, a setting in `kept`
      differs, or the folder already contains another run.
  """
  origin = _origin(workdir, source)
  if origin is None:
    return dict(settings)
  if not (workdir / 'checkpoints').exists():
    _check(origin, settings, kept)
    if last_step <= origin['step']:
      raise files.WorkdirError(
        f'{origin["workdir"]} has made {origin["step"]} steps, and this run '
        f'would end after {last_step}: raise --config.steps or '
        '--config.updates, or --config.meta_steps of a discovery.'
      )
  return {**settings, KEY: origin}


def _origin(workdir: pathlib.Path, source: str | None) -> dict[str, Any] | None:
  """Returns where a run was forked from, or will be; see `describe`."""
  if (workdir / 'config.json').exists():
    found = json_files.read(workdir / 'config.json').get(KEY)
    if found is not None and not _is_origin(found):
      raise files.WorkdirError(
        f'{workdir / "config.json"} is damaged: {KEY} is {found!r:.80}. '
        'Restore the file, or choose another --workdir.'
      )
    earlier = files.expanded(found['workdir']) if found else None
    if source is not None and earlier != files.expanded(source):
      raise files.WorkdirError(
        f'{workdir} holds a run that was not forked from {source}: choose '
        'another --workdir, or leave out --from to resume it.'
      )
    return found
  if source is None:
    return None
  steps = files.steps(pathlib.Path(source) / 'checkpoints')
  if not steps:
    files.check_exists(source)
    raise files.WorkdirError(
      f'{source} has no checkpoints to fork from: likely the run has saved '
      'none yet. Wait for the first, or resume the run if it was stopped.'
    )
  return {'workdir': source, 'step': steps[-1]}


def _is_origin(found: object) -> bool:
  """Returns whether an entry of config.json is one that `_origin` made."""
  return (
    isinstance(found, dict)
    and isinstance(found.get('workdir'), str)
    and type(found.get('step')) is int
  )


def first_step(settings: Mapping[str, Any]) -> int | None:
  """Returns the step at which a fork begins; None for other runs."""
  return settings[KEY]['step'] if settings.get(KEY) else None


def read_settings(
  workdir: pathlib.Path, known: Collection[str] | None = None
) -> dict[str, Any]:
  """Reads the settings of a run, without its origin.

  The arguments and errors are those of `workdirs.read_settings`.
  """
  settings = workdirs.read_settings(workdir, known)
  settings.pop(KEY, None)
  return settings


def _check(
  where: Mapping[str, Any],
  settings: Mapping[str, object],
  kept: Collection[str],
) -> None:
  """Raises WorkdirError if the settings in `kept` differ from the source's.

  Shapes of arrays that depend on other settings are checked when the checkpoint
  is restored.
  """
  old = read_settings(pathlib.Path(where['workdir']), settings)
  changes = {
    name: f'{name}={settings.get(name)!r} (there {old.get(name)!r})'
    for name in sorted({*old, *settings})
    if _plain(old.get(name)) != _plain(settings.get(name))
  }
  if unfit := [changes[name] for name in changes if name in kept]:
    raise files.WorkdirError(
      f'The state of {where["workdir"]} does not fit {", ".join(unfit)}: a '
      f'fork keeps {", ".join(kept)}.'
    )
  if changes:
    reports.note(
      f'The run forks {where["workdir"]} with {", ".join(changes.values())}.'
    )


def _plain(value: object) -> object:
  """Returns a list, which may be written with commas, as a tuple."""
  return workdirs.hashable(
    value.split(',') if isinstance(value, str) else value
  )


def begin(workdir: pathlib.Path, where: Mapping[str, Any] | None) -> None:
  """Copies the initial files of a fork, unless it has begun.

  Args:
    workdir: The folder of the fork, locked.
    where: The entry `KEY` of the settings; None if the run is not a fork.

  Raises:
    files.WorkdirError: The source, which may be running, has deleted the
      checkpoint.
  """
  if where is None or (workdir / 'checkpoints').exists():
    return
  source, step = pathlib.Path(where['workdir']), str(where['step'])
  if not (source / 'checkpoints' / step).exists():
    raise files.WorkdirError(
      f'{source} no longer has the checkpoint of step {step} that {workdir} '
      'begins with: delete that folder, and repeat the command.'
    )
  for name in _FILES:
    _copy(source / name, workdir / name)
  # Last, and by a rename, because checkpoints mean that the fork has begun.
  temporary = workdir / '.forked'
  shutil.rmtree(temporary, ignore_errors=True)
  _copy(source / 'checkpoints' / step, temporary / step)
  temporary.rename(workdir / 'checkpoints')


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
  if source.is_dir():
    shutil.copytree(
      source, target, copy_function=_copy_file, dirs_exist_ok=True
    )
  elif source.exists():
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy_file(source, target)


def _copy_file(source: files.PathLike, target: files.PathLike) -> None:
  files.check_regular(source)
  shutil.copy2(source, target)
