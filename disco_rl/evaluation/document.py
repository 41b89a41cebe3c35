"""A document of headings, paragraphs, tables and figures, in two languages."""

import base64
from collections.abc import Sequence
import dataclasses
import html
import os
import pathlib

from disco_rl.runtime import files


@dataclasses.dataclass(frozen=True)
class Heading:
  """Level 1 is the document's title."""

  text: str
  level: int


@dataclasses.dataclass(frozen=True)
class Paragraph:
  """Plain text."""

  text: str


@dataclasses.dataclass(frozen=True)
class Table:
  """Cells as text.

  Attributes:
    header: of each column.
    rows: as many cells each.
  """

  header: Sequence[str]
  rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Figure:
  """A PNG file.

  Attributes:
    path: of the file.
    caption: what it shows.
  """

  path: pathlib.Path
  caption: str


Block = Heading | Paragraph | Table | Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #333; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ddd; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.75rem; border-bottom: 1px solid #e6e6e6;
  text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1.5rem 0; }
img { max-width: 100%; }
figcaption { font-size: 0.9rem; color: #666; }
"""


def write_markdown(blocks: Sequence[Block], path: files.PathLike) -> None:
  """Writes a document that names its figures by relative paths."""
  folder = pathlib.Path(path).parent
  text = '\n\n'.join(_to_markdown(block, folder) for block in blocks)
  with files.replacing(path) as temporary:
    temporary.write_text(text + '\n', encoding='utf-8')


def write_html(blocks: Sequence[Block], path: files.PathLike) -> None:
  """Writes one file that holds all there is, its figures included."""
  titles = [b.text for b in blocks if isinstance(b, Heading) and b.level == 1]
  body = '\n'.join(_to_html(block) for block in blocks)
  text = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width">\n'
    f'<title>{html.escape(" ".join(titles))}</title>\n'
    f'<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n'
  )
  with files.replacing(path) as temporary:
    temporary.write_text(text, encoding='utf-8')


def _to_markdown(block: Block, folder: pathlib.Path) -> str:
  match block:
    case Heading(text, level):
      return f'{"#" * level} {text}'
    case Paragraph(text):
      return text
    case Figure(path, caption):
      source = pathlib.Path(os.path.relpath(path, folder)).as_posix()
      return f'![{path.stem}]({source})\n\n{caption}'
    case Table(header, rows):
      rule = ['---', *('---:' for _ in header[1:])]
      lines = [_markdown_row(cells) for cells in (header, rule, *rows)]
      return '\n'.join(lines)


def _markdown_row(cells: Sequence[str]) -> str:
  escaped = (cell.replace('|', '\\|') for cell in cells)
  return f'| {" | ".join(escaped)} |'


def _to_html(block: Block) -> str:
  match block:
    case Heading(text, level):
      return f'<h{level}>{html.escape(text)}</h{level}>'
    case Paragraph(text):
      return f'<p>{html.escape(text)}</p>'
    case Figure(path, caption):
      content = path.read_bytes()
      data = base64.b64encode(content).decode()
      # Figures have 200 dots per inch, pages 96; a PNG file begins with its
      # signature and, from the 16th byte on, its width.
      width = int.from_bytes(content[16:20], 'big') // 2
      caption = html.escape(caption)
      return (
        f'<figure><img width="{width}" alt="{caption}" '
        f'src="data:image/png;base64,{data}">'
        f'<figcaption>{caption}</figcaption></figure>'
      )
    case Table(header, rows):
      lines = [_html_row(header, 'th'), *(_html_row(row, 'td') for row in rows)]
      body = '\n'.join(lines)
      return f'<div class="wide"><table>\n{body}\n</table></div>'


def _html_row(cells: Sequence[str], tag: str) -> str:
  joined = ''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)
  return f'<tr>{joined}</tr>'
