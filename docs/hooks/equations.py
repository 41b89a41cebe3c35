r"""Equations as MathML, so that pages show them without a script.

`pymdownx.arithmatex` marks text between dollar signs: \(...\) within a line,
\[...\] on a separate line.
"""

import functools
import html
import re
from typing import Any

from latex2mathml import converter

_EQUATION = re.compile(
  r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</\1>',
  re.DOTALL,
)


def on_page_content(content: str, **_: Any) -> str:
  """Replaces the marked equations of a page."""
  return _EQUATION.sub(_to_mathml, content)


def _to_mathml(match: re.Match[str]) -> str:
  display = 'block' if match['tag'] == 'div' else 'inline'
  return _convert(html.unescape(match['latex']).strip(), display)


@functools.cache
def _convert(latex: str, display: str) -> str:
  return converter.convert(latex, display=display)
