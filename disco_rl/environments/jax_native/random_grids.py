"""Random grid worlds, in the style of LPG and GROOVE.

  random_grid      a new level for each agent: size, walls, objects, rewards
  lpg/dense, ...   LPG's five tasks; each agent gets new places of the objects
  random_grid/17   level number 17 for all agents, by the same generator
  lpg/dense/17     the same for a task of LPG

All are `gridworld.GridWorld`s with tabular observations, which do not show the
level: an agent learns it during its lifetime. Levels of one prefix
have equal shapes and are padded with walls below and to the right.

Sources: Oh et al., 2020, "Discovering Reinforcement Learning Algorithms", and
Jackson et al., 2023, "Discovering General Reinforcement Learning Algorithms
with Adversarial Environment Design". Different here: five actions, as in
`gridworld`, and episodes start in a random cell.
"""

from collections.abc import Mapping
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import family
from disco_rl.environments import scores
from disco_rl.environments.jax_native import exact_returns
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import task_distribution

# Bounds of random_grid, inclusive.
SIDES = (4, 10)
OBJECTS = (1, 5)
MOST_WALLS = 15
MOST_WALL_SHARE = 4  # At most one in this number of cells is a wall.
TERMINATIONS = (1e-2, 1.0)
RESPAWNS = (1e-3, 1e-1)
STEP_LIMITS = (20, 750)


@types.record
class RandomGrid(task_distribution.TaskDistribution):
  """Levels of 4 to 10 rows and columns, with up to 15 walls and 5 objects.

  A level is drawn as follows; numbers are independent unless stated.
    Rows and columns are each uniform in 4 .. 10.
    The number of walls is uniform in 0 .. min(15, rows * columns // 4), their
      cells are distinct. They are placed one by one, except those that would
      divide the floor.
    The number of objects is uniform in 1 .. 5, in distinct cells of the floor.
      Each has a reward, uniform in [-1, 1], but in (0, 1] for the first; a
      probability of termination, log-uniform in [0.01, 1]; and a probability of
      reappearing in each step, log-uniform in [0.001, 0.1].
    The step limit is log-uniform in [20, 750], rounded.

  Each episode begins with all objects present, in a cell that is drawn from
  the floor without objects.
  """

  def draw(self, key: types.Array) -> gridworld.GridWorld:
    """Draws a level; see the class."""
    size_key, wall_key, object_key, number_key = jax.random.split(key, 4)
    del key
    size = jax.random.randint(size_key, (2,), SIDES[0], SIDES[1] + 1)
    floor = _floor(wall_key, _board(size, SIDES[1]))
    num_objects, limit, *numbers = _numbers(number_key)
    return _level(object_key, floor, num_objects, limit, *numbers)


@types.record
class RandomPlaces(task_distribution.TaskDistribution):
  """A given number of objects, in random distinct cells.

  The board has no walls. Each episode begins with all objects present, in a
  cell that is drawn from those without objects.

  Attributes:
    size: [2] int32, rows and columns.
    num_objects: [] int32; the first of the K slots contain objects.
    reward: [K] float32.
    termination: [K] float32, probability.
    respawn: [K] float32, probability in each step.
    step_limit: [] int32.
    side: The length of a side of the square board that levels are padded to.
  """

  size: types.Array
  num_objects: types.Array
  reward: types.Array
  termination: types.Array
  respawn: types.Array
  step_limit: types.Array
  side: int = dataclasses.field(metadata={'static': True})

  def draw(self, key: types.Array) -> gridworld.GridWorld:
    """Draws a level; see the class."""
    return _level(
      key,
      _board(self.size, self.side),
      self.num_objects,
      self.step_limit,
      self.reward,
      self.termination,
      self.respawn,
    )


@dataclasses.dataclass(frozen=True)
class _Task:
  """A task of LPG: size, numbers and kinds of objects, maximal length."""

  size: tuple[int, int]
  objects: tuple[tuple[int, gridworld.Kind], ...]
  step_limit: int


