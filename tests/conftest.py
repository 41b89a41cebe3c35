"""Fixtures shared by the tests, and the compilation cache."""

from collections.abc import Iterator
import gc
import os
import pathlib
import signal

import jax
import pooch
import pytest

from disco_rl import paths as paths_lib
from disco_rl.runtime import compilation_cache

_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

if jax.__version_info__ < (0, 11):
  # The new emitters, and modules split for threads that the other worker keeps
  # busy, take most of the time of compiling for CPUs. JAX 0.11 lacks the first
  # flag. Processes that tests start inherit both, because all processes must
  # compute the same bit for bit.
  os.environ['XLA_FLAGS'] = (
    os.environ.get('XLA_FLAGS', '')
    + ' --xla_cpu_use_fusion_emitters=false'
    + ' --xla_cpu_parallel_codegen_split_count=1'
  )

# Optimizing takes longer than these programs run, also in processes that tests
# start. JAX_DISABLE_MOST_OPTIMIZATIONS=false compiles as for users.
os.environ.setdefault('JAX_DISABLE_MOST_OPTIMIZATIONS', 'true')
_IS_QUICK = os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] == 'true'
jax.config.update('jax_disable_most_optimizations', _IS_QUICK)

compilation_cache.leave_loops_rolled()

# Most of the suite's time is compilation, and most of it is the same each time.
jax.config.update('jax_compilation_cache_dir', str(_REPOSITORY / '.jax_cache'))
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


compilation_cache.collect_garbage_rarely()

# These take a minute or more each, some only with slow tests; others seconds.
_LONGEST = (
  'distributed_test',
  'kills_test',
  'meta_train_test',
  'sharding_test',
  'colabs_test',
  'train_test',
  'docs_test',
  'population_test',
  'golden_test',
  'meta_gradient_test',
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  """Puts files that take minutes first, so that workers end together."""
  places = {name: place for place, name in enumerate(_LONGEST)}
  items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
  """Keeps the garbage collector from searching what has been imported."""
  gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
  """Skips tests of environments whose packages are not installed."""
  for mark in item.iter_markers('needs'):
    import conformance

    conformance.skip_without(*mark.args)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
  """Lets commands that a test calls choose the folder of paths for it alone."""
  monkeypatch.setattr(paths_lib, '_folder', None)


@pytest.fixture
def usual_compilation() -> Iterator[None]:
  """Compiles as for users, where tests are about what XLA makes of the code."""
  jax.config.update('jax_disable_most_optimizations', False)
  yield
  jax.config.update('jax_disable_most_optimizations', _IS_QUICK)


@pytest.fixture
def foreground() -> Iterator[None]:
  """Lets interrupts end programs, as shells do in the foreground."""
  former = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, former)


@pytest.fixture(scope='session')
def disco103_path() -> pathlib.Path:
  """Returns the path of the published weights; skips tests without them."""
  directories = [
    _REPOSITORY.parent / 'shared' / 'weights',
    pathlib.Path(pooch.os_cache('disco_rl')),
  ]
  if os.environ.get('DISCO_RL_WEIGHTS_DIR'):
    directories.insert(0, pathlib.Path(os.environ['DISCO_RL_WEIGHTS_DIR']))
  for directory in directories:
    path = directory / 'disco_103.npz'
    if path.is_file():
      # Rules are then loaded by name from here, also in subprocesses.
      os.environ['DISCO_RL_WEIGHTS_DIR'] = str(directory)
      return path
  pytest.skip(
    'disco_103.npz was not found: download it with '
    "disco_rl.weights.load('disco103'), or set DISCO_RL_WEIGHTS_DIR to its "
    'directory'
  )
