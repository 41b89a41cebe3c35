"""Changes to what lies between a simulator and the agent, by name."""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import TypeVar

from disco_rl.runtime import config_checks

_Record = TypeVar('_Record')

# Fields that count something of which there is at least one.
_COUNTS = frozenset(
  {
    *('action_repeat', 'frame_skip', 'frame_stack', 'height', 'width'),
    *('max_episode_frames', 'max_episode_steps', 'time_limit'),
    *('num_words', 'num_word_ids'),
  }
)


def changed(default: _Record, changes: Mapping[str, Any]) -> _Record:
  """Replaces fields of an adapter's `Preprocessing`.

  Args:
    default: a dataclass.
    changes: fields -> values.

  Returns:
    The record with these values.

  Raises:
    ValueError: there is no such field, or its values are of another type, or
      not positive where they must be.
  """
  names = [field.name for field in dataclasses.fields(default)]  # type: ignore
  config_checks.check_names(changes, names, 'The preprocessing')
  config_checks.check_types(type(default), changes, 'preprocessing: ')
  record = dataclasses.replace(default, **changes)  # type: ignore
  counts = [name for name in names if name in _COUNTS]
  config_checks.check_at_least(record, 1, counts, 'preprocessing: ')
  return record