_kind = gridworld.Kind
_LPG: Mapping[str, _Task] = {
  'dense': _Task(
    (11, 11),
    (
      (2, _kind(1.0, 0.0, 0.05)),
      (1, _kind(-1.0, 0.5, 0.1)),
      (1, _kind(-1.0, 0.0, 0.5)),
    ),
    500,
  ),
  'sparse': _Task(
    (13, 13), ((1, _kind(1.0, 1.0, 0.0)), (1, _kind(-1.0, 1.0, 0.0))), 50
  ),
  'long': _Task(
    (11, 11), ((2, _kind(1.0, 0.0, 0.01)), (2, _kind(-1.0, 0.5, 1.0))), 1000
  ),
  'longer': _Task(
    (7, 9), ((2, _kind(1.0, 0.1, 0.01)), (5, _kind(-1.0, 0.8, 1.0))), 2000
  ),
  'long_dense': _Task((11, 11), ((4, _kind(1.0, 0.0, 0.005)),), 2000),
}
LPG_TASKS = tuple(_LPG)
_LPG_SIDE, _LPG_SLOTS = 13, 7


def make_lpg(name: str) -> RandomPlaces:
  """Makes the levels of one of `LPG_TASKS`; all of them stack."""
  task = _LPG[name]
  kinds = [kind for count, kind in task.objects for _ in range(count)]
  table = np.zeros((3, _LPG_SLOTS), np.float32)
  table[:, : len(kinds)] = np.transpose(
    [dataclasses.astuple(kind) for kind in kinds]
  )
  reward, termination, respawn = map(jnp.asarray, table)
  return RandomPlaces(
    size=jnp.asarray(task.size, jnp.int32),
    num_objects=jnp.int32(len(kinds)),
    reward=reward,
    termination=termination,
    respawn=respawn,
    step_limit=jnp.int32(task.step_limit),
    side=_LPG_SIDE,
  )


def _board(size: types.Array, side: int) -> types.Array:
  """Returns the cells of a board of `size` [2] in [side, side]; bool."""
  index = jnp.arange(side)
  return (index[:, None] < size[0]) & (index < size[1])


def _numbers(key: types.Array) -> tuple[types.Array, ...]:
  """Draws the number of objects [], step limit [], and three arrays [K]."""
  keys = jax.random.split(key, 5)
  del key
  shape = (OBJECTS[1],)
  num_objects = jax.random.randint(keys[0], (), OBJECTS[0], OBJECTS[1] + 1)
  uniform = jax.random.uniform(keys[1], shape)
  reward = (1.0 - 2.0 * uniform).at[0].set(1.0 - uniform[0])
  termination = _log_uniform(keys[2], TERMINATIONS, shape)
  respawn = _log_uniform(keys[3], RESPAWNS, shape)
  limit = jnp.round(_log_uniform(keys[4], STEP_LIMITS)).astype(jnp.int32)
  return num_objects, limit, reward, termination, respawn


def _log_uniform(
  key: types.Array, bounds: tuple[float, float], shape: tuple[int, ...] = ()
) -> types.Array:
  """Draws log-uniform numbers between bounds."""
  low, high = np.log(bounds)
  drawn = jnp.exp(jax.random.uniform(key, shape, minval=low, maxval=high))
  return jnp.clip(drawn, *bounds)  # exp(log(x)) may differ from x.


