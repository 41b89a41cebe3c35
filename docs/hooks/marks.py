"""Marks code and tables for the stylesheet.

A name such as `--help` is never split at a line's end. In tables, longer names
are not split either, except values that are wider than a table. On phones, rows
of tables that end in a text are stacked.
"""

import re
from typing import Any

_SHORT = re.compile(r'<code>(?=[^<]{1,24}</code>)')
# The tables of settings, environments and arrays; the last column is a text.
_STACKED = re.compile(
  r'<table>\s*<thead>\s*<tr>\s*<th>(?:setting|names|key)</th>.*?</table>',
  re.DOTALL,
)
_LONG = re.compile(r'<code>(?=[^<]{49,}</code>)')


def on_page_content(content: str, **_: Any) -> str:
  """Marks code and tables."""
  content = _STACKED.sub(r'<div class="stacked">\g<0></div>', content)
  content = _SHORT.sub('<code class="short">', content)
  return _LONG.sub('<code class="long">', content)
