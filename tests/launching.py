"""What the tests of the launchers share."""

import os
import pathlib
import subprocess
import sys

import jax

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def run_python(
  *arguments: str, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
  return subprocess.run(
    [sys.executable, *arguments],
    cwd=REPOSITORY,
    env=_environment(variables),
    capture_output=True,
    text=True,
    timeout=timeout,
  )


def start_python(*arguments: str, **variables: str) -> subprocess.Popen[str]:
  return subprocess.Popen(
    [sys.executable, *arguments],
    cwd=REPOSITORY,
    env=_environment(variables),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _environment(variables: dict[str, str]) -> dict[str, str]:
  return {
    **os.environ,
    **variables,
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
    # JAX 0.10.1 calls it an error when it loads what it has itself compiled.
    'TF_CPP_MIN_LOG_LEVEL': '3',
    'JAX_COMPILATION_CACHE_DIR': jax.config.jax_compilation_cache_dir,
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
    'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
  }


def contents(workdir: pathlib.Path) -> dict[str, bytes]:
  return {
    str(path.relative_to(workdir)): path.read_bytes()
    for path in workdir.rglob('*')
    if path.is_file()
  }
