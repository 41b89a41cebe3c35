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


@pytest.fixture(scope='module')
def trajectory() -> conformance.Trajectory:
  environment = catch.Catch()
  return conformance.check(lambda _: environment, num_steps=21)


def test_episodes_last_until_the_ball_lands(
  trajectory: conformance.Trajectory,
) -> None:
  timestep = trajectory.timestep
  lasts = np.zeros((21, NUM_ENVIRONMENTS), bool)
  lasts[6::7] = True
  np.testing.assert_array_equal(timestep.is_last, lasts)
  np.testing.assert_array_equal(timestep.is_terminal, lasts)
  np.testing.assert_array_equal(np.abs(timestep.reward), lasts)


def test_every_episode_begins_with_a_new_ball_and_a_centered_paddle(
  trajectory: conformance.Trajectory,
) -> None:
  first = trajectory.observation[::7]
  np.testing.assert_array_equal(first[:, :, 1:-1], 0)
  paddle = np.broadcast_to(np.arange(8) == 4, first[:, :, -1].shape)
  np.testing.assert_array_equal(first[:, :, -1], paddle)
  np.testing.assert_array_equal(first[:, :, 0].sum(-1), 1)
  assert (first[:, :, 0].sum(1) > 0).all(), 'some columns have no ball'
  assert (first[1, :, 0] != first[0, :, 0]).any()
  # The ball is in the top row at no other time.
  top = trajectory.observation[:, :, 0].any(-1)
  np.testing.assert_array_equal(top[:, 0], np.arange(22) % 7 == 0)


def test_the_paddle_moves_with_the_actions_and_stops_at_the_walls(
  trajectory: conformance.Trajectory,
) -> None:
  paddle, hits = np.full(NUM_ENVIRONMENTS, 4), set()
  for t, action in enumerate(trajectory.action):
    moved = paddle + action - 1
    paddle = np.clip(moved, 0, 7) if t % 7 < 6 else np.full_like(paddle, 4)
    bottom_row = trajectory.observation[t + 1, :, -1]
    np.testing.assert_array_equal(bottom_row.argmax(-1), paddle)
    if t % 7 < 6:
      hits |= set(moved[moved != paddle].tolist())
  assert hits == {-1, 8}, 'the actions never press against a wall'


@pytest.mark.parametrize('rows, columns', [(8, 8), (10, 5)])
def test_a_scripted_policy_catches_or_avoids_every_ball(
  rows: int, columns: int
) -> None:
  environment = catch.Catch(rows, columns)

  def play(key: Any, avoids: Any) -> tuple[Any, Any, Any]:
    """Plays one episode; the policy sees the observation alone."""
    state, first = environment.reset(key)
    ball = jnp.argmax(first[0])
    far_wall = jnp.where(ball < columns // 2, columns - 1, 0)
    target = jnp.where(avoids, far_wall, ball)

    def step(carry: Any, _: None) -> tuple[Any, Any]:
      state, observation = carry
      action = 1 + jnp.sign(target - jnp.argmax(observation[-1]))
      state, timestep = environment.step(state, action, key)
      carry = (state, timestep.observation)
      return carry, (timestep.reward, timestep.is_last)

    carry, (reward, is_last) = jax.lax.scan(
      step, (state, first), length=rows - 1
    )
    return carry[1], reward, is_last

  keys = jax.random.split(jax.random.key(0), NUM_ENVIRONMENTS)
  played = jax.jit(jax.vmap(jax.vmap(play, (0, None)), (None, 0)))(
    keys, jnp.array([False, True])
  )
  last_observation, reward, is_last = jax.tree.map(np.asarray, played)
  want = np.zeros_like(reward)
  want[0, :, -1], want[1, :, -1] = 1, -1
  np.testing.assert_array_equal(reward, want)
  np.testing.assert_array_equal(is_last, want != 0)
  np.testing.assert_array_equal(last_observation[:, :, :-1], 0)
  # A caught ball covers the paddle.
  cells = last_observation.sum((-2, -1))
  np.testing.assert_array_equal(cells[0], 1)
  np.testing.assert_array_equal(cells[1], 2)


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
