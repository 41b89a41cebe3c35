"""The grid-world suite: 57 tasks to train on, 18 held out.

  gridworld/00 .. 20            tabular, 5 x 5, 4 objects; the fastest
  gridworld/21 .. 42            image, 7 x 7, 6 objects
  gridworld/43 .. 56            chains of up to 24 steps
  gridworld/held_out_00 .. 17   other dynamics, layouts and sizes

All have five actions. The tasks of one group stack, so that one compiled
program maps over them; `GROUPS` lists the groups. The training tasks are three
groups, one a line above; the held-out tasks 00 .. 02, 07 .. 09 and 13, 14 stack
with them:

  tasks = [make(variant) for variant in ...]
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *tasks)
  jax.vmap(lambda task, key: task.reset(key))(stacked, keys)
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import NamedTuple

from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import scores
from disco_rl.environments.jax_native import chain
from disco_rl.environments.jax_native import gridworld


class _Task(NamedTuple):
  """A task: the returns in `RETURNS`, and the arguments of its `build`."""

  returns: tuple[float, float]
  arguments: tuple[object, ...]
  options: Mapping[str, object]


def _task(
  returns: tuple[float, float], *arguments: object, **options: object
) -> _Task:
  return _Task(returns, arguments, options)


class _Group(NamedTuple):
  """Tasks that stack, and their builder, which determines the shapes."""

  build: Callable[..., base.JaxEnvironment]
  tasks: Sequence[_Task]


_tabular = functools.partial(gridworld.build, num_kinds=3, is_tabular=True)
_image = gridworld.build
_chain = functools.partial(chain.build, num_bits=8)


def _drawn(pictures: str) -> list[str]:
  """Returns the layouts of pictures of equal height, drawn side by side."""
  rows = [line.split() for line in pictures.strip().splitlines()]
  return ['\n'.join(layout) for layout in zip(*rows)]


# Reward, termination, respawn.
_kind = gridworld.Kind
_GOAL = _kind(1, 1, 0)
_PIT = _kind(-1, 1, 0)
_COIN = _kind(1, 0, 0)
_FRUIT = _kind(1, 0, 0.1)
_WEED = _kind(-1, 0, 0.1)

# Layouts of 5 x 5, next to each other.
_CORNER, _ANYWHERE, _FIELD, _CROSS, _NEAR_AND_FAR, _HOOK = _drawn("""
  @....   .....   a...a   a...b   .....   @....
  .....   .....   .....   .....   .....   .###.
  .....   ..a..   ..@..   ..@..   b@..a   ..a#.
  .....   .....   .....   .....   .....   ####.
  ....a   .....   a...a   b...a   .....   .....""")
_SNAKE, _TOLL, _MINES, _CHAMBERS, _ENDS, _EXIT = _drawn("""
  @....   @.#..   @.b..   a.#.a   a....   aa...
  ####.   ..#..   ..b..   ..#..   ####.   a....
  .....   ..b.a   .....   .....   @....   .....
  .####   ..#..   .b...   ..#..   ####.   .....
  ....a   ..#..   ....a   b.#.b   a....   @...b""")

