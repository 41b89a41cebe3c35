"""Tests of Crafter's score of each agent, from the counts in its metrics."""

import dataclasses
import pathlib

import numpy as np
import pytest

from disco_rl.evaluation import comparison
from disco_rl.evaluation import report
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.training import achievements


@dataclasses.dataclass
class Counts:
  """Stands for `crafter_adapter.Achievements` of four games."""

  num_episodes: np.ndarray
  unlocked: dict[str, np.ndarray]


class Games:
  """Two games for each of two agents, with counts set by the test."""

  def __init__(self) -> None:
    self.counts = Counts(
      np.zeros(4, int), {'wood': np.zeros(4, int), 'iron': np.zeros(4, int)}
    )

  def achievements(self) -> Counts:
    return self.counts

  def play(self, episodes: list[int], wood: list[int], iron: list[int]) -> None:
    now = self.counts
    self.counts = Counts(
      now.num_episodes + episodes,
      {
        'wood': now.unlocked['wood'] + wood,
        'iron': now.unlocked['iron'] + iron,
      },
    )


@pytest.fixture
def csv_path(tmp_path: pathlib.Path) -> pathlib.Path:
  """Metrics with two rows for each agent, and a third after a resumption."""
  games = Games()
  with metrics.MetricsWriter(tmp_path, 0) as writer:
    counter = achievements.Counter(games, 2)
    games.play([1, 2, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0])
    writer.write(_rows(1, counter))
    games.play([1, 0, 1, 3], [1, 0, 0, 2], [0, 0, 1, 0])
    writer.write(_rows(2, counter))
    counter = achievements.Counter(again := Games(), 2)
    again.play([2, 4, 0, 0], [0, 0, 0, 0], [2, 4, 0, 0])
    writer.write(_rows(3, counter))
  return tmp_path / 'metrics.csv'


def _rows(
  update: int, counter: achievements.Counter
) -> list[dict[str, int | float]]:
  return [
    {
      'update': update,
      'seed': seed,
      'environment_steps': 10 * update,
      'return': 1.0,
      **counts,
    }
    for seed, counts in enumerate(counter.advance())
  ]


def test_scores_are_of_all_episodes_of_an_agent(csv_path: pathlib.Path) -> None:
  rates = [[3 / 10, 6 / 10], [2 / 4, 1 / 4]]
  np.testing.assert_allclose(
    achievements.crafter_scores(csv_path), achievements.crafter_score(rates)
  )


def test_later_rows_are_left_out(csv_path: pathlib.Path) -> None:
  first, second = achievements.crafter_scores(csv_path, 1)
  assert first == pytest.approx(achievements.crafter_score([2 / 3, 0]))
  assert np.isnan(second)


def test_environments_without_achievements(tmp_path: pathlib.Path) -> None:
  counter = achievements.Counter(object(), 2)
  assert counter.advance() == [{}, {}]
  with metrics.MetricsWriter(tmp_path, 0) as writer:
    writer.write(_rows(1, counter))
  assert achievements.crafter_scores(tmp_path / 'metrics.csv') is None


def test_the_report_shows_the_scores(
  csv_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  result = comparison.read_result(csv_path, 'crafter', 'disco103', 1e-3, 3)
  setup = report.Setup('Much.', 'A score.', {})
  report.write(comparison.compare([result]), setup, tmp_path)
  mean = np.mean(achievements.crafter_scores(csv_path))
  row = f'| disco103 | {mean:#.3g}'.rstrip('.')
  assert row in (tmp_path / 'report.md').read_text()
  summary = json_files.read(tmp_path / 'summary.json')
  written = summary['benchmarks']['crafter']['rules']['disco103']
  assert written['crafter_scores']['crafter']['mean'] == pytest.approx(mean)


def test_crafter_score() -> None:
  # Hafner, 2022: exp(mean(ln(1 + s))) - 1 of percentages.
  assert achievements.crafter_score([0.0] * 22) == 0
  assert achievements.crafter_score([1.0] * 22) == pytest.approx(100)
  # sqrt((1 + 8) * (1 + 0)) - 1
  assert achievements.crafter_score([0.08, 0.0]) == pytest.approx(2.0)
  np.testing.assert_allclose(
    achievements.crafter_score([[0.08, 0.0], [0.0, 0.0]]), [2.0, 0.0]
  )


@pytest.mark.parametrize('rates', [[0.5, 50.0], [-0.1], [np.nan]])
def test_percentages_are_rejected(rates: list[float]) -> None:
  with pytest.raises(ValueError, match='between 0 and 1'):
    achievements.crafter_score(rates)
