"""The versions that wrote files, and the settings that changed between them.

Folders of runs, checkpoints, rules, their cards and agents name the version
that wrote them. A setting that a file lacks has the value with which that
version ran: whoever adds a setting, changes its default, renames or removes it
enters this in `CHANGES`. A test compares all settings with those of the earlier
versions in tests/data/.
"""

from collections.abc import Collection
from collections.abc import Mapping
import copy
import dataclasses
import re
from typing import Any

import disco_rl

# The entry of a file with the version that wrote it.
KEY = 'version'
# Files without that entry were written by this version, or before.
LAST_UNNAMED = '0.2.0'


@dataclasses.dataclass(frozen=True)
class Changes:
  """Changes of settings, by names such as preprocessing.atari.height.

  Attributes:
    added: New settings -> the values with which earlier versions ran, as JSON
      has them.
    defaults: Settings with a new default -> their former defaults.
    renamed: Former names of settings -> their names.
    removed: Settings that no longer exist -> the values that stand for what the
      program still does. Files with other values cannot be read.
    arrays: The ends of the names of new arrays in the states of agents and of
      discovery, which are zero where earlier versions have written them.
    moved: Patterns of the names that earlier versions gave to arrays in these
      states, and what replaces them; the first that matches counts.
  """

  added: Mapping[str, object] = dataclasses.field(default_factory=dict)
  defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)
  renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
  removed: Mapping[str, object] = dataclasses.field(default_factory=dict)
  arrays: tuple[str, ...] = ()
  moved: tuple[tuple[str, str], ...] = ()


# Stands for a setting that is not there: None is a value, infinity in JSON.
_ABSENT: Any = object()
# The names of states in checkpoints and in files of agents.
_STATE = r"^(train_state|groups\.\d+|\['train_state'\])"

# Version -> its changes, the oldest first.
CHANGES: dict[str, Changes] = {
  '0.3.0': Changes(
    added={
      'activation': 'relu',
      'bootstrapping_is_grounded': True,
      'bootstrapping_updates': 5,
      'budget_steps_per_action': 0,
      'evaluate_episodes': 10,
      'evaluate_every': 0,
      'final_relu': False,
      'held_out_patience': 0,
      'max_gradient_norm': 0.0,
      'min_replay_batches': 0.0,
      'normalize_observations': False,
      'normalize_rewards': False,
      'outer_losses': 1,
      'persistent_pairs': 4,
      'persistent_std': 0.01,
      'separate_torsos': False,
    },
    defaults={'num_environments': 12},
    removed={'width_range': []},
    arrays=(
      *('episodes.running_error', 'episodes.recent_error'),
      'episodes.billions',
    ),
    moved=(
      (rf'{_STATE}\.agents?\.(learner|replay)\b', r'\1.\2'),
      (rf'{_STATE}\.agents?\.', r'\1.acting.'),
      (
        rf'{_STATE}\.actors?\.(environment|observation|core_state)\b',
        r'\1.acting.actor.\2',
      ),
      # With environments on the host, the parameters that act.
      (rf'{_STATE}\.actors?\b', r'\1.acting.params'),
    ),
  ),
}


def present() -> str:
  """Returns the version of this program."""
  return disco_rl.__version__


def written_by(version: object) -> str:
  """Describes the program that wrote a file, given the file's entry."""
  if isinstance(version, str):
    return f'version {version} of disco_rl'
  return f'version {LAST_UNNAMED} of disco_rl or an earlier one'


def upgrade(
  settings: Mapping[str, Any],
  version: object,
  known: Collection[str] | None = None,
) -> dict[str, Any]:
  """Converts settings of an earlier version to those of this one.

  Args:
    settings: The settings in a file, flat except for entries that are mappings,
      such as the preprocessing.
    version: The version that wrote the file; None if the file names none.
    known: The settings that this kind of file has; None: all.

  Returns:
    The settings under their present names, with the values of then for new
    ones that are known.

  Raises:
    ValueError: A setting has a value that this version does not have.
  """
  result = copy.deepcopy(dict(settings))
  for release, changes in CHANGES.items():
    if not _precedes(version, release):
      continue
    for name, new_name in changes.renamed.items():
      if (value := _pop(result, name)) is not _ABSENT:
        _add(result, new_name, value)
    for name, only in changes.removed.items():
      value = _pop(result, name)
      if value is not _ABSENT and value != only:
        raise ValueError(
          f'{name}={value!r} is a setting of {written_by(version)} that '
          f'version {present()} does not have: use that version.'
        )
    for name, value in {**changes.added, **changes.defaults}.items():
      if known is None or name.partition('.')[0] in known:
        _add(result, name, value)
  return result


def new_arrays(version: object) -> tuple[str, ...]:
  """Returns the ends of names of arrays that a version did not have yet."""
  return tuple(
    name
    for release, changes in CHANGES.items()
    if _precedes(version, release)
    for name in changes.arrays
  )


def array_name(name: str, version: object) -> str:
  """Returns the present name of an array that a version has written."""
  for release, changes in CHANGES.items():
    if not _precedes(version, release):
      continue
    for pattern, replacement in changes.moved:
      name, found = re.subn(pattern, replacement, name)
      if found:
        break
  return name


def added(
  settings: Mapping[str, Any], version: object, known: Collection[str]
) -> dict[str, Any]:
  """Returns what a run of an earlier version has for settings added since."""
  new = {
    name
    for release, changes in CHANGES.items()
    if _precedes(version, release)
    for name in changes.added
  }
  upgraded = upgrade(settings, version, known)
  return {name: upgraded[name] for name in new & {*upgraded}}


def _precedes(version: object, release: str) -> bool:
  """Returns whether a version is older than a release."""
  given = version if isinstance(version, str) else LAST_UNNAMED
  return _order(given) < _order(release)


def _order(version: str) -> tuple[list[int], bool]:
  """Returns keys in the order of versions: 0.3.0.dev0 is before 0.3.0."""
  public = version.partition('+')[0]
  numbers = re.match(r'\d+(\.\d+)*', public)
  release = numbers[0] if numbers else '0'
  return [int(x) for x in release.split('.')], public == release


def _pop(settings: dict[str, Any], name: str) -> Any:
  """Removes a setting; returns its value, `_ABSENT` if there is none."""
  *parents, last = name.split('.')
  for parent in parents:
    inner = settings.get(parent)
    if not isinstance(inner, dict):
      return _ABSENT
    settings = inner
  return settings.pop(last, _ABSENT)


def _add(settings: dict[str, Any], name: str, value: Any) -> None:
  """Adds a setting unless it is there, or the mapping it belongs to is not."""
  first, *rest = name.split('.')
  if not rest:
    settings.setdefault(first, value)
  elif isinstance(settings.get(first), dict):
    inner = settings[first]
    for parent in rest[:-1]:
      inner = inner.setdefault(parent, {})
    inner.setdefault(rest[-1], value)
