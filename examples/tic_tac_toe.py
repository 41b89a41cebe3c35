"""Tic-tac-toe against random moves: a game whose legal actions change.

  python -m examples.tic_tac_toe
  python -m examples.tic_tac_toe --rule=actor_critic

The reward is +1 for three in a row, -1 if the opponent has them, 0 for a draw.
A move to a taken cell would lose; the mask in the observation rules it out.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import disco_rl
from disco_rl import types
from disco_rl.environments import base

_LINES = np.array(
  [
    *[[3 * i, 3 * i + 1, 3 * i + 2] for i in range(3)],
    *[[i, i + 3, i + 6] for i in range(3)],
    [0, 4, 8],
    [2, 4, 6],
  ]
)


# Shown as: environment
@types.record
class TicTacToe(base.JaxEnvironment):
  """The state is the board, [9]: 1 for the agent, -1 for its opponent.

  Either of them begins; the opponent chooses among free cells at random.
  """

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The cells of either player, and which cells are free."""
    observation = {
      'cells': jax.ShapeDtypeStruct((2, 9), jnp.float32),
      'action_mask': jax.ShapeDtypeStruct((9,), bool),
    }
    return types.EnvironmentSpec(observation, num_actions=9)

  def reset(self, key: types.Array) -> tuple[types.Array, types.PyTree]:
    """Clears the board."""
    begins_key, move_key = jax.random.split(key)
    board = jnp.zeros(9, jnp.int32)
    board = jnp.where(
      jax.random.bernoulli(begins_key), board, _random_move(board, move_key)
    )
    return board, self._observe(board)

  def step(
    self, board: types.Array, action: types.Array, key: types.Array
  ) -> tuple[types.Array, types.TimeStep]:
    """Makes both moves, the second only if the game continues."""
    is_legal = board[action] == 0
    board = jnp.where(is_legal, board.at[action].set(1), board)
    is_over = _won(board, 1) | jnp.all(board != 0)
    board = jnp.where(is_over, board, _random_move(board, key))
    has_lost = _won(board, -1) | ~is_legal
    is_over |= has_lost | jnp.all(board != 0)
    reward = jnp.where(has_lost, -1.0, jnp.where(_won(board, 1), 1.0, 0.0))
    return board, types.TimeStep(
      observation=self._observe(board),
      reward=reward,
      is_terminal=is_over,
      is_last=is_over,
      mask=jnp.bool_(True),
    )

  def _observe(self, board: types.Array) -> types.PyTree:
    cells = jnp.stack([board == 1, board == -1])
    return {'cells': cells.astype(jnp.float32), 'action_mask': board == 0}


# End of: environment


def _random_move(board: types.Array, key: types.Array) -> types.Array:
  scores = jnp.where(board == 0, jax.random.uniform(key, (9,)), -1.0)
  return board.at[jnp.argmax(scores)].set(-1)


def _won(board: types.Array, player: int) -> types.Array:
  return jnp.any(jnp.all(board[_LINES] == player, axis=1))


def main() -> None:
  """Trains; plays a thousand games before and after."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='general')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--updates', type=int, default=300)
  flags = parser.parse_args()
  trainer = disco_rl.Trainer(TicTacToe(), flags.rule, seed=flags.seed)
  print(f'before: {trainer.evaluate(1000)}')
  trainer.train(flags.updates)
  print(f'after {flags.updates} updates: {trainer.evaluate(1000)}')


if __name__ == '__main__':
  main()
