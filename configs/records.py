"""Makes configs from records of settings, and finds their variants.

This is not a config itself. The record that declares a setting has its meaning
and its default; configs only override settings.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import ml_collections
from ml_collections import config_dict

from disco_rl import config as config_lib

# Title -> settings; see `config_lib.sections`.
Sections = Mapping[str, Iterable[config_lib.Setting]]


def defaults(
  sections: Sections, unset: Collection[str] = ()
) -> ml_collections.ConfigDict:
  """Returns all settings with the defaults of their records.

  Args:
    sections: The settings.
    unset: The names of settings to set to None, so that their values are chosen
      for the rule and the task.

  Returns:
    The config.
  """
  config = ml_collections.ConfigDict()
  for setting in (x for settings in sections.values() for x in settings):
    value = setting.default
    if setting.name in unset:
      value = config_dict.placeholder(type(value))
    config[setting.name] = value
  return config


def variant(
  config: str, variants: Mapping[str, Mapping[str, Any]], name: str
) -> Mapping[str, Any]:
  """Returns the changes of a variant.

  Args:
    config: The name of the config, for the error.
    variants: Name after the colon -> changes of the defaults.
    name: The name of the variant.

  Raises:
    ValueError: There is no such variant.
  """
  if name not in variants:
    raise ValueError(
      f'The config {config} has no {name!r}; choose one of '
      f'{", ".join(variants)}.'
    )
  return variants[name]
