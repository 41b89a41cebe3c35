"""Changes to what lies between a simulator and the agent, by name."""

from collections.abc import Mapping
import dataclasses
from typing import Any
from typing import TypeVar

from disco_rl import validation

_Record = TypeVar('_Record')


def changed(default: _Record, changes: Mapping[str, Any]) -> _Record:
  """Replaces fields of an adapter's `Preprocessing`.

  Args:
    default: a dataclass.
    changes: fields -> values.

  Returns:
    The record with these values.

  Raises:
    ValueError: there is no such field, or its values are of another type.
  """
  names = [field.name for field in dataclasses.fields(default)]  # type: ignore
  validation.check_names(changes, names, 'The preprocessing')
  validation.check_types(type(default), changes, 'preprocessing: ')
  return dataclasses.replace(default, **changes)  # type: ignore
