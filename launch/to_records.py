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
    ValueError: a setting is unknown or not valid.
  """
  from disco_rl.meta_training import config

  record = config.MetaTrainingConfig
  config_lib.check_names(settings, config_lib.names(record), 'The config')
  return config_lib.build(record, settings)


def of_one_run(settings: Mapping[str, Any]) -> dict[str, Any]:
  """The settings of a run: without lists."""
  return {name: value for name, value in settings.items() if name not in SWEPT}


def refuse_lists(settings: Mapping[str, Any], remedy: str) -> None:
  """Raises ValueError if the settings are those of a sweep.

  Args:
    settings: of a launcher that would ignore the lists.
    remedy: how to name what it takes in place of them.
  """
  if given := [f'{x}={settings[x]!r}' for x in SWEPT if settings.get(x)]:
    raise ValueError(
      f'{", ".join(given)} would be ignored here, as disco-rl evaluate alone '
      f'makes runs of these lists: leave them out, and {remedy}.'
    )


def swept(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
  """The lists of a sweep; an empty list becomes the setting of one run.

  Without a list of learning rates that is None: the rate may follow the rule.

  Raises:
    ValueError: a list is not valid.
  """
  from disco_rl.evaluation import sweep

  lists = vars(config_lib.build(sweep.Lists, settings))
  single = {
    'environments': settings.get('environment'),
    'rules': settings.get('rule'),
    'learning_rates': None,
  }
  return {
    name: lists[name] if settings.get(name) else (single[name],)
    for name in lists
  }


# Launcher -> the record that its settings make.
BY_LAUNCHER = {'meta_train': meta_training, 'evaluate': evaluation}
