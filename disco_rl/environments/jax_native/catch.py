"""Catch: move a paddle under a falling ball."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments import family
from disco_rl.environments import scores

_LARGEST = 2**20


@types.record
class State:
  """The positions on the board; the paddle is always in the bottom row.

  Attributes:
    ball_row: [] int32.
    ball_column: [] int32.
    paddle_column: [] int32.
  """

  ball_row: types.Array
  ball_column: types.Array
  paddle_column: types.Array


@types.record
class Catch(base.JaxEnvironment):
  """The game of bsuite (Osband et al., 2020) on a board of any size.

  The ball starts in a random column of the top row and falls one row a step;
  the paddle starts at the center. The actions are left, stay and right. When
  the ball arrives in the bottom row, after `rows - 1` steps, the episode ends
  with reward +1 if the paddle is there and -1 otherwise; other rewards are 0.

  The observation is [rows, columns] float32, 1 at the ball and at the paddle.
  """

  rows: int = dataclasses.field(default=8, metadata={'static': True})
  columns: int = dataclasses.field(default=8, metadata={'static': True})

  def __post_init__(self) -> None:
    """Raises ValueError if the board is too small or too large."""
    if self.rows < 2 or self.columns < 1 or self.rows * self.columns > _LARGEST:
      raise ValueError(
        'Catch needs at least 2 rows, for the ball to fall, 1 column, and at '
        f'most {_LARGEST} cells, for observations to fit in memory; got '
        f'rows={self.rows}, columns={self.columns}.'
      )

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec: observations [rows, columns], three actions."""
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct((self.rows, self.columns), jnp.float32),
      num_actions=3,
    )

  def reset(self, key: types.Array) -> tuple[State, types.Array]:
    """Implements `JaxEnvironment.reset`; the observation is [rows, columns]."""
    _, columns = self._board
    state = State(
      ball_row=jnp.int32(0),
      ball_column=jax.random.randint(key, (), 0, columns, jnp.int32),
      paddle_column=jnp.int32(columns // 2),
    )
    return state, self._observe(state)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    """Moves the paddle; `action` is 0 for left, 1 for stay, 2 for right."""
    del key  # Only the start is random.
    rows, columns = self._board
    state = State(
      ball_row=state.ball_row + 1,
      ball_column=state.ball_column,
      paddle_column=jnp.clip(state.paddle_column + action - 1, 0, columns - 1),
    )
    landed = state.ball_row == rows - 1
    caught = state.ball_column == state.paddle_column
    reward = jnp.where(landed, jnp.where(caught, 1, -1), 0)
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=reward.astype(jnp.float32),
      is_terminal=landed,
      is_last=landed,
      mask=jnp.bool_(True),
    )

  def render(self, state: State) -> np.ndarray:
    """Implements `JaxEnvironment.render`; the ball hides the paddle."""
    rows, columns = self._board
    board = np.zeros((3, self.rows, self.columns), bool)
    board[0, rows:] = board[0, :, columns:] = True
    board[1, rows - 1, state.paddle_column] = True
    board[2, state.ball_row, state.ball_column] = True
    colors = (boards.WALL, boards.AGENT, boards.COLORS[0])
    return boards.paint(*zip(board, colors))

  @property
  def _board(self) -> tuple[int | types.Array, int | types.Array]:
    """The rows and columns of the board."""
    return self.rows, self.columns

  def _observe(self, state: State) -> types.Array:
    rows, _ = self._board
    board = jnp.zeros((self.rows, self.columns), jnp.float32)
    board = board.at[state.ball_row, state.ball_column].set(1.0)
    return board.at[rows - 1, state.paddle_column].set(1.0)


def _find(variant: str | None, _: None) -> family.Builder | None:
  """Returns the builder of a variant, such as 10x5."""
  if variant is None:
    environment = Catch()
  elif size := re.fullmatch('([0-9]{1,9})x([0-9]{1,9})', variant):
    environment = Catch(rows=int(size[1]), columns=int(size[2]))
  else:
    return None
  return lambda *_: environment


SCALE = scores.Scale(
  scores.Benchmark(
    'catch',
    'Catch, normalized',
    '0 is missing every ball (return -1), 1 catching every ball (return 1).',
    is_high_best=True,
  ),
  low=-1.0,
  high=1.0,
)
FAMILIES = {
  'catch': family.Family(
    form='catch or catch/ROWSxCOLUMNS (catch/10x5)',
    kind='device',
    names=lambda: ('catch',),
    find=_find,
    find_scale=lambda _: SCALE,
  )
}
