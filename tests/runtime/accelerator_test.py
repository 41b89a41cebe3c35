"""The benchmark for accelerators, as small as it can be."""

import json
import pathlib

import launching
import pytest


def run(*flags: str) -> tuple[int, str]:
  """Status, and the last line; in a process of its own, for its flags."""
  ended = launching.run_python('-m', 'benchmarks.accelerator', *flags)
  return ended.returncode, ended.stdout.splitlines()[-1]


@pytest.mark.parametrize(
  'name',
  [
    pytest.param('agent, bfloat16', marks=pytest.mark.slow),
    pytest.param('agent, float32, offloaded', marks=pytest.mark.slow),
    pytest.param('population of 8', marks=pytest.mark.slow),
    pytest.param('1 seeds', marks=pytest.mark.needs('minatar/breakout')),
  ],
)
def test_each_kind_of_measurement(name: str) -> None:
  status, line = run('--small', f'--only={name}')
  assert status == 0
  row = json.loads(line)
  assert row.pop('device') == 'cpu'
  assert len(row) >= 4
  assert all(value > 0 for value in row.values()), row


def test_a_measurement_that_fails_does_not_end_the_others(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'table.json'
  status, _ = run('--small', '--minutes=0', f'--json={path}')
  assert status == 1
  table = json.loads(path.read_text())
  assert len(table) == 6
  for row in table.values():
    assert 'not finished' in row['failure']
