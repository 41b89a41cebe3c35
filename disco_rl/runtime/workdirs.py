"""The folder of a run, locked and bound to one set of settings."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import hashlib
import itertools
import json
import math
import os
import pathlib
import socket
import sys
from typing import Any

import filelock

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import paths as paths_lib
from disco_rl.runtime import file_systems
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.runtime import versions

# Settings that a run may choose itself, with the values that let it choose.
_AUTOMATIC = {
  'replay_on_disk': False,
  'torso_chunk_size': config_lib.AUTOMATIC,
}
# Settings with the length of a run, in the steps that checkpoints count.
_LENGTHS = ('updates', 'meta_steps')
# The user's modules that this process has imported because they register names;
# runs record them.
IMPORTED: list[str] = []

WorkdirError = files.WorkdirError
# Settings of a run -> all of them, with defaults for those that are missing.
Complete = Callable[[Mapping[str, Any]], Mapping[str, object]]


@contextlib.contextmanager
def locked(workdir: pathlib.Path) -> Iterator[None]:
  """Locks a folder against other runs; creates it if needed.

  This also removes temporary files that a killed run has left.

  The operating system releases the lock when the process ends in any way; the
  lock file remains. If the file system has no locks, as on some clusters, a
  warning is printed: a mere marker file would remain after a kill, and the run
  could not be resumed. Another warning is printed if it cannot flush files.

  Raises:
    WorkdirError: Another run is using the folder, `files.check_tree` failed, or
      its file system cannot do what runs need; see `file_systems.probe`.
    OSError: No file can be created in it.
  """
  _check_name(workdir)
  try:
    workdir.mkdir(parents=True, exist_ok=True)
  except FileExistsError:
    raise WorkdirError(
      f'{workdir} is a file, or a link to a folder that is gone: choose '
      'another --workdir.'
    ) from None
  files.check_tree(workdir, is_written=True)
  # A soft lock, a mere file, would remain after a kill.
  lock = filelock.FileLock(workdir / '.lock', fallback_to_soft=False)
  # Not in the lock file, which another process may empty.
  owner = workdir / '.owner'
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(lock.acquire(blocking=False))
    except filelock.Timeout:
      found = owner.read_text(errors='replace') if owner.exists() else '?'
      raise WorkdirError(
        f'{workdir} is in use by another run ({found}). Wait for it, end it, '
        'or choose another folder.'
      ) from None
    except OSError as error:
      if error.filename is not None:  # The lock file cannot be opened.
        raise
      reports.warn(
        f'{lock.lock_file} cannot be locked ({error.strerror}), because its '
        'file system has no locks: make sure that no other run uses '
        f'{workdir}, or choose a --workdir on another disk.'
      )
    # The old file may have a second name elsewhere.
    owner.unlink(missing_ok=True)
    owner.write_text(f'process {os.getpid()} on {socket.gethostname()}')
    if not file_systems.probe(workdir).flushes:
      reports.warn(
        f'the file system of {workdir} cannot flush files to the disk (fsync): '
        'the run survives kills, but after a loss of power it may lack its '
        'newest checkpoints.'
      )
    for name in ('', 'held_out', 'figures'):
      files.remove_temporary(workdir / name)
    yield


def claim(
  workdir: pathlib.Path,
  description: Mapping[str, object],
  free: Collection[str],
  rules: Mapping[str, str] | None = None,
  complete: Complete = dict,
) -> None:
  """Writes config.json after running `check`.

  Args:
    workdir: The folder.
    description: The settings as the user gave them.
    free: The settings that may change when a run is resumed.
    complete: A function that adds settings that a folder's config.json lacks.
    rules: The rules whose files must stay the same, with their paths, recorded
      in rules.json. Modules in `IMPORTED` are recorded in imports.json.

  Raises:
    WorkdirError: `check` failed, or a file of a rule has changed; the folder is
      unchanged.
  """
  digests = check_rules(workdir, rules or {})
  check(workdir, description, free, complete)
  workdir.mkdir(parents=True, exist_ok=True)
  path, version = workdir / 'config.json', versions.present()
  if path.exists():
    # The version that began the run, whatever resumes it.
    version = json_files.read(path).get(versions.KEY, versions.LAST_UNNAMED)
  json_files.write(path, {versions.KEY: version, **description})
  if rules:
    json_files.write(workdir / 'rules.json', digests)
  if modules := {**dict.fromkeys(imports(workdir)), **dict.fromkeys(IMPORTED)}:
    json_files.write(workdir / 'imports.json', {'modules': [*modules]})


def check(
  workdir: pathlib.Path,
  description: Mapping[str, object],
  free: Collection[str],
  complete: Complete = dict,
) -> None:
  """Checks that the folder is new, or contains this run; writes nothing.

  The arguments are as in `claim`.

  Raises:
    WorkdirError: The folder contains something else, or damaged files.
    OSError: It cannot be made or written to.
  """
  _check_name(workdir)
  path = workdir / 'config.json'
  if path.exists():
    _check_same(workdir, json_files.read(path), description, free, complete)
    _check_length(workdir, description)
    if (workdir / 'metrics.csv').exists():
      # Reports damage now: the run reads it only after minutes of compiling.
      metrics.read(workdir / 'metrics.csv')
  for name in ('metrics.csv', 'checkpoints'):
    if not path.exists() and (workdir / name).exists():
      raise WorkdirError(
        f'{workdir} has {name}, but no config.json with its settings. '
        'Choose another --workdir.'
      )


def with_choices(
  workdir: pathlib.Path,
  settings: Mapping[str, object],
  given: Collection[str] = (),
) -> dict[str, object]:
  """Returns settings with the choices of the run in a folder, if any.

  A run of an earlier version also keeps the settings that were chosen for its
  rule and task, and the behavior that it had before a setting was added.

  Args:
    workdir: The folder of the run, which may not exist yet.
    settings: The settings of the command that may resume it.
    given: The names of those that the user has given, not a file of configs/.
  """
  path = workdir / 'config.json'
  if not path.exists():
    return dict(settings)
  earlier = json_files.read(path)
  version = earlier.pop(versions.KEY, None)
  kept = {
    name: value
    for name, value in versions.added(earlier, version, settings).items()
    if name not in given
  }
  for name, value in kept.items():
    if settings[name] not in (None, value):
      reports.note(
        f'{workdir} was begun by {versions.written_by(version)}, which did not '
        f'have {name}: it continues with {name}={value!r}, as then, instead of '
        f'{settings[name]!r}.'
      )
  chosen = {
    name: earlier[name]
    for name in _AUTOMATIC.keys() & earlier.keys()
    if settings.get(name) == _AUTOMATIC[name]
  }
  # What suits a rule or a task may have changed since.
  chosen |= {
    name: value
    for name, value in earlier.items()
    if name in settings and settings[name] is None
  }
  return {**settings, **kept, **chosen}


def read_settings(
  workdir: pathlib.Path, known: Collection[str] | None = None
) -> dict[str, Any]:
  """Reads the settings of a run, converted by `versions.upgrade`.

  Args:
    workdir: The folder of the run.
    known: The names of the settings that such a run has; None: all.

  Returns:
    The settings, with lists as tuples.

  Raises:
    OSError: There is no config.json.
    WorkdirError: It is damaged, or of another version that cannot be read.
  """
  settings = json_files.read(workdir / 'config.json')
  version = settings.pop(versions.KEY, None)
  try:
    settings = versions.upgrade(settings, version, known)
  except ValueError as error:
    raise WorkdirError(f'{workdir}: {error}') from error
  # JSON lacks infinity, the only value of a setting that is written as null.
  return {
    name: math.inf if value is None else hashable(value)
    for name, value in settings.items()
  }


def check_holds_run(workdir: pathlib.Path, command: str) -> None:
  """Raises WorkdirError if a folder holds no run of a command.

  Args:
    workdir: The folder.
    command: The command, for the message.
  """
  if (workdir / 'config.json').exists():
    return
  reason = f'{workdir} holds no run of {command}'
  try:
    files.check_exists(workdir)
  except OSError as error:
    raise WorkdirError(f'{reason}: {error}') from error
  # Sweeps have folders of runs within folders.
  patterns = ('/'.join('*' * depth) for depth in range(1, 5))
  inside = (
    path.parent
    for pattern in patterns
    for path in workdir.glob(f'{pattern}/config.json')
  )
  if runs := sorted(map(str, itertools.islice(inside, 4))):
    raise WorkdirError(
      f'{reason}, but folders of runs: name one, such as {", ".join(runs)}.'
    )
  raise WorkdirError(
    f'{reason}: it has no config.json, which a run writes first. Likely '
    'another folder is meant, or the run has not begun.'
  )


def written_by(workdir: pathlib.Path) -> str:
  """Describes the program that began a run."""
  found = json_files.read(workdir / 'config.json').get(versions.KEY)
  return f'begun by {versions.written_by(found)}; this is {versions.present()}'


def hashable(value: object) -> object:
  """Converts lists of JSON to tuples."""
  return tuple(value) if isinstance(value, list) else value


def _check_name(workdir: pathlib.Path) -> None:
  """Raises WorkdirError if checkpoints could not be written there."""
  path = f'{workdir.absolute()}'
  try:
    path.encode()
  except UnicodeEncodeError:
    raise WorkdirError(
      f'The name of the folder {path!r} is not UTF-8, or Python reads it in '
      'another encoding: checkpoints cannot be written there. Choose another '
      '--workdir, or set PYTHONUTF8=1.'
    ) from None
  files.check_folder(workdir)


def _check_length(
  workdir: pathlib.Path, description: Mapping[str, Any]
) -> None:
  """Raises WorkdirError if the run is already longer than planned."""
  done = max(files.steps(workdir / 'checkpoints'), default=0)
  for name in _LENGTHS:
    if (wanted := description.get(name, done)) < done:
      raise WorkdirError(
        f'{workdir} holds a run of {done} {name}, more than {name}={wanted}: '
        f'a run can only become longer. Choose another --workdir, or {name} of '
        f'at least {done}.'
      )


def imports(workdir: pathlib.Path) -> list[str]:
  """Returns the user's modules that register names used by a run.

  Raises:
    WorkdirError: The file that names them is damaged.
  """
  path = workdir / 'imports.json'
  if not path.exists():
    return []
  names = json_files.read(path).get('modules')
  if not isinstance(names, list) or not all(
    isinstance(name, str) and extras.is_module(name) for name in names
  ):
    raise WorkdirError(f'{path} is damaged: it does not list modules.')
  return names


def check_imports(workdir: pathlib.Path) -> None:
  """Checks that the modules of a run have been imported; imports none.

  The folder may be from a stranger, and importing runs code.

  Raises:
    WorkdirError: A module is missing, or the file that names them is damaged.
  """
  if missing := [x for x in imports(workdir) if x not in sys.modules]:
    raise WorkdirError(
      f'The run in {workdir} uses names that {", ".join(missing)} registers, '
      'and importing it runs its code, so it is not imported from the folder '
      f'alone: if you trust it, add --import={",".join(missing)} to the '
      'command, or import it first in Python.'
    )


def check_rules(
  workdir: pathlib.Path, rules: Mapping[str, str]
) -> dict[str, str]:
  """Returns the SHA-256 of all rule files that the folder has used.

  Raises:
    WorkdirError: A file has changed since then.
  """
  path = workdir / 'rules.json'
  earlier = json_files.read(path) if path.exists() else {}
  now = digests_of(rules)
  changed = [name for name in now if earlier.get(name, now[name]) != now[name]]
  if changed:
    raise WorkdirError(
      f'{", ".join(changed)} changed since the runs in {workdir} began: they '
      'used another rule. Choose another --workdir, or restore the file.'
    )
  return {**earlier, **now}


def digests_of(rules: Mapping[str, str]) -> dict[str, str]:
  """Returns the SHA-256 of the files of rules; raises OSError without one."""
  return {name: _sha256(path) for name, path in rules.items()}


def _sha256(path: str) -> str:
  files.check_regular(path)
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _is_same(one: object, other: object) -> bool:
  """Returns whether settings are equal, or paths of one file."""
  if isinstance(one, str) and isinstance(other, str):
    return paths_lib.absolute(one) == paths_lib.absolute(other)
  return one == other


def _check_same(
  workdir: pathlib.Path,
  earlier: Mapping[str, object],
  description: Mapping[str, object],
  free: Collection[str],
  complete: Complete,
) -> None:
  """Raises WorkdirError if the run in the folder has other settings."""
  now = _as_json(description)
  version = earlier.get(versions.KEY)
  settings = read_settings(workdir, now)
  if _names(now) - _names(settings):
    # A config that leaves out what it does not change, or a damaged file.
    with contextlib.suppress(ValueError, OSError, ImportError):
      settings = _merge(complete(settings), settings)
  earlier = _as_json(settings)
  different = sorted(
    name
    for name in {*earlier, *now} - {*free}
    if not _is_same(earlier.get(name), now.get(name))
  )
  if different:
    remedy = 'Repeat those settings to resume it'
    if version != versions.present():
      remedy = f'It is of {versions.written_by(version)}. ' + (
        remedy if {*earlier} <= {*now, *free} else 'Resume it with that version'
      )
    raise WorkdirError(
      f'{workdir} holds a run with other settings: '
      + '; '.join(
        f'{name} was {earlier.get(name)!r}, is {now.get(name)!r}'
        for name in different
      )
      + f'. {remedy}, choose another --workdir, or delete that folder to start '
      'over.'
    )


def _as_json(settings: Mapping[str, object]) -> dict[str, Any]:
  """Converts tuples to lists, and non-finite numbers to null."""
  text = json.dumps(settings)
  return json.loads(text, parse_constant=lambda _: None)


def _names(settings: Mapping[str, Any], prefix: str = '') -> set[str]:
  """Returns the names of settings, such as preprocessing.atari.height."""
  found = set()
  for name, value in settings.items():
    if isinstance(value, Mapping):
      found |= _names(value, f'{prefix}{name}.')
    else:
      found.add(f'{prefix}{name}')
  return found


def _merge(
  below: Mapping[str, Any], above: Mapping[str, Any]
) -> dict[str, Any]:
  """Merges nested settings; those of `above` take precedence."""
  merged = {**below, **above}
  for name in below.keys() & above.keys():
    if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
      merged[name] = _merge(below[name], above[name])
  return merged
