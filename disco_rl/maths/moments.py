"""First and second moments of a signal over an agent's lifetime."""

import jax.numpy as jnp

from disco_rl import types
from disco_rl.runtime import sharding


@types.record
class Moments:
  """Exponential moving averages, biased towards zero; see `statistics`.

  Attributes:
    moment1: [] average of the batch means.
    moment2: [] average of the batch means of squares.
    decay_product: [] product of all decays so far, 1 before the first batch.
  """

  moment1: types.Array
  moment2: types.Array
  decay_product: types.Array


def init() -> Moments:
  """Moments before any data."""
  return Moments(
    moment1=jnp.zeros(()), moment2=jnp.zeros(()), decay_product=jnp.ones(())
  )


def update(moments: Moments, x: types.Array, decay: float) -> Moments:
  """Moves the averages towards the moments of one batch.

  Args:
    moments: of the batches so far.
    x: batch of any shape; a device's shard, where batches are sharded.
    decay: weight of the past.

  Returns:
    Moments that include the batch.
  """
  batch = sharding.mean(jnp.stack([jnp.mean(x), jnp.mean(jnp.square(x))]))
  return Moments(
    moment1=decay * moments.moment1 + (1 - decay) * batch[0],
    moment2=decay * moments.moment2 + (1 - decay) * batch[1],
    decay_product=decay * moments.decay_product,
  )


def statistics(moments: Moments) -> tuple[types.Array, types.Array]:
  """Mean and variance, zero-debiased as in Adam (Kingma & Ba, 2015).

  Returns:
    mean [] and variance []; defined after the first `update`.
  """
  debias = 1.0 / (1.0 - moments.decay_product)
  mean = moments.moment1 * debias
  # Rounding can take the difference below zero.
  variance = jnp.maximum(0.0, moments.moment2 * debias - jnp.square(mean))
  return mean, variance


def normalize(
  moments: Moments, x: types.Array, subtract_mean: bool = True
) -> types.Array:
  """(x - mean) / (sqrt(variance + 1e-12) + 1e-6), of the shape of x."""
  mean, variance = statistics(moments)
  centred = x - mean if subtract_mean else x
  return centred / (jnp.sqrt(variance + 1e-12) + 1e-6)
