"""The table of rules that have names, from their cards.

A page includes it by <!-- rules -->. It is that of `disco_rl.rules()`.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import disco_rl

_MARK = '<!-- rules -->'


def on_page_markdown(markdown: str, **_: Any) -> str:
  """Fills in the cards."""
  if _MARK not in markdown:
    return markdown
  cards = disco_rl.rules()
  return markdown.replace(
    _MARK, '\n\n'.join(text for name in cards for text in _show(cards[name]))
  )


def _show(card: Any) -> Iterator[str]:
  """A heading, the description, and what is known of the discovery."""
  yield f'### {card.name}'
  yield card.description
  facts = {
    'environments': ', '.join(
      f'`{name}`' if count == 1 else f'`{name}` {count} times'
      for name, count in collections.Counter(card.environments).items()
    ),
    'agents': _number(card.agents),
    'meta-steps': _number(card.meta_steps),
    'environment steps': _number(card.environment_steps),
    'seed': _number(card.seed),
    'compute': _compute(card.compute),
    'versions': ', '.join(f'{k} {v}' for k, v in card.versions.items()),
    'SHA-256': card.sha256 and f'`{card.sha256}`',
  }
  rows = [f'| {name} | {text} |' for name, text in facts.items() if text]
  if rows:
    yield '\n'.join(['| discovery | |', '|---|---|', *rows])
  if card.held_out:
    yield _held_out(card.held_out)
  if card.settings:
    yield _settings(card.settings)


def _held_out(found: Mapping[str, Any]) -> str:
  """Returns of new agents."""
  title = f'mean of {found["agents"]} agents after {found["updates"]} updates'
  rows = [
    f'| `{name}` | {x["mean"]:.3g} | {x["min"]:.3g} to {x["max"]:.3g} |'
    for name, x in found['returns'].items()
    if None not in x.values()  # No episode had ended.
  ]
  return '\n'.join(
    [f'| held-out environment | {title} | range |', '|---|---|---|', *rows]
  )


def _settings(settings: Mapping[str, Any]) -> str:
  """All settings, folded."""
  rows = [
    f'    | `{name}` | `{repr(value).replace("|", "&#124;")}` |'
    for name, value in settings.items()
  ]
  head = ['??? abstract "Settings"', '', '    | setting | value |']
  return '\n'.join([*head, '    |---|---|', *rows])


def _compute(compute: Mapping[str, Any]) -> str:
  if not compute:
    return ''
  minutes = compute['seconds'] / 60
  return f'{minutes:.0f} min on {compute["devices"]} x {compute["kind"]}'


def _number(value: int | None) -> str:
  return '' if value is None else f'{value:,}'
