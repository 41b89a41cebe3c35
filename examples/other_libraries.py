"""Agents in environments of MiniGrid, navix, jumanji and pgx.

  pip install minigrid navix jumanji pgx
  python -m examples.other_libraries --library=minigrid

MiniGrid's steps on the host, the others on the device. Each program prints the
mean return of new episodes before and after training.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import disco_rl


# Shown as: minigrid
def minigrid(**settings: Any) -> disco_rl.Trainer:
  """An empty room of MiniGrid; 0.96 is about the best return."""
  import gymnasium
  from minigrid import wrappers

  def make() -> gymnasium.Env:
    # Without the text of the mission: symbols [7, 7, 3].
    return wrappers.ImgObsWrapper(gymnasium.make('MiniGrid-Empty-5x5-v0'))

  return disco_rl.Trainer(make, **settings)


# End of: minigrid


# Shown as: navix
def navix(**settings: Any) -> disco_rl.Trainer:
  """The same room in JAX, seen as a whole; 1 for the goal."""
  import navix

  return disco_rl.Trainer(navix.make('Navix-Empty-5x5-v0'), **settings)


# End of: navix


# Shown as: jumanji
def jumanji(**settings: Any) -> disco_rl.Trainer:
  """Snake on a small board; 1 for each fruit."""
  from jumanji import environments

  return disco_rl.Trainer(environments.Snake(6, 6), **settings)


# End of: jumanji


# Shown as: pgx
class AgainstRandomMoves:
  """A game of pgx for two as a game for one; the second moves at random."""

  num_players = 1

  def __init__(self, game: Any):
    self._game = game
    self.num_actions = game.num_actions

  def init(self, key: jax.Array) -> Any:
    """Begins a game; if the other player does, after its move."""
    key, others_key = jax.random.split(key)
    return self._answer(self._game.init(key), others_key)

  def step(self, state: Any, action: jax.Array, key: jax.Array) -> Any:
    """Makes a move, and those of the other player until the agent's turn."""
    key, others_key = jax.random.split(key)
    return self._answer(self._game.step(state, action, key), others_key)

  def _answer(self, state: Any, key: jax.Array) -> Any:
    def is_others_turn(carry: tuple[Any, jax.Array]) -> jax.Array:
      return (carry[0].current_player == 1) & ~carry[0].terminated

    def move(carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
      state, key = carry
      key, action_key, step_key = jax.random.split(key, 3)
      logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
      action = jax.random.categorical(action_key, logits)
      return self._game.step(state, action, step_key), key

    return jax.lax.while_loop(is_others_turn, move, (state, key))[0]


def pgx(**settings: Any) -> disco_rl.Trainer:
  """Tic-tac-toe: 1 for a game won, -1 for one lost."""
  import pgx

  return disco_rl.Trainer(
    AgainstRandomMoves(pgx.make('tic_tac_toe')), **settings
  )


# End of: pgx

_TRAINERS: dict[str, Callable[..., disco_rl.Trainer]] = {
  'minigrid': minigrid,
  'navix': navix,
  'jumanji': jumanji,
  'pgx': pgx,
}


def main() -> None:
  """Trains an agent; plays a hundred episodes before and after."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--library', choices=_TRAINERS, default='navix')
  parser.add_argument('--rule', default='ppo')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--steps', type=int, default=100_000)
  flags = parser.parse_args()
  trainer = _TRAINERS[flags.library](rule=flags.rule, seed=flags.seed)
  print(f'before: {trainer.evaluate(100)}')
  trainer.train(steps=flags.steps)
  print(f'after {flags.steps:,} steps: {trainer.evaluate(100)}')
  trainer.close()


if __name__ == '__main__':
  main()
