"""The rules that ship with the package teach agents what they have not seen."""

import dataclasses
import itertools
import pathlib
import re

import numpy as np
import pytest

from configs import general
import disco_rl
from disco_rl.update_rules import sources

UPDATES = 160
NAMES = sources.shipped()
README = pathlib.Path(__file__).parents[2] / 'README.md'
PROTOCOL = README.parent / 'docs' / 'protocol.md'


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


def protocol_scores() -> dict[str, str]:
  """Rule -> its score and interval in grid worlds after 60,000 steps."""
  begin = '<!-- made by docs/generate.py: protocol random_grid -->'
  _, table = PROTOCOL.read_text(encoding='utf-8').split(begin, 1)
  rows = [line.split('|') for line in table.strip().splitlines()[2:]]
  rows = list(itertools.takewhile(lambda row: len(row) > 1, rows))
  return {row[1].strip(' `'): row[3].strip() for row in rows}


@pytest.mark.parametrize('name', NAMES)
def test_the_card_has_scores_of_the_protocol(name: str) -> None:
  scores = protocol_scores()
  description = disco_rl.rules()[name].description
  found = re.findall(
    r'(?:those of (\w+)|agents score) (\S+ \[.*?\])', description
  )
  assert found == [(x, scores[x or name]) for x, _ in found]
  assert found[0][0] == '' and len(found) > 1
  assert len(found) == description.count('[')


def test_the_readme_has_scores_of_the_protocol() -> None:
  scores = protocol_scores()
  (bullet,) = re.findall(
    r'^- \*\*A discovered rule .*?(?=^- )', README.read_text(), re.M | re.S
  )
  of_names = ('general', 'ppo', 'actor_critic')
  assert re.findall(r'\d\.\d\d', bullet) == [
    scores[name].split()[0] for name in of_names
  ]
  assert bullet.index('general') < bullet.index('PPO') < bullet.index('actor-')
