"""Makes tables of settings from the records that declare them.

A page includes a table with <!-- settings: NAME -->. A setting without a
description in its record is an error.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import importlib
import pathlib
import re
import sys
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MARK = re.compile(r'<!-- settings: (?P<name>\w+) -->')
_DISCOVERY = (
  'quickstart',
  'scaling',
  'general',
  'disco57',
  'disco103',
)


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the tables."""
  return _MARK.sub(
    lambda match: '\n\n'.join(_TABLES[match['name']]()), markdown
  )


def _import(name: str) -> Any:
  """A module that is not installed."""
  if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))
  return importlib.import_module(name)


def _module(name: str) -> Any:
  """A file of configs/."""
  return _import(f'configs.{name}')


def _discovery() -> Iterator[str]:
  return _tables(_module('meta_training').sections())


def _discovery_changes() -> Iterator[str]:
  base = _module('meta_training').base()
  for name in _DISCOVERY:
    yield _changes(f'configs/{name}.py', base, _module(name).get_config())
  ablations = _module('ablations')
  for name in ablations.VARIANTS:
    title = f'configs/ablations.py:{name}'
    yield _changes(title, ablations.get_config(), ablations.get_config(name))


def _evaluation() -> Iterator[str]:
  return _tables(_module('evaluate').sections())


def _evaluation_changes() -> Iterator[str]:
  module = _module('evaluate')
  for name in module.VARIANTS:
    title = f'configs/evaluate.py:{name}'
    yield _changes(title, module.base(), module.get_config(name))


def _protocol() -> Iterator[str]:
  module = _module('protocol')
  title, settings = next(iter(module.sections().items()))
  values = module.get_config().to_dict()
  filled_in = [x._replace(default=values[x.name]) for x in settings]
  return _tables({title: filled_in})


def _preprocessing() -> Iterator[str]:
  families = _import('disco_rl.environments.families').FAMILIES
  records = [x.preprocessing for x in families.values() if x.preprocessing]
  return _tables(_import('disco_rl.config').sections(*records))


_TABLES = {
  'discovery': _discovery,
  'discovery_changes': _discovery_changes,
  'evaluation': _evaluation,
  'evaluation_changes': _evaluation_changes,
  'protocol': _protocol,
  'preprocessing': _preprocessing,
}


def _tables(sections: Mapping[str, Iterable[Any]]) -> Iterator[str]:
  """A heading and a table of each section."""
  for title, settings in sections.items():
    yield f'### {title}'
    yield _table(x for x in settings if x.name != 'preprocessing')


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


def _table(settings: Iterable[Any]) -> str:
  """A table of settings."""
  lines = ['<div class="stacked" markdown>', '']
  lines += ['| setting | default | meaning |', '|---|---|---|']
  for name, _, default, meaning in settings:
    if not meaning:
      raise ValueError(f'The record of {name} does not say what it means.')
    # Not within names, which stand between backticks.
    text = re.sub(
      r'(`[^`|]*`)|([|_*])',
      lambda x: x[1] or f'\\{x[2]}',
      meaning[0].upper() + meaning[1:],
    )
    lines.append(f'| `{name}` | `{_show(default)}` | {text} |')
  return '\n'.join([*lines, '', '</div>'])


def _show(value: Any) -> str:
  return repr(value).replace('|', '\\|')
