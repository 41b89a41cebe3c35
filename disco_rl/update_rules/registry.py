"""Loads update rules by name, or from files of weights."""

from collections.abc import Mapping
import dataclasses
import difflib
import functools
import inspect

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.runtime import files
from disco_rl.runtime import reports
from disco_rl.runtime import versions
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import ppo
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights

_HAND_MADE: dict[str, type] = {
  'actor_critic': actor_critic.ActorCritic,
  'policy_gradient': policy_gradient.PolicyGradient,
  'ppo': ppo.PPO,
}
BUILT_IN = (disco.Disco, *_HAND_MADE.values())


@dataclasses.dataclass(frozen=True)
class LoadedRule:
  """A rule with its parameters.

  Attributes:
    rule: The functions of the rule.
    params: The parameters (meta-parameters, eta in the paper); {} for a
      hand-designed rule.
    name: The name or path; None for the user's own object.
    settings: The settings that were given for the rule.
    card: The card, which recommends settings; None if there is none.
  """

  rule: base.UpdateRule
  params: types.Params
  name: str | None = None
  settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
  card: cards.Card | None = None

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Returns the heads that the agent's network must have."""
    return self.rule.output_spec(num_actions)


def names() -> tuple[str, ...]:
  """Returns the names of published, hand-designed and shipped rules."""
  return (*sources.PUBLISHED, *_HAND_MADE, *sources.shipped())


def card(name: str) -> cards.Card:
  """Returns the card of one of `names`.

  Raises:
    OSError, cards.CardError: The card of a shipped rule is missing or damaged.
  """
  if name not in _HAND_MADE:
    return sources.card(name)
  return card_of_class(_HAND_MADE[name], name)


def card_of_class(rule_class: type, name: str = '') -> cards.Card:
  """Makes the card of a hand-designed rule, with its class's `recommended`."""
  paragraph = (inspect.getdoc(rule_class) or '').partition('\n\n')[0]
  return cards.Card(
    name,
    description=' '.join(paragraph.split()),
    recommended=getattr(rule_class, 'recommended', {}),
  )


def classes() -> tuple[type, ...]:
  """Returns the classes of rules, also registered ones.

  They are dataclasses with settings as fields.
  """
  return (disco.Disco, *_HAND_MADE.values())


def setting_names() -> set[str]:
  """Returns the names of all rules' settings."""
  return {x for rule in classes() for x in config_lib.names(rule, nested=False)}


def setting_names_of(name: str) -> tuple[str, ...]:
  """Returns the names of a rule's settings by its name, without loading it."""
  rule_class = _HAND_MADE.get(name, disco.Disco)
  return tuple(config_lib.names(rule_class, nested=False))


def check_settings(settings: Mapping[str, object]) -> None:
  """Raises ValueError for a setting with an invalid value."""
  for rule in classes():
    for field in dataclasses.fields(rule):
      if field.name in settings:
        config_lib.valid(field.name, settings[field.name], field.type)


def settings_of(rule: base.UpdateRule) -> dict[str, object]:
  """Returns a rule's settings by name, without the sizes of its network."""
  own = config_lib.names(type(rule), nested=False)
  return {name: getattr(rule, name) for name in own}


def register(name: str, rule_class: type) -> None:
  """Registers a hand-designed rule under a name, also for launchers.

  Args:
    name: A name that is not taken, except by this class, so that a notebook can
      run the cell again. It must not look like a path.
    rule_class: A dataclass with the methods of `base.UpdateRule`; its fields
      are settings.

  Raises:
    TypeError: The class is not a dataclass.
    ValueError: The name is taken, or looks like a path.
  """
  if not isinstance(rule_class, type) or not dataclasses.is_dataclass(
    rule_class
  ):
    raise TypeError(
      f'{rule_class!r} cannot be registered as {name!r}: expected a class that '
      'is a dataclass, whose fields are the settings of the rule.'
    )
  if sources.is_path(name):
    raise ValueError(
      f'{name!r} cannot be the name of a rule: it looks like the path of a '
      'file of weights. Choose a name without separators and .npz.'
    )
  if name in names() and not _is_same(rule_class, _HAND_MADE.get(name)):
    raise ValueError(
      f'There already is a rule {name!r}: choose another name for '
      f'{rule_class.__qualname__}. Names in use: {", ".join(names())}.'
    )
  _HAND_MADE[name] = rule_class


