"""Lists and loads update rules."""

import dataclasses
import os

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.api import rule_checks
from disco_rl.runtime import files
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry
from disco_rl.update_rules import sources

_METHODS = ('output_spec', 'init_params', 'init_state', 'targets', 'loss')


LoadedRule = registry.LoadedRule


def rules() -> dict[str, cards.Card]:
  """Lists the named rules and their cards.

  Returns:
    Name -> card, for published, hand-designed, shipped and registered rules.

  Raises:
    CardError: The card of a shipped rule is damaged.
  """
  return {name: registry.card(name) for name in registry.names()}


def load_rule(
  rule: files.PathLike | base.UpdateRule | LoadedRule,
  params: types.Params | None = None,
  **settings: object,
) -> LoadedRule:
  """Loads a rule, or accepts a custom one.

  Args:
    rule: A name in `rules`; the path of an npz file; an address on the Hugging
      Face Hub, hf://OWNER/REPOSITORY/FILE.npz@COMMIT (see `update_rules.hub`);
      or an object with the methods of `UpdateRule`. A loaded rule is returned
      unchanged.
    params: The parameters of an object; None: it has none.
    **settings: Fields of a named rule's class that replace the defaults, such
      as `discount=0.99`; see `update_rules`.

  Returns:
    The rule and its parameters.

  Raises:
    ValueError: The name is unknown, the rule has no such setting, the file does
      not contain a rule, or the parameters of an object differ in shape from
      those of its `init_params`.
    TypeError: The argument is neither a text nor a rule, or parameters or
      settings are given for a rule that has its own.
    FileNotFoundError: The file does not exist.
    OSError: The download of a rule failed.
    ImportError: An address on the hub needs the extra `hub`.
  """
  if params is not None and isinstance(rule, str | os.PathLike | LoadedRule):
    raise TypeError(
      'Parameters are only for rule objects: a named rule or a file has its '
      'own. To use others, pass the attribute `rule` of what load_rule returns.'
    )
  if isinstance(rule, str | os.PathLike):
    rule = sources.as_text(rule)
    settings = config_lib.plain(settings)
    loaded = registry.load_with_card(rule, **settings)
    fields = {field.name for field in dataclasses.fields(type(loaded.rule))}  # type: ignore[arg-type]
    # The file of weights determines the sizes of the network.
    config_lib.check_names(settings, fields - {'network'}, f'The rule {rule!r}')
    return loaded
  if settings:
    raise TypeError(
      f'Settings ({", ".join(settings)}) are only for named rules: set the '
      f'fields of {rule!r} itself.'
    )
  if isinstance(rule, LoadedRule):
    if rule.name is None:
      rule_checks.check_params(rule.rule, rule.params)
    return rule
  has_methods = all(callable(getattr(rule, name, None)) for name in _METHODS)
  if isinstance(rule, type) or not has_methods:
    raise TypeError(
      'Expected a rule name, a path or a rule object (not a class) with the '
      f'methods {", ".join(_METHODS)}, got {rule!r}; see '
      'disco_rl.update_rules.base.UpdateRule.'
    )
  rule_checks.check_params(rule, params or {})
  is_class_card = hasattr(rule, 'recommended')
  card = registry.card_of_class(type(rule)) if is_class_card else None
  return LoadedRule(rule, params or {}, card=card)
