"""Results of discoveries, from metrics made by hand."""

import pathlib
from typing import Any
from unittest import mock

import numpy as np
import pytest

from disco_rl.meta_training import held_out_results
from disco_rl.runtime import files


def tables(factor: float, at: tuple[int, ...] = (0, 15)) -> dict[str, Any]:
  """Two groups of a population, of 2 and 3 agents; returns are 1 and 2 times.

  After 10 and 20 meta-steps, all agents have made 50 and 250 steps: 10 and 50
  each.
  """
  names = ['catch', 'sokoban/held_out']
  return {
    'metrics.csv': {
      'meta_step': np.array([10, 10, 20, 20]),
      'environment_steps': np.array([20, 30, 100, 150]),
      'agents': np.array([2, 3, 2, 3]),
    },
    'held_out/metrics.csv': {
      'meta_step': np.repeat(at, 2),
      'environment': np.array(names * len(at)),
      'return': factor * np.repeat(1.0 + np.arange(len(at)), 2),
    },
  }


@pytest.fixture(name='found')
def _found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
  """Tables by folder; reading replaces that of files."""
  found: dict[str, Any] = {}

  def read(path: pathlib.Path) -> Any:
    folder, _, name = str(path).partition('/')
    return found[folder][name]

  check: Any = mock.Mock()
  monkeypatch.setattr(held_out_results.metrics, 'read', read)
  monkeypatch.setattr(
    held_out_results.json_files, 'read', lambda _: {'meta_steps': 20}
  )
  monkeypatch.setattr(held_out_results.digests, 'check_summary', check)
  return found


def test_returns_of_discoveries_over_the_steps_of_an_agent(
  found: dict[str, Any],
) -> None:
  found |= {'a': tables(1.0), 'b': tables(-1.0)}
  catch, sokoban = held_out_results.read(
    'v', 0.5, [pathlib.Path(x) for x in 'ab']
  )
  assert (catch.environment, catch.rule, catch.learning_rate) == (
    'catch',
    'v',
    0.5,
  )
  steps, returns = catch.curve
  # Between 10 and 50 steps.
  assert steps.tolist() == [0, 30]
  assert returns.tolist() == [[1, 2], [-1, -2]]
  assert catch.failure is None
  assert sokoban.environment == 'sokoban/held_out'
  assert sokoban.failure is not None
  assert sokoban.failure.startswith('it is scored by successes')


def test_a_discovery_that_ended_early_keeps_its_last_return(
  found: dict[str, Any],
) -> None:
  """At the end the others have made 50 and 70 steps, 60 in the mean."""
  found |= {x: tables(1.0, at=(0, 10, 20)) for x in 'ac'}
  found['c']['metrics.csv']['environment_steps'] = np.array([20, 30, 140, 210])
  found['b'] = tables(3.0, at=(0, 10))
  found['b']['metrics.csv'] = {
    name: x[:2] for name, x in found['b']['metrics.csv'].items()
  }
  catch, _ = held_out_results.read('v', 0.5, [pathlib.Path(x) for x in 'abc'])
  steps, returns = catch.curve
  assert steps.tolist() == [0, 10, 60]
  assert returns.tolist() == [[1, 2, 3], [3, 6, 6], [1, 2, 3]]


@pytest.mark.parametrize(
  ('other', 'message'),
  [
    (tables(1.0, at=(0,)), 'v were not evaluated .*: a, b. Delete the'),
    (tables(1.0, at=(0, 10)), 'v were not evaluated .*: a, b. Delete the'),
    (tables(1.0) | {'metrics.csv': {}}, '^b holds no held-out returns'),
    (
      tables(1.0) | {'held_out/metrics.csv': {}},
      '^b holds no held-out returns',
    ),
  ],
)
def test_discoveries_that_do_not_fit(
  other: dict[str, Any], message: str, found: dict[str, Any]
) -> None:
  found |= {'a': tables(1.0), 'b': other}
  with pytest.raises(files.WorkdirError, match=message):
    held_out_results.read('v', 0.5, [pathlib.Path(x) for x in 'ab'])


def test_the_description_has_the_ranges_of_settings() -> None:
  of_each = [
    {
      'meta_steps': steps,
      'agents': 8,
      'held_out_seeds': 4,
      'held_out_updates': updates,
    }
    for steps, updates in ((2000, 1500), (1000, 1500))
  ]
  about = held_out_results.setup(of_each, seeds=3)
  assert (
    'which differ in their seeds: 3. Meta-steps of each: 1,000 to 2,000. '
    in (about.extent)
  )
  assert 'Agents of its population: 8. ' in about.extent
  assert '(4 agents, 1,500 updates each)' in about.score
  assert about.unit == 'discoveries'
  assert about.facts == {
    'seeds': 3,
    'meta_steps': (1000, 2000),
    'agents': (8, 8),
    'held_out_seeds': (4, 4),
    'held_out_updates': (1500, 1500),
  }
