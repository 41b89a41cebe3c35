"""Pages of the API reference, one for each package of disco_rl.

They follow the folders: a module that is added appears without further ado. The
text comes from the docstrings, by mkdocstrings.
"""

import ast
import pathlib
from typing import Any

from mkdocs.config import defaults
from mkdocs.structure import files as mkdocs_files

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGE = _ROOT / 'disco_rl'
# What a user calls comes first, then the algorithm from the inside out.
_ORDER = (
  'update_rules',
  'environments',
  'networks',
  'agent',
  'maths',
  'meta_training',
  'evaluation',
  'analysis',
  'runtime',
  'api',
)
_PUBLIC = 'reference/disco_rl.md'


def on_config(config: defaults.MkDocsConfig) -> defaults.MkDocsConfig:
  """Fills the entry API of the navigation."""
  pages = [{'disco_rl': _PUBLIC}]
  pages += [{name: f'reference/{name}.md'} for name in _packages()]
  entries = [entry for part in config.nav for entry in _entries(part)]
  (api,) = [entry for entry in entries if isinstance(entry.get('API'), list)]
  api['API'] = pages
  return config


def on_files(
  files: mkdocs_files.Files, config: defaults.MkDocsConfig
) -> mkdocs_files.Files:
  """Adds the pages."""
  pages = {_PUBLIC: _public_page()}
  for name in _packages():
    pages[f'reference/{name}.md'] = _package_page(name)
  for path, text in pages.items():
    files.append(mkdocs_files.File.generated(config, path, content=text))
  return files


def _entries(part: Any) -> list[dict[str, Any]]:
  """A part of the navigation and all entries below it."""
  if not isinstance(part, dict):
    return []
  below = [
    e for value in part.values() if isinstance(value, list) for e in value
  ]
  return [part, *(entry for e in below for entry in _entries(e))]


def _packages() -> list[str]:
  found = {path.parent.name for path in _PACKAGE.glob('*/__init__.py')}
  return [name for name in _ORDER if name in found] + sorted(found - {*_ORDER})


def _public_page() -> str:
  """The exports, whose docstrings stand where they are defined."""
  stub = ast.parse((_PACKAGE / '__init__.pyi').read_text())
  exports = [
    alias.name
    for node in stub.body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
  ]
  return '\n\n'.join(
    [
      '# disco_rl',
      'What `import disco_rl` offers. Everything else can be imported from the '
      'package that holds it.',
      *(
        f'::: disco_rl.{name}\n    options:\n      toc_label: {name}'
        for name in exports
      ),
    ]
  )


def _package_page(name: str) -> str:
  folder = _PACKAGE / name
  docstring = ast.get_docstring(ast.parse((folder / '__init__.py').read_text()))
  modules = [
    path.relative_to(_ROOT)
    for path in sorted(folder.rglob('*.py'))
    if path.name != '__init__.py'
  ]
  return '\n\n'.join(
    [
      f'# disco_rl.{name}',
      docstring or '',
      *map(_module, modules),
    ]
  )


def _module(path: pathlib.PurePath) -> str:
  """A module's heading, a link to its source, and its docstrings."""
  name = '.'.join(path.with_suffix('').parts)
  return (
    f'## {name} {{ data-toc-label="{path.stem}" }}\n\n'
    f'[Source](../{path})\n\n'
    f'::: {name}\n    options:\n      heading_level: 3\n'
    '      show_root_heading: false\n      show_root_toc_entry: false'
  )