# The returns of a task, its layout, kinds of objects, and step limit.
_TABULAR_5X5 = (
  # One goal, then with a random start, then with a cost of each step.
  _task((0.237, 1.0), _CORNER, [_GOAL], 50),
  _task((0.406, 1.0), _ANYWHERE, [_GOAL], 20),
  _task((-1.727, 0.6), _CORNER, [_GOAL], 40, step_reward=-0.05),
  # Many objects, which reappear soon, late or never.
  _task((0.834, 5.546), _FIELD, [_kind(1, 0, 0.3)], 20),
  _task((2.919, 10.299), _FIELD, [_kind(1, 0, 0.02)], 100),
  _task((0.965, 4.0), _FIELD, [_COIN], 30),
  # Good and bad objects.
  _task((0.0, 4.279), _CROSS, [_FRUIT, _WEED], 30),
  _task((0.013, 6.784), _CROSS, [_FRUIT, _kind(-1, 0.5, 0.1)], 50),
  _task((0.177, 8.201), _CHAMBERS, [_FRUIT, _PIT], 60),
  # A small reward nearby, a large one farther away; either ends, or one does.
  _task((0.289, 1.0), _NEAR_AND_FAR, [_GOAL, _kind(0.3, 1, 0)], 20),
  _task((0.609, 3.489), _NEAR_AND_FAR, [_GOAL, _kind(0.2, 0, 0.5)], 40),
  _task((0.096, 1.15), _NEAR_AND_FAR, [_GOAL, _kind(0.05, 0, 1)], 10),
  # A risk of ending: safe and poor, or risky and rich.
  _task((0.962, 3.647), _CROSS, [_kind(1, 0.3, 0.3), _kind(0.2, 0, 0.3)], 40),
  _task(
    (1.555, 6.596), _NEAR_AND_FAR, [_kind(0.5, 0, 0.2), _kind(1, 0.2, 0.5)], 50
  ),
  # Walls in the way.
  _task((0.32, 1.0), _HOOK, [_GOAL], 40),
  _task((0.019, 1.0), _SNAKE, [_GOAL], 100),
  _task((-0.598, 0.84), _SNAKE, [_GOAL], 60, step_reward=-0.01),
  # Bad objects in the way: a toll, and mines.
  _task((0.004, 0.7), _TOLL, [_GOAL, _kind(-0.3, 0, 0)], 40),
  _task((-0.932, 1.0), _MINES, [_GOAL, _PIT], 40),
  # Two objects far apart; each reappears while the agent collects the other.
  _task((0.363, 7.593), _ENDS, [_kind(1, 0, 0.05)], 100),
  # The exit has a reward, but ends the episode before others are collected.
  _task((0.432, 1.9), _EXIT, [_kind(0.3, 0, 0), _GOAL], 30),
)

# Layouts of 7 x 7, or of 5 x 5, which are padded. Where objects are placed at
# random, only their number matters.
_SMALL_MEADOW, _SMALL_PLOTS = _drawn("""
  aa...   aab..
  .....   .....
  ..@..   ..@..
  .....   .....
  ...aa   ..baa""")
_MEADOW, _PLOTS, _PILLARS, _ROOMS, _CORRIDORS, _RING = _drawn("""
  a.....a   a.....b   a.....b   @..#..a   @.....b   a..b..a
  .......   .......   .#.#.#.   ...#...   ######.   .#####.
  .......   ...c...   .......   .......   a......   .#####.
  a..@..a   ...@...   .#.#.#.   #.###.#   .######   b#####b
  .......   ...c...   .......   .......   ......b   .#####.
  .......   .......   .#.#.#.   ...#...   ######.   .#####.
  a.....a   b.....a   b.....a   b..#..a   a......   ...@...""")
_FORK, _VAULT, _GATE, _GARDEN, _SCATTERED, _LONE = _drawn("""
  a#...#a   .......   ...#...   .......   aab....   a......
  .#.#.#.   .#####.   ...#...   .a...a.   bcc....   .......
  .#.#.#.   .#aaa#.   ...#...   ..bbb..   .......   .......
  ...#...   .#####.   @..b..a   .......   .......   .......
  ##.#.##   .......   ...#...   ...@...   .......   .......
  b..@..c   ...@...   ...#...   .......   .......   .......
  #######   b.....b   ...#..a   ......c   .......   .......""")

