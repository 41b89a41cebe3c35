"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
from typing import Any

from disco_rl import config as config_lib

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

  return runner.config_of(of_one_run(settings))


def meta_training(settings: Mapping[str, Any]) -> Any:
  """Builds a `MetaTrainingConfig`.

  Raises:
    ValueError: a setting is absent, unknown or not valid.
  """
  from disco_rl.meta_training import config as meta_config
  from disco_rl.update_rules import disco

  lists = ('environments', 'held_out_environments')
  settings = {**settings, **{name: names(settings, name) for name in lists}}
  return config_lib.build_with_rules(
    meta_config.MetaTrainingConfig, settings, disco.Disco
  )


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


def refuse_lists(settings: Mapping[str, Any], remedy: str) -> None:
  """Raises ValueError if the settings are those of a sweep.

  Args:
    settings: of a launcher that would ignore the lists.
    remedy: how to name what it takes in place of them.
  """
  if given := [f'{x}={settings[x]!r}' for x in SWEPT if settings.get(x)]:
    raise ValueError(
      f'{", ".join(given)} would be ignored here, as launch.evaluate alone '
      f'makes runs of these lists: leave them out, and {remedy}.'
    )


def swept(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
  """The lists of a sweep; an empty list becomes the setting of one run.

  Without a list of learning rates that is None: the rate may follow the rule.

  Raises:
    ValueError: a list is no text, or a learning rate is no number.
  """
  settings = {**dict.fromkeys(SWEPT, ''), **settings}
  lists = {
    'environments': names(settings, 'environments'),
    'rules': config_lib.split(settings, 'rules'),
    'learning_rates': tuple(
      map(_rate, config_lib.split(settings, 'learning_rates'))
    ),
  }
  single = lambda name: (
    None if name == 'learning_rates' else config_lib.get(settings, SWEPT[name])
  )
  return {
    name: values if settings[name] else (single(name),)
    for name, values in lists.items()
  }


def names(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """Environments, from their names and those of suites, split at commas."""
  from disco_rl.environments import suites

  return tuple(
    e for n in config_lib.split(settings, name) for e in suites.expand(n)
  )


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
