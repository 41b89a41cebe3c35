"""The flag that imports modules, and its work."""

import importlib
import pathlib

from absl import flags

from disco_rl import config as config_lib
from launch.errors import fail
from launch.errors import in_one_line

IMPORT = flags.DEFINE_list(
  'import',
  [],
  'Modules that register rules, environments or loggers of your own by name. A '
  'run remembers them.',
)


def import_modules(workdir: str | None = None) -> None:
  """Imports modules; ends the program if one is missing.

  Args:
    workdir: folder of a run, which may be new, whose modules are imported with
      those of --import; None: there is none.
  """
  sources = dict.fromkeys(IMPORT.value, '--import=')
  folder = pathlib.Path(config_lib.expanded(workdir or '.'))
  if workdir and (folder / 'imports.json').exists():
    # Imported late, as it loads JAX.
    from disco_rl.runtime import workdirs

    with in_one_line():
      remembered = workdirs.imports(folder)
    sources = {**dict.fromkeys(remembered, f'{workdir} needs '), **sources}
  if not sources:
    return
  from disco_rl.runtime import workdirs

  for name, source in sources.items():
    try:
      importlib.import_module(name)
    except ImportError as error:
      fail(
        f'{source}{name}: {error}. Modules are looked for in the folder in '
        'which the command is given, and on PYTHONPATH.'
      )
  workdirs.IMPORTED[:] = dict.fromkeys([*workdirs.IMPORTED, *sources])
