"""The rules that ship with the package teach agents what they have not seen."""

import numpy as np
import pytest

from configs import general
import disco_rl
from disco_rl.update_rules import sources

UPDATES = 160
OF_RULE = ('num_bins', 'max_abs_value', 'q_cost', 'discount')
NAMES = sorted(path.stem for path in sources.SHIPPED.glob('*.npz'))


@pytest.mark.parametrize('name', NAMES)
def test_a_shipped_rule_solves_a_task_that_it_has_not_seen(name: str) -> None:
  card = disco_rl.rules()[name]
  assert 'catch/4x4' not in card.environments
  settings = {key: card.settings[key] for key in general.AGENT}
  of_rule = {key: settings.pop(key) for key in OF_RULE}
  settings['learning_rate'] = 1e-2
  rule = disco_rl.load_rule(name, **of_rule)
  trainer = disco_rl.Trainer('catch/4x4', rule, **settings)
  metrics = trainer.train(UPDATES, log_every=10, show_progress=False)
  returns = metrics['return']
  # A random policy returns about -0.55, the best 1.
  assert returns[0] < 0.2
  assert np.mean(returns[-3:]) > 0.7
  assert np.isfinite(returns).all()
