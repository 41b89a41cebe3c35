"""Discovers a rule in grid worlds and on Catch boards, on two CPU cores.

  python -m launch.meta_train --config=configs/meta_gridworld.py \
    --workdir=runs/meta_gridworld

A population over tasks of two kinds: small grid worlds with objects that pay,
punish, end the episode or reappear (one program for all of them, as they
stack), and Catch. Fresh agents try the rule on tasks of kinds that it was not
discovered on: chains that pay late, and a larger board.

1,500 meta-steps took 14 minutes on two CPU cores, of which 1.4 compiling. Five
fresh agents learn chains that pay late with the rule that it exports, a kind of
task that the rule has never seen:

  python -m launch.evaluate --config=configs/evaluate.py:quickstart \
    --config.rule=runs/meta_gridworld/rule.npz \
    --config.environment=gridworld/43 --config.unroll_length=16 \
    --workdir=runs/chain
"""

import ml_collections

from configs import quickstart

# Tabular 5x5 tasks that an agent can solve within a short life.
TASKS = tuple(f'gridworld/{i:02d}' for i in (0, 1, 3, 5, 9, 10, 14, 20))


def get_config() -> ml_collections.ConfigDict:
  """Sixteen agents: eight grid worlds, eight times Catch."""
  config = quickstart.get_config()
  config.environments = ','.join(f'{task},catch/4x3' for task in TASKS)
  config.agents = 2 * len(TASKS)
  config.meta_steps = 1500
  config.meta_decay_steps = 0  # Its learning rate stays.
  config.checkpoint_every = 100
  config.unroll_length = 16
  config.budgets = (160_000,)
  config.held_out_environments = 'gridworld/43,gridworld/held_out_00,catch/6x5'
  config.held_out_every = 250
  config.held_out_updates = 200
  return config
