"""A discovery that is killed again and again ends as one that never was."""

import pathlib
import re

import launching


def test_ten_kills(tmp_path: pathlib.Path) -> None:
  """Of two agents in environments on the host, each on a device of its own."""
  # Moments of this seed: three long lives, which pass checkpoints even where
  # these are written some meta-steps late, and seven that end as they start.
  ended = launching.run_python(
    *('-m', 'benchmarks.kills', '--kills=10', '--early=0.5', '--seed=1209'),
    '--environments=gymnasium/CartPole-v1,gymnasium/CartPole-v1',
    f'--workdir={tmp_path / "runs"}',
    timeout=1200,
    JAX_NUM_CPU_DEVICES='2',
  )
  assert ended.returncode == 0, ended.stderr
  resumed, compared = ended.stdout.splitlines()
  assert 'both rules are the same bit for bit' in compared
  last = int(re.search('After ([0-9]+) meta-steps', compared)[1])
  # It went on from a checkpoint, and more than once.
  stops = {int(x) for x in re.findall('[0-9]+', resumed.split('at', 1)[1])}
  assert len(stops - {0}) > 2
  assert last == max(stops) + 5
  again = launching.run_python(
    *('-m', 'benchmarks.kills', f'--workdir={tmp_path / "runs"}')
  )
  assert again.returncode == 1
  assert 'holds runs already' in again.stdout + again.stderr
