"""How long programs took to compile the last time, to be shown while they do.

The times are kept next to compiled programs, in the folder of JAX's persistent
cache; without that folder none are kept.
"""

from collections.abc import Iterator
import contextlib
import hashlib
import pathlib
import time

import jax

from disco_rl.runtime import files

_FOLDER = 'seconds'


def status(key: str) -> str:
  """Says that a run compiles, and the last time of its key if it is known.

  Args:
    key: the same for runs that compile the same programs.

  Returns:
    The status, for a progress bar.
  """
  seconds = _read(_path(key))
  took = '' if seconds is None else f' ({seconds:.0f} s the last time)'
  return f'compiling{took}'


@contextlib.contextmanager
def kept(key: str) -> Iterator[None]:
  """Keeps the time that the body takes to compile; see `status`."""
  start = time.perf_counter()
  yield
  if path := _path(key):
    # Nothing depends on the time: a full disk must not end a run here.
    with contextlib.suppress(OSError):
      _write(path, time.perf_counter() - start)


def _path(key: str) -> pathlib.Path | None:
  """None if there is no persistent cache."""
  settings = jax.config.values
  folder = settings['jax_compilation_cache_dir']
  if not folder or not settings['jax_enable_compilation_cache']:
    return None
  name = hashlib.sha256(f'{jax.__version__} {key}'.encode()).hexdigest()
  return pathlib.Path(folder) / _FOLDER / name[:16]


def _read(path: pathlib.Path | None) -> float | None:
  """The time that is kept; None if there is none, or it is damaged."""
  if path is None:
    return None
  try:
    return float(path.read_text(encoding='utf-8'))
  except (OSError, ValueError):
    return None


def _write(path: pathlib.Path, seconds: float) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(path) as temporary:
    temporary.write_text(f'{seconds:.3f}', encoding='utf-8')
