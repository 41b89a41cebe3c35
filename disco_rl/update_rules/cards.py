"""Cards of rules: descriptions in JSON files next to the weights.

The card of runs/mine/rule.npz is runs/mine/rule.json. Discovery writes it, and
`registry.load_with_card` reads it; rules can be loaded without a card.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import hashlib
import json
import pathlib
import types
from typing import Any
from typing import get_origin
from typing import get_type_hints

from disco_rl.runtime import files


class CardError(ValueError):
  """Raised if a file is not the card of a rule, or is damaged."""


@dataclasses.dataclass(frozen=True)
class Card:
  """The description of a rule.

  Attributes:
    name: The name of the rule; for a run, its folder.
    description: One or several sentences.
    environments: The names of environments in which it was discovered.
    agents: The size of the population.
    meta_steps: The number of meta-updates.
    environment_steps: The total environment steps of the population.
    seed: The seed of the discovery.
    settings: All settings of the discovery by name, as in config.json.
    versions: The versions of disco_rl (with the commit of a clone) and jax.
    compute: The `seconds`, and the number of `devices` of one `kind`.
    recommended: Settings of agents and the rule that work better than those of
      the discovery; the entry `images` replaces some of them for image
      observations.
    held_out: The newest evaluation with new agents: `meta_step`, `updates` of
      each agent, `agents` per environment, and `returns`, for each environment
      the `mean`, `min` and `max` over agents; {} if there was none.
    sha256: The SHA-256 of the npz file, in hexadecimal digits; None if there is
      no file.
    license: The license of the npz file, as an SPDX identifier; None if it is
      unknown.
  """

  name: str
  description: str = ''
  environments: tuple[str, ...] = ()
  agents: int | None = None
  meta_steps: int | None = None
  environment_steps: int | None = None
  seed: int | None = None
  settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
  versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
  compute: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  recommended: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  held_out: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  sha256: str | None = None
  license: str | None = None

  def recommended_for(self, is_image: bool) -> dict[str, Any]:
    """Returns the recommended settings for images or other observations."""
    images = self.recommended.get('images', {}) if is_image else {}
    own = {k: v for k, v in self.recommended.items() if k != 'images'}
    return {**own, **images}


def path_of(rule: files.PathLike) -> pathlib.Path:
  """Returns the path of the card of a rule's file."""
  return pathlib.Path(rule).with_suffix('.json')


def read(path: files.PathLike) -> Card:
  """Reads a card; ignores entries that later versions may add.

  Raises:
    OSError: The file does not exist or cannot be read.
    CardError: The file is not a card, or is damaged.
  """
  data = pathlib.Path(path).read_bytes()
  try:
    content = json.loads(data.decode())
    known = {field.name for field in dataclasses.fields(Card)}
    values = {k: v for k, v in content.items() if k in known}
    if isinstance(names := values.get('environments'), list):
      values['environments'] = tuple(names)
    card = Card(**values)
    _check(card)
    return card
  # RecursionError: thousands of nested brackets.
  except (AttributeError, RecursionError, TypeError, ValueError) as error:
    raise CardError(
      f'{path} is not the card of a rule, or is damaged: {error}. Get the file '
      'again; if it was written by hand, see disco_rl.update_rules.cards.'
    ) from error


def as_markdown(card: Card) -> str:
  """Formats a card as a section of Markdown."""
  return '\n\n'.join(_sections(card))


def sha256_of(path: files.PathLike) -> str:
  """Computes the SHA-256 of a file, in hexadecimal digits."""
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _check(card: Card) -> None:
  """Raises TypeError if a value does not have the type of its field."""
  for name, hint in get_type_hints(Card).items():
    is_union = isinstance(hint, types.UnionType)
    kind = hint if is_union else get_origin(hint) or hint
    value = getattr(card, name)
    if not isinstance(value, kind):
      raise TypeError(f'{name} is {value!r:.80}')


def _sections(card: Card) -> Iterator[str]:
  """Yields a heading, the description, and facts about the discovery."""
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
    'license': card.license,
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
  """Formats the returns of new agents."""
  title = f'mean of {found["agents"]} agents after {found["updates"]} updates'
  rows = [
    f'| `{name}` | {x["mean"]:.3g} | {x["min"]:.3g} to {x["max"]:.3g} |'
    for name, x in found['returns'].items()
    if None not in x.values()  # No episode had ended.
  ]
  return '\n'.join(
    [f'| held-out environment | {title} | range |', '|---|---|---|', *rows]
  )


def _settings(settings: Mapping[str, object]) -> str:
  """Formats all settings, folded."""
  rows = [
    f'| `{name}` | `{repr(value).replace("|", "&#124;")}` |'
    for name, value in settings.items()
  ]
  fold = '<details markdown="1"><summary>Settings</summary>'
  head = [fold, '', '| setting | value |', '|---|---|']
  return '\n'.join([*head, *rows, '', '</details>'])


def _compute(compute: Mapping[str, Any]) -> str:
  if not compute:
    return ''
  minutes = compute['seconds'] / 60
  return f'{minutes:.0f} min on {compute["devices"]} x {compute["kind"]}'


def _number(value: int | None) -> str:
  return '' if value is None else f'{value:,}'
