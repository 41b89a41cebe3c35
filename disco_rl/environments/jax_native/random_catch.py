"""Catch on boards of random sizes.

random_catch     a new board for each agent
random_catch/17  board number 17 for all agents, by the same generator
"""

import dataclasses

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.environments import family
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import task_distribution

# The smallest and largest numbers, inclusive.
ROWS = (2, 7)
COLUMNS = (3, 4)


def has(rows: float, columns: float) -> bool:
  """Returns whether boards of this size are drawn."""
  return ROWS[0] <= rows <= ROWS[1] and COLUMNS[0] <= columns <= COLUMNS[1]


@types.record
class SmallCatch(catch.Catch):
  """Catch on a board that may be smaller than the observation.

  The board is at the top left of the observation, which is 0 elsewhere.

  Attributes:
    board: [2] int32, the rows and columns of the board.
  """

  board: types.Array = dataclasses.field(kw_only=True)

  @property
  def _board(self) -> tuple[types.Array, types.Array]:
    return self.board[0], self.board[1]


@types.record
class RandomCatch(task_distribution.TaskDistribution):
  """Boards of 2 to 7 rows and 3 or 4 columns, each equally probable."""

  def draw(self, key: types.Array) -> SmallCatch:
    """Draws a board."""
    low, high = jnp.array([ROWS, COLUMNS]).T
    return SmallCatch(
      rows=ROWS[1],
      columns=COLUMNS[1],
      board=jax.random.randint(key, (2,), low, high + 1),
    )


FAMILIES = {
  'random_catch': family.Family(
    form='random_catch, random_catch/NUMBER or random_catch/of_SIZE (of_16)',
    kind='device',
    names=lambda: ('random_catch',),
    find=lambda variant, _: task_distribution.find(RandomCatch, variant),
    find_scale=lambda _: catch.SCALE,
  )
}
