"""The grid-world suite: 57 tasks to train on, 18 held out.

  gridworld/00 .. 20            tabular, 5 x 5, 4 objects; the fastest
  gridworld/21 .. 42            image, 7 x 7, 6 objects
  gridworld/43 .. 56            chains of up to 24 steps
  gridworld/held_out_00 .. 17   other dynamics, layouts and sizes

All have five actions. The tasks of one group stack, so that one compiled
program maps over them; `groups` lists the groups. The training tasks are three
groups, one a line above; the held-out tasks 00 .. 02, 07 .. 09 and 13, 14 stack
with them:

  tasks = [make(variant) for variant in ...]
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *tasks)
  jax.vmap(lambda task, key: task.reset(key))(stacked, keys)
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
from typing import Any

from disco_rl.environments import base
from disco_rl.environments.jax_native import chain
from disco_rl.environments.jax_native import gridworld


@dataclasses.dataclass(frozen=True)
class _Group:
  """Tasks that stack.

  Attributes:
    build: with the arguments that determine shapes.
    tasks: the other arguments of `build`.
  """

  build: Callable[..., base.JaxEnvironment]
  tasks: Sequence[Mapping[str, Any]]


_tabular = functools.partial(gridworld.build, num_kinds=3, is_tabular=True)
_image = gridworld.build
_chain = functools.partial(chain.build, num_bits=8)

# Reward, termination, respawn.
_kind = gridworld.Kind
_GOAL = _kind(1.0, 1.0, 0.0)
_PIT = _kind(-1.0, 1.0, 0.0)
_COIN = _kind(1.0, 0.0, 0.0)
_FRUIT = _kind(1.0, 0.0, 0.1)
_WEED = _kind(-1.0, 0.0, 0.1)

# Layouts of 5 x 5.
_CORNER = """
  @....
  .....
  .....
  .....
  ....a"""
_ANYWHERE = """
  .....
  .....
  ..a..
  .....
  ....."""
_FIELD = """
  a...a
  .....
  ..@..
  .....
  a...a"""
_CROSS = """
  a...b
  .....
  ..@..
  .....
  b...a"""
_NEAR_AND_FAR = """
  .....
  .....
  b@..a
  .....
  ....."""
_HOOK = """
  @....
  .###.
  ..a#.
  ####.
  ....."""
_SNAKE = """
  @....
  ####.
  .....
  .####
  ....a"""
_TOLL = """
  @.#..
  ..#..
  ..b.a
  ..#..
  ..#.."""
_MINES = """
  @.b..
  ..b..
  .....
  .b...
  ....a"""
_CHAMBERS = """
  a.#.a
  ..#..
  .....
  ..#..
  b.#.b"""
_ENDS = """
  a....
  ####.
  @....
  ####.
  a...."""
_EXIT = """
  aa...
  a....
  .....
  .....
  @...b"""

