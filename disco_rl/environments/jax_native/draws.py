"""Random numbers for grid worlds and chains, from few random words."""

import jax
import jax.numpy as jnp

from disco_rl import types


def uniform(key: types.Array, num: int) -> types.Array:
  """Draws multiples of 2**-16 in [0, 1), [num] float32.

  Each random word gives two numbers, because random words dominate the cost of
  a step.
  """
  words = jax.random.bits(key, (-(-num // 2),))
  halves = jnp.concatenate([words >> 16, words & 0xFFFF])[:num]
  return halves.astype(jnp.float32) * 2.0**-16


def below(count: int | types.Array, uniform: types.Array) -> types.Array:
  """Converts numbers of `uniform` to integers from 0 to count - 1."""
  return jnp.floor(uniform * jnp.float32(count)).astype(jnp.int32)


def distinct_ranks(uniform: types.Array, count: types.Array) -> types.Array:
  """Draws without replacement from 0 .. count - 1.

  The i-th number is a rank among the count - i remaining ones (a Lehmer code),
  and is then shifted past those drawn before. The first `count` are valid.

  Args:
    uniform: [N] float32 in [0, 1).
    count: [] int32.

  Returns:
    [N] int32.
  """
  index = jnp.arange(uniform.size)
  ranks = below(jnp.maximum(count - index, 1), uniform)
  for i in reversed(range(uniform.size - 1)):
    ranks = jnp.where((index > i) & (ranks >= ranks[i]), ranks + 1, ranks)
  return ranks
