"""Tests of Catch."""

from typing import Any

import conformance
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import random_catch

NUM_ENVIRONMENTS = 96


def test_conformance() -> None:
  environment = catch.Catch()
  timestep = conformance.check(lambda _: environment, num_steps=21).timestep
  lasts = np.broadcast_to(np.arange(21)[:, None] % 7 == 6, (21, 96))
  np.testing.assert_array_equal(timestep.is_last, lasts)
  np.testing.assert_array_equal(timestep.is_terminal, lasts)


@pytest.mark.parametrize('rows, columns', [(8, 8), (10, 5)])
def test_episodes_are_those_of_a_simulation(rows: int, columns: int) -> None:
  environment = catch.Catch(rows, columns)
  action = conformance.random_actions(3, rows - 1, NUM_ENVIRONMENTS)

  @jax.jit
  def play(key: Any) -> Any:
    keys = jax.random.split(key, NUM_ENVIRONMENTS)
    state, first = jax.vmap(environment.reset)(keys)
    step = lambda state, action: jax.vmap(environment.step)(state, action, keys)
    return first, jax.lax.scan(step, state, action)[1]

  first, timestep = jax.tree.map(np.asarray, play(jax.random.key(0)))
  game = np.arange(NUM_ENVIRONMENTS)
  ball = first[:, 0].argmax(-1)
  assert set(ball) == set(range(columns))
  paddle, hits = np.full(NUM_ENVIRONMENTS, columns // 2), set()
  for t, observation in enumerate([first, *timestep.observation]):
    board = np.zeros((NUM_ENVIRONMENTS, rows, columns))
    # A caught ball covers the paddle.
    board[game, t, ball] = board[game, -1, paddle] = 1
    np.testing.assert_array_equal(observation, board)
    if t < rows - 1:
      moved = paddle + action[t] - 1
      paddle = np.clip(moved, 0, columns - 1)
      hits |= set(moved[moved != paddle].tolist())
  assert hits == {-1, columns}, 'the actions never press against a wall'

  reward = np.zeros((rows - 1, NUM_ENVIRONMENTS))
  reward[-1] = np.where(ball == paddle, 1, -1)
  assert set(reward[-1]) == {-1, 1}
  np.testing.assert_array_equal(timestep.reward, reward)
  np.testing.assert_array_equal(timestep.is_last, reward != 0)
  np.testing.assert_array_equal(timestep.is_terminal, reward != 0)


@pytest.mark.parametrize('rows, columns', [(4, 3), (5, 4), (7, 4)])
def test_a_board_in_a_larger_observation_is_the_same_game(
  rows: int, columns: int
) -> None:
  alone: Any = catch.Catch(rows, columns)
  inside: Any = random_catch.SmallCatch(7, 4, board=jnp.array([rows, columns]))

  @jax.jit
  def play(environment: Any) -> Any:
    keys = jax.random.split(jax.random.key(0), 2 * rows)
    state, first = environment.reset_batch(keys[0], NUM_ENVIRONMENTS)

    def step(state: Any, key: Any) -> Any:
      action = jax.random.randint(key, (NUM_ENVIRONMENTS,), 0, 3)
      return environment.step_batch(
        state, action, jax.random.split(key, NUM_ENVIRONMENTS)
      )

    return first, jax.lax.scan(step, state, keys)

  (first, want), (first_inside, got) = play(alone), play(inside)
  np.testing.assert_array_equal(first_inside[:, :rows, :columns], first)
  board = got[1].observation[..., :rows, :columns]
  np.testing.assert_array_equal(board, want[1].observation)
  assert got[1].observation.sum() == board.sum(), 'something is off the board'
  for name in ('reward', 'is_last', 'is_terminal'):
    np.testing.assert_array_equal(getattr(got[1], name), getattr(want[1], name))
  assert want[1].is_last.any()
