"""The choice of a discovery's rule, against a search over all evaluations."""

import jax
import numpy as np
import pytest

from disco_rl.meta_training import selection as selection_lib

NAN = float('nan')


def select(scores: list[float]) -> selection_lib.Selection:
  """Adds evaluations of rules that hold their own number."""
  selection = None
  for i, x in enumerate(scores):
    # Through a checkpoint each time, as if the run were resumed.
    selection = selection_lib.from_tree(selection_lib.to_tree(selection))
    returns = {'own': np.array([x - 1.0, x + 1.0])}
    rule = {'layer': {'w': np.full(2, i, np.float32)}}
    selection = selection_lib.add(selection, rule, returns, 10 * i, i, 0.5 * i)
  assert selection is not None
  return selection


@pytest.mark.parametrize(
  ('scores', 'chosen'),
  [
    ([1.0], 0),
    ([1.0, 2.0], 1),  # Both have the mean 1.5: the newest one.
    ([0.0, 0.0, 9.0, 0.0, 4.0, 5.0, 5.0, 4.0], 6),  # 14 / 3 before 13 / 3.
    ([5.0, 5.0, 0.0, 0.0], 0),  # 5, 10 / 3, 5 / 3, 0.
    ([3.0, NAN, 3.0, 4.0], 3),
    ([NAN, 2.0, NAN], 1),
    ([NAN, NAN], 1),
  ],
)
def test_the_best_smoothed_score_is_chosen(
  scores: list[float], chosen: int
) -> None:
  selection = select(scores)
  found = selection.chosen
  assert (found.number, found.meta_step) == (chosen, 10 * chosen)
  assert (found.environment_steps, found.seconds) == (chosen, 0.5 * chosen)
  np.testing.assert_array_equal(found.rule['layer']['w'], chosen)
  assert selection.evaluations_since == len(scores) - 1 - chosen


@pytest.mark.parametrize('seed', range(20))
def test_two_candidates_are_enough(seed: int) -> None:
  scores = np.random.default_rng(seed).normal(size=12).tolist()
  for count in range(1, 13):
    known = scores[:count]
    smoothed = [np.mean(known[max(i - 1, 0) : i + 2]) for i in range(count)]
    newest_best = count - 1 - np.argmax(smoothed[::-1])
    assert select(known).chosen.number == newest_best


def test_returns_are_normalized() -> None:
  """Catch's -1 to 1 become 0 to 1; returns without references remain."""
  returns = {'catch/4x3': np.array([0.0, 1.0]), 'own': np.array([3.0])}
  assert selection_lib.score(returns) == pytest.approx((0.75 + 3.0) / 2)
  # Sokoban's references are shares of solved levels.
  assert selection_lib.score({'sokoban': np.array([-12.0])}) == -12.0


def test_parameters_are_copied() -> None:
  rule = {'layer': {'w': np.zeros(2, np.float32)}}
  selection = selection_lib.add(None, rule, {'own': np.ones(1)}, 1, 1, 1.0)
  rule['layer']['w'] += 1.0
  np.testing.assert_array_equal(jax.tree.leaves(selection.chosen.rule)[0], 0.0)