_IMAGE_7X7 = (
  # One goal, in another place in each episode.
  _task((0.3, 1.0), _ANYWHERE, [_GOAL], 20, random_objects=True),
  _task((0.3, 1.0), _LONE, [_GOAL], 40, random_objects=True),
  _task(
    (-0.4, 0.9), _LONE, [_GOAL], 40, random_objects=True, step_reward=-0.02
  ),
  # Many objects, in fixed and in random places.
  _task((1.093, 8.551), _SMALL_MEADOW, [_kind(1, 0, 0.3)], 20),
  _task((1.61, 13.34), _MEADOW, [_FRUIT], 50),
  _task((1.5, 8.7), _SMALL_MEADOW, [_kind(1, 0, 0.3)], 20, random_objects=True),
  _task((2.5, 16.7), _MEADOW, [_FRUIT], 50, random_objects=True),
  _task((1.7, 6.0), _MEADOW, [_COIN], 40, random_objects=True),
  # Good and bad objects, in fixed and in random places.
  _task((0.46, 8.512), _SMALL_PLOTS, [_FRUIT, _WEED], 30),
  _task((1.0, 7.9), _SMALL_PLOTS, [_FRUIT, _WEED], 30, random_objects=True),
  _task((-0.902, 6.477), _PLOTS, [_FRUIT, _WEED, _kind(-1, 1, 0)], 60),
  _task(
    (-0.8, 5.4),
    _PLOTS,
    [_FRUIT, _WEED, _kind(-1, 0.3, 0.1)],
    60,
    random_objects=True,
  ),
  # A risk of ending that rises with the reward.
  _task(
    (1.3, 2.6),
    _SCATTERED,
    [_kind(0.2, 0, 0.2), _kind(0.5, 0.1, 0.2), _kind(1, 0.4, 0.2)],
    60,
    random_objects=True,
  ),
  # Walls in the way.
  _task((0.158, 6.715), _PILLARS, [_FRUIT, _PIT], 60),
  _task((0.0, 4.8), _PILLARS, [_FRUIT, _WEED], 60, random_objects=True),
  _task((0.5, 1.0), _ROOMS, [_GOAL, _kind(0.1, 0, 0)], 60, random_objects=True),
  _task(
    (-0.299, 3.505), _CORRIDORS, [_kind(1, 0, 0.02), _kind(-0.3, 0, 0.1)], 100
  ),
  # A round trip gives more reward than waiting; bad objects block one way.
  _task((0.023, 8.032), _RING, [_kind(1, 0, 0.05), _kind(-0.2, 0, 0.5)], 100),
  # Small rewards nearby end the episode, large ones are far away.
  _task(
    (0.153, 1.55),
    _FORK,
    [_kind(1, 0.5, 0), _kind(0.2, 1, 0), _kind(0.1, 1, 0)],
    50,
  ),
  # A closed vault: its objects are visible but out of reach.
  _task((0.753, 6.202), _VAULT, [_GOAL, _FRUIT], 40),
  # The gate has a cost, and the objects behind it have rewards.
  _task((-0.089, 5.556), _GATE, [_kind(1, 0, 0.03), _kind(-0.5, 0, 0.2)], 80),
  # The exit has the largest reward, but only once.
  _task(
    (0.215, 3.779),
    _GARDEN,
    [_kind(0.3, 0, 0.05), _kind(-0.3, 0, 0.05), _kind(2, 1, 0)],
    60,
  ),
)

# Payoffs by action, a row for each of two cues.
_ONE_GOOD = [[1.0, -1.0, -1.0, -1.0, -1.0]] * 2
_ONE_BAD = [[1.0, 1.0, -1.0, 1.0, 1.0]] * 2
_TWO_MATTER = [[0.0, 1.0, 0.0, -1.0, 0.0]] * 2
_GRADED = [[-1.0, -0.5, 0.0, 0.5, 1.0]] * 2
_CUED = [[1.0, -1.0, 0.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0, 0.0]]
_CUED_GRADED = [[-1.0, -0.5, 0.0, 0.5, 1.0], [1.0, 0.5, 0.0, -0.5, -1.0]]

