"""Shows the cards of the named rules, those of `disco_rl.rules()`.

<!-- rules --> is replaced by all cards, and <!-- learning rates --> by a table
of the learning rates that they recommend.
"""

from typing import Any

import disco_rl
from disco_rl.update_rules import cards


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the cards."""
  if '<!-- rules -->' in markdown:
    shown = map(cards.as_markdown, disco_rl.rules().values())
    markdown = markdown.replace('<!-- rules -->', '\n\n'.join(shown))
  if '<!-- learning rates -->' in markdown:
    markdown = markdown.replace('<!-- learning rates -->', _rates())
  return markdown


def _rates() -> str:
  """Returns the learning rates that suit rules, for two kinds of tasks."""
  lines = ['| rule | small tasks | with images |', '|---|---|---|']
  for name, card in disco_rl.rules().items():
    rates = (
      card.recommended_for(is_image)['learning_rate']
      for is_image in (False, True)
    )
    lines.append(f'| `{name}` | ' + ' | '.join(f'{x:g}' for x in rates) + ' |')
  return '\n'.join(lines)