_TABULAR_5X5 = (
  # One goal, then with a random start, then with a cost of each step.
  dict(layout=_CORNER, kinds=[_GOAL], step_limit=50),
  dict(layout=_ANYWHERE, kinds=[_GOAL], step_limit=20),
  dict(layout=_CORNER, kinds=[_GOAL], step_limit=40, step_reward=-0.05),
  # Many objects, which reappear soon, late or never.
  dict(layout=_FIELD, kinds=[_kind(1.0, 0.0, 0.3)], step_limit=20),
  dict(layout=_FIELD, kinds=[_kind(1.0, 0.0, 0.02)], step_limit=100),
  dict(layout=_FIELD, kinds=[_COIN], step_limit=30),
  # Good and bad objects side by side.
  dict(layout=_CROSS, kinds=[_FRUIT, _WEED], step_limit=30),
  dict(layout=_CROSS, kinds=[_FRUIT, _kind(-1.0, 0.5, 0.1)], step_limit=50),
  dict(layout=_CHAMBERS, kinds=[_FRUIT, _PIT], step_limit=60),
  # A small reward nearby, a large one farther away; either ends, or one does.
  dict(layout=_NEAR_AND_FAR, kinds=[_GOAL, _kind(0.3, 1, 0)], step_limit=20),
  dict(layout=_NEAR_AND_FAR, kinds=[_GOAL, _kind(0.2, 0, 0.5)], step_limit=40),
  dict(layout=_NEAR_AND_FAR, kinds=[_GOAL, _kind(0.05, 0, 1)], step_limit=10),
  # A risk of ending: safe and poor, or risky and rich.
  dict(
    layout=_CROSS,
    kinds=[_kind(1.0, 0.3, 0.3), _kind(0.2, 0.0, 0.3)],
    step_limit=40,
  ),
  dict(
    layout=_NEAR_AND_FAR,
    kinds=[_kind(0.5, 0.0, 0.2), _kind(1.0, 0.2, 0.5)],
    step_limit=50,
  ),
  # Walls in the way.
  dict(layout=_HOOK, kinds=[_GOAL], step_limit=40),
  dict(layout=_SNAKE, kinds=[_GOAL], step_limit=100),
  dict(layout=_SNAKE, kinds=[_GOAL], step_limit=60, step_reward=-0.01),
  # Bad objects in the way: a toll, and mines.
  dict(layout=_TOLL, kinds=[_GOAL, _kind(-0.3, 0.0, 0.0)], step_limit=40),
  dict(layout=_MINES, kinds=[_GOAL, _PIT], step_limit=40),
  # Far apart; each reappears while the agent fetches the other.
  dict(layout=_ENDS, kinds=[_kind(1.0, 0.0, 0.05)], step_limit=100),
  # The exit has a reward, but ends the episode before others are collected.
  dict(layout=_EXIT, kinds=[_kind(0.3, 0.0, 0.0), _GOAL], step_limit=30),
)

# Layouts of 7 x 7, or of 5 x 5 within. Where objects are placed at random, only
# their number matters.
_MEADOW = """
  a.....a
  .......
  .......
  a..@..a
  .......
  .......
  a.....a"""
_SMALL_MEADOW = """
  aa...
  .....
  ..@..
  .....
  ...aa"""
_SMALL_PLOTS = """
  aab..
  .....
  ..@..
  .....
  ..baa"""
_PLOTS = """
  a.....b
  .......
  ...c...
  ...@...
  ...c...
  .......
  b.....a"""
_PILLARS = """
  a.....b
  .#.#.#.
  .......
  .#.#.#.
  .......
  .#.#.#.
  b.....a"""
_ROOMS = """
  @..#..a
  ...#...
  .......
  #.###.#
  .......
  ...#...
  b..#..a"""
_CORRIDORS = """
  @.....b
  ######.
  a......
  .######
  ......b
  ######.
  a......"""
_RING = """
  a..b..a
  .#####.
  .#####.
  b#####b
  .#####.
  .#####.
  ...@..."""
_FORK = """
  a#...#a
  .#.#.#.
  .#.#.#.
  ...#...
  ##.#.##
  b..@..c
  #######"""
_VAULT = """
  .......
  .#####.
  .#aaa#.
  .#####.
  .......
  ...@...
  b.....b"""
_GATE = """
  ...#...
  ...#...
  ...#...
  @..b..a
  ...#...
  ...#...
  ...#..a"""
_GARDEN = """
  .......
  .a...a.
  ..bbb..
  .......
  ...@...
  .......
  ......c"""
_SCATTERED = """
  aab....
  bcc....
  .......
  .......
  .......
  .......
  ......."""
_LONE = """
  a......
  .......
  .......
  .......
  .......
  .......
  ......."""

