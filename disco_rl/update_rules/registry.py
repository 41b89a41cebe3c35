"""Update rules by name, or from a file of weights."""

from collections.abc import Mapping
import dataclasses
import difflib
import functools
import inspect
from typing import Any

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.runtime import files
from disco_rl.runtime import reports
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import ppo
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights

_HAND_MADE: dict[str, Any] = {
  'actor_critic': actor_critic.ActorCritic,
  'policy_gradient': policy_gradient.PolicyGradient,
  'ppo': ppo.PPO,
}
CLASSES = (disco.Disco, *_HAND_MADE.values())


@dataclasses.dataclass(frozen=True)
class LoadedRule:
  """A rule with its parameters.

  Attributes:
    rule: its functions.
    params: its parameters (meta-parameters, eta in the paper); {} for a
      hand-made rule.
    name: its name or path; None: an object of the user's own.
    settings: settings that were given for it.
    card: what is known of it, which its agents follow; None: nothing.
  """

  rule: base.UpdateRule
  params: types.Params
  name: str | None = None
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  card: cards.Card | None = None

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Heads that the agent's network must have."""
    return self.rule.output_spec(num_actions)


def names() -> tuple[str, ...]:
  """The names of rules: published, hand-made, and shipped with the package."""
  return (*sources.PUBLISHED, *_HAND_MADE, *sources.shipped())


def card(name: str) -> cards.Card:
  """What is known of a rule; of a hand-made one the description of its class.

  Args:
    name: one of `names`.

  Raises:
    OSError, cards.CardError: the card of a shipped rule is missing or damaged.
  """
  if name not in _HAND_MADE:
    return sources.card(name)
  return card_of_class(_HAND_MADE[name], name)


def card_of_class(rule_class: Any, name: str = '') -> cards.Card:
  """The card of a hand-made rule, with its class's own `recommended`."""
  paragraph = (inspect.getdoc(rule_class) or '').partition('\n\n')[0]
  return cards.Card(
    name,
    description=' '.join(paragraph.split()),
    recommended=getattr(rule_class, 'recommended', {}),
  )


def classes() -> tuple[Any, ...]:
  """The classes of rules, dataclasses whose fields are their settings."""
  return (disco.Disco, *_HAND_MADE.values())


def setting_names() -> set[str]:
  """The names of all rules' settings."""
  return {name for rule in classes() for name in config_lib.own_names(rule)}


def check_settings(settings: Mapping[str, Any]) -> None:
  """Raises ValueError for a setting that no rule which has it may have."""
  for rule in classes():
    for field in dataclasses.fields(rule):
      if field.name in settings:
        value = config_lib.converted(settings[field.name], field.type)
        config_lib.check(field.name, value, field.type)


def settings_of(rule: base.UpdateRule) -> dict[str, Any]:
  """A rule's settings by name; the weights decide its network."""
  names_of = config_lib.own_names(type(rule))
  return {name: getattr(rule, name) for name in names_of}


def register(name: str, rule_class: Any) -> None:
  """Makes a hand-made rule known by a name, to the launchers as well.

  Args:
    name: not taken yet, unless by this class: a cell of a notebook can be run
      again. It must not look like a path.
    rule_class: a dataclass with the methods of `base.UpdateRule`; its fields
      are settings, of which configs hold some.

  Raises:
    TypeError: it is no dataclass.
    ValueError: the name is taken, or looks like a path.
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
      f'There is a rule {name!r} already; choose another name for '
      f'{rule_class.__qualname__}. There are {", ".join(names())}.'
    )
  _HAND_MADE[name] = rule_class


def _is_same(one: type, other: Any) -> bool:
  """Whether both are one class, also if its definition was run again."""
  return isinstance(other, type) and (
    (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
  )


def load(
  name_or_path: files.PathLike, **settings: Any
) -> tuple[base.UpdateRule, types.Params]:
  """Loads a rule and its parameters; see `load_with_card`."""
  loaded = load_with_card(name_or_path, **settings)
  return loaded.rule, loaded.params


def load_with_card(name_or_path: files.PathLike, **settings: Any) -> LoadedRule:
  """Loads a rule, its parameters and its card.

  One line on the standard error stream says where settings contradict those
  with which the rule was discovered.

  Args:
    name_or_path: one of `names`, the path of an npz file of weights, or an
      address on the Hugging Face Hub; see `sources.find`.
    **settings: fields of the rule's class, in place of those on its card and in
      the file; names of no field are ignored, so that one set of settings
      serves several rules.

  Returns:
    The rule.

  Raises:
    ValueError: if the name is unknown or the file holds no rule.
    OSError: if there is no such file, or a download failed.
    ImportError: if an address needs a package that is not installed.
    CardError: if its card is damaged.
  """
  name = sources.as_text(name_or_path)
  if name in _HAND_MADE:
    rule = _build(_HAND_MADE[name], settings)
    return LoadedRule(rule, {}, name, settings, card(name))
  if name not in names() and not sources.is_path(name):
    nearest = difflib.get_close_matches(name, names())
    raise ValueError(
      f'Unknown rule {name!r}. Nearest names: '
      f'{", ".join(nearest) or "none is near"}. Give one of '
      f'{", ".join(names())}, the path of an npz file of weights, or '
      'hf://OWNER/REPOSITORY/FILE.npz@COMMIT.'
    )
  params, network, of_file = weights.load_with_config(name)
  known = sources.find_card(name)
  own = {'network': network, **of_file}
  if known is None:
    _say(f'{name} has no card next to it, which would say what suits it.')
  else:
    own = {**known.settings, **own}
  rule = _build(disco.Disco, {**own, **settings, 'network': own['network']})
  _compare(name, _build(disco.Disco, own), rule)
  return LoadedRule(rule, params, name, settings, known)


def _compare(name: str, own: base.UpdateRule, used: base.UpdateRule) -> None:
  """Says in which of its settings a rule is used otherwise than discovered."""
  changed = [
    f'{field} is {getattr(used, field)} ({value} on its card)'
    for field, value in vars(own).items()
    # Rewards are scaled as the task wants it.
    if field != 'reward_scale' and getattr(used, field) != value
  ]
  if changed:
    _say(f'{name} is used otherwise than discovered: {", ".join(changed)}.')


@functools.cache
def _say(text: str) -> None:
  """Prints a line, once in a process."""
  reports.note(text)


def save(
  path: files.PathLike, rule: base.UpdateRule, params: types.Params
) -> None:
  """Writes a discovered rule, a variant as well, as `load` reads it.

  Args:
    path: The path of the npz file.
    rule: the rule; of its settings the file holds those of `weights.SETTINGS`
      that differ from the defaults.
    params: eta.

  Raises:
    ValueError: see `weights.save`.
  """
  fields = dataclasses.fields(rule)  # type: ignore[arg-type]
  settings = {
    field.name: getattr(rule, field.name)
    for field in fields
    if field.name in weights.SETTINGS
    and getattr(rule, field.name) != field.default
  }
  assert isinstance(rule, disco.Disco)
  weights.save(path, params, rule.network, settings)


def _build(rule_class: Any, settings: dict[str, Any]) -> base.UpdateRule:
  fields = {field.name for field in dataclasses.fields(rule_class)}
  return rule_class(
    **{name: value for name, value in settings.items() if name in fields}
  )
