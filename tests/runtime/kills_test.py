"""A discovery that is killed repeatedly ends like one that never was."""

import pathlib
import re

import launching


def test_two_kills(tmp_path: pathlib.Path) -> None:
  """Two agents in environments on the host, each on a device of its own."""
  ended = launching.run_python(
    *('-m', 'benchmarks.kills', '--kills=2', '--early=0', '--seed=1209'),
    '--kind=discover_host',
    f'--workdir={tmp_path / "runs"}',
    timeout=1200,
    JAX_NUM_CPU_DEVICES='2',
  )
  assert ended.returncode == 0, ended.stderr
  resumed, compared = ended.stdout.splitlines()
  assert 'all is equal' in compared
  last = int(re.search('after ([0-9]+) steps', compared)[1])
  # It resumed from checkpoints.
  stops = {int(x) for x in re.findall('[0-9]+', resumed.split('at', 1)[1])}
  assert len(stops - {0}) >= 2
  assert last == max(stops) + 5
  again = launching.run_python(
    *('-m', 'benchmarks.kills', f'--workdir={tmp_path / "runs"}')
  )
  assert again.returncode == 1
  assert 'holds runs already' in again.stdout + again.stderr
