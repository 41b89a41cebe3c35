"""Profiles and probabilities of improvement where scores are equal.

All scores and thresholds are exact in binary, so that equal means equal.
"""

import numpy as np
import pytest

from disco_rl.evaluation import statistics

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


def test_a_profile_of_equal_scores_is_a_step() -> None:
  scores = np.full((4, 3), 0.5)
  thresholds = np.array([np.nextafter(0.5, 0.0), 0.5, np.nextafter(0.5, 1.0)])
  profile = statistics.performance_profile(scores, thresholds)
  np.testing.assert_array_equal(profile, [1.0, 0.0, 0.0])


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
