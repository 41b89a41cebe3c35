"""Settings as records whose fields declare which values are valid.

A field's type states what its values are, and its annotation what they must
fulfil:

  class AgentConfig(config_lib.Settings):
    batch_size: config_lib.Count = 96
    compute_dtype: Annotated[str, config_lib.one_of('float32', 'bfloat16')]

Records are checked when they are built, by hand or by `build` from the flat
settings of a launcher or of keyword arguments. Errors name the setting as the
user wrote it, its value, and what it must be.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import math
import numbers
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import TypeVar
from typing import get_origin

import numpy as np

# JAX counts in 32 bits and computes in float32.
WHOLE_LIMIT = 2**31
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Requirement:
  """A condition on the value of a field.

  Attributes:
    text: completes the error message '... must be'.
    is_met: value of the field's type -> whether it is valid.
  """

  text: str
  is_met: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class CheckedBy:
  """A function that raises ValueError for values that are not valid."""

  function: Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class Called:
  """The name of a setting that is not the prefix and the field's name."""

  name: str


def at_least(least: float) -> Requirement:
  """Finite numbers that are not below `least`."""
  return Requirement(f'at least {least}', lambda x: least <= x < math.inf)


def one_of(*choices: str) -> Requirement:
  """Texts to choose from."""
  return Requirement(f'one of {", ".join(choices)}', lambda x: x in choices)


def each_positive(what: str) -> Requirement:
  """Sequences of numbers above zero."""
  return Requirement(f'positive {what}', lambda xs: all(x > 0 for x in xs))


def _is_text(value: Any) -> bool:
  return isinstance(value, str)


def _is_whole(value: Any) -> bool:
  # To Python, truth values are whole numbers.
  is_number = isinstance(value, numbers.Integral) and not isinstance(
    value, bool
  )
  return is_number and abs(value) < WHOLE_LIMIT


def _is_real(value: Any) -> bool:
  is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
  return is_number and not _LARGEST < abs(value) < math.inf


