"""Code within text: short names are not split at line ends, long values are.

A name such as `--help` stays whole everywhere; in tables longer ones do as
well, but not values that are longer than a table is wide.
"""

import re
from typing import Any

_SHORT = re.compile(r'<code>(?=[^<]{1,24}</code>)')
_LONG = re.compile(r'<code>(?=[^<]{49,}</code>)')


def on_page_content(content: str, **_: Any) -> str:
  """Marks them for the stylesheet."""
  content = _SHORT.sub('<code class="short">', content)
  return _LONG.sub('<code class="long">', content)
