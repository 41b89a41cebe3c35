"""Normalizes rewards by the running deviation of discounted returns."""

import dataclasses

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import running

# Normalized rewards are clipped to [-MAX_ABS, MAX_ABS].
MAX_ABS = 10.0
EPSILON = 1e-8


@types.record
class RewardMoments:
  """Statistics of the rewards of an agent.

  Attributes:
    discounted: The discounted sum of past rewards in each environment's current
      episode, R_t = gamma R_t-1 + r_t, [E].
    returns: The mean and variance of all R_t so far, [].
  """

  discounted: types.Array
  returns: running.Running


def init(num_environments: int) -> RewardMoments:
  """Makes the statistics before the first step."""
  return RewardMoments(jnp.zeros((num_environments,)), running.init())


def update(
  moments: RewardMoments,
  reward: types.Array,
  is_last: types.Array,
  discount: float,
) -> RewardMoments:
  """Adds T steps of E environments.

  Args:
    moments: The statistics of all earlier steps.
    reward: The rewards, [T, E].
    is_last: [T, E] bool, whether the step ended an episode.
    discount: gamma.
  """

  def step(
    discounted: types.Array, x: tuple[types.Array, types.Array]
  ) -> tuple[types.Array, types.Array]:
    reward_t, is_last_t = x
    total = discount * discounted + reward_t
    return jnp.where(is_last_t, 0.0, total), total

  discounted, totals = jax.lax.scan(step, moments.discounted, (reward, is_last))
  return RewardMoments(
    discounted, running.update(moments.returns, totals.reshape(-1))
  )


def restart(moments: RewardMoments) -> RewardMoments:
  """Discards unfinished episodes."""
  return dataclasses.replace(
    moments, discounted=jnp.zeros_like(moments.discounted)
  )


def normalize(moments: RewardMoments, reward: types.Array) -> types.Array:
  """Divides rewards by the deviation of the returns, and clips them."""
  scaled = reward * jax.lax.rsqrt(moments.returns.variance + EPSILON)
  return jnp.clip(scaled, -MAX_ABS, MAX_ABS)
