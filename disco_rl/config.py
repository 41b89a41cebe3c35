"""Settings as records, which are their only declarations.

The type of a field is the type of the setting, its annotation adds
requirements, its default applies unless it is set, and the `Attributes:` in the
docstring of the record state its meaning:

  class AgentConfig(config_lib.Settings):
    batch_size: config_lib.Count = 96
    compute_dtype: Annotated[str, config_lib.one_of('float32', 'bfloat16')]

Launchers and keyword arguments use flat names; `build` makes records of flat
settings, `flatten` is its inverse, and `sections` lists settings for --help and
the docs. Values are converted and checked when a record is built. Errors name
the setting as the user wrote it, its value, and what it must be.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import difflib
import functools
import inspect
import math
import numbers
import os
import re
import types
from typing import Annotated
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import TypeGuard
from typing import TypeVar
from typing import get_args
from typing import get_origin
from typing import get_type_hints

import numpy as np

# JAX counts in 32 bits and computes in float32.
WHOLE_LIMIT = 2**31
# A number that a run replaces by one that fits into memory.
AUTOMATIC = -1
# Of a layer. Larger ones are mistakes, and take all memory before an error.
LARGEST_WIDTH = 2**16
_MOST_LAYERS = 50
# Of settings in a message.
_MOST_NAMES = 12
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass(frozen=True)
class Requirement:
  """A condition on the value of a field.

  Attributes:
    text: The end of the error message '... must be'.
    is_met: A function from a value of the field's type to its validity.
  """

  text: str
  is_met: Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class Validator:
  """A function that raises ValueError for values that are not valid."""

  function: Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class Converter:
  """A function that values pass through before they are checked."""

  function: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Alias:
  """The name of a setting, if it is not the prefix and the field's name."""

  name: str


def at_least(least: float) -> Requirement:
  """Requires finite numbers that are at least `least`."""
  return Requirement(f'at least {least}', lambda x: least <= x < math.inf)


def between(least: int, most: int) -> Requirement:
  """Requires numbers from `least` to `most`."""
  return Requirement(f'{least} to {most:,}', lambda x: least <= x <= most)


def one_of(*choices: str) -> Requirement:
  """Requires one of these texts."""
  return Requirement(f'one of {", ".join(choices)}', lambda x: x in choices)


def each_positive(what: str) -> Requirement:
  """Requires sequences of numbers above zero."""
  return Requirement(f'positive {what}', lambda xs: all(x > 0 for x in xs))


def _is_text(value: object) -> bool:
  return isinstance(value, str)


def _is_whole(value: Any) -> bool:
  # In Python, booleans are integers.
  is_number = isinstance(value, numbers.Integral) and not isinstance(
    value, bool
  )
  return is_number and abs(value) < WHOLE_LIMIT


def _is_real(value: Any) -> bool:
  is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
  return is_number and not _LARGEST < abs(value) < math.inf


def _all(is_valid: Callable[[object], bool]) -> Callable[[object], bool]:
  return lambda xs: isinstance(xs, list | tuple) and all(map(is_valid, xs))


_TEXTS = tuple[str, ...]
# Type of a field -> requirement on its values. Other types are not checked.
_TYPES: Mapping[object, Requirement] = {
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
  _TEXTS: Requirement("texts, as in ('catch',)", _all(_is_text)),
}

# A mapping whose entries are settings, like the other fields.
_MERGED = 'merged'
ExtraSettings = Annotated[Mapping[str, object], _MERGED]
Count = Annotated[int, at_least(1)]
CountOrZero = Annotated[int, at_least(0)]
Finite = Annotated[float, Requirement('finite', math.isfinite)]
FiniteOrZero = Annotated[float, at_least(0)]
Positive = Annotated[
  float, Requirement('positive and finite', lambda x: 0 < x < math.inf)
]
# A bound, which may be infinite.
Bound = Annotated[float, Requirement('positive', lambda x: x > 0)]
Fraction = Annotated[
  float, Requirement('between 0 and 1', lambda x: 0 <= x <= 1)
]
Decay = Annotated[
  float, Requirement('at least 0 and below 1', lambda x: 0 <= x < 1)
]
# Bounds of a log-uniform distribution.
Range = Annotated[
  tuple[float, ...],
  Requirement(
    'empty, or two positive numbers, the lower one first',
    lambda x: not x or len(x) == 2 and 0 < x[0] <= x[1] < math.inf,
  ),
]
Width = Annotated[int, between(1, LARGEST_WIDTH)]
WidthOrZero = Annotated[int, between(0, LARGEST_WIDTH)]
Widths = Annotated[
  tuple[int, ...],
  Requirement(
    f'positive widths up to {LARGEST_WIDTH:,} of at most {_MOST_LAYERS} layers',
    lambda xs: (
      len(xs) <= _MOST_LAYERS and all(0 < x <= LARGEST_WIDTH for x in xs)
    ),
  ),
]


