"""The model of what discovery costs on many devices."""

import launching
import pytest


def test_the_table() -> None:
  ended = launching.run_python(
    *('-m', 'benchmarks.scaling', '--config=configs/quickstart.py'),
    *('--agent_seconds=2', '--devices=1,2,3'),
    *('--gigabytes_per_second=1e6', '--microseconds=5e5'),
  )
  assert ended.returncode == 0, ended.stderr
  _, *rows = (line.split() for line in ended.stdout.splitlines())
  devices, agents, _, seconds, efficiency = zip(
    *(map(float, row) for row in rows)
  )
  assert devices == (1, 2, 3)
  assert agents == (8, 4, 3)
  # Two messages there and back, and four, of half a second each.
  assert seconds == pytest.approx((16, 8 + 1, 6 + 2), abs=1e-3)
  assert efficiency == pytest.approx((1, 16 / 18, 16 / 24), abs=0.01)
