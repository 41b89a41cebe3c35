"""Populations on several devices do what they do on one.

Runs are made in processes of their own, with CPUs that pretend to be several.
"""

import json
import pathlib
import re
import shutil
import subprocess

import jax.flatten_util
import launching
import numpy as np
import pytest
import sharded

from disco_rl import metrics
from disco_rl import weights

FLAGS = (
  '--config=configs/quickstart.py',
  *(f'--config.{name}={value}' for name, value in sharded.SETTINGS.items()),
)
WARM, LAST = 3, 8
DEVICES = '--xla_force_host_platform_device_count'


def run(
  workdir: pathlib.Path, meta_steps: int, devices: int, *arguments: str
) -> subprocess.CompletedProcess[str]:
  """Discovers, on so many devices."""
  return launching.run_python(
    *('-m', 'launch.meta_train', *FLAGS),
    *(f'--config.meta_steps={meta_steps}', f'--workdir={workdir}'),
    *arguments,
    XLA_FLAGS=f'{DEVICES}={devices}',
  )


@pytest.fixture(scope='module')
def workdirs(
  tmp_path_factory: pytest.TempPathFactory,
) -> dict[int, pathlib.Path]:
  """By number of devices; eight go on from a checkpoint of one.

  The optimisers are warm then: cold, they would blow up rounding errors.
  """
  root = tmp_path_factory.mktemp('sharding')
  by_devices = {1: root / '1', 8: root / '8'}
  first = run(by_devices[1], LAST, 1, '--config.keep_checkpoints=9')
  assert first.returncode == 0, first.stderr
  shutil.copytree(by_devices[1], by_devices[8])
  (by_devices[8] / 'rule.npz').unlink()
  for checkpoint in (by_devices[8] / 'checkpoints').iterdir():
    if checkpoint.name != str(WARM):
      shutil.rmtree(checkpoint)
  second = run(by_devices[8], LAST, 8)
  assert second.returncode == 0, second.stderr
  return by_devices


def test_the_rule_is_the_same_on_any_number_of_devices(
  workdirs: dict[int, pathlib.Path],
) -> None:
  start = weights.load(workdirs[1] / 'initial_rule.npz')
  on_one = weights.load(workdirs[1] / 'rule.npz')
  on_many = weights.load(workdirs[8] / 'rule.npz')
  flat = lambda params: jax.flatten_util.ravel_pytree(params)[0]
  error = np.linalg.norm(flat(on_one) - flat(on_many))
  assert error <= 1e-5 * np.linalg.norm(flat(on_one))
  for module, leaves in on_one.items():
    for name, want in leaves.items():
      moved = np.linalg.norm(want - start[module][name])
      error = np.linalg.norm(want - on_many[module][name])
      assert error <= 1e-3 * moved + 1e-6, (module, name)


def test_what_is_logged_is_the_same(workdirs: dict[int, pathlib.Path]) -> None:
  on_one = metrics.read(workdirs[1] / 'metrics.csv')
  on_many = metrics.read(workdirs[8] / 'metrics.csv')
  assert on_one.keys() == on_many.keys()
  np.testing.assert_array_equal(on_one['environment'], on_many['environment'])
  for name in ('return', 'age', 'meta_gradient_norm', 'environment_steps'):
    np.testing.assert_allclose(on_many[name], on_one[name], rtol=1e-3)
  assert (np.diff(on_one['age']) < 0).any()  # Some were reborn on the way.


def test_devices_meet_once_in_a_meta_step() -> None:
  """In one sum of the size of eta; the agents live without a word."""
  ended = launching.run_python(
    'tests/sharded.py',
    XLA_FLAGS=f'{DEVICES}=8',
    PYTHONPATH=str(launching.REPOSITORY),
  )
  assert ended.returncode == 0, ended.stderr
  of_step, of_move = map(json.loads, ended.stdout.splitlines())
  assert of_step == {}
  assert of_move == {'all-reduce': 1}


def test_agents_that_cannot_be_shared_out(tmp_path: pathlib.Path) -> None:
  failed = run(tmp_path / 'run', LAST, 8, '--config.agents=12')
  assert failed.returncode == 1
  message = failed.stderr.splitlines()[-1]
  assert re.fullmatch(
    'error: 12 agents with environments like catch/4x3 cannot be shared out '
    'equally among 8 devices: choose agents so that there are 8 or 16 of them, '
    r'or fewer devices \(.*\)\.',
    message,
  )
  assert not (tmp_path / 'run').exists()
