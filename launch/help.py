"""Prints --help: a launcher's flags, then the settings of its config."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import sys
import textwrap
from types import ModuleType
from typing import TYPE_CHECKING
from typing import Any
from typing import NoReturn

from absl import flags

if TYPE_CHECKING:
  from disco_rl import config as config_lib

_ASKS = ('-h', '-help', '--help', '-?')
_WIDTH = 80
# The column in which the meanings start.
_COLUMN = 36


def is_asked(argv: Sequence[str]) -> bool:
  """Returns whether the command line has --help."""
  return any(argument in _ASKS for argument in argv[1:])


def show(
  config: ModuleType | None = None, values: Mapping[str, Any] | None = None
) -> NoReturn:
  """Prints the help of the current launcher, and ends the program.

  Args:
    config: The file in configs/ that describes the settings; None without
      settings.
    values: The settings to show instead of the defaults; all others are hidden.
      If it is empty, the defaults are shown.
  """
  launcher = sys.modules['__main__'].__doc__ or ''
  print('\n'.join((launcher.strip(), '', *lines(config, values or {}))))
  sys.exit(0)


def lines(
  config: ModuleType | None, values: Mapping[str, Any]
) -> Iterator[str]:
  """Yields the lines after the launcher's description; see `show`."""
  yield 'Flags:'
  for flag in _flags():
    shown = '' if flag.default is None else f'={flag.default}'
    yield from _entry(f'--{flag.name}{shown}', flag.help)
  yield from _entry('--helpfull', 'Also shows the flags of libraries.')
  if config is None:
    return
  values = values or config.base().to_dict()
  yield ''
  yield 'Settings, each a flag --config.NAME=VALUE:'
  if None in values.values():
    yield '(for agents and rules, unset values suit the rule and the task)'
  for title, settings in all_sections(config).items():
    yield f'\n{title}'
    for name, _, default, meaning in settings:
      is_known, value = _find(values, name.split('.'))
      if is_known:
        value = default if value is None else value
        yield from _entry(f'{name}={value!r}', meaning)


def all_sections(config: ModuleType) -> 'dict[str, list[config_lib.Setting]]':
  """Returns settings by title; those of preprocessing are last, by family."""
  from disco_rl import config as config_lib
  from disco_rl.environments import families

  found = {
    title: [setting for setting in settings if setting.name != 'preprocessing']
    for title, settings in config.sections().items()
  }
  for family in families.FAMILIES.values():
    if family.preprocessing:
      found |= config_lib.sections(family.preprocessing)
  return found


def _find(values: Any, path: Sequence[str]) -> tuple[bool, Any]:
  """Returns whether nested settings contain an entry, and its value."""
  for name in path:
    if name not in values:
      return False, None
    values = values[name]
  return True, values


def _flags() -> list[flags.Flag]:
  """Returns the flags of launchers by name, without those of libraries."""
  by_module = flags.FLAGS.flags_by_module_dict()
  own = (
    flag
    for module, defined in by_module.items()
    # absl identifies the main module by its path.
    if module == sys.argv[0] or module.startswith('launch.')
    for flag in defined
  )
  return sorted(own, key=lambda flag: flag.name)


def _entry(left: str, text: str) -> list[str]:
  """Formats a name and its meaning in columns of text."""
  if len(left) > _WIDTH - 2:
    left = f'{left[: _WIDTH - 5]}...'
  indent = ' ' * _COLUMN
  wrapped = textwrap.wrap(
    text[:1].upper() + text[1:],
    _WIDTH,
    initial_indent=indent,
    subsequent_indent=indent,
  )
  left = f'  {left}'
  if not wrapped:
    return [left]
  if len(left) + 2 > _COLUMN:
    return [left, *wrapped]
  return [left.ljust(_COLUMN) + wrapped[0].lstrip(), *wrapped[1:]]
