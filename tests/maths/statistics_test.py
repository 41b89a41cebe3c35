"""Tests of the statistics: against rliable, by hand, and their properties."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy

from disco_rl.maths import statistics

# Two rules in four environments, five and six agents.
X = np.array(
  [
    [0.67, 0.73, 0.16, 1.20],
    [0.44, 1.15, 0.42, 1.15],
    [0.19, 0.30, -0.10, 1.25],
    [0.64, 0.35, 0.45, 0.83],
    [0.33, 1.44, 0.31, 1.20],
  ]
)
Y = np.array(
  [
    [0.67, 0.24, 0.63, 2.43],
    [0.32, 1.11, 0.99, 1.17],
    [0.48, 0.55, 0.12, 0.67],
    [1.55, 0.43, 0.42, 0.72],
    [1.19, 0.59, 1.70, 0.62],
    [0.71, 0.34, 0.36, 1.16],
  ]
)
# Of X and Y, by rliable 1.2.0 with arch 7.2.0: the value, then the bounds from
# 20,000 resamples (3,000 for the probability, 5,000 for the profile), which
# differ from ours only by the noise of resampling.
RLIABLE = {
  'iqm': ((0.601, 0.446, 0.776), (0.6808333, 0.5333333, 0.9016667)),
  'median': ((0.624, 0.423, 0.812), (0.7616667, 0.5583333, 1.0008333)),
  'mean': ((0.6555, 0.5405, 0.773), (0.79875, 0.6191667, 1.0016771)),
  'optimality_gap': ((0.414, 0.3255, 0.504), (0.3391667, 0.2379167, 0.43875)),
}
# With its task_bootstrap, by which levels are resampled, of the IQM.
RLIABLE_LEVELS = ((0.601, 0.317, 1.128), (0.6808333, 0.4591667, 0.9758333))
RLIABLE_IMPROVEMENT = (0.4583333, 0.2998958, 0.6208333)
RLIABLE_THRESHOLDS = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 1.5])
RLIABLE_PROFILE = (
  (0.95, 0.85, 0.50, 0.35, 0.30, 0.0),
  (0.85, 0.70, 0.35, 0.25, 0.15, 0.0),
  (1.00, 1.00, 0.65, 0.45, 0.45, 0.0),
)


def assert_near(
  estimate: statistics.Estimate, expected: tuple[object, ...], noise: float
) -> None:
  value, low, high = expected
  np.testing.assert_allclose(estimate.value, value, atol=1e-6)
  np.testing.assert_allclose(estimate.low, low, atol=noise)
  np.testing.assert_allclose(estimate.high, high, atol=noise)


@pytest.mark.parametrize('name', statistics.AGGREGATES)
def test_aggregates_equal_those_of_rliable(name: str) -> None:
  for scores, expected in zip((X, Y), RLIABLE[name], strict=True):
    estimate = statistics.estimate(statistics.AGGREGATES[name], scores)
    assert_near(estimate, expected, noise=0.015)


def test_probability_of_improvement_equals_that_of_rliable() -> None:
  estimate = statistics.estimate(statistics.probability_of_improvement, X, Y)
  assert_near(estimate, RLIABLE_IMPROVEMENT, noise=0.015)


def test_profile_equals_that_of_rliable() -> None:
  estimate = statistics.estimate(
    lambda s: statistics.performance_profile(s, RLIABLE_THRESHOLDS), X
  )
  # Fractions of 20 scores are multiples of 0.05.
  assert_near(estimate, RLIABLE_PROFILE, noise=0.051)


def test_iqm_by_hand() -> None:
  # Eight scores: the lowest two and the highest two are left out.
  eight = np.array([[100, 1], [2, 3], [4, 5], [-50, 99]])
  assert statistics.iqm(eight) == pytest.approx(3.5)
  # Fewer than four: nothing can be left out.
  assert statistics.iqm(np.array([[0.0, 1.0, 5.0]])) == pytest.approx(2.0)


def test_each_environment_is_resampled_independently() -> None:
  # Without spread between agents the interval is a point, however different
  # the environments are.
  scores = np.tile([0.0, 1.0, 10.0], (4, 1))
  for statistic in statistics.AGGREGATES.values():
    estimate = statistics.estimate(statistic, scores)
    assert estimate.low == estimate.value == estimate.high
  # Resampled as whole rows, the two environments would always cancel.
  scores = np.array([[0.0, 1.0], [1.0, 0.0]])
  estimate = statistics.estimate(statistics.mean, scores)
  assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_an_agent_is_resampled_at_all_points_of_its_curve() -> None:
  rng = np.random.default_rng(0)
  offset = rng.normal(size=(6, 3))
  curve = np.stack([offset, offset + 1, offset + 2])
  estimate = statistics.estimate(statistics.iqm, curve, resamples=200)
  assert estimate.value.shape == (3,)
  np.testing.assert_allclose(np.diff(estimate.low), 1)
  np.testing.assert_allclose(np.diff(estimate.high), 1)


def test_chunks_do_not_change_the_interval(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  whole = statistics.estimate(statistics.iqm, X, resamples=1000)
  monkeypatch.setattr(statistics, '_CHUNK', 7 * X.size)
  assert statistics.estimate(statistics.iqm, X, resamples=1000) == whole


def test_chunks_bound_the_memory_of_pairs(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """All pairs of a chunk of resamples would take 1.6 MB."""
  monkeypatch.setattr(statistics, '_CHUNK', 2_000)
  rng = np.random.default_rng(0)
  x, y = rng.normal(size=(2, 100, 1))
  tracemalloc.start()
  statistics.estimate(statistics.probability_of_improvement, x, y, resamples=40)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 400_000


def test_one_agent_has_no_interval() -> None:
  estimate = statistics.estimate(statistics.iqm, X[:1])
  assert estimate == statistics.Estimate(np.mean(X[0, :2]), None, None)


@pytest.mark.parametrize('bad', [np.nan, np.inf])
def test_scores_that_are_not_finite_are_an_error(bad: float) -> None:
  scores = X.copy()
  scores[2, 1] = bad
  with pytest.raises(ValueError, match=r'\(5, 4\) with 1 that are not finite'):
    statistics.estimate(statistics.mean, scores)


def test_summary_by_hand() -> None:
  # 20 agents of which one scores 1: the number of times it is drawn is binomial
  # (20, 1/20), with P(0) = 0.36, P(<= 2) = 0.925, P(<= 3) = 0.984.
  per_seed = np.array([0.0] * 19 + [1.0], np.float32)
  summary = statistics.summarize(per_seed)
  assert summary == {
    'mean': pytest.approx(1 / 20),
    'iqm': 0.0,
    'ci95': pytest.approx([0.0, 3 / 20]),
    'per_seed': per_seed.tolist(),
  }
  assert json.loads(json.dumps(summary)) == summary
  assert statistics.summarize(per_seed) == summary


@pytest.mark.parametrize('per_seed', [[0.7], [0.1, np.nan], [0.1, np.inf]])
def test_summary_without_an_interval(per_seed: list[float]) -> None:
  assert statistics.summarize(per_seed)['ci95'] is None


# Where scores are equal. All are exact in binary, so that equal means equal.

# Three agents in two environments.
SCORES = np.array([[0.0, 0.5], [0.5, 1.0], [1.0, 0.5]])


@pytest.mark.parametrize(
  'threshold, share',
  [
    (-0.25, 6 / 6),  # All scores.
    (0.0, 5 / 6),  # Not the one that equals the threshold.
    (0.25, 5 / 6),
    (0.5, 2 / 6),  # Not the three that equal it.
    (0.75, 2 / 6),
    (1.0, 0 / 6),  # The best scores only equal it.
  ],
)
def test_a_profile_counts_scores_above_the_threshold(
  threshold: float, share: float
) -> None:
  """Strictly, as the definition says: score > tau (Agarwal et al., 2021)."""
  profile = statistics.performance_profile(SCORES, np.array([threshold]))
  assert profile == pytest.approx([share], abs=1e-12)


def test_a_profile_of_many_resamples_at_ties() -> None:
  """Axes before the last two are kept, the thresholds' comes last."""
  scores = np.stack([SCORES, SCORES + 0.5])
  profile = statistics.performance_profile(scores, np.array([0.5, 1.0]))
  np.testing.assert_allclose(profile, [[2 / 6, 0], [5 / 6, 2 / 6]], rtol=1e-12)


