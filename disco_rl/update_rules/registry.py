"""Update rules by name, or from a file of weights."""

import dataclasses
import difflib
import inspect
from typing import Any

from disco_rl import types
from disco_rl.runtime import files
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import sources
from disco_rl.update_rules import weights

_HAND_MADE: dict[str, Any] = {
  'actor_critic': actor_critic.ActorCritic,
  'policy_gradient': policy_gradient.PolicyGradient,
}
CLASSES = (disco.Disco, *_HAND_MADE.values())
# Settings of the agents that a shipped rule was discovered with.
_OF_CARD = ('discount', 'lambda_', 'max_abs_value', 'num_bins', 'q_cost')


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
  paragraph = (inspect.getdoc(_HAND_MADE[name]) or '').partition('\n\n')[0]
  return cards.Card(name, description=' '.join(paragraph.split()))


def classes() -> tuple[Any, ...]:
  """The classes of rules, dataclasses whose fields are their settings."""
  return (disco.Disco, *_HAND_MADE.values())


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
  """Loads a rule and its parameters.

  Args:
    name_or_path: one of `names`, the path of an npz file of weights, or an
      address on the Hugging Face Hub; see `sources.find`.
    **settings: fields of the rule's class, in place of those in the file, or of
      a shipped rule on its card; names of no field are ignored, so that one
      set of settings serves several rules.

  Returns:
    The rule, and eta ({} for a hand-made rule).

  Raises:
    ValueError: if the name is unknown or the file holds no rule.
    OSError: if there is no such file, or a download failed.
    ImportError: if an address needs a package that is not installed.
  """
  name_or_path = sources.as_text(name_or_path)
  if name_or_path in _HAND_MADE:
    return _build(_HAND_MADE[name_or_path], settings), {}
  if name_or_path not in names() and not sources.is_path(name_or_path):
    nearest = difflib.get_close_matches(name_or_path, names())
    raise ValueError(
      f'Unknown rule {name_or_path!r}. Nearest names: '
      f'{", ".join(nearest) or "none is near"}. Give one of '
      f'{", ".join(names())}, the path of an npz file of weights, or '
      'hf://OWNER/REPOSITORY/FILE.npz@COMMIT.'
    )
  params, of_file = weights.load_with_settings(name_or_path)
  network = weights.infer_config(params)
  of_card = {}
  if name_or_path in sources.shipped():
    known = sources.card(name_or_path).settings
    of_card = {name: known[name] for name in _OF_CARD if name in known}
  settings = {**of_card, **of_file, **settings, 'network': network}
  return _build(disco.Disco, settings), params


def save(
  path: files.PathLike, rule: base.UpdateRule, params: types.Params
) -> None:
  """Writes a discovered rule, a variant as well, as `load` reads it.

  Args:
    path: of the npz file.
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
  weights.save(path, params, settings)


def _build(rule_class: Any, settings: dict[str, Any]) -> base.UpdateRule:
  fields = {field.name for field in dataclasses.fields(rule_class)}
  return rule_class(
    **{name: value for name, value in settings.items() if name in fields}
  )