def _all(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
  return lambda xs: isinstance(xs, list | tuple) and all(map(is_valid, xs))


# Type of a field -> requirement on its values. Others are not checked.
_TYPES: Mapping[Any, Requirement] = {
  bool: Requirement('True or False', lambda x: isinstance(x, bool | np.bool_)),
  int: Requirement('a whole number between -2^31 and 2^31', _is_whole),
  float: Requirement('a number that float32 can hold', _is_real),
  str: Requirement('text', _is_text),
  tuple[int, ...]: Requirement(
    'whole numbers between -2^31 and 2^31, as in (64, 64)', _all(_is_whole)
  ),
  tuple[float, ...]: Requirement(
    'numbers that float32 can hold, as in (0.1, 1.0)', _all(_is_real)
  ),
  tuple[str, ...]: Requirement("texts, as in ('catch',)", _all(_is_text)),
}

Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
Finite = Annotated[float, Requirement('finite', math.isfinite)]
FiniteOrZero = Annotated[float, at_least(0)]
Positive = Annotated[
  float, Requirement('positive and finite', lambda x: 0 < x < math.inf)
]
# Infinite bounds bound nothing.
Bound = Annotated[float, Requirement('positive', lambda x: x > 0)]
Fraction = Annotated[
  float, Requirement('between 0 and 1', lambda x: 0 <= x <= 1)
]
Decay = Annotated[
  float, Requirement('at least 0 and below 1', lambda x: 0 <= x < 1)
]
# Bounds of what is drawn log-uniformly.
Range = Annotated[
  tuple[float, ...],
  Requirement(
    'empty, or two positive numbers, the lower one first',
    lambda x: not x or len(x) == 2 and 0 < x[0] <= x[1] < math.inf,
  ),
]
Widths = Annotated[tuple[int, ...], each_positive('widths')]


class Settings:
  """Base of frozen dataclasses of settings, checked when they are built.

  Subclasses give the prefix that the names of their settings have before those
  of the fields: `class HeldOutConfig(Settings, prefix='held_out_')`.
  """

  prefix: ClassVar[str] = ''

  def __init_subclass__(cls, prefix: str = '') -> None:
    super().__init_subclass__()
    cls.prefix = prefix

  def __post_init__(self) -> None:
    """Raises ValueError for the first setting that is not valid."""
    for field in dataclasses.fields(self):  # type: ignore[arg-type]
      name = _setting(type(self), field)
      check(name, getattr(self, field.name), field.type)
    for conflict in self.conflicts():
      raise ValueError(conflict)

  def conflicts(self) -> Iterator[str]:
    """Yields errors about settings that do not go together."""
    yield from ()


_Record = TypeVar('_Record', bound=Settings)


def names(record: Any) -> Iterator[str]:
  """Yields the flat names of a record's settings, and of those in it."""
  for field in dataclasses.fields(record):
    kind = field.type
    if isinstance(kind, type) and issubclass(kind, Settings):
      yield from names(kind)
    else:
      yield _setting(record, field)


def build(
  record: type[_Record], settings: Mapping[str, Any], **given: Any
) -> _Record:
  """Builds a record, and the records in it, from flat settings.

  Args:
    record: a dataclass.
    settings: by name; may hold those of other records, too.
    **given: values of fields that are not in the settings.

  Returns:
    The record. Settings that are absent have their defaults.

  Raises:
    ValueError: a setting without a default is absent, or a value is not valid.
  """
  for field in dataclasses.fields(record):  # type: ignore[arg-type]
    name, kind = _setting(record, field), field.type
    if field.name in given:
      continue
    if isinstance(kind, type) and issubclass(kind, Settings):
      given[field.name] = build(kind, settings)
    elif name in settings or field.default is dataclasses.MISSING:
      given[field.name] = get(settings, name)
  return record(**given)


def build_with_rules(
  record: type[_Record], settings: Mapping[str, Any], *rules: Any
) -> _Record:
  """As `build`, of a record that holds settings of rules in `rule_settings`.

  Args:
    record: a dataclass.
    settings: all of them, also by names of older versions.
    *rules: classes whose fields are settings, too.

  Raises:
    ValueError: a setting is absent, unknown or not valid.
  """
  settings = translate(settings)
  if 'loggers' in settings:
    settings['loggers'] = split(settings, 'loggers')
  of_rules = {f.name for rule in rules for f in dataclasses.fields(rule)}
  of_rules -= {'network'}
  known = {*names(record), *of_rules} - {'rule_settings'}
  check_names(settings, known, 'The config')
  rule_settings = {n: v for n, v in settings.items() if n in of_rules}
  return build(record, settings, rule_settings=rule_settings)


def split(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """The entries of a setting, text with commas between them.

  Raises:
    ValueError: the setting is absent, or no text.
  """
  text = get(settings, name)
  if not isinstance(text, str):
    raise ValueError(
      f'{name}={text!r} must be text, with commas between its entries.'
    )
  return tuple(item.strip() for item in text.split(',') if item.strip())


def flatten(record: Settings) -> dict[str, Any]:
  """Settings by their flat names, from which `build` makes an equal record."""
  settings: dict[str, Any] = {}
  for field in dataclasses.fields(record):  # type: ignore[arg-type]
    value = getattr(record, field.name)
    if isinstance(value, Settings):
      settings |= flatten(value)
    else:
      settings[_setting(type(record), field)] = value
  return settings


def replace(record: _Record, changes: Mapping[str, Any]) -> _Record:
  """Replaces fields of a record by name.

  Raises:
    ValueError: there is no such field, or its value is not valid.
  """
  fields = [field.name for field in dataclasses.fields(record)]  # type: ignore
  check_names(changes, fields, record.prefix.rstrip('.'))
  return dataclasses.replace(record, **changes)  # type: ignore


def check(name: str, value: Any, annotation: Any) -> None:
  """Raises ValueError if a value of a setting does not fit a field's type."""
  kind, marks = _parse(annotation)
  for mark in (_TYPES.get(kind), *marks):
    if isinstance(mark, CheckedBy):
      mark.function(value)
    if isinstance(mark, Requirement) and not mark.is_met(value):
      raise ValueError(f'{name}={_shown(value)} must be {mark.text}.')


def check_names(given: Iterable[str], known: Iterable[str], owner: str) -> None:
  """Raises ValueError for a name that is not known, with the nearest ones."""
  known = sorted(known)
  for name in given:
    if name not in known:
      nearest = difflib.get_close_matches(str(name), known)
      raise ValueError(
        f'{owner} has no setting {name!r}. Nearest: '
        f'{", ".join(nearest or known)}.'
      )


def get(settings: Mapping[str, Any], name: str) -> Any:
  """A setting's value; raises ValueError if it is absent."""
  if name not in settings:
    raise ValueError(
      f'The config lacks the setting {name!r}. Likely misspelt there: start '
      'from a config of configs/, which has all of them.'
    )
  return settings[name]


def translate(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Settings by their present names.

  Args:
    settings: flat. The `replay_ratio` of older versions, how often a trajectory
      is learnt from, becomes `num_environments = batch_size / replay_ratio`.

  Returns:
    The settings without it.

  Raises:
    ValueError: there is no such number of environments, or another is given.
  """
  settings = dict(settings)
  if 'replay_ratio' not in settings:
    return settings
  ratio, batch_size = settings.pop('replay_ratio'), settings.get('batch_size')
  check('replay_ratio', ratio, Positive)
  check('batch_size', batch_size, Count)
  exact = batch_size / ratio
  number = max(1, round(min(exact, WHOLE_LIMIT)))
  implied = f'batch_size={batch_size} / replay_ratio={ratio}'
  if abs(exact - number) > 1e-3 * exact:
    raise ValueError(
      f'{implied} is no whole number of environments: set num_environments in '
      f'place of replay_ratio, for example num_environments={number}.'
    )
  if settings.setdefault('num_environments', number) != number:
    raise ValueError(
      f'{implied} makes {number} environments, but num_environments='
      f'{_shown(settings["num_environments"])}: leave replay_ratio out.'
    )
  return settings


def _parse(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
  """The type of a field, and what it is annotated with."""
  if get_origin(annotation) is Annotated:
    return annotation.__origin__, annotation.__metadata__
  return annotation, ()


def _setting(record: type[Settings], field: dataclasses.Field[Any]) -> str:
  """The name of the setting that a field holds."""
  _, marks = _parse(field.type)
  called = (mark.name for mark in marks if isinstance(mark, Called))
  return next(called, record.prefix + field.name)


def _shown(value: Any) -> str:
  """A value as the error shows it, cut where it is long."""
  try:
    text = repr(value)
  except ValueError:
    # Python prints no numbers of several thousand digits.
    return f'a number of some {value.bit_length() * 3 // 10} digits'
  return text if len(text) <= 80 else text[:77] + '...'
