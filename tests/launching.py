"""Runs launchers in this process, and Python programs in their own."""

import os
import pathlib
import subprocess
import sys
from types import ModuleType

from absl.testing import flagsaver
import jax
import pytest

from launch import common

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


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
    env={
      **os.environ,
      **variables,
      'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
      # JAX 0.10.1 logs an error when it loads programs that it has compiled.
      'TF_CPP_MIN_LOG_LEVEL': '3',
      'JAX_COMPILATION_CACHE_DIR': jax.config.jax_compilation_cache_dir,
      'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
      'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def call(launcher: ModuleType, workdir: pathlib.Path, *arguments: str) -> None:
  """Calls a launcher's command in this process."""
  argv = [launcher.__name__, f'--workdir={workdir}', *arguments]
  with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
    # ml_collections reads the settings from there.
    patch.setattr(sys, 'argv', argv)
    common.parse_flags(argv)
    launcher.main(common.CONFIG.value.to_dict(), workdir)


def error(launcher: ModuleType, workdir: pathlib.Path, *arguments: str) -> str:
  """Calls the command; returns the error message that it ends with."""
  with pytest.raises(SystemExit) as caught:
    call(launcher, workdir, *arguments)
  message = caught.value.code
  # A message is printed to stderr, and the exit status is 1.
  assert isinstance(message, str)
  assert message.startswith('error: ')
  assert '\n' not in message
  return message


def contents(workdir: pathlib.Path) -> dict[str, bytes]:
  """The bytes of all files in a folder by their relative paths."""
  return {
    str(path.relative_to(workdir)): path.read_bytes()
    for path in workdir.rglob('*')
    if path.is_file()
  }
