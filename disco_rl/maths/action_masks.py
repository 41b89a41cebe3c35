"""Legal actions: masks in observations, and policies without illegal actions.

An observation that is a dictionary with the entry 'action_mask', one number for
each action, says which actions are legal in its state: those that are not 0.
Logits of the others are `ILLEGAL`, so that they are never taken, and no
gradient flows to them. Where no observation has the entry, `find` returns None,
and the other functions compute what they would without masks.
"""

import jax.numpy as jnp

from disco_rl import types

# Its exponential is 0, next to any legal logit. Finite: differences of two are
# 0, so that divergences, entropies and their gradients stay finite.
ILLEGAL = -1e9


def find(observation: types.PyTree) -> types.Array | None:
  """Which actions are legal, [..., A] bool; None: there is no mask.

  All are where none is, as after the last step of an episode: the policy is
  finite there, and nothing is learnt from what it does.
  """
  if not types.has_action_mask(observation):
    return None
  legal = jnp.asarray(observation[types.ACTION_MASK]) != 0
  return legal | ~jnp.any(legal, axis=-1, keepdims=True)


def has_legal(observation: types.PyTree) -> types.Array:
  """Whether the mask of an observation leaves an action, [..., 1] bool."""
  return jnp.any(observation[types.ACTION_MASK] != 0, axis=-1, keepdims=True)


def without(observation: types.PyTree) -> types.PyTree:
  """The observation that networks read."""
  if not types.has_action_mask(observation):
    return observation
  return {k: x for k, x in observation.items() if k != types.ACTION_MASK}


def apply(logits: types.Array, legal: types.Array | None) -> types.Array:
  """Makes illegal actions impossible.

  Args:
    logits: [..., A].
    legal: [..., A] bool, from `find`.

  Returns:
    [..., A] logits.
  """
  if legal is None:
    return logits
  return jnp.where(legal, logits, jnp.asarray(ILLEGAL, logits.dtype))


def mean(x: types.Array, legal: types.Array | None, axis: int) -> types.Array:
  """The mean over legal actions.

  Args:
    x: numbers for each action.
    legal: The legal actions from `find`, of a shape that can be broadcast to
      that of x.
    axis: that of the actions.

  Returns:
    An array without that axis.
  """
  if legal is None:
    return jnp.mean(x, axis=axis)
  number = jnp.sum(legal.astype(x.dtype), axis=axis)
  return jnp.sum(jnp.where(legal, x, 0.0), axis=axis) / number


def maximum(x: types.Array, legal: types.Array | None) -> types.Array:
  """The largest number of a legal action, [..., A] -> [...]."""
  if legal is None:
    return jnp.max(x, axis=-1)
  return jnp.max(apply(x, legal), axis=-1)