# The returns of a task, its payoff, and its minimal and maximal length.
_CHAINS_24 = (
  # The delay grows.
  _task((0.6, 1.0), _ONE_BAD, (3, 3)),
  _task((0.0, 1.0), _GRADED, (5, 5)),
  _task((-0.6, 1.0), _ONE_GOOD, (10, 10)),
  _task((0.0, 1.0), _TWO_MATTER, (20, 20)),
  # The length is random.
  _task((-0.6, 1.0), _ONE_GOOD, (3, 12)),
  _task((0.0, 1.0), _GRADED, (5, 24)),
  # The cue determines the right action.
  _task((0.0, 1.0), _CUED, (5, 5)),
  _task((0.0, 1.0), _CUED_GRADED, (5, 15)),
  # Rewards and bits of noise.
  _task((-0.6, 1.0), _ONE_GOOD, (5, 10), noise=1.0),
  _task((0.0, 1.0), _GRADED, (5, 10), bit_rate=0.5),
  _task((0.0, 1.0), _TWO_MATTER, (10, 20), noise=0.3, bit_rate=0.5),
  _task((0.0, 1.0), _CUED, (5, 15), noise=0.3, bit_rate=0.2),
  # An immediate reward costs more in the end.
  _task((0.36, 1.0), _GRADED, (5, 10), lure=[0.9, 0.6, 0.3, 0.0, 0.0]),
  _task((-0.6, 0.5), _ONE_GOOD, (10, 20), lure=[-0.5, 0, 0.5, 0.0, 0.0]),
)

# Held out: other layouts.
_CLIFF_5, _NARROWS_5 = _drawn("""
  .....   ..b..
  .....   .#.#.
  .....   @...a
  .....   .#.#.
  @bbba   ..b..""")
_CLIFF_7, _ZIGZAG_7 = _drawn("""
  .......   @.#...#
  .......   ..#.#..
  .......   #.#.##.
  .......   ..#..#.
  .......   .##.##.
  .......   ......b
  @.bbb.a   #a###.a""")
_FOUR_ROOMS_9, _SPIRAL_9, _PRAIRIE_9, _LADDER_9 = _drawn("""
  @...#...a   @..b.....   a.......a   @.......b
  ....#....   ########.   .........   .#######.
  .........   .......#b   .........   ....b....
  ....#....   .#####.#.   .........   .#######.
  ##.###.##   .#.a.#.#.   b...@...b   ....b....
  ....#....   .#.###.#b   .........   .#######.
  .........   .#.....#.   .........   ....b....
  ....#....   .#######.   .........   .#######.
  b...#...a   ..b...b..   a.......a   ........a""")
_CROWD_9, _BRICKS_9, _ISLANDS_9 = _drawn("""
  aab......   a.b...a..   aa.......
  bcc......   .##.##.##   a..###...
  dd.......   .........   ...#.....
  .........   ##.##.##.   ...#..bb.
  .........   ....d....   ......b..
  .........   .##.##.##   .###.....
  .........   .........   ...#.....
  .........   ##.##.##.   ...#..@..
  .........   a..b..a..   ........c""")

