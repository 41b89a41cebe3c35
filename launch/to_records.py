"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
from typing import Any

from disco_rl import config as config_lib


def evaluation(settings: Mapping[str, Any]) -> Any:
  """Builds an `EvaluationConfig`.

  Raises:
    ValueError: a setting is absent, unknown or not valid.
  """
  from disco_rl.evaluation import runner

  return runner.config_of(settings)


def meta_training(settings: Mapping[str, Any]) -> Any:
  """Builds a `MetaTrainingConfig`.

  Raises:
    ValueError: a setting is unknown or not valid.
  """
  from disco_rl.meta_training import config

  record = config.MetaTrainingConfig
  config_lib.check_names(settings, config_lib.names(record), 'The config')
  return config_lib.build(record, settings)
