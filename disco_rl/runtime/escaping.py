"""Texts that may be from strangers, in Markdown, tables and terminals.

Names and descriptions come from cards, settings and files. `html.escape` is the
counterpart for HTML.
"""

import html
import re

# Characters at the start of a cell that make spreadsheets compute it.
_FORMULAS = ('=', '+', '-', '@', '\t', '\r', '\n')


def markdown(text: str) -> str:
  """Returns Markdown that shows a text in one line, also as a table's cell.

  HTML, links, pictures, code and emphasis by asterisks lose their meaning; so
  do line breaks, without which no heading, list or table begins.
  """
  line = html.escape(' '.join(text.split()), quote=False)
  line = re.sub(r'([\\`*|~])', r'\\\1', line)
  # Brackets of intervals, [0.1, 0.2], are legible without a backslash.
  return re.sub(r'\](?=[(\[:])', r'\\]', line)


def paragraph(text: str) -> str:
  """Returns Markdown that shows a text as a paragraph, not as a heading."""
  return re.sub(r'^(\d*)([#+=.)-])', r'\1\\\2', markdown(text))


def code(text: str) -> str:
  """Returns Markdown that shows a text as code in one line, also in a cell."""
  line = ' '.join(text.split()).replace('`', "'").replace('|', '\\|')
  return f'`{line}`' if line else ''


def cell(value: object) -> object:
  """Returns a value for a CSV file that no spreadsheet takes for a formula."""
  if isinstance(value, str) and value.startswith(_FORMULAS):
    return f"'{value}"
  return value


def printable(text: str) -> str:
  """Replaces characters that could control a terminal, in one line."""
  line = ' '.join(text.split())
  return ''.join(x if x.isprintable() else '\ufffd' for x in line)