_IMAGE_7X7 = (
  # One goal, in another place in each episode.
  dict(layout=_ANYWHERE, kinds=[_GOAL], step_limit=20, random_objects=True),
  dict(layout=_LONE, kinds=[_GOAL], step_limit=40, random_objects=True),
  dict(
    layout=_LONE,
    kinds=[_GOAL],
    step_limit=40,
    random_objects=True,
    step_reward=-0.02,
  ),
  # Many objects, in fixed and in random places.
  dict(layout=_SMALL_MEADOW, kinds=[_kind(1, 0, 0.3)], step_limit=20),
  dict(layout=_MEADOW, kinds=[_FRUIT], step_limit=50),
  dict(
    layout=_SMALL_MEADOW,
    kinds=[_kind(1, 0, 0.3)],
    step_limit=20,
    random_objects=True,
  ),
  dict(layout=_MEADOW, kinds=[_FRUIT], step_limit=50, random_objects=True),
  dict(layout=_MEADOW, kinds=[_COIN], step_limit=40, random_objects=True),
  # Good and bad objects, in fixed and in random places.
  dict(layout=_SMALL_PLOTS, kinds=[_FRUIT, _WEED], step_limit=30),
  dict(
    layout=_SMALL_PLOTS,
    kinds=[_FRUIT, _WEED],
    step_limit=30,
    random_objects=True,
  ),
  dict(
    layout=_PLOTS,
    kinds=[_FRUIT, _WEED, _kind(-1.0, 1.0, 0.0)],
    step_limit=60,
  ),
  dict(
    layout=_PLOTS,
    kinds=[_FRUIT, _WEED, _kind(-1.0, 0.3, 0.1)],
    step_limit=60,
    random_objects=True,
  ),
  # A risk of ending that rises with the reward.
  dict(
    layout=_SCATTERED,
    kinds=[_kind(0.2, 0, 0.2), _kind(0.5, 0.1, 0.2), _kind(1, 0.4, 0.2)],
    step_limit=60,
    random_objects=True,
  ),
  # Walls in the way.
  dict(layout=_PILLARS, kinds=[_FRUIT, _PIT], step_limit=60),
  dict(
    layout=_PILLARS,
    kinds=[_FRUIT, _WEED],
    step_limit=60,
    random_objects=True,
  ),
  dict(
    layout=_ROOMS,
    kinds=[_GOAL, _kind(0.1, 0.0, 0.0)],
    step_limit=60,
    random_objects=True,
  ),
  dict(
    layout=_CORRIDORS,
    kinds=[_kind(1.0, 0.0, 0.02), _kind(-0.3, 0.0, 0.1)],
    step_limit=100,
  ),
  # A round trip gives more reward than waiting; bad objects block one way.
  dict(
    layout=_RING,
    kinds=[_kind(1.0, 0.0, 0.05), _kind(-0.2, 0.0, 0.5)],
    step_limit=100,
  ),
  # Small rewards nearby end the episode, large ones are far away.
  dict(
    layout=_FORK,
    kinds=[_kind(1.0, 0.5, 0.0), _kind(0.2, 1, 0), _kind(0.1, 1, 0)],
    step_limit=50,
  ),
  # A closed vault: its objects are visible but out of reach.
  dict(layout=_VAULT, kinds=[_GOAL, _FRUIT], step_limit=40),
  # The gate costs, the objects behind it have rewards.
  dict(
    layout=_GATE,
    kinds=[_kind(1.0, 0.0, 0.03), _kind(-0.5, 0.0, 0.2)],
    step_limit=80,
  ),
  # The exit has the largest reward, but only once.
  dict(
    layout=_GARDEN,
    kinds=[_kind(0.3, 0, 0.05), _kind(-0.3, 0, 0.05), _kind(2.0, 1.0, 0.0)],
    step_limit=60,
  ),
)

# Payoffs by action; the first of two rows under cue 0, the second under cue 1.
_ONE_GOOD = [[1.0, -1.0, -1.0, -1.0, -1.0]] * 2
_ONE_BAD = [[1.0, 1.0, -1.0, 1.0, 1.0]] * 2
_TWO_MATTER = [[0.0, 1.0, 0.0, -1.0, 0.0]] * 2
_GRADED = [[-1.0, -0.5, 0.0, 0.5, 1.0]] * 2
_CUED = [[1.0, -1.0, 0.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0, 0.0]]
_CUED_GRADED = [[-1.0, -0.5, 0.0, 0.5, 1.0], [1.0, 0.5, 0.0, -0.5, -1.0]]

