"""Runs launchers in this process, and Python programs in their own."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from types import ModuleType
from typing import Any
import zlib

from absl import flags
from absl.testing import flagsaver
import jax
import pytest

from disco_rl.runtime import metrics
from launch import common

# Flags that other launchers define.
common.config_flag(), common.workdir_flag(), common.cache_flag()

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


# The environment of processes that tests start, beside that of the tests.
OF_PROCESSES = {
  # JAX 0.10.1 logs an error when it loads programs that it compiled itself.
  'TF_CPP_MIN_LOG_LEVEL': '3',
  'JAX_COMPILATION_CACHE_DIR': jax.config.jax_compilation_cache_dir,
  # Otherwise each process would compile dozens of small programs again.
  'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
}


def run_python(
  *arguments: str, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
  """Runs Python to its end, with additional environment variables."""
  with start_python(*arguments, **variables) as process:
    try:
      output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
      process.kill()
      raise
  return subprocess.CompletedProcess(
    process.args, process.returncode, output, errors
  )


def start_python(*arguments: str, **variables: str) -> subprocess.Popen[str]:
  """Starts Python with additional environment variables."""
  return subprocess.Popen(
    [sys.executable, *arguments],
    cwd=REPOSITORY,
    env={**os.environ, **variables, **OF_PROCESSES},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


# Runs a launcher, and kills it once the rows of a step are written: as late as
# possible before the second checkpoint.
_KILLED = """
import os, runpy, signal, sys, time
from disco_rl.runtime import metrics

launcher, column, step = sys.argv[1:4]
del sys.argv[1:4]
write = metrics.MetricsWriter.write

def write_and_die(self, rows):
  write(self, rows)
  if rows and rows[0][column] == int(step):
    while not list(self.path.parent.glob('checkpoints/*[0-9]')):
      time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

metrics.MetricsWriter.write = write_and_die
runpy.run_module(launcher, run_name='__main__', alter_sys=True)
"""


def kill(
  launcher: ModuleType,
  workdir: pathlib.Path,
  column: str,
  step: int,
  *arguments: str,
) -> list[str]:
  """Runs a launcher that is killed after a step; returns lines of stderr."""
  killed = run_python(
    *('-c', _KILLED, launcher.__name__, column, str(step)),
    *(*arguments, f'--workdir={workdir}'),
  )
  assert killed.returncode == -signal.SIGKILL, killed.stderr
  assert metrics.read(workdir / 'metrics.csv')[column][-1] == step
  assert not (workdir / 'summary.json').exists()
  return killed.stderr.splitlines()


@contextlib.contextmanager
def parsed(
  *arguments: str, base: ModuleType | None = None
) -> Iterator[dict[str, Any]]:
  """Yields the settings that a launcher's flags make, while they are set."""
  argv = ['launcher', *arguments]
  with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
    # ml_collections reads the settings from there.
    patch.setattr(sys, 'argv', argv)
    common.parse_config_flags(argv, base)
    yield common.settings()


def call(launcher: ModuleType, workdir: pathlib.Path, *arguments: str) -> None:
  """Calls a launcher's command in this process."""
  with parsed(f'--workdir={workdir}', *arguments) as settings:
    launcher.main(settings, workdir)


def error(launcher: ModuleType, workdir: pathlib.Path, *arguments: str) -> str:
  """Calls the command; returns the error message that it ends with."""
  with pytest.raises(SystemExit) as caught:
    call(launcher, workdir, *arguments)
  return message_of(caught.value)


def call_main(launcher: ModuleType, *arguments: str, **values: object) -> None:
  """Calls the command of a launcher without --config, with values of flags."""
  # Not parsed: flags of other launchers may be required in this process.
  flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(compilation_cache='off', **values):
    launcher.main([launcher.__name__, *arguments])


def error_of_main(
  launcher: ModuleType, *arguments: str, **values: object
) -> str:
  """Calls `call_main`; returns the error message that it ends with."""
  with pytest.raises(SystemExit) as caught:
    call_main(launcher, *arguments, **values)
  return message_of(caught.value)


def message_of(ended: SystemExit) -> str:
  """Returns the error message that a launcher ends with, one line."""
  # It is printed to stderr, and the exit status is 1.
  assert isinstance(ended.code, str)
  assert ended.code.startswith('error: ')
  assert '\n' not in ended.code
  return ended.code


def digests(workdir: pathlib.Path, *names: str) -> dict[str, list[int]]:
  """Returns sizes and checksums of files, as in summary.json."""
  found = {name: (workdir / name).read_bytes() for name in names}
  return {name: [len(x), zlib.crc32(x)] for name, x in found.items()}


def contents(workdir: pathlib.Path) -> dict[str, bytes]:
  """Returns the bytes of all files in a folder by relative path."""
  return {
    str(path.relative_to(workdir)): path.read_bytes()
    for path in workdir.rglob('*')
    if path.is_file()
  }
