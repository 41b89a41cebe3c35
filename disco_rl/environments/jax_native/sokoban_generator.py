"""Generates solvable Sokoban levels by playing backwards from the solved state.

Thousands are generated at once. The inner 8 x 8 cells of a level are the bits
of one 64-bit word, from the top left row by row, so that one operation on [N]
words applies to all cells of N levels. All cells outside are walls.
"""

import dataclasses

import numpy as np

from disco_rl.environments.jax_native import sokoban_levels

SIDE = sokoban_levels.SIDE - 2
NUM_CELLS = SIDE * SIDE
NUM_BOXES = sokoban_levels.NUM_BOXES

# Rooms have about as much floor as in Boxoban.
_CARVING_STEPS = 30
_TURN_PROBABILITY = 0.35
_MIN_FLOOR = 12
# Backward play. Levels remain solvable in `_MAX_SOLUTION` steps, within the
# time limit of the game.
_ROUNDS = 14
_MAX_PULLS = 5
_MAX_SOLUTION = 110

# The cell after the last represents all cells outside.
_OUTSIDE = NUM_CELLS
_BIT = np.append(
  np.uint64(1) << np.arange(NUM_CELLS, dtype=np.uint64), np.uint64(0)
)
_DOWN = 2


def _neighbors() -> np.ndarray:
  """Returns the cells up, right, down and left of each, [4, 65] int."""
  cells = np.full((SIDE + 2, SIDE + 2), _OUTSIDE)
  cells[1:-1, 1:-1] = np.arange(NUM_CELLS).reshape(SIDE, SIDE)
  shifted = [
    cells[:-2, 1:-1],
    cells[1:-1, 2:],
    cells[2:, 1:-1],
    cells[1:-1, :-2],
  ]
  return np.stack([np.append(s.reshape(-1), _OUTSIDE) for s in shifted])


_NEIGHBOR = _neighbors()
_CELLS = np.arange(NUM_CELLS)
# For each direction, the next cell of each, and the one after it.
_WAYS = [(way[_CELLS], way[way[_CELLS]]) for way in _NEIGHBOR]
_FIRST_COLUMN = np.bitwise_or.reduce(_BIT[:NUM_CELLS:SIDE])
_LAST_COLUMN = np.bitwise_or.reduce(_BIT[SIDE - 1 : NUM_CELLS : SIDE])


def _brushes() -> np.ndarray:
  """Returns floor carved at each cell, two lines and a block, [3, 64]."""
  cell = np.arange(NUM_CELLS)
  up, right, down, left = _NEIGHBOR[:, :NUM_CELLS]
  diagonal = _NEIGHBOR[_DOWN, right]
  shapes = [(left, right), (up, down), (right, down, diagonal)]
  return np.stack(
    [np.bitwise_or.reduce(_BIT[[cell, *shape]]) for shape in shapes]
  )


_BRUSHES = _brushes()


@dataclasses.dataclass
class _Play:
  """N games played backwards; changed in place.

  Attributes:
    floor: [N] uint64, constant.
    target: [N, 4] int, cells, constant.
    box: [N, 4] int, cells.
    agent: [N] int, cells.
    length: [N] int, steps so far, all of which are steps of the solution.
  """

  floor: np.ndarray
  target: np.ndarray
  box: np.ndarray
  agent: np.ndarray
  length: np.ndarray

  @property
  def free(self) -> np.ndarray:
    """The floor without boxes, [N] uint64."""
    return self.floor & ~_board(self.box)

  @property
  def is_on_target(self) -> np.ndarray:
    """The boxes on targets, [N, 4] bool."""
    return _is_in(self.box, _board(self.target))


def generate(num_levels: int, seed: int) -> np.ndarray:
  """Generates different levels, each of which can be solved in 110 steps.

  Rooms are carved by a random walk, four of their cells become targets, and a
  player who starts at the solution pulls the boxes off them. No box is on a
  target at the beginning.

  Args:
    num_levels: N, at least 1.
    seed: The seed of the levels; two seeds share levels only by chance.

  Returns:
    [N, 10, 10, 2] uint8; see `sokoban_levels`.
  """
  rng = np.random.default_rng(seed)
  # Keyed by their bytes, in the order of generation.
  levels: dict[bytes, np.ndarray] = {}
  while len(levels) < num_levels:
    made = _candidates(rng, num_levels)
    levels |= {level.tobytes(): level for level in made}
  return np.stack(list(levels.values())[:num_levels])


def _candidates(rng: np.random.Generator, num_tries: int) -> np.ndarray:
  """Generates at most `num_tries` levels."""
  floor = _carve(rng, num_tries)
  floor = floor[_can_be_left(floor).sum(axis=1) >= _MIN_FLOOR]
  target = _draw_cells(rng, _can_be_left(floor), NUM_BOXES)
  play = _Play(
    floor=floor,
    target=target,
    box=target.copy(),
    agent=_draw_cells(rng, _contents(floor & ~_board(target)), 1)[:, 0],
    length=np.zeros(len(floor), int),
  )
  for _ in range(_ROUNDS):
    _pull(rng, play)
  is_done = ~play.is_on_target.any(axis=1)
  play = _Play(**{k: v[is_done] for k, v in vars(play).items()})
  _walk(rng, play)
  return _to_levels(play)


