"""The flag that imports modules, and its work."""

import importlib

from absl import flags

from launch.errors import fail

IMPORT = flags.DEFINE_list(
  'import',
  [],
  'Modules that register rules, environments or loggers of your own by name.',
)


def import_modules() -> None:
  """Imports the modules of --import; ends the program if one is missing."""
  for name in IMPORT.value:
    try:
      importlib.import_module(name)
    except ImportError as error:
      fail(
        f'--import={name}: {error}. Modules are looked for in the folder in '
        'which the command is given, and on PYTHONPATH.'
      )
