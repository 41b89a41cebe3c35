"""Normalized rewards: statistics as a loop in float64 computes them."""

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.agent import reward_moments


def test_equals_a_loop() -> None:
  generator = np.random.default_rng(0)
  discount, number = 0.9, 3
  moments = reward_moments.init(number)
  update = jax.jit(reward_moments.update)
  running, returns = np.zeros(number), []
  for _ in range(4):
    reward = 5.0 * generator.normal(size=(6, number)) + 1.0
    is_last = generator.random((6, number)) < 0.2
    moments = update(moments, jnp.float32(reward), is_last, discount)
    for t in range(6):
      running = discount * running + reward[t]
      returns.append(running)
      running = np.where(is_last[t], 0.0, running)
  np.testing.assert_allclose(moments.discounted, running, rtol=1e-5)
  np.testing.assert_allclose(moments.returns.mean, np.mean(returns), rtol=1e-5)
  deviation = np.std(returns)
  rewards = np.array([[1.0, -3.0], [0.0, 1e5]])
  np.testing.assert_allclose(
    reward_moments.normalize(moments, jnp.float32(rewards)),
    np.clip(rewards / deviation, -10, 10),
    rtol=1e-4,
  )


def test_rewards_are_finite_before_the_first_one() -> None:
  """While all rewards are zero, so is the deviation of returns."""
  nothing = jnp.zeros((2, 1))
  moments = reward_moments.update(
    reward_moments.init(1), nothing, nothing > 0, 0.99
  )
  np.testing.assert_array_equal(
    reward_moments.normalize(moments, jnp.array([0.0, 1.0, -1.0])), [0, 10, -10]
  )
