"""Suites: lists of names of environments, for populations and evaluations.

How to add one: see families.py.
"""

from disco_rl.environments.host import atari
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.environments.jax_native import random_grids

# Name of a suite -> names of its environments for `registry.make`.
SUITES = {
  'atari57': tuple(f'atari/{game}' for game in atari.GAMES),
  'procgen16': tuple(f'procgen/{game}' for game in procgen.GAMES),
  'dmlab30': tuple(f'dmlab/{level}' for level in dmlab.LEVELS),
  'gridworld57': gridworld_tasks.training_names(),
  'gridworld_held_out': gridworld_tasks.held_out_names(),
  # The last two groups.
  'gridworld_held_out_chains': sum(gridworld_tasks.groups()[-2:], ()),
  'lpg5': tuple(f'lpg/{task}' for task in random_grids.LPG_TASKS),
  'minatar': tuple(f'minatar/{game}' for game in gymnax_adapter.MINATAR),
  'bsuite': tuple(f'bsuite/{task}' for task in gymnax_adapter.BSUITE),
}


def expand(name: str) -> tuple[str, ...]:
  """Returns the names of a suite's environments.

  Args:
    name: name of a suite, or of an environment, which is returned unchanged:
      `registry.validate` checks it.
  """
  return SUITES.get(name, (name,))
