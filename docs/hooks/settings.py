"""Tables of settings, from the files in configs/.

A page includes one by <!-- settings: NAME -->. A setting's meaning is the
comment beside it or above it, its default the value; a function that sets some
of them is a table, under the first line of its docstring. Those of
preprocessing are described with the classes that hold them. A setting without a
description is an error.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import importlib
import inspect
import pathlib
import re
import sys
from typing import Any

from mkdocs import exceptions
import ml_collections

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MARK = re.compile(r'<!-- settings: (?P<name>\w+) -->')
# Comments above, the name, a comment beside; each statement is one line.
_SETTING = re.compile(
  r'(?P<above>(?:^ *#.*\n)*)^ *config\.(?P<name>\w+) = '
  r'.*?(?:  # (?P<beside>.*))?$',
  re.MULTILINE,
)
_DISCOVERY = ('quickstart', 'meta_gridworld', 'disco57', 'disco103')


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the tables."""
  return _MARK.sub(
    lambda match: '\n\n'.join(_TABLES[match['name']]()), markdown
  )


def _module(name: str) -> Any:
  """A file of configs/."""
  if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))
  return importlib.import_module(f'configs.{name}')


def _discovery() -> Iterator[str]:
  return _sections(_module('meta_training').SECTIONS)


def _discovery_changes() -> Iterator[str]:
  base = _module('meta_training').base()
  for name in _DISCOVERY:
    yield _changes(f'configs/{name}.py', base, _module(name).get_config())
  ablations = _module('ablations')
  for name in ablations.VARIANTS:
    title = f'configs/ablations.py:{name}'
    yield _changes(title, ablations.get_config(), ablations.get_config(name))


def _evaluation() -> Iterator[str]:
  return _sections(_module('evaluate').SECTIONS)


def _evaluation_changes() -> Iterator[str]:
  module = _module('evaluate')
  for name in module.VARIANTS:
    title = f'configs/evaluate.py:{name}'
    yield _changes(title, module.base(), module.get_config(name))


def _preprocessing() -> Iterator[str]:
  from disco_rl.environments import families

  for family, settings in _module('preprocessing').benchmarks().items():
    described = inspect.getdoc(families.FAMILIES[family].preprocessing)
    meanings = dict(
      re.findall(r'^  (\w+): (.*(?:\n    .*)*)', described, re.MULTILINE)
    )
    yield f'### {family}'
    yield _table(
      (f'preprocessing.{family}.{name}', value, meanings.get(name, ''))
      for name, value in settings.items()
    )


_TABLES = {
  'discovery': _discovery,
  'discovery_changes': _discovery_changes,
  'evaluation': _evaluation,
  'evaluation_changes': _evaluation_changes,
  'preprocessing': _preprocessing,
}


def _sections(sections: Iterable[Any]) -> Iterator[str]:
  """A heading and a table of each function that sets some settings."""
  for section in sections:
    config = ml_collections.ConfigDict()
    section(config)
    yield f'### {inspect.getdoc(section).removesuffix(".")}'
    yield _table(
      (match['name'], config[match['name']], match['beside'] or match['above'])
      for match in _SETTING.finditer(inspect.getsource(section))
      if match['name'] != 'preprocessing'
    )


def _changes(title: str, base: Any, config: Any) -> str:
  """What a config changes, folded."""
  before, after = _flat(base), _flat(config)
  rows = [
    f'    | `{name}` | `{_show(before[name])}` | `{_show(value)}` |'
    for name, value in after.items()
    if value != before[name]
  ]
  return '\n'.join(
    [
      f'??? abstract "`{title}`"',
      '',
      '    | setting | default | here |',
      '    |---|---|---|',
      *(rows or ['    | none | | |']),
    ]
  )


def _flat(config: Any) -> dict[str, Any]:
  """Settings by their names, those of preprocessing last."""
  flat = {name: x for name, x in config.items() if name != 'preprocessing'}
  for family, settings in config.preprocessing.items():
    flat |= {f'preprocessing.{family}.{k}': x for k, x in settings.items()}
  return flat


def _table(settings: Iterable[tuple[str, Any, str]]) -> str:
  """A table of (name, default, meaning)."""
  lines = ['| setting | default | meaning |', '|---|---|---|']
  for name, default, meaning in settings:
    text = ' '.join(re.sub('^ *#', '', meaning, flags=re.MULTILINE).split())
    if not text:
      raise exceptions.PluginError(
        f'The setting {name} has no comment that says what it means.'
      )
    text = re.sub(r'([|_*])', r'\\\1', text[0].upper() + text[1:])
    lines.append(f'| `{name}` | `{_show(default)}` | {text} |')
  return '\n'.join(lines)


def _show(value: Any) -> str:
  return repr(value).replace('|', '\\|')
