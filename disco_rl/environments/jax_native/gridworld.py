"""Grid worlds of objects, and chains that pay late: many tasks, few shapes.

In the manner of the training tasks of LPG (Oh et al., 2020, "Discovering
Reinforcement Learning Algorithms", appendix), unlike which there are five
actions, layouts are part of the task, and an object does not appear under the
agent.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base

NUM_ACTIONS = 5  # In a grid: stay, up, down, left, right.
WALL, FLOOR, START, LETTERS = '#', '.', '@', 'abcdefgh'


@dataclasses.dataclass(frozen=True)
class Kind:
  """Objects that are alike.

  Attributes:
    reward: for collecting one.
    termination: probability that the episode ends then.
    respawn: probability that a collected one reappears, in each later step.
  """

  reward: float
  termination: float
  respawn: float


@types.record
class GridState:
  """Where things are; cells count row by row.

  Attributes:
    agent_cell: [] int32.
    object_cell: [K] int32, where an object is or will reappear; no two are
      equal but for the -1 of slots that hold no object.
    is_present: [K] bool.
    step: [] int32, steps taken in this episode.
  """

  agent_cell: types.Array
  object_cell: types.Array
  is_present: types.Array
  step: types.Array


@types.record
class GridWorld(base.JaxEnvironment):
  """Objects on a board of H x W cells, K slots for objects; see `build`.

  The actions are stay, up, down, left and right. In a step, the agent moves,
  unless a wall or the edge of the board is there. It collects the object in its
  cell, if any: that pays, and may end the episode. Objects collected in earlier
  steps may reappear, but not under the agent. The episode ends after
  `step_limit` steps at the latest, which counts as truncation.

  The observation is one of
    image [H, W, 2 + kinds] float32: walls, the agent, the objects of each kind;
    tabular [H * W + K] float32: the agent's cell one-hot, then which objects
      are present. The layout is not seen, which is why it must be fixed.

  Attributes:
    walls: [H, W] bool.
    start_cell: [] int32, -1: a random one of `places`.
    object_cell: [K] int32, -1 where the slot holds no object.
    object_kind: [K] int32, -1 where the slot holds no object.
    object_reward: [K] float32.
    object_termination: [K] float32, probability.
    object_respawn: [K] float32, probability.
    random_objects: [] bool, objects begin in random `places`; where one will
      reappear is drawn when it is collected: a place, or its own if taken.
    places: [H * W] int32, cells for what is put at random; -1 after the last.
    step_limit: [] int32.
    step_reward: [] float32, paid in every step.
    slip: [] float32, probability that an action is replaced by a random one.
    num_kinds: channels of the image for objects.
    is_tabular: which of the two observations is made.
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
    """Of one task, also where several are stacked; five actions."""
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
    """As `JaxEnvironment.reset`; the observation is that of the class."""
    uniform = _uniform(key, 1 + self.object_kind.size)
    del key
    drawn = self.places[_distinct_ranks(uniform, jnp.sum(self.places >= 0))]
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
    """As `JaxEnvironment.step`; `action` is that of the class."""
    uniform = _uniform(key, 4 + self.object_kind.size)
    del key
    random_action = _below(NUM_ACTIONS, uniform[0])
    action = jnp.where(uniform[1] < self.slip, random_action, action)
    agent_cell = self._move(state.agent_cell, action)

    is_here = state.object_cell == agent_cell
    is_collected = state.is_present & is_here  # In one slot at most.
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

  def _move(self, cell: types.Array, action: types.Array) -> types.Array:
    """The cell that an action leads to; all arrays are [] int32."""
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
    """Where the object under the agent will reappear, [] int32."""
    place = self.places[_below(jnp.sum(self.places >= 0), uniform)]
    is_taken = jnp.any(place == object_cell)
    return jnp.where(is_taken, agent_cell, place)

  def _observe(self, state: GridState) -> types.Array:
    """Reduced to one number a cell first: images are much of a step's cost."""
    rows, columns = self.walls.shape
    cells = jnp.arange(rows * columns)
    is_agent = cells == state.agent_cell
    if self.is_tabular:
      return jnp.concatenate([is_agent, state.is_present]).astype(jnp.float32)
    is_there = state.is_present & (cells[:, None] == state.object_cell)
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


@types.record
class ChainState:
  """How far the episode is.

  Attributes:
    step: [] int32, steps taken in this episode.
    length: [] int32, of this episode.
    cue: [] int32, of this episode.
    choice: [] int32, the decisive action, -1 before it.
  """

  step: types.Array
  length: types.Array
  cue: types.Array
  choice: types.Array


