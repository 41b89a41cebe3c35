"""The flag that names a config."""

from ml_collections import config_flags

CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings: a file, optionally a colon and a variant.'
)
