"""A discovery that is killed ends like one that never was."""

import pathlib
import re

import launching
import pytest


@pytest.mark.slow
def test_a_kill(tmp_path: pathlib.Path) -> None:
  """Two agents in environments on the host, each on a device of its own."""
  ended = launching.run_python(
    *('-m', 'benchmarks.faults', '--fault=kills', '--times=1', '--seed=7'),
    '--kind=discover_host',
    f'--workdir={tmp_path / "runs"}',
    timeout=1200,
    JAX_NUM_CPU_DEVICES='2',
  )
  assert ended.returncode == 0, ended.stderr
  resumed, compared = ended.stdout.splitlines()
  assert 'all is equal' in compared
  last = int(re.search('after ([0-9]+) steps', compared)[1])
  # By its seed the kill comes seven steps after the first: when it had saved.
  resumed_at = int(re.search(r'steps \[([0-9]+)\]', resumed)[1])
  assert resumed_at >= 5
  assert last == resumed_at + 5
