"""Softmax distributions over hundreds of categories, in few passes over memory.

The predictions of the agent are the largest tensors of an update, and their
reductions take much of its time.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.runtime import backend

# For reductions on CPUs with JAX 0.10, whose XLA reduces the last axis one
# element at a time: combining slices of it as vectors first takes a tenth of
# the time. In later versions it would take several times as long.
_NUM_SLICES = 8


def logsumexp(logits: types.Array) -> types.Array:
  """log(sum(exp(logits))), [..., N] -> [...]."""
  shift, weights = _shift_and_weights(logits)
  return shift + jnp.log(_sum(weights))


def entropy(logits: types.Array) -> types.Array:
  """Entropy of softmax(logits) in nats, [..., N] -> [...]."""
  shift, weights = _shift_and_weights(logits)
  total = _sum(weights)
  mean = _sum(weights * (logits - shift[..., None])) / total
  return jnp.log(total) - mean


def kl_divergence(
  target_logits: types.Array, logits: types.Array
) -> types.Array:
  """KL(softmax(target_logits) || softmax(logits)), [..., N] -> [...]."""
  shift, weights = _shift_and_weights(target_logits)
  total = _sum(weights)
  mean = _sum(weights * (target_logits - logits)) / total
  return mean - (shift + jnp.log(total)) + logsumexp(logits)


def cross_entropy(
  probabilities: types.Array, logits: types.Array
) -> types.Array:
  """-sum(probabilities * log softmax(logits)), [..., N] -> [...].

  Args:
    probabilities: [..., N], which sum to one.
    logits: [..., N].

  Returns:
    [...] in nats.
  """
  return logsumexp(logits) - _sum(probabilities * logits)


def expectation(logits: types.Array, values: types.Array) -> types.Array:
  """Means of values under softmax(logits).

  Args:
    logits: [..., N].
    values: [N, M].

  Returns:
    [..., M].
  """
  _, weights = _shift_and_weights(logits)
  ones = jnp.ones_like(values[:, :1])
  # One product yields numerators and denominator. Full precision, as GPUs keep
  # three digits by default.
  sums = jnp.dot(
    weights,
    jnp.concatenate([values, ones], axis=-1),
    precision=jax.lax.Precision.HIGHEST,
  )
  return sums[..., :-1] / sums[..., -1:]


def _shift_and_weights(logits: types.Array) -> tuple[types.Array, types.Array]:
  """The largest logit [...], and exp(logits - that) [..., N]."""
  # Softmax does not depend on the shift. Stopped before the maximum, which is
  # then not even traced to be differentiated.
  shift = _max(jax.lax.stop_gradient(logits))
  return shift, jnp.exp(logits - shift[..., None])


def _max(x: types.Array) -> types.Array:
  """[..., N] -> [...]."""
  return jnp.max(_fold(x, jnp.maximum), axis=-1)


@jax.custom_jvp
def _sum(x: types.Array) -> types.Array:
  """[..., N] -> [...]."""
  return jnp.sum(_fold(x, jnp.add), axis=-1)


@_sum.defjvp
def _sum_jvp(
  primals: tuple[types.Array], tangents: tuple[types.Array]
) -> tuple[types.Array, types.Array]:
  """Of a plain sum: its transpose is a broadcast, that of slices pads them."""
  return _sum(*primals), jnp.sum(*tangents, axis=-1)


def _fold(
  x: types.Array, combine: Callable[[types.Array, types.Array], types.Array]
) -> types.Array:
  """Shortens the last axis where that is faster; see `_NUM_SLICES`."""
  size = x.shape[-1] // _NUM_SLICES
  # Single elements are no vectors.
  if size < 2 or not backend.is_old_cpu():
    return x
  ends = [i * size for i in range(_NUM_SLICES + 1)]
  *slices, rest = (
    jax.lax.slice_in_dim(x, start, end, axis=-1)
    for start, end in zip(ends, [*ends[1:], x.shape[-1]])
  )
  return jnp.concatenate([functools.reduce(combine, slices), rest], axis=-1)
