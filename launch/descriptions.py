"""What the settings in configs/ mean, from the comments there.

A setting's meaning is the comment beside it or above it, its default the value.
A function that sets some of them is a section, titled by its docstring. Those
of preprocessing are described with the classes that hold them.
"""

from collections.abc import Iterator
import inspect
import re
from types import ModuleType
from typing import Any
from typing import NamedTuple

import ml_collections

# Comments above, the name, a comment beside; each statement is one line.
_SETTING = re.compile(
  r'(?P<above>(?:^ *#.*\n)*)^ *config\.(?P<name>\w+) = '
  r'.*?(?:  # (?P<beside>.*))?$',
  re.MULTILINE,
)


class Setting(NamedTuple):
  """A setting by its flat name, its default, and what it means."""

  name: str
  default: Any
  meaning: str


def sections(config: ModuleType) -> Iterator[tuple[str, list[Setting]]]:
  """Titles and settings of the SECTIONS of a file in configs/.

  Raises:
    ValueError: a setting has no comment.
  """
  for function in config.SECTIONS:
    values = ml_collections.ConfigDict()
    function(values)
    defaults = values.to_dict()
    matches = _SETTING.finditer(inspect.getsource(function))
    yield (
      _doc(function).removesuffix('.'),
      [
        _describe(
          match['name'],
          defaults[match['name']],
          match['beside'] or match['above'],
        )
        for match in matches
        if match['name'] != 'preprocessing'
      ],
    )


def preprocessing() -> Iterator[tuple[str, list[Setting]]]:
  """Families of environments, and the settings of their preprocessing.

  Raises:
    ValueError: a setting has no description.
  """
  # Imported late: a mistyped flag should not wait for JAX to load.
  from configs import preprocessing as configs
  from disco_rl.environments import families

  for family, values in configs.benchmarks().items():
    meanings = dict(
      re.findall(
        r'^  (\w+): (.*(?:\n    .*)*)',
        _doc(families.FAMILIES[family].preprocessing),
        re.MULTILINE,
      )
    )
    prefix = f'preprocessing.{family}.'
    yield (
      family,
      [
        _describe(prefix + name, value, meanings.get(name, ''))
        for name, value in values.items()
      ],
    )


def _doc(documented: Any) -> str:
  return inspect.getdoc(documented) or ''


def _describe(name: str, default: Any, comment: str) -> Setting:
  text = ' '.join(re.sub('^ *#', '', comment, flags=re.MULTILINE).split())
  if not text:
    raise ValueError(
      f'The setting {name} has no comment that says what it means. Add one '
      'beside it or above it.'
    )
  return Setting(name, default, text[0].upper() + text[1:])
