"""Tests of the statistics over runs."""

import json
from typing import Any

import numpy as np
import pytest

from disco_rl.evaluation import scores


def _interval(
  values: Any, statistic: scores.Statistic = scores.mean
) -> tuple[float, float]:
  interval = scores.ci95(values, statistic)
  assert interval is not None
  return interval


def test_iqm_by_hand() -> None:
  # Eight values: the lowest two and the highest two are left out.
  assert scores.iqm([100, 1, 2, 3, 4, 5, -50, 99]) == pytest.approx(3.5)
  # Fewer than four: nothing can be left out.
  assert scores.iqm([0.0, 1.0, 5.0]) == pytest.approx(2.0)


def test_iqm_of_a_matrix() -> None:
  # 7 runs x 3 tasks are 21 scores, of which floor(21 / 4) = 5 go at each end,
  # over runs and tasks together. Sorted:
  #   1 2 3 4 5 | 6 7 9 10 11 12 13 14 16 18 20 | 21 30 40 50 90
  # and the 11 in the middle add up to 136.
  runs_by_tasks = [
    [6, 40, 12],
    [90, 1, 13],
    [2, 14, 30],
    [16, 3, 7],
    [18, 50, 4],
    [5, 9, 20],
    [10, 21, 11],
  ]
  assert scores.iqm(runs_by_tasks) == pytest.approx(136 / 11)


def test_axis() -> None:
  values = np.arange(12.0).reshape(3, 4) ** 2
  np.testing.assert_allclose(
    scores.iqm(values, axis=-1), [scores.iqm(row) for row in values]
  )
  np.testing.assert_allclose(scores.mean(values, axis=-1), values.mean(-1))


def test_interval_is_deterministic() -> None:
  values = np.random.default_rng(0).normal(size=10)
  assert scores.ci95(values) == scores.ci95(values)
  assert scores.ci95(values) != scores.ci95(values, seed=1)


def test_interval_by_enumeration() -> None:
  # Resamples of {0, 1} of size two have the means 0, 1/2, 1 with probabilities
  # 1/4, 1/2, 1/4: both tails of 2.5% lie within the extremes.
  assert scores.ci95([0.0, 1.0]) == (0.0, 1.0)
  # 20 runs of which one scores 1: the number of times it is drawn is binomial
  # (20, 1/20), with P(0) = 0.36, P(<= 2) = 0.925, P(<= 3) = 0.984.
  assert scores.ci95([0.0] * 19 + [1.0]) == pytest.approx((0.0, 3 / 20))


def test_interval_of_another_statistic() -> None:
  values = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0])
  low, high = _interval(values, scores.iqm)
  assert low < scores.iqm(values) < high
  # Only resamples that hold the outlier more than twice are moved by it.
  assert high < _interval(values)[1]


def test_interval_covers_the_true_mean() -> None:
  rng = np.random.default_rng(0)
  intervals = [_interval(sample) for sample in rng.normal(2, 3, (200, 30))]
  coverage = np.mean([low < 2 < high for low, high in intervals])
  # 0.95 less the known shortfall of the percentile interval at 30 runs (about
  # 0.94); the standard error over 200 trials is 0.017.
  assert 0.90 < coverage < 0.98


@pytest.mark.parametrize('values', [[0.7], [0.1, np.nan], [0.1, np.inf], []])
def test_no_interval(values: list[float]) -> None:
  assert scores.ci95(values) is None


def test_matrix_has_no_interval_of_runs() -> None:
  with pytest.raises(ValueError, match=r'\[n\], got \(2, 3\)'):
    scores.ci95(np.zeros((2, 3)))


def test_summary() -> None:
  per_seed = np.array([0.0, 1.0, 2.0, 3.0, 104.0], np.float32)
  summary = scores.summarise(per_seed)
  assert list(summary) == ['mean', 'iqm', 'ci95', 'per_seed']
  assert summary['mean'] == pytest.approx(22)
  assert summary['iqm'] == pytest.approx(2)
  assert summary['ci95'] == list(_interval(per_seed))
  assert json.loads(json.dumps(summary)) == summary


def test_summary_of_one_seed() -> None:
  assert scores.summarise([0.5]) == {
    'mean': 0.5,
    'iqm': 0.5,
    'ci95': None,
    'per_seed': [0.5],
  }
