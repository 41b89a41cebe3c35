"""Links from pages into the repository.

Pages link to files by relative paths, [text](../disco_rl/types.py#Rollout), as
on a server of repositories. The site has a page for each linked file. A
fragment names a function or a class, and links to its line. A file or a name
that does not exist is an error.
"""

import ast
from collections.abc import Iterator
import functools
import json
import pathlib
import posixpath
import re
from typing import Any

from mkdocs import exceptions
from mkdocs.config import defaults
from mkdocs.structure import files as mkdocs_files
from mkdocs.structure import pages as mkdocs_pages

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_LINK = re.compile(r'\]\(\.\./(?P<path>[\w./-]+)(?:#(?P<name>[\w.]+))?\)')
_SCHEME = 'repository:'
_LANGUAGES = {'.py': 'python', '.sh': 'bash', '.yaml': 'yaml', '.yml': 'yaml'}


def on_files(
  files: mkdocs_files.Files, config: defaults.MkDocsConfig
) -> mkdocs_files.Files:
  """Adds a page for each linked file."""
  linked = {
    match['path']
    for page in files.documentation_pages()
    for match in _LINK.finditer(page.content_string)
    if (_ROOT / match['path']).is_file()
  }
  for path in sorted(linked):
    files.append(
      mkdocs_files.File.generated(config, _page_of(path), content=_show(path))
    )
    if path.endswith('.ipynb'):  # For its link to the notebook itself.
      text = (_ROOT / path).read_text()
      files.append(
        mkdocs_files.File.generated(config, f'source/{path}', content=text)
      )
  return files


def on_page_markdown(markdown: str, page: mkdocs_pages.Page, **_: Any) -> str:
  """Marks the links so that they are not treated as links between pages."""

  def mark(match: re.Match[str]) -> str:
    path, name = match['path'], match['name']
    if not (_ROOT / path).is_file():
      raise exceptions.PluginError(
        f'{page.file.src_uri} links to {path}, which does not exist.'
      )
    fragment = ''
    if name is not None:
      line = _lines(path).get(name)
      if line is None:
        raise exceptions.PluginError(
          f'{page.file.src_uri} links to {name} in {path}, which has no '
          'function or class of that name.'
        )
      fragment = f'#__codelineno-0-{line}'
    return f']({_SCHEME}{path}{fragment})'

  return _LINK.sub(mark, markdown)


def on_page_content(content: str, page: mkdocs_pages.Page, **_: Any) -> str:
  """Turns marked links into links to the pages of the files."""
  folder = posixpath.dirname(page.file.dest_uri) or '.'

  def resolve(match: re.Match[str]) -> str:
    target = _page_of(match['path']).removesuffix('.md') + '.html'
    return f'href="{posixpath.relpath(target, folder)}'

  return re.sub(rf'href="{_SCHEME}(?P<path>[\w./-]+)', resolve, content)


def _page_of(path: str) -> str:
  return f'source/{path}.md'


def _show(path: str) -> str:
  """A page that shows a file."""
  file = _ROOT / path
  head = f'---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n# {path}\n\n'
  text = file.read_text()
  if file.suffix == '.ipynb':
    head += f'[Download the notebook]({file.name})\n\n'
    return head + '\n\n'.join(map(_show_cell, json.loads(text)['cells']))
  # Longer than any fence within.
  fence = '`' * 8
  language = _LANGUAGES.get(file.suffix, 'text')
  return f'{head}{fence}{{.{language} linenums="1"}}\n{text}{fence}\n'


def _show_cell(cell: dict[str, Any]) -> str:
  source = ''.join(cell['source'])
  if cell['cell_type'] == 'markdown':
    # The page has a title already, and no picture from the network.
    source = re.sub(r'\[!\[(.*?)\]\(.*?\)\]', r'[\1]', source)
    return re.sub('^#', '##', source, flags=re.MULTILINE)
  language = 'bash' if source.startswith('%%bash') else 'python'
  shown = [f'```{language}\n{source}\n```']
  for output in cell['outputs']:
    shown.extend(_show_output(output))
  return '\n\n'.join(shown)


def _show_output(output: dict[str, Any]) -> Iterator[str]:
  """What a cell printed, and its pictures."""
  data = output.get('data', {})
  kinds = [kind for kind in data if kind.startswith('image/')]
  if kinds:
    picture = ''.join(data[kinds[0]]).replace('\n', '')
    yield f'![Output of the cell](data:{kinds[0]};base64,{picture})'
  elif text := ''.join(output.get('text', data.get('text/plain', ''))):
    yield f'````text\n{text.rstrip()}\n````'


@functools.cache
def _lines(path: str) -> dict[str, int]:
  """Functions and classes of a file, also as Class.method -> first line."""
  lines: dict[str, int] = {}

  def visit(node: ast.AST, prefix: str) -> None:
    for child in ast.iter_child_nodes(node):
      if isinstance(child, ast.ClassDef | ast.FunctionDef):
        lines[prefix + child.name] = child.lineno
        visit(child, f'{prefix}{child.name}.')

  visit(ast.parse((_ROOT / path).read_text()), '')
  return lines
