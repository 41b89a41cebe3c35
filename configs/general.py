"""Improves a policy gradient rule on random tasks, with different agents.

  disco-rl meta-train --config=general \
    --workdir=runs/general

Discovery starts from a rule that imitates the policy gradient, or from an
untrained rule with --config.rule=untrained. To discover a general rule at small
scale, it follows LPG and GROOVE: in each lifetime, every agent has a new grid
world, chain or Catch board, and its own learning rate and length of the
lifetime. The rule is evaluated on tasks that agents do not draw: grid worlds
and a chain with fixed numbers, a chain of the grid-world suite, and a larger
board of Catch. None of them is a test of configs/protocol.py.

The same command resumes an interrupted run.
"""

import ml_collections

from configs import quickstart
from disco_rl.agent import sizes

# Half of the agents in grid worlds, a quarter in chains, a quarter on a board.
TASKS = ('random_grid', 'random_chain', 'random_grid', 'catch/4x3')
HELD_OUT = (
  'random_grid/0',
  'random_grid/17',
  'random_chain/1',
  'gridworld/43',
  'catch/5x4',
)

# Chains take up to 50 steps, and returns in grid worlds reach about 30.
AGENT = {
  **quickstart.AGENT,
  'unroll_length': sizes.SMALL['unroll_length'],
  'discount': 0.99,
  'max_abs_value': 5.0,
  'num_bins': 61,
}


def get_config() -> ml_collections.ConfigDict:
  """Returns the settings: thirty-two agents in three groups."""
  config = quickstart.get_config()
  config.environments = ','.join(TASKS)
  config.agents = 8 * len(TASKS)
  config.rule = 'imitation'
  config.rule_prediction_size = 32
  # With 16, as elsewhere, the second seed hardly improved in 600 meta-steps.
  config.rule_policy_target_channels = (64,)
  # After that, agents learn more slowly; see the table in docs/discover.md.
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
  return config
