"""Grid worlds with objects to collect: many tasks with few shapes.

They resemble the training tasks of LPG (Oh et al., 2020, "Discovering
Reinforcement Learning Algorithms", appendix), with these differences: there are
five actions, layouts are part of the task, and an object does not appear under
the agent.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments.jax_native import draws

NUM_ACTIONS = 5  # In a grid: stay, up, down, left, right.
WALL, FLOOR, START, LETTERS = '#', '.', '@', 'abcdefgh'


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of object.

  Attributes:
    reward: The reward for collecting one.
    termination: The probability that the episode then ends.
    respawn: The probability that a collected one reappears, in each later step.
  """

  reward: float
  termination: float
  respawn: float


@types.record
class GridState:
  """The positions of agent and objects; cells are numbered row by row.

  Attributes:
    agent_cell: [] int32.
    object_cell: [K] int32, the cells where objects are or will reappear, which
      are distinct; -1 for slots without an object.
    is_present: [K] bool.
    step: [] int32, steps taken in this episode.
  """

  agent_cell: types.Array
  object_cell: types.Array
  is_present: types.Array
  step: types.Array


@types.record
class GridWorld(base.JaxEnvironment):
  """Objects on a board of H x W cells, with K slots for objects; see `build`.

  The actions are stay, up, down, left and right. In a step, the agent moves,
  unless a wall or the edge of the board blocks it, and collects the object in
  its new cell, if any: it receives the object's reward, and the episode may
  end. Objects collected in earlier steps may reappear, but not under the agent.
  Episodes are truncated after `step_limit` steps.

  The observation is one of
    image [H, W, 2 + kinds] float32: walls, the agent, the objects of each kind;
    tabular [H * W + K] float32: the agent's cell one-hot, then one bit for each
      object that is present. It does not show the layout, which must be fixed.

  Attributes:
    walls: [H, W] bool.
    start_cell: [] int32; -1 for a random one of `places`.
    object_cell: [K] int32; -1 for slots without an object.
    object_kind: [K] int32; -1 for slots without an object.
    object_reward: [K] float32.
    object_termination: [K] float32, probability.
    object_respawn: [K] float32, probability.
    random_objects: [] bool, whether objects begin in random `places`. The cell
      in which a collected one reappears is drawn from `places`; it is the old
      cell if the drawn one is taken.
    places: [H * W] int32, cells for random starts and objects, padded by -1.
    step_limit: [] int32.
    step_reward: [] float32, added to the reward of every step.
    slip: [] float32, probability that an action is replaced by a random one.
    num_kinds: The number of channels for objects in the image.
    is_tabular: Whether the observation is tabular.
  """

  walls: types.Array
  start_cell: types.Array
  object_cell: types.Array
  object_kind: types.Array
  object_reward: types.Array
  object_termination: types.Array
  object_respawn: types.Array
  random_objects: types.Array
  places: types.Array
  step_limit: types.Array
  step_reward: types.Array
  slip: types.Array
  num_kinds: int = dataclasses.field(metadata={'static': True})
  is_tabular: bool = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of one task, even if several are stacked; five actions."""
    *_, rows, columns = self.walls.shape
    if self.is_tabular:
      shape: tuple[int, ...] = (rows * columns + self.object_kind.shape[-1],)
    else:
      shape = (rows, columns, 2 + self.num_kinds)
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct(shape, jnp.float32),
      num_actions=NUM_ACTIONS,
    )

  def reset(self, key: types.Array) -> tuple[GridState, types.Array]:
    """Begins an episode; see the class for the observation."""
    uniform = draws.uniform(key, 1 + self.object_kind.size)
    del key
    ranks = draws.distinct_ranks(uniform, jnp.sum(self.places >= 0))
    drawn = self.places[ranks]
    is_object = self.object_kind >= 0
    state = GridState(
      agent_cell=jnp.where(self.start_cell < 0, drawn[0], self.start_cell),
      object_cell=jnp.where(
        self.random_objects & is_object, drawn[1:], self.object_cell
      ),
      is_present=is_object,
      step=jnp.int32(0),
    )
    return state, self._observe(state)

  def step(
    self, state: GridState, action: types.Array, key: types.Array
  ) -> tuple[GridState, types.TimeStep]:
    """Takes one action; see the class for their meaning."""
    uniform = draws.uniform(key, 4 + self.object_kind.size)
    del key
    random_action = draws.below(NUM_ACTIONS, uniform[0])
    action = jnp.where(uniform[1] < self.slip, random_action, action)
    agent_cell = self._move(state.agent_cell, action)

    is_here = state.object_cell == agent_cell
    is_collected = state.is_present & is_here  # In at most one slot.
    reward = jnp.sum(jnp.where(is_collected, self.object_reward, 0.0))
    is_terminal = jnp.any(is_collected & (uniform[2] < self.object_termination))
    reappears = (
      ~state.is_present & ~is_here & (uniform[4:] < self.object_respawn)
    )
    place = self._draw_place(state.object_cell, agent_cell, uniform[3])
    state = GridState(
      agent_cell=agent_cell,
      object_cell=jnp.where(
        self.random_objects & is_collected, place, state.object_cell
      ),
      is_present=state.is_present & ~is_collected | reappears,
      step=state.step + 1,
    )
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=reward + self.step_reward,
      is_terminal=is_terminal,
      is_last=is_terminal | (state.step >= self.step_limit),
      mask=jnp.bool_(True),
    )

  def render(self, state: GridState) -> np.ndarray:
    """Draws the grid; each kind of object has its own color."""
    shape = self.walls.shape
    kind_of_cell = np.full(np.prod(shape), -1)
    is_present = np.asarray(state.is_present)
    cells = np.asarray(state.object_cell)[is_present]
    kind_of_cell[cells] = np.asarray(self.object_kind)[is_present]
    is_agent = np.arange(kind_of_cell.size) == np.asarray(state.agent_cell)
    return boards.paint(
      (np.asarray(self.walls), boards.WALL),
      *(
        (
          (kind_of_cell == kind).reshape(shape),
          boards.COLORS[kind % len(boards.COLORS)],
        )
        for kind in range(self.num_kinds)
      ),
      (is_agent.reshape(shape), boards.AGENT),
    )

  def _move(self, cell: types.Array, action: types.Array) -> types.Array:
    """Returns the cell that an action leads to; all arrays are [] int32."""
    rows, columns = self.walls.shape
    toward = lambda a, b: jnp.where(
      action == a, -1, jnp.where(action == b, 1, 0)
    )
    down, right = toward(1, 2), toward(3, 4)
    row = jnp.clip(cell // columns + down, 0, rows - 1)
    column = jnp.clip(cell % columns + right, 0, columns - 1)
    return jnp.where(self.walls[row, column], cell, row * columns + column)

  def _draw_place(
    self,
    object_cell: types.Array,
    agent_cell: types.Array,
    uniform: types.Array,
  ) -> types.Array:
    """Draws the cell in which the collected object reappears, [] int32."""
    place = self.places[draws.below(jnp.sum(self.places >= 0), uniform)]
    is_taken = jnp.any(place == object_cell)
    return jnp.where(is_taken, agent_cell, place)

  def _observe(self, state: GridState) -> types.Array:
    """Returns the observation described in the class."""
    rows, columns = self.walls.shape
    cells = jnp.arange(rows * columns)
    is_agent = cells == state.agent_cell
    if self.is_tabular:
      return jnp.concatenate([is_agent, state.is_present]).astype(jnp.float32)
    is_there = state.is_present & (cells[:, None] == state.object_cell)
    # One number for each cell first, because images dominate a step's cost.
    kind = jnp.max(jnp.where(is_there, self.object_kind, -1), axis=-1)
    image = jnp.concatenate(
      [
        self.walls.reshape(-1, 1),
        is_agent[:, None],
        kind[:, None] == jnp.arange(self.num_kinds),
      ],
      axis=-1,
    )
    return image.astype(jnp.float32).reshape(rows, columns, -1)


def build(
  layout: str,
  kinds: Sequence[Kind],
  step_limit: int,
  *,
  size: tuple[int, int],
  num_slots: int,
  num_kinds: int,
  is_tabular: bool = False,
  random_objects: bool = False,
  step_reward: float = 0.0,
  slip: float = 0.0,
) -> GridWorld:
  """Makes a grid world from a drawing.

  Args:
    layout: Rows of equal length, separated by white space: '#' is a wall, '.'
      floor, '@' the start, and a letter an object: 'a' of `kinds[0]`, and so
      on. Without '@' every episode starts in a random cell without an object.
    kinds: The kinds of the objects.
    step_limit: The maximal length of an episode.
    size: H, W of the board, padded with walls below and to the right.
    num_slots: K, at least the number of objects.
    num_kinds: The number of channels for objects, at least `len(kinds)`.
    is_tabular: Whether the observation is tabular.
    random_objects: Whether objects begin in random places, but not at '@'; the
      drawing then only determines their number.
    step_reward: The reward that is added to every step.
    slip: The probability that an action is replaced by a random one.

  Returns:
    The task. Tasks with equal sizes, numbers and observations stack.

  Raises:
    ValueError: The drawing or a number is not valid.
  """
  _check_numbers(kinds, step_limit, slip)
  cells = _read(layout, LETTERS[: len(kinds)], size)
  if random_objects and is_tabular:
    raise ValueError('Tabular observations do not show where objects are.')
  slots = _slots(layout, cells, kinds, num_slots, num_kinds)
  start = np.flatnonzero(cells == START)
  return GridWorld(
    walls=jnp.asarray((cells == WALL).reshape(size)),
    start_cell=jnp.int32(start[0] if start.size else -1),
    **slots,
    random_objects=jnp.bool_(random_objects),
    places=_free_places(layout, cells, random_objects),
    step_limit=jnp.int32(step_limit),
    step_reward=jnp.float32(step_reward),
    slip=jnp.float32(slip),
    num_kinds=num_kinds,
    is_tabular=is_tabular,
  )


def _slots(
  layout: str,
  cells: np.ndarray,
  kinds: Sequence[Kind],
  num_slots: int,
  num_kinds: int,
) -> dict[str, types.Array]:
  """Returns the fields of `GridWorld` that describe objects, [K] each."""
  object_cells = np.flatnonzero(np.isin(cells, list(LETTERS)))
  if len(object_cells) > num_slots or len(kinds) > num_kinds:
    raise ValueError(
      f'{len(object_cells)} objects of {len(kinds)} kinds do not fit into '
      f'num_slots={num_slots}, num_kinds={num_kinds}:\n{layout}'
    )
  indices = [LETTERS.index(letter) for letter in cells[object_cells]]
  fields: dict[str, types.Array] = {
    'object_cell': _padded(object_cells, num_slots, -1, jnp.int32),
    'object_kind': _padded(indices, num_slots, -1, jnp.int32),
  }
  for name in ('reward', 'termination', 'respawn'):
    values = [getattr(kinds[i], name) for i in indices]
    fields[f'object_{name}'] = _padded(values, num_slots, 0.0, jnp.float32)
  return fields


def _free_places(
  layout: str, cells: np.ndarray, random_objects: bool
) -> types.Array:
  """Returns the cells for random starts and objects, [H * W], padded by -1."""
  is_place = cells == FLOOR
  # `reset` draws a start before objects even if there is a fixed one.
  num_placed = int(START not in cells or random_objects)
  if random_objects:
    is_object = np.isin(cells, list(LETTERS))
    is_place |= is_object
    num_placed += int(is_object.sum())
  if is_place.sum() < num_placed:
    raise ValueError(f'{num_placed} free cells are required:\n{layout}')
  return _padded(np.flatnonzero(is_place), cells.size, -1, jnp.int32)


def _read(layout: str, letters: str, size: tuple[int, int]) -> np.ndarray:
  """Returns the drawing padded with walls, [H * W] of one character each."""
  drawn = [list(row) for row in layout.split()]
  shape = (len(drawn), len(drawn[0]) if drawn else 0)
  if not drawn or {len(row) for row in drawn} != {shape[1]}:
    raise ValueError(f'The rows differ in length, or there are none:\n{layout}')
  if shape[0] > size[0] or shape[1] > size[1]:
    raise ValueError(f'{shape} exceeds the board {size}:\n{layout}')
  cells = np.full(size, WALL)
  cells[: shape[0], : shape[1]] = drawn
  unknown = set(cells.flat) - {WALL, FLOOR, START, *letters}
  if unknown or (cells == START).sum() > 1:
    raise ValueError(
      f'Only # . @ {letters} may be drawn, and @ once; not '
      f'{" ".join(sorted(unknown))}:\n{layout}'
    )
  return cells.reshape(-1)


def _padded(
  values: Sequence[float] | np.ndarray,
  size: int,
  fill: float,
  dtype: jax.typing.DTypeLike,
) -> types.Array:
  """Returns `values` followed by `fill`, [size]."""
  padded = np.pad(values, (0, size - len(values)), constant_values=fill)
  return jnp.asarray(padded, dtype)


def _check_numbers(kinds: Sequence[Kind], step_limit: int, slip: float) -> None:
  probabilities = [
    slip,
    *(kind.termination for kind in kinds),
    *(kind.respawn for kind in kinds),
  ]
  if step_limit < 1 or not all(0 <= p <= 1 for p in probabilities):
    raise ValueError(
      'step_limit must be >= 1 and probabilities in [0, 1]; got '
      f'step_limit={step_limit}, slip={slip}, kinds={kinds}.'
    )
