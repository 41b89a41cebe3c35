"""The table of rules that have names, from their cards.

A page includes it by <!-- rules -->. It is that of `disco_rl.rules()`.
"""

from typing import Any

import disco_rl
from disco_rl.update_rules import cards

_MARK = '<!-- rules -->'


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the cards."""
  if _MARK not in markdown:
    return markdown
  shown = map(cards.as_markdown, disco_rl.rules().values())
  return markdown.replace(_MARK, '\n\n'.join(shown))
