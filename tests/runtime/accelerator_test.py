"""The benchmark for accelerators, as small as it can be."""

import json
import math
from typing import Any

from absl.testing import flagsaver
import pytest

from benchmarks import accelerator

pytestmark = pytest.mark.usefixtures('quick_compilation')


@pytest.mark.parametrize(
  'name',
  [
    pytest.param('agent, bfloat16'),
    pytest.param('agent, float32, offloaded', marks=pytest.mark.slow),
    pytest.param('population of 8', marks=pytest.mark.slow),
    pytest.param(
      '1 seeds', marks=[pytest.mark.slow, pytest.mark.needs('minatar/breakout')]
    ),
  ],
)
def test_each_kind_of_measurement(name: str) -> None:
  with flagsaver.as_parsed(small='true'):
    row = accelerator.measurements()[name]()
  for figure, value in row.items():
    assert math.isfinite(value) and value > 0, figure


def test_a_failing_measurement_does_not_end_the_others(
  monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
  def fake(name: str, seconds: float) -> dict[str, Any]:
    del seconds
    return {'failure': 'out of memory'} if 'float32' in name else {'x': 1.0}

  monkeypatch.setattr(accelerator, 'in_own_process', fake)
  path = tmp_path / 'table.json'
  with flagsaver.as_parsed(only='', minutes='9', small='false', json=str(path)):
    names = list(accelerator.measurements())
    with pytest.raises(SystemExit) as ended:
      accelerator.main([])
  assert ended.value.code == 1
  table = json.loads(path.read_text())
  assert list(table) == names
  assert sum('failure' in row for row in table.values()) == 2


def test_a_process_that_fails_or_takes_too_long_is_reported() -> None:
  with flagsaver.as_parsed(small='true'):
    failed = accelerator.in_own_process('nothing', 120)
    late = accelerator.in_own_process('agent, float32', 0.01)
  assert "KeyError: 'nothing'" in failed['failure']
  assert 'not finished' in late['failure']