@pytest.mark.parametrize(
  'x, y, probability',
  [
    # One environment: pairs that are won, tied, lost.
    ([[0.5]], [[0.5]], 0.5),  # 0, 1, 0.
    ([[0.5], [0.5]], [[0.5], [0.0]], 0.75),  # 2, 2, 0.
    ([[0.0], [0.5], [1.0]], [[0.5], [0.5]], 0.5),  # 2, 2, 2.
    ([[0.0], [0.5], [0.5]], [[0.5], [1.0]], 1 / 6),  # 0, 2, 4.
    ([[0.5], [1.0]], [[0.0], [0.5], [1.0]], 2 / 3),  # 3, 2, 1.
    # Two environments: all pairs tied; one won, one tied, in each of four.
    ([[0.0, 1.0], [0.0, 1.0]], [[0.0, 0.5], [0.0, 1.0]], 0.625),
    # Tied in one, lost in the other.
    ([[2.0, 0.0]], [[2.0, 4.0]], 0.25),
  ],
)
def test_a_tie_counts_half(
  x: list[list[float]], y: list[list[float]], probability: float
) -> None:
  """Wins and half the ties, over the pairs; mean over the environments."""
  forth = statistics.probability_of_improvement(np.array(x), np.array(y))
  back = statistics.probability_of_improvement(np.array(y), np.array(x))
  assert forth == pytest.approx(probability, abs=1e-12)
  assert back == pytest.approx(1.0 - probability, abs=1e-12)


