"""Compiled programs that later runs find again: JAX's persistent cache.

JAX finds a program by its code, its compiler's options, the versions of JAX and
XLA, and the processor with its features: a folder may serve many machines.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import re
from typing import Any
import warnings

from absl import flags
from absl import logging

_FOLDER = flags.DEFINE_string(
  'compilation_cache',
  None,
  "Folder where compiled programs are kept for later runs, or 'off'. Default: "
  "that of JAX_COMPILATION_CACHE_DIR, or else one in the user's cache.",
)
_VARIABLE = 'JAX_COMPILATION_CACHE_DIR'
# Variables that take precedence are set by the user.
_DEFAULTS = {
  'JAX_COMPILATION_CACHE_MAX_SIZE': str(2**30),
  # By default programs that take less than a second are left out; they add up.
  'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
}
_FAULT = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '([^']*)'"
)


def set_up(by_default: bool = True) -> None:
  """Chooses the folder; must be called before JAX is imported.

  Args:
    by_default: whether the cache is on if the user has chosen nothing.
  """
  folder = _FOLDER.value
  if folder == 'off':
    os.environ['JAX_ENABLE_COMPILATION_CACHE'] = 'false'
    return
  if importlib.metadata.version('jax').startswith('0.10.'):
    # Its XLA logs an error for each program that it loads: preferences of the
    # compiler, such as +prefer-no-gather, are no features of the processor.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  if folder is None and (_VARIABLE in os.environ or not by_default):
    return
  path = pathlib.Path(folder).expanduser() if folder else _default()
  os.environ[_VARIABLE] = str(path)
  for name, value in _DEFAULTS.items():
    os.environ.setdefault(name, value)
  _report_faults(path)


def _default() -> pathlib.Path:
  """Beside downloaded weights; see `update_rules.weights`."""
  # Imported late: a mistyped flag should not wait for it.
  import pooch

  return pathlib.Path(pooch.os_cache('disco_rl')) / 'programs'


def _report_faults(folder: pathlib.Path) -> None:
  """Shows JAX's warnings about the folder as one line, and repairs entries.

  JAX then compiles as it would without a cache.
  """
  show = warnings.showwarning
  reported = False

  def show_or_repair(message: Warning | str, *rest: Any, **named: Any) -> None:
    nonlocal reported
    fault = _FAULT.match(str(message))
    if fault is None:
      show(message, *rest, **named)
      return
    if not reported:
      reason = ' '.join(str(message).split())
      logging.warning('%s. The folder is %s.', reason, folder)
      reported = True
    # A folder that cannot be written to has been reported.
    with contextlib.suppress(OSError):
      _repair(folder, fault[2], is_written=fault[1] == 'writing')

  warnings.showwarning = show_or_repair


def _repair(folder: pathlib.Path, program: str, is_written: bool) -> None:
  """Removes a program that may be damaged, as JAX never replaces an entry.

  Of others it restores the missing times of their last use: JAX 0.10 writes
  nothing more beside an entry that a kill or a full disk has left without one.

  Args:
    folder: of the cache.
    program: its name.
    is_written: whether it could not be written: then entries that have been
      read before are kept.
  """
  for entry in folder.glob('*-cache'):
    last_use = entry.with_name(entry.name.removesuffix('-cache') + '-atime')
    is_whole = is_written and last_use.exists()
    if entry.name.startswith(f'{program}-') and not is_whole:
      entry.unlink(missing_ok=True)
    elif not last_use.exists():
      last_use.write_bytes(bytes(8))
