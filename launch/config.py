"""The flag that names a config, and the settings that it makes."""

from typing import Any

from absl import flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, optionally a colon and a variant.'
)


def settings(parsed: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
  """The settings of --config; what a flag sets no longer follows the rule."""
  config: Any = parsed['config'].value
  all_settings = config.to_dict()
  for name in config_flags.get_override_values(parsed['config']):
    for suited in all_settings.get('by_rule', {}).values():
      suited.pop(name, None)
  return all_settings
