"""Suites: lists of names of environments, for populations and evaluations.

The docstring of families.py describes how to add one.
"""

import itertools
from typing import Annotated

from disco_rl import config as config_lib
from disco_rl.environments.host import atari
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import procgen
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import gymnax_adapter
from disco_rl.environments.jax_native import random_grids

# Name of a suite -> the names of its environments, for `registry.make`.
SUITES = {
  'atari57': tuple(f'atari/{game}' for game in atari.GAMES),
  'procgen16': tuple(f'procgen/{game}' for game in procgen.GAMES),
  'dmlab30': tuple(f'dmlab/{level}' for level in dmlab.LEVELS),
  'gridworld57': gridworld_tasks.TRAINING,
  'gridworld_held_out': gridworld_tasks.HELD_OUT,
  # The last two groups.
  'gridworld_held_out_chains': sum(gridworld_tasks.GROUPS[-2:], ()),
  'lpg5': tuple(f'lpg/{task}' for task in random_grids.LPG_TASKS),
  'minatar': tuple(f'minatar/{game}' for game in gymnax_adapter.MINATAR),
  'bsuite': tuple(f'bsuite/{task}' for task in gymnax_adapter.BSUITE),
}


def expand(name: str) -> tuple[str, ...]:
  """Returns the names of a suite's environments; other names are unchanged."""
  return SUITES.get(name, (name,))


def _expand_all(names: object) -> object:
  """Replaces suites by their environments."""
  if not isinstance(names, tuple) or not all(isinstance(x, str) for x in names):
    return names  # Invalid; the check of the setting reports it.
  return tuple(itertools.chain(*map(expand, names)))


def listed(names: str) -> tuple[str, ...]:
  """Splits names of environments and suites at commas, and expands them."""
  return config_lib.converted(names, Names)


# A setting: names of environments and suites, which are expanded.
Names = Annotated[tuple[str, ...], config_lib.Converter(_expand_all)]
