"""The flag of the persistent cache of compiled programs."""

import os
import pathlib

from absl import flags

from disco_rl.runtime import compilation_cache

_FOLDER = flags.DEFINE_string(
  'compilation_cache',
  None,
  "Folder where compiled programs are kept for later runs, or 'off'. Default: "
  "that of JAX_COMPILATION_CACHE_DIR, or else one in the user's cache.",
)


def set_up(by_default: bool = True) -> None:
  """Chooses the folder; must be called before JAX is imported.

  By variables, which processes that this one starts inherit.

  Args:
    by_default: whether the cache is on if the user has chosen nothing.
  """
  folder, variable = _FOLDER.value, compilation_cache.FOLDER.upper()
  if folder == 'off':
    os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'
    return
  if compilation_cache.has_errors_of_loading():
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  if folder is None and (variable in os.environ or not by_default):
    return
  path = (
    pathlib.Path(folder).expanduser()
    if folder
    else compilation_cache.default_folder()
  )
  os.environ[variable] = str(path)
  # Variables that are set take precedence.
  for name, value in compilation_cache.DEFAULTS.items():
    os.environ.setdefault(name.upper(), str(value))
  compilation_cache.report_faults(path)
