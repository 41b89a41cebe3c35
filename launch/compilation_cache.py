"""The flag of the persistent cache of compiled programs."""

import os
import pathlib
from typing import Any

from absl import flags

from disco_rl.runtime import compilation_cache

_FOLDER = flags.DEFINE_string(
  'compilation_cache',
  None,
  "Folder where compiled programs are kept for later runs, or 'off'. Default: "
  "that of JAX_COMPILATION_CACHE_DIR, or else one in the user's cache.",
)


def set_up(by_default: bool = True) -> None:
  """Chooses the folder; must be called before anything is compiled.

  By variables, which processes that this one starts inherit.

  Args:
    by_default: whether the cache is on if the user has chosen nothing.
  """
  folder, variable = _FOLDER.value, compilation_cache.FOLDER.upper()
  if folder == 'off':
    _set('jax_enable_compilation_cache', False)
    return
  if compilation_cache.has_errors_of_loading():
    # For processes that this one starts; here JAX may have read it.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  compilation_cache.hide_errors_of_loading()
  if folder is None and (variable in os.environ or not by_default):
    return
  path = (
    pathlib.Path(folder).expanduser()
    if folder
    else compilation_cache.default_folder()
  )
  if path is None:
    return
  _set(compilation_cache.FOLDER, str(path))
  for name, value in compilation_cache.defaults(path).items():
    _set(name, value)
  compilation_cache.report_faults(path)


def _set(name: str, value: Any) -> None:
  """Sets an option here, where JAX has read its variables, and for others."""
  import jax

  os.environ[name.upper()] = (
    str(value).lower() if value is False else str(value)
  )
  jax.config.update(name, value)