class Settings:
  """Base class of frozen dataclasses of settings, which are checked when built.

  Subclasses define the prefix of their settings before the names of fields:
  `class HeldOutConfig(Settings, prefix='held_out_')`.
  """

  prefix: ClassVar[str] = ''
  # Of the subclasses, which are dataclasses.
  __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

  def __init_subclass__(cls, prefix: str = '') -> None:
    super().__init_subclass__()
    cls.prefix = prefix

  def __post_init__(self) -> None:
    """Converts values; raises ValueError for the first invalid one."""
    for field in dataclasses.fields(self):
      name, value = _setting(type(self), field), getattr(self, field.name)
      object.__setattr__(self, field.name, valid(name, value, field.type))
    for conflict in self.conflicts():
      raise ValueError(conflict)

  def conflicts(self) -> Iterator[str]:
    """Yields errors about settings that are incompatible."""
    yield from ()


_Record = TypeVar('_Record', bound=Settings)


class Setting(NamedTuple):
  """A setting, as a record declares it.

  Attributes:
    name: The flat name.
    kind: The annotation of the field.
    default: The default in flat form; None: it must be set.
    meaning: The meaning from the record's docstring; '' if there is none.
  """

  name: str
  kind: object
  default: object
  meaning: str


def sections(
  *records: type[Settings], nested: bool = True
) -> dict[str, list[Setting]]:
  """Lists the settings of records, by the titles of the records.

  Args:
    *records: Dataclasses whose fields are settings. A setting that several of
      them have is listed with the first.
    nested: Whether the settings of nested records are listed as well.

  Returns:
    The first line of a record's docstring -> its settings.
  """
  found: dict[str, list[Setting]] = {}
  listed: set[str] = set()
  pending = list(records)
  while pending:
    record = pending.pop(0)
    own, inner = [], []
    for field in dataclasses.fields(record):
      name = _setting(record, field)
      if is_record(field.type):
        inner.append(field.type)
      elif name not in listed and _MERGED not in _parse(field.type)[1]:
        own.append(_describe(record, field))
        listed.add(name)
    if own:
      found[_first_line(record)] = own
    if nested:
      pending = [*inner, *pending]
  return found


def names(record: type, nested: bool = True) -> Iterator[str]:
  """Yields the flat names of settings; `nested` is as for `sections`."""
  for field in dataclasses.fields(record):
    if is_record(field.type):
      if nested:
        yield from names(field.type)
    elif _MERGED not in _parse(field.type)[1]:
      yield _setting(record, field)


def build(
  record: type[_Record], settings: Mapping[str, object], **given: object
) -> _Record:
  """Builds a record, with nested ones, from flat settings.

  Args:
    record: A dataclass.
    settings: The settings by name; those of other records are ignored.
    **given: The values of fields that are not in the settings.

  Returns:
    The record, with defaults for missing settings.

  Raises:
    ValueError: A value is not valid.
  """
  for field in dataclasses.fields(record):
    name, kind = _setting(record, field), field.type
    if field.name in given:
      continue
    if is_record(kind):
      given[field.name] = build(kind, settings)
    elif name in settings:
      given[field.name] = settings[name]
  return record(**given)


def flatten(record: Settings) -> dict[str, Any]:
  """Flattens a record to settings, from which `build` makes an equal one."""
  settings: dict[str, Any] = {}
  for field in dataclasses.fields(record):
    value = getattr(record, field.name)
    if isinstance(value, Settings):
      settings |= flatten(value)
    elif _MERGED in _parse(field.type)[1]:
      settings |= value
    else:
      name = _setting(type(record), field)
      settings[name] = _flat(value, field.type)
  return settings


def replace(record: _Record, changes: Mapping[str, object]) -> _Record:
  """Replaces fields of a record by name.

  Raises:
    ValueError: There is no such field, or its value is not valid.
  """
  fields = [field.name for field in dataclasses.fields(record)]
  check_names(changes, fields, record.prefix.rstrip('.'))
  return dataclasses.replace(record, **changes)


def converted(value: Any, annotation: object) -> Any:
  """Converts a value to the type of a field.

  NumPy's numbers become Python's, paths text, lists tuples, text with commas a
  tuple of texts if that is the field's type, and the field's own `Converter`
  is applied. Values that cannot be converted are left to `check`.
  """
  kind, marks = _parse(annotation)
  value = plain(value)
  if kind is float and _is_real(value):
    value = float(value)
  if get_origin(kind) is tuple:
    if kind == _TEXTS and isinstance(value, str):
      value = [item.strip() for item in value.split(',') if item.strip()]
    if isinstance(value, list | tuple):
      item, _ = get_args(kind)
      value = tuple(converted(x, item) for x in value)
  for mark in marks:
    if isinstance(mark, Converter):
      value = mark.function(value)
  return value