def _floor(key: types.Array, board: types.Array) -> types.Array:
  """Draws walls on a board; returns the cells that remain, [H, W] bool."""
  number_key, cell_key = jax.random.split(key)
  del key
  most = jnp.minimum(MOST_WALLS, jnp.sum(board) // MOST_WALL_SHARE)
  num_walls = jax.random.randint(number_key, (), 0, most + 1)
  cells = _draw_cells(cell_key, board, MOST_WALLS)

  def place(i: types.Array, floor: types.Array) -> types.Array:
    rest = floor.reshape(-1).at[cells[i]].set(False).reshape(floor.shape)
    return jnp.where((i < num_walls) & _is_connected(rest), rest, floor)

  return jax.lax.fori_loop(0, MOST_WALLS, place, board)


def _is_connected(floor: types.Array) -> types.Array:
  """Returns whether the floor [H, W] is connected."""
  first = jnp.argmax(floor.reshape(-1))

  def spread(reached: types.Array) -> types.Array:
    wide = jnp.pad(reached, 1)
    rows = wide[:-2, 1:-1] | wide[2:, 1:-1]
    columns = wide[1:-1, :-2] | wide[1:-1, 2:]
    return floor & (reached | rows | columns)

  start = (jnp.arange(floor.size) == first).reshape(floor.shape)
  reached, _ = jax.lax.while_loop(
    lambda now_and_before: jnp.any(now_and_before[0] != now_and_before[1]),
    lambda now_and_before: (spread(now_and_before[0]), now_and_before[0]),
    (spread(start), start),
  )
  return jnp.all(reached == floor)


def _draw_cells(key: types.Array, floor: types.Array, num: int) -> types.Array:
  """Draws distinct cells of the floor [H, W], in random order; [num] int32."""
  order = jax.random.uniform(key, (floor.size,))
  return jnp.argsort(jnp.where(floor.reshape(-1), order, 2.0))[:num]


def _level(
  key: types.Array,
  floor: types.Array,
  num_objects: types.Array,
  step_limit: types.Array,
  reward: types.Array,
  termination: types.Array,
  respawn: types.Array,
) -> gridworld.GridWorld:
  """Makes a level with objects in random cells of the floor [H, W] bool.

  Arrays of objects are [K]; the first `num_objects` entries are used.
  """
  num_slots = reward.size
  slot = jnp.arange(num_slots)
  is_object = slot < num_objects
  cell = jnp.where(is_object, _draw_cells(key, floor, num_slots), -1)
  # A place for each slot; those of empty slots are outside the board.
  taken = jnp.where(is_object, cell, floor.size)
  free = floor.reshape(-1).at[taken].set(False, mode='drop')
  (places,) = jnp.nonzero(free, size=free.size, fill_value=-1)
  of_objects = lambda x: jnp.where(is_object, x, 0.0).astype(jnp.float32)
  return gridworld.GridWorld(
    walls=~floor,
    start_cell=jnp.int32(-1),
    object_cell=cell.astype(jnp.int32),
    object_kind=jnp.where(is_object, slot, -1).astype(jnp.int32),
    object_reward=of_objects(reward),
    object_termination=of_objects(termination),
    object_respawn=of_objects(respawn),
    random_objects=jnp.bool_(False),
    places=places.astype(jnp.int32),
    step_limit=step_limit.astype(jnp.int32),
    step_reward=jnp.float32(0.0),
    slip=jnp.float32(0.0),
    num_kinds=num_slots,
    is_tabular=True,
  )


def _find_lpg(variant: str | None) -> family.Builder | None:
  """Returns the builder of TASK or TASK/NUMBER."""
  name, *number = (variant or '').split('/', 1)
  if name not in LPG_TASKS:
    return None
  make = functools.partial(make_lpg, name)
  return task_distribution.find(make, number[0] if number else None)


_BENCHMARK = scores.Benchmark(
  'random_grid',
  'Random grid worlds, normalized',
  '0 is random play, 1 the optimal policy that observes the time left, both '
  'computed by disco_rl/environments/jax_native/exact_returns.py.',
  is_low_random=True,
  is_high_best=True,
)
_LPG_BENCHMARK = dataclasses.replace(
  _BENCHMARK, name='lpg', title="LPG's grid worlds, normalized"
)


@functools.lru_cache(maxsize=1024)
def _find_scale(name: str) -> scores.Scale | None:
  """Computes the scale of a level; None of whole distributions."""
  prefix, _, variant = name.partition('/')
  if not variant.rpartition('/')[2].isdecimal():
    return None
  build = FAMILIES[prefix].find(variant, None)
  level = None if build is None else build()
  if not isinstance(level, gridworld.GridWorld):
    return None
  benchmark = _LPG_BENCHMARK if prefix == 'lpg' else _BENCHMARK
  return scores.Scale(benchmark, *exact_returns.of_grid_world(level))


_LPG_SUITE = tuple(f'lpg/{task}' for task in LPG_TASKS)
FAMILIES = {
  'random_grid': family.Family(
    form='random_grid, random_grid/NUMBER (17) or random_grid/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_grid',),
    find=lambda variant, _: task_distribution.find(RandomGrid, variant),
    find_scale=_find_scale,
  ),
  'lpg': family.Family(
    form='lpg/TASK or lpg/TASK/NUMBER (lpg/dense/17)',
    kind='device',
    names=lambda: _LPG_SUITE,
    find=lambda variant, _: _find_lpg(variant),
    suites={'lpg5': _LPG_SUITE},
    find_scale=_find_scale,
  ),
}
