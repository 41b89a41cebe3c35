"""Faster compilation: less code, and JAX's persistent cache.

The key of a program is its code, its compiler options, the versions of JAX and
XLA, and the processor with its features: many machines may share a folder.
"""

import gc
import importlib.metadata
import os
import pathlib

import filelock

# LLVM copies the bodies of XLA's loops: compilation takes 1.5 times as long,
# and programs are not faster. Other devices ignore this option.
ROLLED_LOOPS = '--xla_backend_extra_options=xla_cpu_disable_loop_unrolling'
FOLDER = 'jax_compilation_cache_dir'
_MAX_SIZE = 'jax_compilation_cache_max_size'
# Names in jax.config; JAX also reads environment variables, named in capitals.
_DEFAULTS: dict[str, int | float] = {
  _MAX_SIZE: 2**30,
  # By default programs that take less than a second are not cached; they add
  # up.
  'jax_persistent_cache_min_compile_time_secs': 0.1,
}


def leave_loops_rolled() -> None:
  """Makes XLA generate less code for CPUs, unless the user has set this option.

  This sets XLA_FLAGS, because XLA has no such option for single programs. It
  affects this process, if JAX has not used its devices yet, and its children.
  """
  chosen = os.environ.get('XLA_FLAGS', '')
  if 'xla_backend_extra_options' not in chosen:
    os.environ['XLA_FLAGS'] = f'{chosen} {ROLLED_LOOPS}'.strip()


def collect_garbage_rarely() -> None:
  """Makes Python look for cyclic garbage less often, from now on.

  Tracing makes many small objects that are kept. Scanning them repeatedly took
  27% of the time to trace a meta-step of the quick start. It is for programs,
  not for libraries, because it affects the whole process.
  """
  gc.set_threshold(50_000, 20, 50)


def use_default_folder() -> None:
  """Turns the cache on in this process, unless the user has chosen.

  A folder that the user has set and JAX_ENABLE_COMPILATION_CACHE=false take
  precedence. Runs with several processes do not use a cache.
  """
  # Imported late: launchers report a mistyped flag before JAX has loaded.
  import jax

  is_chosen = jax.config.values[FOLDER] is not None
  is_off = not jax.config.values['jax_enable_compilation_cache']
  if is_chosen or is_off or jax.process_count() > 1:
    return
  hide_errors_of_loading()
  folder = default_folder()
  if folder is None:
    return
  jax.config.update(FOLDER, str(folder))
  for name, value in defaults(folder).items():
    jax.config.update(name, value)


def defaults(folder: pathlib.Path) -> dict[str, int | float]:
  """Returns JAX's options for a folder, without those that variables set.

  The size of the folder is not limited if the file system has no locks, as on
  some clusters, or cannot be written to: JAX would wait ten seconds for a lock,
  for each program.
  """
  chosen = {k: v for k, v in _DEFAULTS.items() if k.upper() not in os.environ}
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / '.lock', 1, fallback_to_soft=False):
      pass
  except OSError:
    chosen.pop(_MAX_SIZE, None)
  return chosen


def hide_errors_of_loading() -> None:
  """Hides the false errors that XLA logs when it loads cached programs."""
  import jax

  level = jax.config.values['jax_logging_level']
  if has_errors_of_loading() and level in (None, 'NOTSET'):
    # The second update restores JAX's logger, but not XLA's.
    jax.config.update('jax_logging_level', 'CRITICAL')
    jax.config.update('jax_logging_level', level)


def default_folder() -> pathlib.Path | None:
  """Returns a folder next to downloaded weights; None without a home directory.

  Users in containers may have none. A public folder could contain programs of
  other users.
  """
  import pooch

  try:
    return pathlib.Path(pooch.os_cache('disco_rl')) / 'programs'
  except RuntimeError:
    return None


def has_errors_of_loading() -> bool:
  """Returns whether XLA logs an error for each cached program, as in JAX 0.10.

  XLA mistakes preferences of the compiler, such as +prefer-no-gather, for
  features of the processor.
  """
  return importlib.metadata.version('jax').startswith('0.10.')
