"""First and second moments of a signal over an agent's lifetime."""

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import masked


@types.record
class Moments:
  """Exponential moving averages, biased towards zero; see `statistics`.

  Attributes:
    moment1: The average of the batch means, [].
    moment2: The average of the batch means of squares, [].
    decay_product: The product of all decays so far, []; initially 1.
  """

  moment1: types.Array
  moment2: types.Array
  decay_product: types.Array


def init() -> Moments:
  """Makes the moments before any data."""
  return Moments(
    moment1=jnp.zeros(()), moment2=jnp.zeros(()), decay_product=jnp.ones(())
  )


def update(
  moments: Moments,
  x: types.Array,
  mask: types.Array,
  decay: float | types.Array,
) -> Moments:
  """Moves the averages towards the moments of one batch.

  Args:
    moments: The moments of the batches so far.
    x: The signal, [T, B]; a device's shard if batches are sharded.
    mask: The real transitions, [T, B] bool.
    decay: The weight of the past.

  Returns:
    The moments including the batch; unchanged if it has no real transition.
  """
  mean, mean_square, weight = masked.mean(
    (x, jnp.square(x), jnp.ones_like(x)), mask
  )
  after = Moments(
    moment1=decay * moments.moment1 + (1 - decay) * mean,
    moment2=decay * moments.moment2 + (1 - decay) * mean_square,
    decay_product=decay * moments.decay_product,
  )
  return jax.tree.map(
    lambda new, old: jnp.where(weight > 0.0, new, old), after, moments
  )


def statistics(moments: Moments) -> tuple[types.Array, types.Array]:
  """Computes mean and variance, debiased as in Adam (Kingma & Ba, 2015).

  Returns:
    The mean [] and variance []; 0 and 1 before any data.
  """
  has_data = moments.decay_product < 1.0
  debias = 1.0 / jnp.where(has_data, 1.0 - moments.decay_product, 1.0)
  mean = moments.moment1 * debias
  # Rounding can make the difference negative.
  variance = jnp.maximum(0.0, moments.moment2 * debias - jnp.square(mean))
  return mean, jnp.where(has_data, variance, 1.0)


def normalize(
  moments: Moments, x: types.Array, subtract_mean: bool = True
) -> types.Array:
  """(x - mean) / (sqrt(variance + 1e-12) + 1e-6), of the shape of x."""
  mean, variance = statistics(moments)
  centered = x - mean if subtract_mean else x
  return centered / (jnp.sqrt(variance + 1e-12) + 1e-6)