def plain(value: Any) -> Any:
  """Converts to Python's own types, also within dicts, lists and tuples."""
  if isinstance(value, dict):
    return {key: plain(x) for key, x in value.items()}
  if type(value) in (list, tuple):
    return type(value)(map(plain, value))
  if hasattr(value, '__array__'):  # Also numbers of JAX.
    return np.asarray(value).tolist()
  if isinstance(value, os.PathLike):
    return os.fspath(value)
  return value


def check(name: str, value: object, annotation: object) -> None:
  """Raises ValueError if a value of a setting does not fit a field's type."""
  kind, marks = _parse(annotation)
  for mark in (_TYPES.get(kind), *marks):
    if isinstance(mark, Validator):
      mark.function(value)
    if isinstance(mark, Requirement) and not mark.is_met(value):
      raise ValueError(f'{name}={_shown(value)} must be {mark.text}.')


def valid(name: str, value: object, annotation: object) -> Any:
  """Converts an argument by `converted`, and checks it by `check`."""
  value = converted(value, annotation)
  check(name, value, annotation)
  return value


def check_types(record: Any) -> None:
  """Checks the kinds of the values of a dataclass that is no `Settings`.

  Raises:
    TypeError: A value does not have the type of its field, or a number is a
      boolean. The contents of mappings and sequences are not checked.
  """
  for name, hint in get_type_hints(type(record)).items():
    is_union = isinstance(hint, types.UnionType)
    kind = hint if is_union else get_origin(hint) or hint
    value = getattr(record, name)
    if not isinstance(value, kind) or isinstance(value, bool):
      raise TypeError(f'{name} is {_shown(value)}')


def check_names(given: Iterable[str], known: Iterable[str], owner: str) -> None:
  """Raises ValueError for an unknown name, with the nearest known ones."""
  known = sorted(known)
  for name in given:
    if name not in known:
      nearest = difflib.get_close_matches(str(name), known)
      if not nearest and len(known) > _MOST_NAMES:
        raise ValueError(
          f'{owner} has no setting {name!r}, and none with a name like it: '
          'docs/settings.md lists all.'
        )
      raise ValueError(
        f'{owner} has no setting {name!r}. Nearest: '
        f'{", ".join(nearest or known)}.'
      )


def is_record(kind: object) -> TypeGuard[type[Settings]]:
  """Returns whether a field of this type contains a record of settings."""
  return isinstance(kind, type) and issubclass(kind, Settings)


def _flat(value: object, annotation: object) -> Any:
  """Converts a value for launchers and files: texts are joined by commas."""
  if _parse(annotation)[0] == _TEXTS and isinstance(value, tuple):
    return ','.join(value)
  return value


def _describe(record: type, field: dataclasses.Field[object]) -> Setting:
  """Describes a field of a record."""
  name = _setting(record, field)
  documented = (_meanings(base).get(field.name) for base in record.__mro__)
  meaning = next(filter(None, documented), '')
  default = None
  if field.default is not dataclasses.MISSING:
    default = field.default
  elif field.default_factory is not dataclasses.MISSING:
    default = field.default_factory()
  return Setting(name, field.type, _flat(default, field.type), meaning)


# Doors list the settings of the same records again and again.
_clean = functools.cache(inspect.cleandoc)


@functools.cache
def _meanings(record: type) -> dict[str, str]:
  """Parses the `Attributes:` of the record's own docstring, by field."""
  _, _, attributes = _clean(record.__doc__ or '').partition('Attributes:\n')
  return {
    name: ' '.join(text.split())
    for name, text in re.findall(
      r'^  (\w+): (.*(?:\n    .*)*)', attributes, re.MULTILINE
    )
  }


def _first_line(record: type) -> str:
  return _clean(record.__doc__ or '').partition('\n')[0].rstrip('.')


def _parse(annotation: Any) -> tuple[Any, tuple[object, ...]]:
  """Splits an annotation into the type and its metadata."""
  if get_origin(annotation) is Annotated:
    return annotation.__origin__, annotation.__metadata__
  return annotation, ()


def _setting(record: type, field: dataclasses.Field[object]) -> str:
  """Returns the name of a field's setting."""
  _, marks = _parse(field.type)
  called = (mark.name for mark in marks if isinstance(mark, Alias))
  return next(called, getattr(record, 'prefix', '') + field.name)


def _shown(value: Any) -> str:
  """Formats a value for an error, cut if it is long."""
  try:
    text = repr(value)
  except ValueError:
    # Python does not print numbers of several thousand digits.
    return f'a number of some {value.bit_length() * 3 // 10} digits'
  return text if len(text) <= 80 else text[:77] + '...'
