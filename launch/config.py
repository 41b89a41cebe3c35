"""The flag that names a config, and the settings that it makes."""

from typing import Any

from absl import flags
from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, optionally a colon and a variant.'
)


def settings(parsed: flags.FlagValues = flags.FLAGS) -> dict[str, Any]:
  """The settings of --config, with those of flags in place of its own."""
  config: Any = parsed['config'].value
  return config.to_dict()
