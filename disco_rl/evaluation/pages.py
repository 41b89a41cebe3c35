"""Documents of headings, paragraphs, tables and figures: Markdown and HTML.

A document is a list of blocks. Its HTML is a single self-contained file.
"""

import base64
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import html
import os
import pathlib
import textwrap

from disco_rl.runtime import escaping
from disco_rl.runtime import files


@dataclasses.dataclass(frozen=True)
class Heading:
  """A heading; the title of the document has level 1."""

  text: str
  level: int = 2


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """A paragraph of text; results are emphasized."""

  text: str
  is_result: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
  """A table: rows of cells, the header first."""

  rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Figure:
  """A picture by `plotting.save`, or a film as GIF, with a caption.

  It is left out if the file does not exist because drawing failed.
  """

  path: pathlib.Path
  caption: str


@dataclasses.dataclass(frozen=True)
class Code:
  """A command or a piece of code."""

  text: str


Block = Heading | Paragraph | Table | Figure | Code

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ddd; }
div { margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.75rem; border-bottom: 1px solid #e6e6e6;
  text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; }
img { max-width: 100%; }
figcaption { font-size: 0.9rem; color: #666; }
figure.film { display: inline-block; vertical-align: top;
  max-width: 12rem; margin: 0.5rem 2rem 0 0; }
figure.film img { height: 12rem; image-rendering: pixelated; }
.result { border-left: 4px solid #0072B2; padding: 0.25rem 1rem; }
pre { background: #f5f5f5; padding: 0.5rem 0.75rem; overflow-x: auto;
  font-size: 0.85rem; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #1b1b1f; }
  h2, th, td { border-color: #444; }
  figcaption { color: #aaa; }
  pre { background: #2a2a30; }
}
"""


def write_markdown(path: files.PathLike, blocks: Sequence[Block]) -> None:
  """Writes a document as Markdown, atomically; figures stay in their files."""
  folder = pathlib.Path(path).parent
  parts = [x for x in (_markdown(block, folder) for block in blocks) if x]
  _write(path, '\n\n'.join(parts) + '\n')


def write_html(
  path: files.PathLike, title: str, blocks: Sequence[Block]
) -> None:
  """Writes a document as one HTML file, atomically."""
  body = '\n'.join(map(_html, blocks))
  _write(
    path,
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width">\n'
    f'<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n'
    f'</head>\n<body>\n{body}\n</body>\n</html>\n',
  )


def _write(path: files.PathLike, text: str) -> None:
  with files.replacing(path) as temporary:
    temporary.write_text(text, encoding='utf-8')


def _markdown(block: Block, folder: pathlib.Path) -> str:
  match block:
    case Heading(text, level):
      return f'{"#" * level} {escaping.markdown(text)}'
    case Paragraph(text):
      return escaping.paragraph(text)
    case Table(rows):
      return '\n'.join(_lines(rows))
    case Code(text):
      # No text can end a block that is indented.
      return textwrap.indent(text, '    ')
    case Figure(path, caption) if path.is_file():
      source = pathlib.PurePath(os.path.relpath(path, folder)).as_posix()
      return f'![{path.stem}]({source})\n\n{escaping.paragraph(caption)}'
  return ''


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
  """Yields the lines of a table."""
  for i, cells in enumerate(rows):
    yield f'| {" | ".join(map(escaping.markdown, cells))} |'
    if i == 0:
      yield f'| --- |{" ---: |" * (len(cells) - 1)}'


def _html(block: Block) -> str:
  match block:
    case Heading(text, level):
      return f'<h{level}>{html.escape(text)}</h{level}>'
    case Paragraph(text, is_result):
      kind = ' class="result"' if is_result else ''
      return f'<p{kind}>{html.escape(text)}</p>'
    case Table(rows):
      lines = '\n'.join(
        f'<tr>{"".join(_cell(x, "td" if i else "th") for x in cells)}</tr>'
        for i, cells in enumerate(rows)
      )
      return f'<div><table>\n{lines}\n</table></div>'
    case Code(text):
      return f'<pre>{html.escape(text)}</pre>'
    case Figure(path, caption) if path.is_file():
      return _figure(path, html.escape(caption))
  return ''


def _cell(text: str, tag: str) -> str:
  return f'<{tag}>{html.escape(text)}</{tag}>'


def _figure(path: pathlib.Path, caption: str) -> str:
  content = path.read_bytes()
  is_film = path.suffix == '.gif'
  # In CSS pixels: figures have 200 dots per inch, pages 96. Bytes 16 to 19 of a
  # PNG file are its width.
  width = int.from_bytes(content[16:20], 'big') // 2
  data = base64.b64encode(content).decode()
  return (
    f'<figure{" class=film" if is_film else ""}>'
    f'<img{"" if is_film else f" width={width}"} alt="{caption}"\n'
    f'src="data:image/{path.suffix[1:]};base64,{data}">\n'
    f'<figcaption>{caption}</figcaption></figure>'
  )
