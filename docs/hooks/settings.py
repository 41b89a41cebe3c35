"""Tables of settings, from the files in configs/.

A page includes one by <!-- settings: NAME -->. A setting's meaning is the
comment beside it or above it, its default the value; the first comment of a
paragraph is a heading. Those of preprocessing are described with the classes
that hold them. A setting without a description is an error.
"""

import ast
import dataclasses
import importlib
import inspect
import pathlib
import re
import sys
import tokenize
from typing import Any

from mkdocs import exceptions

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MARK = re.compile(r'<!-- settings: (?P<name>\w+) -->')
_SETTING = re.compile(r'config\.(?P<name>\w+) = ')
_DISCOVERY = ('quickstart', 'meta_gridworld', 'disco57', 'disco103')


@dataclasses.dataclass(frozen=True)
class Setting:
  """One setting.

  Attributes:
    name: as in --config.NAME.
    default: as Python writes it.
    meaning: a sentence or two.
  """

  name: str
  default: str
  meaning: str


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the tables."""
  return _MARK.sub(lambda match: _TABLES[match['name']](), markdown)


def _module(name: str) -> Any:
  """A file of configs/."""
  if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))
  return importlib.import_module(f'configs.{name}')


def _discovery() -> str:
  module = _module('meta_training')
  return _groups(module.base, module.base())


def _discovery_changes() -> str:
  base = _module('meta_training').base()
  return '\n\n'.join(
    _details(f'configs/{name}.py', base, _module(name).get_config())
    for name in _DISCOVERY
  )


def _evaluation() -> str:
  module = _module('evaluate')
  return _groups(module._base, module._base())


def _evaluation_changes() -> str:
  module = _module('evaluate')
  return '\n\n'.join(
    _details(
      f'configs/evaluate.py:{name}', module._base(), module.get_config(name)
    )
    for name in module.VARIANTS
  )


def _preprocessing() -> str:
  return '\n\n'.join(
    f'### {family}\n\n'
    + _table(
      [
        Setting(f'preprocessing.{family}.{name}', repr(value), meanings[name])
        for name, value in settings.items()
      ]
    )
    for family, settings in _module('preprocessing').benchmarks().items()
    for meanings in [_meanings_of_preprocessing(family)]
  )


_TABLES = {
  'discovery': _discovery,
  'discovery_changes': _discovery_changes,
  'evaluation': _evaluation,
  'evaluation_changes': _evaluation_changes,
  'preprocessing': _preprocessing,
}


def _groups(function: Any, config: Any) -> str:
  """The settings that a function assigns, under its headings."""
  parts: list[str] = []
  settings: list[Setting] = []
  for heading, setting in _parse(function, config):
    if heading and settings:
      parts.append(_table(settings))
      settings = []
    if heading:
      parts.append(f'### {heading}')
    settings.append(setting)
  return '\n\n'.join([*parts, _table(settings)])


def _parse(function: Any, config: Any) -> list[tuple[str, Setting]]:
  """Settings in the order of the file, with the heading above each, or ''."""
  lines, _ = inspect.getsourcelines(function)
  parsed = []
  comments: list[str] = []
  heading, has_paragraph_begun = '', False
  for line in lines:
    code, comment = _split_comment(line)
    match = _SETTING.match(code.strip())
    if not line.strip():
      has_paragraph_begun, comments = True, []
    elif match is not None:
      name = match['name']
      if has_paragraph_begun and comments:
        heading, *comments = comments
        heading = heading.rstrip('.')
      meaning = comment or ' '.join(comments)
      if name != 'preprocessing':
        _require(meaning, name)
        setting = Setting(name, _show(config[name]), meaning)
        parsed.append((heading, setting))
      heading, has_paragraph_begun, comments = '', False, []
    elif comment and not code.strip():
      comments.append(comment)
  return parsed


def _split_comment(line: str) -> tuple[str, str]:
  tokens = tokenize.generate_tokens(iter([line.strip() + '\n']).__next__)
  try:
    for token in tokens:
      if token.type == tokenize.COMMENT:
        code = line.strip()[: token.start[1]]
        return code, token.string.removeprefix('#').strip()
  except (tokenize.TokenError, StopIteration):
    pass  # A statement of several lines.
  return line, ''


def _meanings_of_preprocessing(family: str) -> dict[str, str]:
  """Attribute -> description, of the family's class `Preprocessing`."""
  for path in sorted((_ROOT / 'disco_rl' / 'environments').rglob('*.py')):
    if path.stem.removesuffix('_adapter') == family:
      for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == 'Preprocessing':
          return _attributes(ast.get_docstring(node) or '')
  raise exceptions.PluginError(f'No class Preprocessing describes {family}.')


def _attributes(docstring: str) -> dict[str, str]:
  _, _, section = docstring.partition('Attributes:\n')
  entries = re.findall(
    r'^  (\w+): (.*(?:\n    .*)*)', section, flags=re.MULTILINE
  )
  return {name: ' '.join(text.split()) for name, text in entries}


def _details(title: str, base: Any, config: Any) -> str:
  """What a config changes, folded."""
  rows = [
    f'    | `{name}` | `{_show(base[name])}` | `{_show(config[name])}` |'
    for name in config
    if name != 'preprocessing' and config[name] != base[name]
  ]
  rows += [
    f'    | `preprocessing.{family}.{name}` '
    f'| `{_show(value)}` | `{_show(config.preprocessing[family][name])}` |'
    for family, settings in base.preprocessing.items()
    for name, value in settings.items()
    if config.preprocessing[family][name] != value
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


def _table(settings: list[Setting]) -> str:
  return '\n'.join(
    [
      '| setting | default | meaning |',
      '|---|---|---|',
      *(
        f'| `{s.name}` | `{s.default}` | {_escape(_sentence(s.meaning))} |'
        for s in settings
      ),
    ]
  )


def _sentence(text: str) -> str:
  return text[:1].upper() + text[1:]


def _show(value: Any) -> str:
  return repr(value).replace('|', '\\|')


def _escape(text: str) -> str:
  return text.replace('|', '\\|').replace('_', '\\_').replace('*', '\\*')


def _require(meaning: str, name: str) -> None:
  if not meaning:
    raise exceptions.PluginError(
      f'The setting {name} has no comment that says what it means.'
    )
