"""The rules that ship with the package teach agents what they have not seen."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest

from configs import general
import disco_rl
from disco_rl.update_rules import sources

UPDATES = 160
NAMES = sources.shipped()
EXPERIMENTS = pathlib.Path(__file__).parents[2] / 'docs' / 'experiments.md'


@pytest.mark.parametrize(
  'name',
  [
    name if name == 'general' else pytest.param(name, marks=pytest.mark.slow)
    for name in NAMES
  ],
)
def test_a_shipped_rule_solves_a_task_that_it_has_not_seen(name: str) -> None:
  card = disco_rl.rules()[name]
  assert 'catch/4x4' not in card.environments
  rule = disco_rl.load_rule(name)
  of_rule = dataclasses.asdict(rule.rule)
  settings = {x: card.settings[x] for x in {*general.AGENT} - {*of_rule}}
  settings['learning_rate'] = 1e-2
  trainer = disco_rl.Trainer('catch/4x4', rule, **settings)
  metrics = trainer.train(UPDATES, log_every=10, show_progress=False)
  returns = metrics['return']
  # A random policy returns about -0.55, the best 1.
  assert returns[0] < 0.2
  assert np.mean(returns[-3:]) > 0.7
  assert np.isfinite(returns).all()


@pytest.mark.parametrize('name', NAMES)
def test_the_card_has_the_settings_of_a_shipped_rule(name: str) -> None:
  rule = disco_rl.load_rule(name, lambda_=0.5).rule
  assert (rule.num_bins, rule.max_abs_value) == (61, 5.0)
  assert (rule.discount, rule.q_cost, rule.lambda_) == (0.99, 0.5, 0.5)


@pytest.mark.parametrize('name', NAMES)
def test_the_card_has_scores_of_the_protocol(name: str) -> None:
  _, section = EXPERIMENTS.read_text().split('## The rules that ship', 1)
  table = next(x for x in section.split('\n\n') if x.startswith('| rule |'))
  rows = [line.split('|') for line in table.splitlines()]
  # In grid worlds, after 500 updates; without 'four updates of each rollout'.
  scores = {
    row[1].removesuffix(', four updates of each rollout ').strip(' `'): (
      row[3].strip()
    )
    for row in rows
  }
  description = disco_rl.rules()[name].description
  (score,) = re.findall(r'agents score ([-.0-9]+ \[.*?\])', description)
  assert score == scores[name]
  # Measured later than the table: with normalized advantages.
  (normalized,) = re.findall(
    r'actor-critic scores\s+([.0-9]+ \[.*?\]) in the 16 grid worlds', section
  )
  of_others = re.findall(r'those of ([\w-]+).*?([.0-9]+ \[.*?\])', description)
  for other, score in of_others:
    assert score == (normalized if other == 'actor-critic' else scores[other])
  intervals = re.findall(r'[-.0-9]+ \[.*?\]', description)
  assert {*intervals} <= {*scores.values(), normalized}
  # Neither is named without the other.
  assert (normalized in intervals) == (scores['actor-critic'] in intervals)