def _carve(rng: np.random.Generator, num_levels: int) -> np.ndarray:
  """Carves one connected room for each level; returns floor, [N] uint64."""
  rows = np.arange(num_levels)
  cell = rng.integers(NUM_CELLS, size=num_levels)
  direction = rng.integers(4, size=num_levels)
  floor = np.zeros(num_levels, np.uint64)
  for _ in range(_CARVING_STEPS):
    brush = rng.integers(len(_BRUSHES), size=num_levels)
    floor |= _BRUSHES[brush, cell]
    ahead = _NEIGHBOR[:, cell]
    turns = rng.random(num_levels) < _TURN_PROBABILITY
    turns |= ahead[direction, rows] == _OUTSIDE
    direction = np.where(turns, rng.integers(4, size=num_levels), direction)
    cell = np.where(
      ahead[direction, rows] == _OUTSIDE, cell, ahead[direction, rows]
    )
  return floor


def _can_be_left(floor: np.ndarray) -> np.ndarray:
  """Returns floor from which a single box can be pulled, [N, 64] bool."""
  return _contents(floor) & np.any(
    [_is_in(one, floor) & _is_in(two, floor) for one, two in _WAYS], axis=0
  )


def _pull(rng: np.random.Generator, play: _Play) -> None:
  """Walks to a random box and pulls it, preferring boxes on targets."""
  rows = np.arange(len(play.agent))
  # Options [N, 16]: boxes times directions.
  direction = np.arange(16) % 4
  goal = _NEIGHBOR[direction, np.repeat(play.box, 4, axis=1)]
  distance = _distances(play, goal)
  is_possible = (
    (distance >= 0)
    & _is_in(_NEIGHBOR[direction, goal], play.free)
    & (play.length[:, None] + distance < _MAX_SOLUTION)
  )
  score = rng.random(goal.shape) + np.repeat(play.is_on_target, 4, axis=1)
  choice = np.where(is_possible, score, -1.0).argmax(1)
  box, direction = np.divmod(choice, 4)
  num_pulls = rng.integers(1, _MAX_PULLS + 1, size=len(rows))
  goes = is_possible[rows, choice]
  play.agent = np.where(goes, goal[rows, choice], play.agent)
  play.length += np.where(goes, distance[rows, choice], 0)
  for i in range(_MAX_PULLS):
    ahead = _NEIGHBOR[direction, play.agent]
    goes &= (
      (i < num_pulls)
      & _is_in(ahead[:, None], play.free)[:, 0]
      & (play.length < _MAX_SOLUTION)
    )
    play.box[rows, box] = np.where(goes, play.agent, play.box[rows, box])
    play.agent = np.where(goes, ahead, play.agent)
    play.length += goes


def _walk(rng: np.random.Generator, play: _Play) -> None:
  """Walks to a random cell, because a player next to a box would reveal it."""
  rows = np.arange(len(play.agent))
  cells = np.broadcast_to(np.arange(NUM_CELLS), (len(rows), NUM_CELLS))
  distance = _distances(play, cells)
  is_possible = (distance >= 0) & (
    play.length[:, None] + distance <= _MAX_SOLUTION
  )
  play.agent = _draw_cells(rng, is_possible, 1)[:, 0]
  play.length += distance[rows, play.agent]


def _distances(play: _Play, goal: np.ndarray) -> np.ndarray:
  """Computes distances from the agent to cells [N, K], around boxes.

  They are [N, K] int; -1 if a cell cannot be reached.
  """
  free, reached, goal_bit = play.free, _BIT[play.agent], _BIT[goal]
  # Counts the steps before a goal is reached.
  distance = np.zeros(goal.shape, int)
  for _ in range(NUM_CELLS):
    distance += (goal_bit & reached[:, None]) == 0
    spread = _spread(reached) & free
    if (spread == reached).all():
      break
    reached = spread
  return np.where(goal_bit & reached[:, None], distance, -1)


def _spread(board: np.ndarray) -> np.ndarray:
  """Returns cells and their neighbors, [N] uint64."""
  return (
    board
    | board << np.uint64(SIDE)
    | board >> np.uint64(SIDE)
    | (board & ~_LAST_COLUMN) << np.uint64(1)
    | (board & ~_FIRST_COLUMN) >> np.uint64(1)
  )


def _board(cell: np.ndarray) -> np.ndarray:
  """Makes boards [N] uint64 of cells [N, K]."""
  return np.bitwise_or.reduce(_BIT[cell], axis=1)


def _is_in(cell: np.ndarray, board: np.ndarray) -> np.ndarray:
  """Returns whether cells [N, K] are in boards [N], [N, K] bool."""
  return (_BIT[cell] & board[:, None]) != 0


def _contents(board: np.ndarray) -> np.ndarray:
  """Returns which cells are in boards [N], [N, 64] bool."""
  return (board[:, None] & _BIT[:NUM_CELLS]) != 0


def _draw_cells(
  rng: np.random.Generator, is_allowed: np.ndarray, number: int
) -> np.ndarray:
  """Draws distinct cells [N, number] int of those allowed, [N, 64] bool."""
  score = np.where(is_allowed, rng.random(is_allowed.shape), -1.0)
  return np.argsort(-score, axis=1)[:, :number]


def _to_levels(play: _Play) -> np.ndarray:
  """Converts games to levels, [N, 10, 10, 2] uint8."""
  rows = np.arange(len(play.agent))
  fixed = np.where(
    _contents(play.floor), sokoban_levels.EMPTY, sokoban_levels.WALL
  )
  fixed[rows[:, None], play.target] = sokoban_levels.TARGET
  movable = np.full_like(fixed, sokoban_levels.EMPTY)
  movable[rows[:, None], play.box] = sokoban_levels.BOX
  movable[rows, play.agent] = sokoban_levels.AGENT
  levels = np.zeros((len(rows), *sokoban_levels.SHAPE), np.uint8)
  levels[..., 0] = sokoban_levels.WALL
  inner = np.stack([fixed, movable], axis=-1)
  levels[:, 1:-1, 1:-1] = inner.reshape(-1, SIDE, SIDE, 2)
  return levels