def _is_same(one: type, other: object) -> bool:
  """Returns whether both are one class, even if it was defined again."""
  return isinstance(other, type) and (
    (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
  )


def load(
  name_or_path: files.PathLike, **settings: object
) -> tuple[base.UpdateRule, types.Params]:
  """Loads a rule and its parameters; see `load_with_card`."""
  loaded = load_with_card(name_or_path, **settings)
  return loaded.rule, loaded.params


def load_with_card(
  name_or_path: files.PathLike, **settings: object
) -> LoadedRule:
  """Loads a rule, its parameters and its card.

  The first source that has a value of a setting takes precedence: `settings`,
  the file, the card's `settings` of its discovery, the default of the class.
  The network is always the file's. What the card recommends is not used here:
  `agent.resolution.resolve` puts it above all but `settings`.

  A line on the standard error stream reports settings that differ from those
  with which the rule was discovered.

  Args:
    name_or_path: One of `names`, the path of an npz file of weights, or an
      address on the Hugging Face Hub. `sources.locate` finds the file.
    **settings: Fields of the rule's class. Names that are not fields are
      ignored, so that one set of settings can serve several rules.

  Raises:
    ValueError: The name is unknown, or the file does not contain a rule.
    OSError: The file does not exist, or a download failed.
    ImportError: An address needs a package that is not installed.
    CardError: The card is damaged.
  """
  name = sources.as_text(name_or_path)
  if name in _HAND_MADE:
    rule = _build(_HAND_MADE[name], settings)
    return LoadedRule(rule, {}, name, settings, card(name))
  if name not in names() and not sources.is_path(name):
    nearest = difflib.get_close_matches(name.lower(), names())
    raise ValueError(
      f'Unknown rule {name!r}. Nearest names: '
      f'{", ".join(nearest) or "none"}. Give one of '
      f'{", ".join(names())}, the path of an npz file of weights, or '
      'hf://OWNER/REPOSITORY/FILE.npz@COMMIT.'
    )
  path = sources.locate(name)
  params, network, file_settings = weights.load_with_config(path)
  known = sources.locate_card(name, path)
  if known and known.sha256 not in (None, cards.sha256_of(path)):
    _say(
      f'warning: {cards.path_of(path)} is the card of a file with the SHA-256 '
      f'{known.sha256}, not of {path}: its settings are not used. Likely one '
      'of the two was replaced: get both again.'
    )
    known = None
  own = {'network': network, **file_settings}
  if known is None:
    _say(f'{name} has no card next to it with recommended settings.')
  else:
    known = _with_settings_of_then(known)
    own = {**known.settings, **own}
  rule = _build(disco.Disco, {**own, **settings, 'network': own['network']})
  _compare(name, _build(disco.Disco, own), rule)
  return LoadedRule(rule, params, name, settings, known)


def _with_settings_of_then(card_: cards.Card) -> cards.Card:
  """Adds settings that are newer than a discovery, with its behavior."""
  if not card_.settings:
    return card_
  version = card_.versions.get('disco_rl')
  settings = versions.upgrade(card_.settings, version)
  return dataclasses.replace(card_, settings=settings)


def _compare(name: str, own: base.UpdateRule, used: base.UpdateRule) -> None:
  """Reports settings of a rule that differ from its discovery."""
  changed = [
    f'{field} is {getattr(used, field)} ({value} at its discovery)'
    for field, value in vars(own).items()
    # The scale of rewards depends on the task.
    if field != 'reward_scale' and getattr(used, field) != value
  ]
  if changed:
    _say(f'{name} is not used as it was discovered: {", ".join(changed)}.')


@functools.cache
def _say(text: str) -> None:
  """Prints a line, once per process."""
  reports.note(text)


def save(
  path: files.PathLike, rule: base.UpdateRule, params: types.Params
) -> None:
  """Writes a discovered rule or a variant, for `load`; see `weights.save`.

  The file contains those of `weights.SETTINGS` that differ from the defaults.
  """
  assert isinstance(rule, disco.Disco)
  own = {name: getattr(rule, name) for name in weights.SETTINGS}
  settings = {k: x for k, x in own.items() if x != getattr(disco.Disco, k)}
  weights.save(path, params, rule.network, settings)


def _build(rule_class: type, settings: Mapping[str, object]) -> base.UpdateRule:
  fields = {field.name for field in dataclasses.fields(rule_class)}
  return rule_class(
    **{name: value for name, value in settings.items() if name in fields}
  )
