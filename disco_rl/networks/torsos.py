"""Torsos: from an observation to the embedding that all heads share."""

from collections.abc import Sequence
import math

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types


class MLPTorso(hk.Module):
  """All leaves of the observation, flattened and concatenated, then an MLP.

  ReLU between layers, none after the last.
  """

  def __init__(
    self,
    observation_spec: types.PyTree,
    hidden_sizes: Sequence[int],
    name: str = 'torso',
  ):
    super().__init__(name)
    self._ranks = [
      len(leaf.shape) for leaf in jax.tree.leaves(observation_spec)
    ]
    self._hidden_sizes = hidden_sizes

  def __call__(self, observation: types.PyTree) -> types.Array:
    """Leaves [..., *shape] -> [..., hidden_sizes[-1]] float32."""
    flat = []
    for leaf, rank in zip(jax.tree.leaves(observation), self._ranks):
      batch_shape = leaf.shape[: leaf.ndim - rank]
      size = math.prod(leaf.shape[leaf.ndim - rank :])
      flat.append(leaf.reshape(*batch_shape, size).astype(jnp.float32))
    return hk.nets.MLP(self._hidden_sizes, name='mlp')(
      jnp.concatenate(flat, axis=-1)
    )
