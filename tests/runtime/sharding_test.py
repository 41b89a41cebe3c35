"""Populations on several devices do what they do on one.

Runs are made in processes of their own, with CPUs that pretend to be several.
"""

import json
import pathlib
import re

import launching
import pytest
import sharded

FLAGS = (
  '--config=configs/quickstart.py',
  *(f'--config.{name}={value}' for name, value in sharded.SETTINGS.items()),
)


@pytest.mark.parametrize(
  'layouts', [['4x2'], pytest.param(['8x1', '1x8'], marks=pytest.mark.slow)]
)
def test_layouts_of_devices_agree(layouts: list[str]) -> None:
  """To rounding; devices meet where they must, in sums, and nowhere else."""
  ended = launching.run_python(
    *('tests/sharded.py', *layouts),
    timeout=900,
    JAX_NUM_CPU_DEVICES='8',
    PYTHONPATH=str(launching.REPOSITORY),
  )
  assert ended.returncode == 0, ended.stderr
  results = json.loads(ended.stdout)
  assert list(results) == layouts
  for layout, result in results.items():
    assert result['error'] <= 1e-10, layout
    of_step, of_mean = result['collectives']
    # The agents live without a word between those that share no batch.
    assert not of_step.keys() - {'all-reduce over batch'}, layout
    # XLA joins what can be: sums of both passes of an update, of the meta-value
    # function, of the outer loss and of the way back.
    assert sum(of_step.values()) <= 20, layout
    assert of_mean == {'all-reduce over agents': 1}, layout


@pytest.mark.parametrize(
  'settings, expected',
  [
    (
      {'agents': 12},
      'error: 12 agents with environments like catch/4x3 cannot be shared out '
      'equally among 8 devices: choose agents so that there are 8 or 16 of '
      r'them, or fewer devices \(.*\)\.',
    ),
    (
      {'batch_devices': 3},
      'error: batch_devices=3 must divide the 8 devices of this machine: '
      r'choose one of \[1, 2, 4, 8\]\.',
    ),
    (
      {'batch_devices': 4, 'agents': 2},
      'error: validation_trajectories=2 cannot be shared out equally among '
      r'batch_devices=4: choose 4\.',
    ),
  ],
)
def test_what_cannot_be_shared_out(
  tmp_path: pathlib.Path, settings: dict[str, int], expected: str
) -> None:
  flags = [f'--config.{name}={value}' for name, value in settings.items()]
  failed = launching.run_python(
    *('-m', 'launch.meta_train', *FLAGS, *flags),
    f'--workdir={tmp_path / "run"}',
    JAX_NUM_CPU_DEVICES='8',
  )
  assert failed.returncode == 1
  assert re.fullmatch(expected, failed.stderr.splitlines()[-1])
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('variable, devices', [(None, 3), ('2', 2)])
def test_a_cpu_counts_as_several_devices(
  variable: str | None, devices: int
) -> None:
  code = (
    'import jax; from disco_rl import sharding; sharding.divide_cpu(3); '
    'print(jax.device_count())'
  )
  variables = {'JAX_NUM_CPU_DEVICES': variable} if variable else {}
  ended = launching.run_python('-c', code, **variables)
  assert ended.stdout.split() == [str(devices)], ended.stderr


def test_agents_are_divided_among_the_devices_of_a_cpu(
  tmp_path: pathlib.Path,
) -> None:
  failed = launching.run_python(
    *('-m', 'launch.meta_train', *FLAGS, '--config.cpu_devices=3'),
    f'--workdir={tmp_path / "run"}',
  )
  assert failed.returncode == 1
  assert 'among 3 devices: choose' in failed.stderr.splitlines()[-1]