_HELD_OUT_TABULAR_5X5 = (
  # The floor is slippery.
  _task((0.099, 1.0), _CORNER, [_GOAL], 30, slip=0.3),
  _task((-0.84, 0.955), _CLIFF_5, [_GOAL, _PIT], 40, slip=0.1),
  _task((-0.601, 5.099), _NARROWS_5, [_FRUIT, _PIT], 50),
)
_HELD_OUT_TABULAR_9X9 = (
  _task((0.124, 13.389), _PRAIRIE_9, [_FRUIT, _WEED], 100),
  _task((0.054, 9.988), _FOUR_ROOMS_9, [_FRUIT, _PIT], 100),
  _task((0.185, 1.5), _SPIRAL_9, [_GOAL, _kind(0.1, 0, 0)], 200),
  _task(
    (-1.786, 11.599),
    _LADDER_9,
    [_kind(1, 0, 0.1), _kind(-0.2, 0, 0.1)],
    150,
    step_reward=-0.01,
  ),
)
_HELD_OUT_IMAGE_7X7 = (
  _task((-0.68, 1.0), _CLIFF_7, [_GOAL, _PIT], 60),
  _task((0.165, 10.489), _ZIGZAG_7, [_FRUIT, _WEED], 80),
  _task((2.4, 12.6), _MEADOW, [_FRUIT], 50, random_objects=True, slip=0.3),
)
_HELD_OUT_IMAGE_9X9 = (
  _task(
    (0.5, 7.7),
    _CROWD_9,
    [_FRUIT, _WEED, _kind(2, 0.2, 0.05), _PIT],
    100,
    random_objects=True,
  ),
  _task((1.359, 11.898), _BRICKS_9, [_FRUIT, _WEED, _GOAL, _kind(3, 1, 0)], 80),
  _task(
    (0.768, 5.0),
    _ISLANDS_9,
    [_COIN, _kind(0.5, 0, 0), _kind(0.5, 1, 0)],
    80,
    slip=0.1,
  ),
)
_HELD_OUT_CHAINS_24 = (
  # The choice is not observed, or is late.
  _task((-0.6, 1.0), _ONE_GOOD, (5, 15), hides_choice=True),
  _task((0.0, 1.0), _CUED, (10, 20), decision_step=4, bit_rate=0.5),
)
_HELD_OUT_CHAINS_64 = (
  _task((-0.6, 1.0), _ONE_GOOD, (40, 40)),
  _task((0.0, 1.0), _CUED_GRADED, (20, 64), noise=0.3, bit_rate=0.5),
  _task((0.36, 1.0), _GRADED, (30, 50), lure=[0.9, 0.6, 0.3, 0, 0]),
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


def _named(groups: Sequence[_Group], form: str) -> tuple[dict[str, Any], ...]:
  """Returns for each group: name of a task -> its builder and the task."""
  count = itertools.count()
  return tuple(
    {form.format(next(count)): (group.build, task) for task in group.tasks}
    for group in groups
  )


_NAMED = (
  *_named(_TRAINING, 'gridworld/{:02}'),
  *_named(_HELD_OUT, 'gridworld/held_out_{:02}'),
)
_TASKS = {
  name: build_and_task
  for group in _NAMED
  for name, build_and_task in group.items()
}
# Names by group, training tasks first. Each group stacks.
GROUPS = tuple(tuple(group) for group in _NAMED)
TRAINING = sum(GROUPS[: len(_TRAINING)], ())
HELD_OUT = sum(GROUPS[len(_TRAINING) :], ())
# Task -> mean undiscounted returns of episodes with uniformly random actions,
# and with a reference policy. If objects begin in random places, both are
# measured, and the reference is not optimal: it goes to the object with the
# largest reward for its distance, and avoids bad ones. Otherwise both are
# exact, and the reference is optimal; unlike agents, it observes the time left.
RETURNS: Mapping[str, tuple[float, float]] = {
  name: task.returns for name, (_, task) in _TASKS.items()
}


def make(variant: str) -> base.JaxEnvironment | None:
  """Makes the task 'gridworld/VARIANT'; None if there is none."""
  name = f'gridworld/{variant}'
  if name not in _TASKS:
    return None
  build, task = _TASKS[name]
  return build(*task.arguments, **task.options)


def _find(variant: str | None, _: None) -> family.Builder | None:
  """Returns the builder of a task."""
  environment = None if variant is None else make(variant)
  return None if environment is None else lambda *_: environment


_BENCHMARK = scores.Benchmark(
  'gridworld',
  'Grid worlds, normalized',
  '0 is random play, 1 the reference policy of '
  'disco_rl/environments/jax_native/gridworld_tasks.py, which is optimal where '
  'objects have fixed places and can be surpassed elsewhere.',
  is_low_random=True,
  is_high_best=True,
)
FAMILIES = {
  'gridworld': family.Family(
    form='gridworld/00 and gridworld/held_out_00, and further numbers',
    kind='device',
    names=lambda: RETURNS,
    find=_find,
    suites={
      'gridworld57': TRAINING,
      'gridworld_held_out': HELD_OUT,
      # The last two groups.
      'gridworld_held_out_chains': sum(GROUPS[-2:], ()),
    },
    find_scale=scores.scales(_BENCHMARK, RETURNS, '').get,
  )
}
