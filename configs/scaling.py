"""Tests at a small size whether more environments improve rules (Fig. 3b).

  disco-rl sweep --config=scaling \
    --variants=grids_1,grids_4,grids_16,grids_64,grids_all --seeds=3 \
    --workdir=runs/scaling

This command discovers rules from untrained ones, on 1, 4, 16, 64 and all random
grid worlds, with equally many steps, and compares the returns of new agents in
five others. GROOVE (Jackson et al., 2023) varies the number of its levels in
this way. docs/experiments.md has scores in twenty more.

The grid worlds of each variant include those of the previous one. An agent
draws one of them in each of its lifetimes.
"""

from typing import Any

import ml_collections

from configs import general
from configs import protocol
from configs import records

# In grid worlds alone, discovery had not begun after 350 meta-steps: agents
# that act at random rarely find rewards.
CATCH = 'catch/4x3'
# Name after the colon -> changes of the defaults.
VARIANTS: dict[str, dict[str, Any]] = {
  **{
    f'grids_{size}': {'environments': f'random_grid/of_{size},{CATCH}'}
    for size in (1, 4, 16, 64)
  },
  'grids_all': {'environments': f'random_grid,{CATCH}'},
}
# Grid worlds that are neither met in discovery nor evaluated along it.
TESTS = tuple(f'random_grid/{i}' for i in range(20))
_HELD_OUT = tuple(x for x in protocol.VALIDATION if x.startswith('random_grid'))


def get_config(variant: str = 'grids_all') -> ml_collections.ConfigDict:
  """Returns the settings of a variant by name."""
  changes = records.variant('scaling', VARIANTS, variant)
  config = general.get_config()
  config.rule = 'untrained'
  config.agents = 8
  config.num_bins = 31
  config.rule_prediction_size = 0
  # Short lifetimes: agents meet many grid worlds.
  config.budgets = (50_000, 100_000, 200_000)
  config.meta_steps = 500
  config.meta_decay_steps = config.meta_steps
  config.meta_learning_rate = 2e-3
  config.policy_entropy_cost = 1e-2
  config.checkpoint_every = 100
  config.held_out_environments = ','.join(_HELD_OUT)
  config.held_out_every = 250
  config.held_out_updates = 300
  config.cpu_devices = 1
  config.update(changes)
  return config