_CHAINS_24 = (
  # The delay grows.
  dict(payoff=_ONE_BAD, lengths=(3, 3)),
  dict(payoff=_GRADED, lengths=(5, 5)),
  dict(payoff=_ONE_GOOD, lengths=(10, 10)),
  dict(payoff=_TWO_MATTER, lengths=(20, 20)),
  # Of random length.
  dict(payoff=_ONE_GOOD, lengths=(3, 12)),
  dict(payoff=_GRADED, lengths=(5, 24)),
  # The cue determines the right action.
  dict(payoff=_CUED, lengths=(5, 5)),
  dict(payoff=_CUED_GRADED, lengths=(5, 15)),
  # Rewards and bits of noise.
  dict(payoff=_ONE_GOOD, lengths=(5, 10), noise=1.0),
  dict(payoff=_GRADED, lengths=(5, 10), bit_rate=0.5),
  dict(payoff=_TWO_MATTER, lengths=(10, 20), noise=0.3, bit_rate=0.5),
  dict(payoff=_CUED, lengths=(5, 15), noise=0.3, bit_rate=0.2),
  # An immediate reward costs more in the end.
  dict(payoff=_GRADED, lengths=(5, 10), lure=[0.9, 0.6, 0.3, 0.0, 0.0]),
  dict(payoff=_ONE_GOOD, lengths=(10, 20), lure=[-0.5, 0, 0.5, 0.0, 0.0]),
)

# Held out: layouts of their own.
_CLIFF_5 = """
  .....
  .....
  .....
  .....
  @bbba"""
_NARROWS_5 = """
  ..b..
  .#.#.
  @...a
  .#.#.
  ..b.."""
_CLIFF_7 = """
  .......
  .......
  .......
  .......
  .......
  .......
  @.bbb.a"""
_ZIGZAG_7 = """
  @.#...#
  ..#.#..
  #.#.##.
  ..#..#.
  .##.##.
  ......b
  #a###.a"""
_FOUR_ROOMS_9 = """
  @...#...a
  ....#....
  .........
  ....#....
  ##.###.##
  ....#....
  .........
  ....#....
  b...#...a"""
_SPIRAL_9 = """
  @..b.....
  ########.
  .......#b
  .#####.#.
  .#.a.#.#.
  .#.###.#b
  .#.....#.
  .#######.
  ..b...b.."""
_PRAIRIE_9 = """
  a.......a
  .........
  .........
  .........
  b...@...b
  .........
  .........
  .........
  a.......a"""
_LADDER_9 = """
  @.......b
  .#######.
  ....b....
  .#######.
  ....b....
  .#######.
  ....b....
  .#######.
  ........a"""
_CROWD_9 = """
  aab......
  bcc......
  dd.......
  .........
  .........
  .........
  .........
  .........
  ........."""
_BRICKS_9 = """
  a.b...a..
  .##.##.##
  .........
  ##.##.##.
  ....d....
  .##.##.##
  .........
  ##.##.##.
  a..b..a.."""
_ISLANDS_9 = """
  aa.......
  a..###...
  ...#.....
  ...#..bb.
  ......b..
  .###.....
  ...#.....
  ...#..@..
  ........c"""

_HELD_OUT_TABULAR_5X5 = (
  # The floor is slippery.
  dict(layout=_CORNER, kinds=[_GOAL], step_limit=30, slip=0.3),
  dict(layout=_CLIFF_5, kinds=[_GOAL, _PIT], step_limit=40, slip=0.1),
  dict(layout=_NARROWS_5, kinds=[_FRUIT, _PIT], step_limit=50),
)
_HELD_OUT_TABULAR_9X9 = (
  dict(layout=_PRAIRIE_9, kinds=[_FRUIT, _WEED], step_limit=100),
  dict(layout=_FOUR_ROOMS_9, kinds=[_FRUIT, _PIT], step_limit=100),
  dict(layout=_SPIRAL_9, kinds=[_GOAL, _kind(0.1, 0, 0)], step_limit=200),
  dict(
    layout=_LADDER_9,
    kinds=[_kind(1.0, 0, 0.1), _kind(-0.2, 0, 0.1)],
    step_limit=150,
    step_reward=-0.01,
  ),
)
_HELD_OUT_IMAGE_7X7 = (
  dict(layout=_CLIFF_7, kinds=[_GOAL, _PIT], step_limit=60),
  dict(layout=_ZIGZAG_7, kinds=[_FRUIT, _WEED], step_limit=80),
  dict(
    layout=_MEADOW,
    kinds=[_FRUIT],
    step_limit=50,
    random_objects=True,
    slip=0.3,
  ),
)
_HELD_OUT_IMAGE_9X9 = (
  dict(
    layout=_CROWD_9,
    kinds=[_FRUIT, _WEED, _kind(2.0, 0.2, 0.05), _PIT],
    step_limit=100,
    random_objects=True,
  ),
  dict(
    layout=_BRICKS_9,
    kinds=[_FRUIT, _WEED, _GOAL, _kind(3.0, 1.0, 0.0)],
    step_limit=80,
  ),
  dict(
    layout=_ISLANDS_9,
    kinds=[_COIN, _kind(0.5, 0.0, 0.0), _kind(0.5, 1.0, 0.0)],
    step_limit=80,
    slip=0.1,
  ),
)
_HELD_OUT_CHAINS_24 = (
  # The choice is not observed, or comes late.
  dict(payoff=_ONE_GOOD, lengths=(5, 15), hides_choice=True),
  dict(payoff=_CUED, lengths=(10, 20), decision_step=4, bit_rate=0.5),
)
_HELD_OUT_CHAINS_64 = (
  dict(payoff=_ONE_GOOD, lengths=(40, 40)),
  dict(payoff=_CUED_GRADED, lengths=(20, 64), noise=0.3, bit_rate=0.5),
  dict(payoff=_GRADED, lengths=(30, 50), lure=[0.9, 0.6, 0.3, 0, 0]),
)

