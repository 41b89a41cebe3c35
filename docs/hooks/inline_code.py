"""Code within text: short names are not split at line ends; long values are.

A name such as `--help` is never split. In tables, longer names are not split
either, except values that are wider than a table.
"""

import re
from typing import Any

_SHORT = re.compile(r'<code>(?=[^<]{1,24}</code>)')
_LONG = re.compile(r'<code>(?=[^<]{49,}</code>)')


def on_page_content(content: str, **_: Any) -> str:
  """Marks code for the stylesheet."""
  content = _SHORT.sub('<code class="short">', content)
  return _LONG.sub('<code class="long">', content)
