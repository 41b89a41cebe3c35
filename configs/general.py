"""Discovers rules on random tasks, with different agents.

  disco-rl meta-train --config=general \
    --workdir=runs/general

Discovery starts from a rule that imitates the policy gradient. This command
starts from an untrained rule, with a population for a GPU, as measured in
docs/experiments.md:

  disco-rl meta-train --config=general:untrained \
    --workdir=runs/from_nothing

To discover a general rule at small scale, this config follows LPG and GROOVE:
in each lifetime, every agent has a new grid world or chain, or plays Catch, and
has its own learning rate and length of the lifetime. The rule is evaluated on
tasks that agents do not draw: grid worlds and a chain with fixed numbers, a
chain of the grid-world suite, and a larger board of Catch. None of them is a
test of configs/protocol.py.

The same command resumes an interrupted run.
"""

from typing import Any

import ml_collections

from configs import quickstart
from configs import records
from disco_rl.agent import sizes

# Half of the agents in grid worlds, a quarter in chains, a quarter on a board.
TASKS = ('random_grid', 'random_chain', 'random_grid', 'catch/4x3')
# On boards of two rows a reward follows each action, so discovery begins even
# from an untrained rule.
UNTRAINED_TASKS = (*TASKS[:3], 'random_catch')
HELD_OUT = (
  'random_grid/0',
  'random_grid/17',
  'random_chain/1',
  'gridworld/43',
  'catch/6x5',
)

# Chains take up to 50 steps, and returns in grid worlds reach about 30.
AGENT = {
  **quickstart.AGENT,
  'unroll_length': sizes.SMALL['unroll_length'],
  'discount': 0.99,
  'max_abs_value': 5.0,
  'num_bins': 61,
}

# Name after the colon -> changes of the settings.
VARIANTS: dict[str, dict[str, Any]] = {
  'imitation': {},
  'untrained': {
    'rule': 'untrained',
    'environments': ','.join(UNTRAINED_TASKS),
    'agents': 64,
    'chunk_size': 32,
    'rule_prediction_size': 0,
    'meta_steps': 1430,
    'meta_decay_steps': 1430,
    'meta_learning_rate': 2e-3,
    'policy_entropy_cost': 1e-2,
    'checkpoint_every': 150,
  },
}


def get_config(variant: str = 'imitation') -> ml_collections.ConfigDict:
  """Returns the settings of a variant: agents in three groups."""
  changes = records.variant('general', VARIANTS, variant)
  config = quickstart.get_config()
  config.environments = ','.join(TASKS)
  config.agents = 8 * len(TASKS)
  config.rule = 'imitation'
  config.rule_prediction_size = 32
  # With 16, as elsewhere, the second seed hardly improved in 600 meta-steps.
  config.rule_policy_target_channels = (64,)
  # After that, agents learn more slowly; see the table in docs/experiments.md.
  config.meta_steps = 120
  config.meta_decay_steps = config.meta_steps
  # With larger steps or lower costs, policies become deterministic within about
  # 100 meta-steps, and agents no longer explore.
  config.meta_learning_rate = 1e-4
  config.policy_entropy_cost = 0.1
  config.checkpoint_every = 20
  config.update(AGENT)

  # About 170 to 700 updates, each length with the same fraction of all steps.
  config.budgets = (100_000, 200_000, 400_000)
  config.learning_rate_range = (3e-3, 1.5e-2)

  config.held_out_environments = ','.join(HELD_OUT)
  config.held_out_every = 40
  config.held_out_updates = 200
  config.update(changes)
  return config
