"""Comparisons of labeled runs, against means worked out by hand."""

from collections.abc import Mapping

import numpy as np
import pytest

from disco_rl.evaluation import contrasts
from disco_rl.evaluation import normalization

STEPS = np.array([500.0, 1000.0])


def label(
  name: str, last: Mapping[tuple[str, str], list[float]]
) -> contrasts.Label:
  """Agents whose values at the end are given; before, they are half of them."""
  curves = {
    of: (STEPS, np.array(values)[:, None] * [0.5, 1.0])
    for of, values in last.items()
  }
  return contrasts.Label(name, curves)


A = label('a', {('r', 'chain'): [2.0, 4.0, 6.0], ('r', 'catch'): [3, 5, 7]})


def test_values_over_levels() -> None:
  assert A.environments == ['catch', 'chain']
  assert A.rules == ['r']
  steps, values = A.over_levels('r')
  assert steps.tolist() == [500, 1000]
  # By agent, level and point.
  assert values[1].tolist() == [[2.5, 5.0], [2.0, 4.0]]
  assert A.scores('r').tolist() == [[3, 2], [5, 4], [7, 6]]
  assert A.is_known
  assert not label('c', {('r', 'x'): [1.0], ('s', 'x'): [np.nan]}).is_known


def test_runs_that_do_not_fit_are_refused() -> None:
  lacking = label(
    'c', {('r', 'x'): [1.0], ('r', 'y'): [1.0], ('s', 'x'): [1.0]}
  )
  with pytest.raises(ValueError, match='c has no run of s in y, but in x: '):
    lacking.over_levels('s')
  uneven = label('c', {('r', 'x'): [1.0, 2.0], ('r', 'y'): [1.0]})
  message = 'c has 1 agents until 1,000 steps in y, but 2 agents until 1,000 '
  with pytest.raises(ValueError, match=message):
    uneven.over_levels('r')
  longer = contrasts.Label(
    'c', {**lacking.curves, ('s', 'y'): (2 * STEPS, np.ones((1, 2)))}
  )
  message = 'c has 1 agents until 2,000 steps in y, but 1 agents until 1,000 '
  with pytest.raises(ValueError, match=message):
    longer.over_levels('s')


def test_returns_are_normalized() -> None:
  scale = normalization.find_scale('catch')
  assert scale is not None
  steps, scores = contrasts.normalize(
    'catch', (STEPS, np.array([[scale.low, scale.high]]))
  )
  assert steps is STEPS
  np.testing.assert_allclose(scores, [[0, 1]])
  with pytest.raises(ValueError, match='^gymnasium/A-v0 has no scale on which'):
    contrasts.normalize('gymnasium/A-v0', (STEPS, np.ones((1, 2))))
  # Its scale is that of successes.
  assert normalization.find_scale('sokoban') is not None
  with pytest.raises(ValueError, match='^sokoban has no scale on which'):
    contrasts.normalize('sokoban', (STEPS, np.ones((1, 2))))


def test_curves_of_agents_and_of_discoveries() -> None:
  steps, values = contrasts.curve(A, 'levels')
  assert steps.tolist() == [500, 1000]
  np.testing.assert_allclose(values, [[1.25, 2.5], [2.25, 4.5], [3.25, 6.5]])
  of_two = {('r', 'x'): [1.0, 3.0], ('s', 'x'): [5.0, 9.0]}
  steps, values = contrasts.curve(label('c', of_two), 'discoveries')
  assert steps.tolist() == [500, 1000]
  np.testing.assert_allclose(values, [[1, 2], [3.5, 7]])
  others = label('c', of_two).curves | {
    ('s', 'x'): (2 * STEPS, np.ones((2, 2)))
  }
  with pytest.raises(
    ValueError, match='^c has discoveries with metrics at diff'
  ):
    contrasts.curve(contrasts.Label('c', others), 'discoveries')


def test_a_table_over_levels() -> None:
  """Agents are equal; the difference is 3 in each of two levels."""
  equal = label('a', {('r', 'x'): [4.0, 4.0], ('r', 'y'): [5.0, 5.0]})
  other = label('bb', {('s', 'y'): [2.0, 2.0], ('s', 'x'): [1.0, 1.0]})
  count = '  after 1,000 environment steps, 2 agents in 2 environments'
  assert [*contrasts.table([equal, other], 'levels')] == [
    'Mean score, [95% interval] over levels (other levels like these; all '
    'labels meet the same):',
    f'  a   4.5 [4, 5]{count}',
    f'  bb  1.5 [1, 2]{count}',
    'a minus bb: 3 [3, 3]',
  ]
  _, *shown, _ = contrasts.table([equal, other], 'agents')
  assert shown == [
    f'  a   4.5 [4.5, 4.5]{count}',
    f'  bb  1.5 [1.5, 1.5]{count}',
  ]


def test_a_table_of_one_environment() -> None:
  others = label('c', {('r', 'y'): [1.0, 1.0]})
  same = label('d', {('r', 'y'): [0.25, 0.25]})
  unknown = label('e', {('r', 'y'): [np.nan, 1.0]})
  far = label('f', {('r', 'x'): [8.0, 8.0]})
  assert [*contrasts.table([others, unknown, same, far], 'agents')] == [
    'Mean return, [95% interval] over agents (other agents in these '
    'environments):',
    '  c  1 [1, 1]  after 1,000 environment steps, 2 agents in 1 environments',
    '  e  no episode of some agent has ended',
    '  d  0.25 [0.25, 0.25]  after 1,000 environment steps, 2 agents in 1 '
    'environments',
    '  f  8 [8, 8]  after 1,000 environment steps, 2 agents in 1 environments',
    'c minus d: 0.75 [0.75, 0.75]',
    'c and f have other environments: no difference.',
    'd and f have other environments: no difference.',
  ]


def test_a_table_over_discoveries() -> None:
  """Means 1, 2 and 3; t of two degrees of freedom is 4.3027."""
  three = label('c', {(f'r{i}', 'x'): [i, i] for i in (1, 2, 3)})
  one = label('d', {('s', 'x'): [0.5, 0.5]})
  header, of_three, of_one, difference = contrasts.table(
    [three, one], 'discoveries'
  )
  assert header.endswith('discoveries (other discoveries by the same recipe):')
  reach = 4.3027 / np.sqrt(3)
  assert of_three == (
    f'  c  2 [{2 - reach:.3g}, {2 + reach:.3g}]  after 1,000 environment '
    'steps, 2 agents in 1 environments of each of 3 discoveries'
  )
  assert of_one.startswith('  d  0.5 [one: no interval]  after 1,000')
  assert of_one.endswith('2 agents in 1 environments')
  assert difference.startswith('c minus d: 1.5 [')
