"""Softmax distributions over hundreds of categories, in few passes over memory.

The predictions of the agent are the largest tensors of an update, and their
reductions take much of its time.
"""

import jax
import jax.numpy as jnp

from disco_rl import types


def logsumexp(logits: types.Array) -> types.Array:
  """log(sum(exp(logits))), [..., N] -> [...]."""
  shift, weights = _shift_and_weights(logits)
  return shift + jnp.log(jnp.sum(weights, axis=-1))


def entropy(logits: types.Array) -> types.Array:
  """Entropy of softmax(logits) in nats, [..., N] -> [...]."""
  shift, weights = _shift_and_weights(logits)
  total = jnp.sum(weights, axis=-1)
  mean = jnp.sum(weights * (logits - shift[..., None]), axis=-1) / total
  return jnp.log(total) - mean


def kl_divergence(
  target_logits: types.Array, logits: types.Array
) -> types.Array:
  """KL(softmax(target_logits) || softmax(logits)), [..., N] -> [...]."""
  shift, weights = _shift_and_weights(target_logits)
  total = jnp.sum(weights, axis=-1)
  mean = jnp.sum(weights * (target_logits - logits), axis=-1) / total
  return mean - (shift + jnp.log(total)) + logsumexp(logits)


def cross_entropy(
  probabilities: types.Array, logits: types.Array
) -> types.Array:
  """-sum(probabilities * log softmax(logits)) in nats, [..., N] -> [...].

  Probabilities must sum to one.
  """
  return logsumexp(logits) - jnp.sum(probabilities * logits, axis=-1)


def expectation(logits: types.Array, values: types.Array) -> types.Array:
  """Means of values [N, M] under softmax(logits), [..., N] -> [..., M]."""
  _, weights = _shift_and_weights(logits)
  ones = jnp.ones_like(values[:, :1])
  # One product yields numerators and denominator. By default GPUs would keep
  # only three digits.
  sums = jnp.dot(
    weights,
    jnp.concatenate([values, ones], axis=-1),
    precision=jax.lax.Precision.HIGHEST,
  )
  return sums[..., :-1] / sums[..., -1:]


def _shift_and_weights(logits: types.Array) -> tuple[types.Array, types.Array]:
  """Returns the largest logit [...], and exp(logits - largest) [..., N]."""
  # Softmax does not depend on the shift. The gradient is stopped before the
  # maximum, whose derivative is then not even traced.
  constant = jax.lax.stop_gradient(logits)
  # CPUs reduce the last axis one entry at a time, but compare its halves, which
  # overlap if N is odd, as vectors: 3% of the update that benchmarks.learner
  # times.
  half = (logits.shape[-1] + 1) // 2
  shift = jnp.max(
    jnp.maximum(constant[..., :half], constant[..., -half:]), axis=-1
  )
  return shift, jnp.exp(logits - shift[..., None])