@types.record
class Chain(base.JaxEnvironment):
  """One action decides what the last step pays; see `build_chain`.

  The length and one of C cues are drawn for each episode. The action in step
  `decision_step`, 0 being the first, decides: it pays its `lure` at once and
  its `payoff` under the cue in the last step. All other actions do nothing.
  Steps before the last also pay +`noise` or -`noise`, as it happens.

  The observation is [P + C + A + D] float32: the step one-hot, the cue one-hot,
  the choice one-hot once made, and D random bits, which mean nothing.

  Attributes:
    payoff: [C, A] float32.
    lure: [A] float32.
    min_length: [] int32.
    max_length: [] int32, at most P.
    decision_step: [] int32, less than `min_length`.
    noise: [] float32.
    bit_rate: [] float32, probability that a random bit is 1.
    hides_choice: [] bool, the choice is never observed.
    num_positions: P.
    num_bits: D.
  """

  payoff: types.Array
  lure: types.Array
  min_length: types.Array
  max_length: types.Array
  decision_step: types.Array
  noise: types.Array
  bit_rate: types.Array
  hides_choice: types.Array
  num_positions: int = dataclasses.field(metadata={'static': True})
  num_bits: int = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """Of one task, also where several are stacked."""
    *_, num_cues, num_actions = self.payoff.shape
    size = self.num_positions + num_cues + num_actions + self.num_bits
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct((size,), jnp.float32),
      num_actions=num_actions,
    )

  def reset(self, key: types.Array) -> tuple[ChainState, types.Array]:
    """As `JaxEnvironment.reset`; the observation is that of the class."""
    uniform = _uniform(key, 2 + self.num_bits)
    del key
    num_lengths = 1 + self.max_length - self.min_length
    state = ChainState(
      step=jnp.int32(0),
      length=self.min_length + _below(num_lengths, uniform[0]),
      cue=_below(self.payoff.shape[0], uniform[1]),
      choice=jnp.int32(-1),
    )
    return state, self._observe(state, uniform[2:])

  def step(
    self, state: ChainState, action: types.Array, key: types.Array
  ) -> tuple[ChainState, types.TimeStep]:
    """As `JaxEnvironment.step`."""
    uniform = _uniform(key, 1 + self.num_bits)
    del key
    decides = state.step == self.decision_step
    choice = jnp.where(decides, action, state.choice)
    is_last = state.step + 1 == state.length
    lure = jnp.where(decides, self.lure[action], 0.0)
    noise = jnp.where(uniform[0] < 0.5, -self.noise, self.noise)
    state = ChainState(
      step=state.step + 1, length=state.length, cue=state.cue, choice=choice
    )
    return state, types.TimeStep(
      observation=self._observe(state, uniform[1:]),
      reward=lure + jnp.where(is_last, self.payoff[state.cue, choice], noise),
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def _observe(self, state: ChainState, uniform: types.Array) -> types.Array:
    """As the class says; `uniform` [D] decides the random bits."""
    num_cues, num_actions = self.payoff.shape
    shown = jnp.where(self.hides_choice, -1, state.choice)
    return jnp.concatenate(
      [
        jnp.arange(self.num_positions) == state.step,
        jnp.arange(num_cues) == state.cue,
        jnp.arange(num_actions) == shown,
        uniform < self.bit_rate,
      ]
    ).astype(jnp.float32)


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
    layout: rows of equal length, apart by white space: '#' wall, '.' floor, '@'
      the start, a letter an object: 'a' of `kinds[0]`, and so on. Without '@'
      every episode starts in a random cell without an object.
    kinds: of the objects.
    step_limit: the longest episode.
    size: H, W of the board, filled up with walls below and to the right.
    num_slots: K, at least the number of objects.
    num_kinds: at least `len(kinds)`.
    is_tabular: see `GridWorld`.
    random_objects: see `GridWorld`; the drawing then only says how many there
      are. They are never put where a '@' is.
    step_reward: see `GridWorld`.
    slip: see `GridWorld`.

  Returns:
    The task. Those of equal size, numbers and observations stack.

  Raises:
    ValueError: if the drawing or a number is not as described.
  """
  _check_numbers(kinds, step_limit, slip)
  cells = _read(layout, LETTERS[: len(kinds)], size)
  object_cells = np.flatnonzero(np.isin(cells, list(LETTERS)))
  object_kinds = [LETTERS.index(letter) for letter in cells[object_cells]]
  num_objects = len(object_kinds)
  if num_objects > num_slots or len(kinds) > num_kinds:
    raise ValueError(
      f'{num_objects} objects of {len(kinds)} kinds do not fit into '
      f'num_slots={num_slots}, num_kinds={num_kinds}:\n{layout}'
    )
  if random_objects and is_tabular:
    raise ValueError('Tabular observations do not show where objects are.')

  starts = np.flatnonzero(cells == START)
  places = np.flatnonzero(cells == FLOOR)
  wanted = 1 - starts.size
  if random_objects:
    places = np.union1d(places, object_cells)
    wanted += num_objects
  if places.size < wanted:
    raise ValueError(f'{wanted} free cells are wanted:\n{layout}')

  of_kind = lambda field: _padded(
    [getattr(kinds[kind], field) for kind in object_kinds],
    num_slots,
    0.0,
    jnp.float32,
  )
  return GridWorld(
    walls=jnp.asarray((cells == WALL).reshape(size)),
    start_cell=jnp.int32(starts[0] if starts.size else -1),
    object_cell=_padded(object_cells, num_slots, -1, jnp.int32),
    object_kind=_padded(object_kinds, num_slots, -1, jnp.int32),
    object_reward=of_kind('reward'),
    object_termination=of_kind('termination'),
    object_respawn=of_kind('respawn'),
    random_objects=jnp.bool_(random_objects),
    places=_padded(places, cells.size, -1, jnp.int32),
    step_limit=jnp.int32(step_limit),
    step_reward=jnp.float32(step_reward),
    slip=jnp.float32(slip),
    num_kinds=num_kinds,
    is_tabular=is_tabular,
  )


def build_chain(
  payoff: Sequence[Sequence[float]],
  lengths: tuple[int, int],
  *,
  num_positions: int,
  num_bits: int,
  lure: Sequence[float] | None = None,
  decision_step: int = 0,
  noise: float = 0.0,
  bit_rate: float = 0.0,
  hides_choice: bool = False,
) -> Chain:
  """Makes a chain.

  Args:
    payoff: [C, A].
    lengths: the shortest and the longest episode.
    num_positions: P, at least the longest episode.
    num_bits: D.
    lure: [A], zeros by default.
    decision_step: see `Chain`, as for all others.
    noise: of either sign.
    bit_rate: in [0, 1].
    hides_choice: whether the choice is never observed.

  Returns:
    The task. Those of equal C, A, P and D stack.

  Raises:
    ValueError: if a number is not as described.
  """
  shortest, longest = lengths
  if not 0 <= decision_step < shortest <= longest <= num_positions:
    raise ValueError(
      'Wanted: 0 <= decision_step < shortest <= longest <= num_positions; got '
      f'{decision_step}, {shortest}, {longest}, {num_positions}.'
    )
  if not 0 <= bit_rate <= 1:
    raise ValueError(f'bit_rate must be in [0, 1], got {bit_rate}.')
  table = np.asarray(payoff, np.float32)
  first = np.zeros(table.shape[1:]) if lure is None else np.asarray(lure)
  if table.ndim != 2 or first.shape != table.shape[1:]:
    raise ValueError(
      f'payoff must be [C, A] and lure [A], got {table.shape}, {first.shape}.'
    )
  return Chain(
    payoff=jnp.asarray(table),
    lure=jnp.asarray(first, jnp.float32),
    min_length=jnp.int32(shortest),
    max_length=jnp.int32(longest),
    decision_step=jnp.int32(decision_step),
    noise=jnp.float32(noise),
    bit_rate=jnp.float32(bit_rate),
    hides_choice=jnp.bool_(hides_choice),
    num_positions=num_positions,
    num_bits=num_bits,
  )


def _uniform(key: types.Array, num: int) -> types.Array:
  """Draws multiples of 2**-16 in [0, 1), [num] float32.

  Two from each random word: random words are most of what a step costs.
  """
  words = jax.random.bits(key, (-(-num // 2),))
  halves = jnp.concatenate([words >> 16, words & 0xFFFF])[:num]
  return halves.astype(jnp.float32) * 2.0**-16


def _below(count: int | types.Array, uniform: types.Array) -> types.Array:
  """Turns what `_uniform` draws into integers from 0 to count - 1."""
  return jnp.floor(uniform * jnp.float32(count)).astype(jnp.int32)


def _distinct_ranks(uniform: types.Array, count: types.Array) -> types.Array:
  """Draws without replacement from 0 .. count - 1.

  The i-th is one of the count - i that are left, in order (a Lehmer code), and
  makes room for all drawn before it. The first `count` are valid.

  Args:
    uniform: [N] float32 in [0, 1).
    count: [] int32.

  Returns:
    [N] int32.
  """
  index = jnp.arange(uniform.size)
  ranks = _below(jnp.maximum(count - index, 1), uniform)
  for i in reversed(range(uniform.size - 1)):
    ranks = jnp.where((index > i) & (ranks >= ranks[i]), ranks + 1, ranks)
  return ranks


def _read(layout: str, letters: str, size: tuple[int, int]) -> np.ndarray:
  """Returns the drawing filled up with walls, [H * W] of one character each."""
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
  values: Sequence[Any] | np.ndarray, size: int, fill: float, dtype: Any
) -> types.Array:
  """Returns `values` followed by `fill`, [size]."""
  padded = np.full(size, fill)
  padded[: len(values)] = values
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
