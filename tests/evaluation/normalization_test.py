"""Tests of the scales: the tables are complete, and are applied correctly."""

import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments import suites
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.evaluation import normalization
from disco_rl.evaluation import reference_scores
from disco_rl.maths import statistics

SCALED = (
  *suites.SUITES['atari57'],
  *suites.SUITES['procgen16'],
  *suites.SUITES['dmlab30'],
  *(f'procgen/easy/{game}' for game in procgen.GAMES),
  *gridworld_tasks.RETURNS,
  *(f'minatar/{game}' for game in gymnax_adapter.MINATAR_RETURNS),
  'catch',
  'catch/6x5',
  'crafter',
  'sokoban',
  'sokoban/held_out',
)


@pytest.mark.parametrize(
  'environment, value, score',
  [
    # (2 - 1.7) / (30.5 - 1.7), and Disco57's figure in the paper's text.
    ('atari/breakout', 2.0, 0.3 / 28.8),
    ('atari/ms_pacman', 101_876, 101_568.7 / 6644.3),
    ('procgen/starpilot', 35.0, 1.0),
    ('procgen/easy/starpilot', 33.25, 0.5),
    ('procgen/fruitbot', -0.5, 0.0),
    ('gridworld/00', 1.0, 1.0),
    ('gridworld/held_out_01', -0.84, 0.0),
    ('catch/6x5', 0.5, 0.75),
    ('crafter', 14.3, 1.0),
    ('minatar/breakout', 28.0, 1.0),
    ('sokoban', 0.4, 0.4),
    # (29.0325 - 4.065) / (54 - 4.065)
    ('dmlab/rooms_watermaze', 29.0325, 0.5),
    # (9 - 0.073) / (10 - 0.073), in both variants.
    ('dmlab/rooms_collect_good_objects', 9.0, 8.927 / 9.927),
    ('dmlab/rooms_collect_good_objects_test', 9.0, 8.927 / 9.927),
    # By Extended Data Table 3, not as the authors of IMPALA have it.
    ('dmlab/lasertag_three_opponents_small', 31.5, 1.0),
  ],
)
def test_scores(environment: str, value: float, score: float) -> None:
  scale = normalization.find_scale(environment)
  assert scale is not None
  assert scale.normalize(value) == pytest.approx(score)
  np.testing.assert_allclose(scale.normalize([value, value]), [score, score])


@pytest.mark.parametrize('environment', SCALED)
def test_scales_rise(environment: str) -> None:
  scale = normalization.find_scale(environment)
  assert scale is not None
  assert scale.low < scale.high


def test_all_of_minatar_but_seaquest_has_references() -> None:
  minatar = {f'minatar/{game}' for game in gymnax_adapter.MINATAR_RETURNS}
  assert set(suites.SUITES['minatar']) - minatar == {'minatar/seaquest'}


def test_hard_and_easy_levels_are_not_averaged() -> None:
  hard, other, easy = (
    normalization.find_scale(f'procgen/{name}')
    for name in ('bigfish', 'coinrun', 'easy/bigfish')
  )
  assert hard and other and easy
  assert hard.benchmark == other.benchmark != easy.benchmark


@pytest.mark.parametrize(
  'environment',
  ['nethack/challenge', 'gymnasium/CartPole-v1', 'minatar/seaquest', 'dmlab/x'],
)
def test_without_references_returns_are_raw(environment: str) -> None:
  assert normalization.find_scale(environment) is None
  benchmark = normalization.alone(environment)
  assert benchmark.name == environment
  assert 'raw' in benchmark.title
  assert normalization.column(environment) == 'return'


@pytest.mark.parametrize('boxes', range(1, 8))
def test_a_threshold_separates_solved_sokoban_from_unsolved(boxes: int) -> None:
  threshold = registry.success_threshold('sokoban')
  assert threshold is not None
  # After 120 steps: the only box on its target; all boxes but one.
  worst_solution = 1 + 10 - 0.1 * 120
  best_failure = (boxes - 1) - 0.1 * 120
  assert best_failure < threshold < worst_solution
  assert normalization.column('sokoban') == 'success'


def test_published_scores_name_known_environments_and_benchmarks() -> None:
  names = {
    *(name for suite in suites.SUITES.values() for name in suite),
    'atari',
    'crafter',
    'nethack/challenge',
    *(f'dmlab/{level}' for level in dmlab.TEST_LEVELS),
  }
  assert {published.subject for published in reference_scores.PAPER} <= names


@pytest.mark.parametrize(
  'suite, method, expected',
  [
    # The text has 13.86: pooled over seeds, presumably.
    ('atari57', 'Disco57', 14.641),
    ('procgen16', 'Disco103', 0.957),
    ('dmlab30', 'Disco103', 0.618),
  ],
)
def test_tables_of_the_paper_are_complete(
  suite: str, method: str, expected: float
) -> None:
  scores = []
  for name in suites.SUITES[suite]:
    (value,) = (
      p.value
      for p in reference_scores.PAPER
      if p.method == method and p.subject.removesuffix('_test') == name
    )
    scale = normalization.find_scale(name)
    assert scale is not None
    scores.append(scale.normalize(value))
  assert statistics.iqm(np.array(scores)[None]) == pytest.approx(
    expected, abs=1e-3
  )
