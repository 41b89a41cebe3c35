"""From records of settings to configs: their settings, at the defaults.

Not a config of its own. What a setting means and its default stand in the
record that declares it; configs hold what they change.
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
  """All settings at the defaults that their records declare.

  Args:
    sections: the settings.
    unset: names of those that are None, so that what suits the rule and the
      task holds.

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