def test_how_far_apart_scores_are_does_not_count() -> None:
  x = np.array([[10.0], [0.0]])
  y = np.array([[9.5], [0.0]])
  near = statistics.probability_of_improvement(x, y)  # 10 wins twice, one tie.
  assert near == pytest.approx((2 + 0.5) / 4, abs=1e-12)
  assert statistics.probability_of_improvement(1e3 * x, y) == near


# What is drawn anew.


def test_resampled_levels_equal_those_of_rliable() -> None:
  for scores, expected in zip((X, Y), RLIABLE_LEVELS, strict=True):
    estimate = statistics.estimate(
      statistics.iqm, scores, resampled='levels', resamples=20_000
    )
    assert_near(estimate, expected, noise=0.02)


def test_levels_are_the_sample_when_they_are_resampled() -> None:
  """Agents without spread, so that only the levels differ."""
  scores = np.tile([0.0, 1.0], (3, 1))
  of_agents = statistics.estimate(statistics.mean, scores)
  of_levels = statistics.estimate(statistics.mean, scores, resampled='levels')
  assert of_agents.ci95 == [0.5, 0.5]
  # Both levels are the lower one in a quarter of the resamples.
  assert of_levels.ci95 == [0.0, 1.0]


def test_rules_meet_the_same_resampled_levels() -> None:
  """A constant advantage is certain, however much levels differ."""
  y = np.tile([0.0, 5.0, 100.0], (2, 1))
  estimate = statistics.estimate(
    statistics.difference, y + 0.25, y, resampled='levels'
  )
  assert (estimate.value, estimate.ci95) == (0.25, [0.25, 0.25])


def test_one_agent_in_each_of_several_levels_has_an_interval_over_levels() -> (
  None
):
  one = X[:1]
  estimate = statistics.estimate(statistics.mean, one, resampled='levels')
  low, high = estimate.ci95 or []
  assert one.min() <= low < estimate.value < high <= one.max()
  alone = statistics.estimate(statistics.mean, X[:, :1], resampled='levels')
  assert alone.ci95 is None


def test_levels_of_a_curve_are_the_same_at_all_points() -> None:
  curve = np.stack([X, X + 1, X + 2])
  estimate = statistics.estimate(
    statistics.iqm, curve, resampled='levels', resamples=200
  )
  np.testing.assert_allclose(np.diff(estimate.low), 1)
  np.testing.assert_allclose(np.diff(estimate.high), 1)


def test_other_numbers_of_levels_are_an_error() -> None:
  with pytest.raises(ValueError, match=r'samples have \[4, 3\]'):
    statistics.estimate(statistics.difference, X, Y[:, :3], resampled='levels')


def test_difference_by_hand() -> None:
  # Means of X: 2 and 5; of Y: 1 and 3.
  x, y = np.array([[1.0, 4.0], [3.0, 6.0]]), np.array([[1.0, 3.0]])
  assert statistics.difference(x, y) == (1.0 + 2.0) / 2


def test_discoveries_by_hand() -> None:
  # The mean is 0.52, the standard deviation 0.0557, and t of two degrees of
  # freedom 4.303: 0.52 +- 4.303 * 0.0557 / sqrt(3).
  estimate = statistics.across_discoveries([0.58, 0.51, 0.47])
  assert estimate.value == pytest.approx(0.52)
  assert estimate.ci95 == pytest.approx([0.3817, 0.6583], abs=1e-4)
  assert statistics.across_discoveries([0.58]).ci95 is None


def test_two_recipes_differ_by_the_interval_of_welch() -> None:
  x, y = [0.5, 0.7, 0.6, 0.9], [0.1, 0.4, 0.3]
  found = statistics.between_recipes(x, y)
  expected = scipy.stats.ttest_ind(x, y, equal_var=False)
  interval = expected.confidence_interval(0.95)
  assert found.ci95 is not None
  np.testing.assert_allclose(found.ci95, [interval.low, interval.high])
  # A single rule is given, as for `across_discoveries`.
  one = statistics.between_recipes(x, [0.2])
  of_recipe = statistics.across_discoveries(np.subtract(x, 0.2))
  np.testing.assert_allclose(one.ci95, of_recipe.ci95)
  assert statistics.between_recipes([0.5], [0.2]).ci95 is None
