"""Masks of legal actions in observations, and policies that respect them.

If an observation is a dictionary with the entry 'action_mask', one number for
each action, the actions with non-zero numbers are legal in its state. Logits of
the others are `ILLEGAL`, so that they are never taken, and no gradient flows to
them. If observations lack the entry, `find` returns None, and the other
functions compute the same as without masks.
"""

import jax.numpy as jnp

from disco_rl import types

# Its exponential is 0 compared with any legal logit. It is finite so that
# differences are 0, and divergences, entropies and their gradients finite.
ILLEGAL = -1e9


def find(observation: types.PyTree) -> types.Array | None:
  """Returns which actions are legal, [..., A] bool; None without a mask.

  If no action is legal, as after the last step of an episode, all are treated
  as legal. The policy is then finite, and its actions are not learned from.
  """
  if not types.has_action_mask(observation):
    return None
  legal = jnp.asarray(observation[types.ACTION_MASK]) != 0
  return legal | ~jnp.any(legal, axis=-1, keepdims=True)


def has_legal(observation: types.PyTree) -> types.Array:
  """Returns whether an observation has a legal action, [..., 1] bool."""
  return jnp.any(observation[types.ACTION_MASK] != 0, axis=-1, keepdims=True)


def without(observation: types.PyTree) -> types.PyTree:
  """Returns the observation without the mask, as networks read it."""
  if not types.has_action_mask(observation):
    return observation
  return {k: x for k, x in observation.items() if k != types.ACTION_MASK}


def apply(logits: types.Array, legal: types.Array | None) -> types.Array:
  """Makes illegal actions impossible, [..., A]; `legal` is that of `find`."""
  if legal is None:
    return logits
  return jnp.where(legal, logits, jnp.asarray(ILLEGAL, logits.dtype))


def mean(x: types.Array, legal: types.Array | None, axis: int) -> types.Array:
  """Computes the mean over legal actions; `legal` broadcasts to shape of x."""
  if legal is None:
    return jnp.mean(x, axis=axis)
  number = jnp.sum(legal.astype(x.dtype), axis=axis)
  return jnp.sum(jnp.where(legal, x, 0.0), axis=axis) / number


def maximum(x: types.Array, legal: types.Array | None) -> types.Array:
  """Returns the maximum over legal actions, [..., A] -> [...]."""
  if legal is None:
    return jnp.max(x, axis=-1)
  return jnp.max(apply(x, legal), axis=-1)