_TRAINING = (
  _Group(functools.partial(_tabular, size=(5, 5), num_slots=4), _TABULAR_5X5),
  _Group(
    functools.partial(_image, size=(7, 7), num_slots=6, num_kinds=3), _IMAGE_7X7
  ),
  _Group(functools.partial(_chain, num_positions=24), _CHAINS_24),
)
_HELD_OUT = (
  _Group(_TRAINING[0].build, _HELD_OUT_TABULAR_5X5),
  _Group(
    functools.partial(_tabular, size=(9, 9), num_slots=6), _HELD_OUT_TABULAR_9X9
  ),
  _Group(_TRAINING[1].build, _HELD_OUT_IMAGE_7X7),
  _Group(
    functools.partial(_image, size=(9, 9), num_slots=8, num_kinds=4),
    _HELD_OUT_IMAGE_9X9,
  ),
  _Group(_TRAINING[2].build, _HELD_OUT_CHAINS_24),
  _Group(functools.partial(_chain, num_positions=64), _HELD_OUT_CHAINS_64),
)

# Mean undiscounted return of an episode under uniformly random actions, and
# under a reference policy. Where objects begin in random places, both are
# measured, and the reference, which goes to the object with the largest reward
# for its distance and around bad ones, is not optimal. Elsewhere both are
# exact, and the reference is optimal; it observes the time left, unlike agents.
RETURNS: Mapping[str, tuple[float, float]] = {
  'gridworld/00': (0.237, 1.0),
  'gridworld/01': (0.406, 1.0),
  'gridworld/02': (-1.727, 0.6),
  'gridworld/03': (0.834, 5.546),
  'gridworld/04': (2.919, 10.299),
  'gridworld/05': (0.965, 4.0),
  'gridworld/06': (0.0, 4.279),
  'gridworld/07': (0.013, 6.784),
  'gridworld/08': (0.177, 8.201),
  'gridworld/09': (0.289, 1.0),
  'gridworld/10': (0.609, 3.489),
  'gridworld/11': (0.096, 1.15),
  'gridworld/12': (0.962, 3.647),
  'gridworld/13': (1.555, 6.596),
  'gridworld/14': (0.32, 1.0),
  'gridworld/15': (0.019, 1.0),
  'gridworld/16': (-0.598, 0.84),
  'gridworld/17': (0.004, 0.7),
  'gridworld/18': (-0.932, 1.0),
  'gridworld/19': (0.363, 7.593),
  'gridworld/20': (0.432, 1.9),
  'gridworld/21': (0.3, 1.0),
  'gridworld/22': (0.3, 1.0),
  'gridworld/23': (-0.4, 0.9),
  'gridworld/24': (1.093, 8.551),
  'gridworld/25': (1.61, 13.34),
  'gridworld/26': (1.5, 8.7),
  'gridworld/27': (2.5, 16.7),
  'gridworld/28': (1.7, 6.0),
  'gridworld/29': (0.46, 8.512),
  'gridworld/30': (1.0, 7.9),
  'gridworld/31': (-0.902, 6.477),
  'gridworld/32': (-0.8, 5.4),
  'gridworld/33': (1.3, 2.6),
  'gridworld/34': (0.158, 6.715),
  'gridworld/35': (0.0, 4.8),
  'gridworld/36': (0.5, 1.0),
  'gridworld/37': (-0.299, 3.505),
  'gridworld/38': (0.023, 8.032),
  'gridworld/39': (0.153, 1.55),
  'gridworld/40': (0.753, 6.202),
  'gridworld/41': (-0.089, 5.556),
  'gridworld/42': (0.215, 3.779),
  'gridworld/43': (0.6, 1.0),
  'gridworld/44': (0.0, 1.0),
  'gridworld/45': (-0.6, 1.0),
  'gridworld/46': (0.0, 1.0),
  'gridworld/47': (-0.6, 1.0),
  'gridworld/48': (0.0, 1.0),
  'gridworld/49': (0.0, 1.0),
  'gridworld/50': (0.0, 1.0),
  'gridworld/51': (-0.6, 1.0),
  'gridworld/52': (0.0, 1.0),
  'gridworld/53': (0.0, 1.0),
  'gridworld/54': (0.0, 1.0),
  'gridworld/55': (0.36, 1.0),
  'gridworld/56': (-0.6, 0.5),
  'gridworld/held_out_00': (0.099, 1.0),
  'gridworld/held_out_01': (-0.84, 0.955),
  'gridworld/held_out_02': (-0.601, 5.099),
  'gridworld/held_out_03': (0.124, 13.389),
  'gridworld/held_out_04': (0.054, 9.988),
  'gridworld/held_out_05': (0.185, 1.5),
  'gridworld/held_out_06': (-1.786, 11.599),
  'gridworld/held_out_07': (-0.68, 1.0),
  'gridworld/held_out_08': (0.165, 10.489),
  'gridworld/held_out_09': (2.4, 12.6),
  'gridworld/held_out_10': (0.5, 7.7),
  'gridworld/held_out_11': (1.359, 11.898),
  'gridworld/held_out_12': (0.768, 5.0),
  'gridworld/held_out_13': (-0.6, 1.0),
  'gridworld/held_out_14': (0.0, 1.0),
  'gridworld/held_out_15': (-0.6, 1.0),
  'gridworld/held_out_16': (0.0, 1.0),
  'gridworld/held_out_17': (0.36, 1.0),
}


