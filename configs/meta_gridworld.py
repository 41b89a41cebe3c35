"""Discovers a rule in grid worlds and on Catch boards, on two CPU cores.

  disco-rl meta-train --config=meta_gridworld \
    --workdir=runs/meta_gridworld

The population trains on two kinds of tasks: small grid worlds, whose objects
give positive or negative rewards, end the episode or reappear (they share one
program), and Catch. The rule is evaluated on other tasks: a chain with a
delayed reward, a slippery grid world, and a larger board.

1,500 meta-steps took 14 minutes on two CPU cores, including 1.4 minutes of
compilation. With the exported rule, five new agents learn chains with delayed
rewards, a kind of task that is not part of discovery:

  disco-rl evaluate --config=quickstart \
    --config.rule=runs/meta_gridworld/rule.npz \
    --config.environment=gridworld/43 --config.unroll_length=16 \
    --workdir=runs/chain

--config.environment selects another task. To use the untrained rule that
discovery started from, set --config.rule=runs/meta_gridworld/initial_rule.npz.
"""

import ml_collections

from configs import quickstart

# Tabular 5x5 tasks that an agent solves within a short lifetime.
TASKS = tuple(f'gridworld/{i:02d}' for i in (0, 1, 3, 5, 9, 10, 14, 20))


def get_config() -> ml_collections.ConfigDict:
  """Returns the settings: eight agents in grid worlds, eight in Catch."""
  config = quickstart.get_config()
  config.environments = ','.join(f'{task},catch/4x3' for task in TASKS)
  config.agents = 2 * len(TASKS)
  config.rule_prediction_size = 32
  config.policy_entropy_cost = 3e-3
  config.meta_steps = 1500
  config.meta_decay_steps = 0  # A constant learning rate.
  config.average_rule = False  # As in the table in the docs.
  config.checkpoint_every = 100
  config.unroll_length = 16
  config.budgets = (160_000,)
  config.held_out_environments = 'gridworld/43,gridworld/held_out_00,catch/6x5'
  config.held_out_every = 250
  config.held_out_updates = 200
  return config
