"""Cards of rules: descriptions in JSON files next to the weights.

The card of runs/mine/rule.npz is runs/mine/rule.json. Discovery writes it, and
`registry.load_with_card` reads it; rules can be loaded without a card. That of
disco103 is in `sources.PUBLISHED`, and `registry.card_of_class` makes those of
hand-designed rules, from `recommended` of their class.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import json
import pathlib
from typing import Any

from disco_rl import config as config_lib
from disco_rl.runtime import escaping
from disco_rl.runtime import files

_MAX_BYTES = 2**20


class CardError(ValueError):
  """Raised if a file is not the card of a rule, or is damaged."""


# Entries of `Card.recommended` with settings for some observations or agents.
_KINDS = {'images', 'paper'}


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
      observations, and `paper` for agents of the paper's sizes.
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

  def recommended_for(
    self, is_image: bool, is_paper: bool = False
  ) -> dict[str, Any]:
    """Returns the recommended settings for a kind of observations and agents.

    Args:
      is_image: Whether observations are images.
      is_paper: Whether agents have the paper's sizes.
    """
    found = {k: x for k, x in self.recommended.items() if k not in _KINDS}
    for kind, does_apply in (('images', is_image), ('paper', is_paper)):
      found |= self.recommended.get(kind, {}) if does_apply else {}
    return found


def path_of(rule: files.PathLike) -> pathlib.Path:
  """Returns the path of the card of a rule's file."""
  return pathlib.Path(rule).with_suffix('.json')


def read(path: files.PathLike) -> Card:
  """Reads a card; ignores entries that later versions may add.

  Raises:
    OSError: The file does not exist or cannot be read.
    CardError: The file is not a card, or is damaged.
  """
  try:
    content = json.loads(files.read_limited(path, _MAX_BYTES).decode())
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
  files.check_regular(path)
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _check(card: Card) -> None:
  """Raises TypeError if a value does not have the type of its field."""
  config_lib.check_types(card)
  for name in card.environments:
    if not isinstance(name, str):
      raise TypeError(f'environments has {name!r:.80}')
  for kind in _KINDS & card.recommended.keys():
    if not isinstance(card.recommended[kind], Mapping):
      raise TypeError(f'recommended.{kind} is {card.recommended[kind]!r:.80}')


def _sections(card: Card) -> Iterator[str]:
  """Yields a heading, the description, and facts about the discovery."""
  yield f'### {escaping.markdown(card.name)}'
  yield escaping.paragraph(card.description)
  facts = {
    'environments': ', '.join(
      escaping.code(name) + ('' if count == 1 else f' {count} times')
      for name, count in collections.Counter(card.environments).items()
    ),
    'agents': _number(card.agents),
    'meta-steps': _number(card.meta_steps),
    'environment steps': _number(card.environment_steps),
    'seed': _number(card.seed),
    'compute': escaping.markdown(_compute(card.compute)),
    'versions': escaping.markdown(
      ', '.join(f'{k} {v}' for k, v in card.versions.items())
    ),
    'license': escaping.markdown(card.license or ''),
    'SHA-256': escaping.code(card.sha256 or ''),
  }
  rows = [[name, text] for name, text in facts.items() if text]
  if rows:
    yield _table(['discovery', ''], rows)
  if card.held_out:
    yield _held_out(card.held_out)
  if card.settings:
    yield _settings(card.settings)


def _held_out(found: Mapping[str, Any]) -> str:
  """Formats the returns of new agents; the file may hold anything."""
  agents, updates = found.get('agents'), found.get('updates')
  title = escaping.markdown(f'mean of {agents} agents after {updates} updates')
  rows = []
  for name, found_entries in _entries(found.get('returns')).items():
    entries = _entries(found_entries)
    values = [entries.get(x) for x in ('mean', 'min', 'max')]
    if all(map(_is_number, values)):  # Otherwise no episode had ended.
      mean, low, high = (f'{x:.3g}' for x in values)
      rows.append([escaping.code(name), mean, f'{low} to {high}'])
  return _table(['held-out environment', title, 'range'], rows)


def _entries(found: object) -> Mapping[str, Any]:
  return found if isinstance(found, Mapping) else {}


def _is_number(value: object) -> bool:
  return isinstance(value, int | float) and abs(value) < 1e300


def _settings(settings: Mapping[str, object]) -> str:
  """Formats all settings, folded."""
  rows = [
    [escaping.code(name), escaping.code(repr(value))]
    for name, value in settings.items()
  ]
  fold = '<details markdown="1"><summary>Settings</summary>'
  table = _table(['setting', 'value'], rows)
  return '\n'.join([fold, '', table, '', '</details>'])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Formats a table of cells in Markdown."""
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join(f'| {" | ".join(cells)} |' for cells in lines)


def _compute(compute: Mapping[str, Any]) -> str:
  seconds: Any = compute.get('seconds')
  if not _is_number(seconds):
    return ''
  devices, kind = compute.get('devices', '?'), compute.get('kind', 'devices')
  return f'{seconds / 60:.0f} min on {devices} x {kind}'


def _number(value: int | None) -> str:
  return '' if value is None else f'{value:,}'