def _named(
  groups: Sequence[_Group], form: str
) -> tuple[dict[str, Callable[[], base.JaxEnvironment]], ...]:
  """Returns for each group: the name of a task -> what builds it."""
  count = itertools.count()
  return tuple(
    {
      form.format(next(count)): functools.partial(group.build, **task)
      for task in group.tasks
    }
    for group in groups
  )


_NAMED_TRAINING = _named(_TRAINING, 'gridworld/{:02}')
_NAMED_HELD_OUT = _named(_HELD_OUT, 'gridworld/held_out_{:02}')
_BUILDERS = dict(collections.ChainMap(*_NAMED_TRAINING, *_NAMED_HELD_OUT))


def names() -> tuple[str, ...]:
  """Returns the names of all tasks."""
  return training_names() + held_out_names()


def training_names() -> tuple[str, ...]:
  """Returns the names of the 57 tasks to train on."""
  return tuple(name for group in _NAMED_TRAINING for name in group)


def held_out_names() -> tuple[str, ...]:
  """Returns the names of the held-out tasks."""
  return tuple(name for group in _NAMED_HELD_OUT for name in group)


def groups() -> tuple[tuple[str, ...], ...]:
  """Returns names by group, training tasks first. Each group stacks."""
  return tuple(tuple(group) for group in _NAMED_TRAINING + _NAMED_HELD_OUT)


def make(variant: str) -> base.JaxEnvironment | None:
  """Makes a task.

  Args:
    variant: the name without 'gridworld/'.

  Returns:
    The task, None if there is no such variant.
  """
  builder = _BUILDERS.get(f'gridworld/{variant}')
  return builder() if builder else None
