"""Makes configs from records of settings, with their defaults.

This is not a config itself. The record that declares a setting has its meaning
and its default; configs only override settings.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping

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
