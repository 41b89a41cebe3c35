"""Two processes with four devices each are one run."""

import pathlib
import shutil
import socket
import subprocess
import time
from typing import Any

import jax.flatten_util
import launching
import numpy as np
import pytest
import sharded

from disco_rl import metrics
from disco_rl import weights

FLAGS = (
  *('-m', 'launch.meta_train', '--config=configs/quickstart.py'),
  *(f'--config.{name}={value}' for name, value in sharded.SETTINGS.items()),
)
WARM, LAST = 3, 8
DEVICES = '--xla_force_host_platform_device_count'
# The first meta-steps wait for programs to be compiled, on a busy machine.
PATIENCE = 900.0
SECONDS_TO_END = 60.0


def run(
  workdir: pathlib.Path, meta_steps: int, devices: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
  """Discovers in one process."""
  return launching.run_python(
    *FLAGS,
    *(f'--config.meta_steps={meta_steps}', f'--workdir={workdir}'),
    *arguments,
    timeout=PATIENCE,
    XLA_FLAGS=f'{DEVICES}={devices}',
  )


def start_two(workdir: pathlib.Path, meta_steps: int) -> list[Any]:
  """Begins to discover in two processes."""
  with socket.socket() as free:
    free.bind(('localhost', 0))
    port = free.getsockname()[1]
  return [
    launching.start_python(
      *FLAGS,
      *(f'--config.meta_steps={meta_steps}', f'--workdir={workdir}'),
      *(f'--coordinator=localhost:{port}', '--num_processes=2'),
      f'--process={process}',
      XLA_FLAGS=f'{DEVICES}=4',
    )
    for process in range(2)
  ]


@pytest.mark.parametrize('flag', ['--distributed', '--num_processes=2'])
def test_processes_that_are_not_known(
  tmp_path: pathlib.Path, flag: str
) -> None:
  failed = launching.run_python(*FLAGS, f'--workdir={tmp_path / "run"}', flag)
  assert failed.returncode == 1
  line = failed.stderr.splitlines()[-1]
  assert line.startswith('error: The machines of this run are not known')
  assert not (tmp_path / 'run').exists()


@pytest.fixture(scope='module')
def workdirs(
  tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, pathlib.Path]:
  """By number of processes; two go on from a checkpoint of one on one device.

  The optimisers are warm then: cold, they would blow up rounding errors.
  """
  root = tmp_path_factory.mktemp('hosts')
  by_processes = {1: root / '1', 2: root / '2'}
  alone = run(by_processes[1], LAST, 1, '--config.keep_checkpoints=9')
  assert alone.returncode == 0, alone.stderr
  shutil.copytree(by_processes[1], by_processes[2])
  (by_processes[2] / 'rule.npz').unlink()
  for checkpoint in (by_processes[2] / 'checkpoints').iterdir():
    if checkpoint.name != str(WARM):
      shutil.rmtree(checkpoint)
  for process in start_two(by_processes[2], LAST):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
  return by_processes


def test_the_rule_is_the_same(workdirs: dict[int, pathlib.Path]) -> None:
  start = weights.load(workdirs[1] / 'initial_rule.npz')
  alone = weights.load(workdirs[1] / 'rule.npz')
  together = weights.load(workdirs[2] / 'rule.npz')
  flat = lambda params: jax.flatten_util.ravel_pytree(params)[0]
  error = np.linalg.norm(flat(alone) - flat(together))
  assert error <= 1e-5 * np.linalg.norm(flat(alone))
  for module, leaves in alone.items():
    for name, want in leaves.items():
      moved = np.linalg.norm(want - start[module][name])
      error = np.linalg.norm(want - together[module][name])
      assert error <= 1e-3 * moved + 1e-6, (module, name)


def test_what_is_logged_is_the_same(workdirs: dict[int, pathlib.Path]) -> None:
  alone = metrics.read(workdirs[1] / 'metrics.csv')
  together = metrics.read(workdirs[2] / 'metrics.csv')
  assert alone.keys() == together.keys()
  np.testing.assert_array_equal(alone['environment'], together['environment'])
  for name in ('return', 'age', 'meta_gradient_norm', 'environment_steps'):
    np.testing.assert_allclose(together[name], alone[name], rtol=5e-3)
  assert (np.diff(alone['age']) < 0).any()  # Some were reborn on the way.


def test_one_that_dies_ends_the_others(
  workdirs: dict[int, pathlib.Path], tmp_path: pathlib.Path
) -> None:
  """Soon, and with a reason; one process then goes on, on one device."""
  workdir = tmp_path / 'run'
  shutil.copytree(workdirs[2], workdir)
  survivor, victim = start_two(workdir, 10**6)
  began = time.monotonic()
  while metrics.read(workdir / 'metrics.csv')['meta_step'][-1] < LAST + 2:
    assert survivor.poll() is None, survivor.communicate()
    assert time.monotonic() < began + PATIENCE
    time.sleep(0.2)
  victim.kill()
  _, errors = survivor.communicate(timeout=SECONDS_TO_END)
  victim.communicate()
  assert survivor.returncode != 0
  assert 'another task died' in errors or 'have lost touch' in errors, errors
  reached = metrics.read(workdir / 'metrics.csv')['meta_step'][-1]
  ended = run(workdir, int(reached) + 2, 1)
  assert ended.returncode == 0, ended.stderr
  steps = metrics.read(workdir / 'metrics.csv')['meta_step']
  np.testing.assert_array_equal(steps, np.arange(1, reached + 3))
