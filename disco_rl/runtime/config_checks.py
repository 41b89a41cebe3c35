"""Checks of settings in records; what is wrong is named as the user wrote it.

Records call these before anything else looks at their fields: a comparison of
text with a number would fail without naming the setting.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import difflib
import math
import numbers
from typing import Any

import numpy as np

# JAX counts in 32 bits and computes in float32.
WHOLE_LIMIT = 2**31
_LARGEST = float(np.finfo(np.float32).max)

# Type of a field -> what its values are.
_MEANINGS: Mapping[Any, str] = {
  bool: 'True or False',
  int: 'a whole number between -2^31 and 2^31',
  float: 'a number that float32 can hold',
  str: 'text',
  tuple[int, ...]: 'whole numbers between -2^31 and 2^31, as in (64, 64)',
  tuple[str, ...]: "texts, as in ('catch',)",
}


def check_names(given: Iterable[str], known: Iterable[str], owner: str) -> None:
  """Raises ValueError for a name that is not known, with the nearest ones."""
  known = sorted(known)
  for name in given:
    if name not in known:
      nearest = difflib.get_close_matches(name, known)
      raise ValueError(
        f'{owner} has no setting {name!r}. Nearest: '
        f'{", ".join(nearest) or "none"}. There are {", ".join(known)}.'
      )


def check_types(
  record: type, values: Mapping[str, Any], prefix: str = ''
) -> None:
  """Checks values against the types of the fields of a record.

  Whole numbers must fit in 32 bits, other numbers in float32; infinity and NaN
  are for the checks of ranges. Fields of other types than numbers, truth
  values, text and sequences of them are not looked at.

  Args:
    record: a dataclass.
    values: of some of its fields, or of all.
    prefix: of the settings' names, not of the fields'.

  Raises:
    ValueError: names the first value of another type.
  """
  for field in dataclasses.fields(record):
    if field.name in values and not _fits(values[field.name], field.type):
      raise ValueError(
        f'{prefix}{field.name}={_shown(values[field.name])} must be '
        f'{_MEANINGS[field.type]}.'
      )


def check_at_least(
  record: Any, least: float, names: Iterable[str], prefix: str = ''
) -> None:
  """Checks that fields hold finite numbers that are not below `least`.

  Raises:
    ValueError: names the first that does not.
  """
  for name in names:
    value = getattr(record, name)
    _require(
      least <= value < math.inf, prefix + name, value, f'at least {least}'
    )


def check_positive(
  record: Any, names: Iterable[str], prefix: str = '', largest: float = _LARGEST
) -> None:
  """Checks that fields hold numbers above zero, at most `largest`.

  Raises:
    ValueError: names the first that does not.
  """
  for name in names:
    value = getattr(record, name)
    what = 'positive' + ('' if math.isinf(largest) else ' and finite')
    _require(0 < value <= largest, prefix + name, value, what)


def check_fractions(
  record: Any, names: Iterable[str], prefix: str = '', below_one: bool = False
) -> None:
  """Checks that fields hold numbers of [0, 1], or of [0, 1).

  Raises:
    ValueError: names the first that does not.
  """
  what = 'at least 0 and ' + ('below 1' if below_one else 'at most 1')
  for name in names:
    value = getattr(record, name)
    is_valid = 0 <= value < 1 or (value == 1 and not below_one)
    _require(is_valid, prefix + name, value, what)


def check_finite(record: Any, names: Iterable[str]) -> None:
  """Checks that fields hold finite numbers.

  Raises:
    ValueError: names the first that does not.
  """
  for name in names:
    value = getattr(record, name)
    _require(math.isfinite(value), name, value, 'finite')


def _require(is_valid: bool, name: str, value: Any, expected: str) -> None:
  if not is_valid:
    raise ValueError(f'{name}={_shown(value)} must be {expected}.')


def _fits(value: Any, kind: Any) -> bool:
  if kind is bool:
    return isinstance(value, bool | np.bool_)
  if kind is str:
    return isinstance(value, str)
  if kind is int:
    return _is_number(value, numbers.Integral) and abs(value) < WHOLE_LIMIT
  if kind is float:
    return _is_number(value, numbers.Real) and not (
      _LARGEST < abs(value) < math.inf
    )
  if kind in (tuple[int, ...], tuple[str, ...]):
    (item, _) = kind.__args__
    return isinstance(value, list | tuple) and all(
      _fits(entry, item) for entry in value
    )
  return True


def _is_number(value: Any, kind: type) -> bool:
  # To Python, truth values are whole numbers.
  return isinstance(value, kind) and not isinstance(value, bool)


def _shown(value: Any) -> str:
  """A value as the error shows it, cut where it is long."""
  try:
    text = repr(value)
  except ValueError:
    # Python prints no numbers of several thousand digits.
    return f'a number of some {value.bit_length() * 3 // 10} digits'
  return text if len(text) <= 80 else text[:77] + '...'
