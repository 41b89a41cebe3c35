"""Running mean and variance of data that arrive in batches."""

import jax.numpy as jnp

from disco_rl import types


@types.record
class Running:
  """The mean and variance of all data so far, of each entry [...].

  Attributes:
    count: The number of values of each entry, [].
    mean: The mean, [...].
    variance: The variance, [...]; 1 before any data.
  """

  count: types.Array
  mean: types.Array
  variance: types.Array


def init(shape: tuple[int, ...] = ()) -> Running:
  """Makes the statistics before any data."""
  return Running(jnp.zeros(()), jnp.zeros(shape), jnp.ones(shape))


def update(running: Running, batch: types.Array) -> Running:
  """Adds a batch [N, ...], exactly (Chan et al., 1983).

  With n values of mean m and variance v before, and k values of mean m' and
  variance v' in the batch, delta = m' - m:
    mean = m + delta k / (n + k),
    variance = (n v + k v' + delta^2 n k / (n + k)) / (n + k).
  """
  size = jnp.asarray(batch.shape[0], running.count.dtype)
  count = running.count + size
  share = size / count
  delta = jnp.mean(batch, axis=0) - running.mean
  variance = (
    (1.0 - share) * running.variance
    + share * jnp.var(batch, axis=0)
    + share * (1.0 - share) * jnp.square(delta)
  )
  return Running(count, running.mean + share * delta, variance)
