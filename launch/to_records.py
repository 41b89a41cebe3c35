"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

from disco_rl.runtime import config_checks

# Setting of a sweep -> the setting of a run that takes its values in turn.
SWEPT = {
  'environments': 'environment',
  'rules': 'rule',
  'learning_rates': 'learning_rate',
}


def evaluation(settings: Mapping[str, Any]) -> Any:
  """Builds an `EvaluationConfig`.

  Raises:
    ValueError: a setting is absent, unknown or not valid.
  """
  from disco_rl.evaluation import runner
  from disco_rl.update_rules import registry

  rules = registry.classes()
  return _build(runner.EvaluationConfig, of_one_run(settings), *rules)


def meta_training(settings: Mapping[str, Any]) -> Any:
  """Builds a `MetaTrainingConfig`.

  Raises:
    ValueError: a setting is absent, unknown or not valid.
  """
  from disco_rl.meta_training import config as config_lib
  from disco_rl.update_rules import disco

  lists = ('environments', 'held_out_environments')
  settings = {**settings, **{name: names(settings, name) for name in lists}}
  return _build(config_lib.MetaTrainingConfig, settings, disco.Disco)


def of_one_run(settings: Mapping[str, Any]) -> dict[str, Any]:
  """The settings of a run: without lists, and with those that suit its rule.

  Raises:
    ValueError: `by_rule` does not hold settings by rule.
  """
  by_rule = settings.get('by_rule', {})
  if not isinstance(by_rule, Mapping) or not all(
    isinstance(suited, Mapping) for suited in by_rule.values()
  ):
    raise ValueError(
      f'by_rule={by_rule!r} must hold settings by rule, such as '
      "{'actor_critic': {'learning_rate': 1e-3}}."
    )
  own = {
    name: value
    for name, value in settings.items()
    if name not in (*SWEPT, 'by_rule')
  }
  # A rule that is no text is an error, but not of this function.
  return {**own, **by_rule.get(str(settings.get('rule')), {})}


def swept(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
  """The lists of a sweep; an empty list becomes the setting of one run.

  Without a list of learning rates that is None: the rate may follow the rule.

  Raises:
    ValueError: a list is no text, or a learning rate is no number.
  """
  settings = {**dict.fromkeys(SWEPT, ''), **settings}
  lists = {
    'environments': names(settings, 'environments'),
    'rules': _split(settings, 'rules'),
    'learning_rates': tuple(map(_rate, _split(settings, 'learning_rates'))),
  }
  single = lambda name: (
    None
    if name == 'learning_rates'
    else config_checks.get(settings, SWEPT[name])
  )
  return {
    name: values if settings[name] else (single(name),)
    for name, values in lists.items()
  }


def _build(record: Any, settings: Mapping[str, Any], *rules: Any) -> Any:
  """Builds a record that holds the settings of rules in `rule_settings`."""
  settings = config_checks.translate(settings)
  if 'loggers' in settings:
    settings['loggers'] = _split(settings, 'loggers')
  of_rules = {f.name for rule in rules for f in dataclasses.fields(rule)}
  of_rules -= {'network'}
  known = {*config_checks.names(record), *of_rules} - {'rule_settings'}
  config_checks.check_names(settings, known, 'The config')
  rule_settings = {n: v for n, v in settings.items() if n in of_rules}
  return config_checks.build(record, settings, rule_settings=rule_settings)


def names(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """Environments, from their names and those of suites, split at commas."""
  from disco_rl.environments import suites

  return tuple(e for n in _split(settings, name) for e in suites.expand(n))


def _split(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """The entries of a setting, split at commas."""
  text = config_checks.get(settings, name)
  if not isinstance(text, str):
    raise ValueError(
      f'{name}={text!r} must be text, with commas between its entries.'
    )
  return tuple(item.strip() for item in text.split(',') if item.strip())


def _rate(text: str) -> float:
  try:
    return float(text)
  except ValueError as error:
    raise ValueError(
      f'learning_rates has {text!r}, which is no number; write them with '
      'commas between, as in 1e-4,3e-4.'
    ) from error


# Launcher -> the record that its settings make.
BY_LAUNCHER = {'meta_train': meta_training, 'evaluate': evaluation}
