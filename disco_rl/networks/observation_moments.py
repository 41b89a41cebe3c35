"""Normalizes observations by their running mean and variance.

The statistics are parameters of the agent, in a module of their own, which no
gradient reaches. So they go wherever the parameters go - to the environments,
into files, into a policy that plays - and change only when the agent learns.
"""

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.maths import running

# Normalized observations are clipped to [-MAX_ABS, MAX_ABS].
MAX_ABS = 10.0
EPSILON = 1e-8
# The module among the parameters.
MODULE = 'observation_moments'


def init(spec: types.EnvironmentSpec) -> types.Params:
  """Makes the statistics before any data, for all arrays of floats.

  Pixels (uint8), codes and the mask of legal actions are not normalized.
  """
  initial = {
    name: running.init(leaf.shape)
    for name, leaf in _floats(spec.observation).items()
  }
  return {MODULE: _pack(initial)}


def normalize(params: types.Params, observation: types.PyTree) -> types.PyTree:
  """Returns (x - mean) / sqrt(variance + epsilon), clipped.

  Args:
    params: The parameters of an agent, with statistics.
    observation: A tree of [..., *shape]; arrays without statistics are kept.
  """
  moments = jax.lax.stop_gradient(params[MODULE])

  def one(path: jax.tree_util.KeyPath, x: types.Array) -> types.Array:
    name = jax.tree_util.keystr(path)
    if f'mean{name}' not in moments:
      return x
    scale = jax.lax.rsqrt(moments[f'variance{name}'] + EPSILON)
    x = (x - moments[f'mean{name}']) * scale
    return jnp.clip(x, -MAX_ABS, MAX_ABS)

  return jax.tree_util.tree_map_with_path(one, observation)


def observe(params: types.Params, rollout: types.Rollout) -> types.Params:
  """Adds the observations of a batch to the statistics, if there are any.

  Of T + 1 observations the last is left out: it begins the next trajectory.
  """
  if MODULE not in params:
    return params
  moments = params[MODULE]
  after = {}
  for name, x in _floats(rollout.observation).items():
    before = running.Running(
      moments['count'], moments[f'mean{name}'], moments[f'variance{name}']
    )
    rows = x[:-1].reshape(-1, *x.shape[2:]).astype(jnp.float32)
    after[name] = jax.lax.stop_gradient(running.update(before, rows))
  return {**params, MODULE: _pack(after)}


def keep(params: types.Params, source: types.Params) -> types.Params:
  """Returns the parameters with the statistics of the source, if it has any.

  An optimizer may change parameters without a gradient, by weight decay.
  """
  if MODULE not in source:
    return params
  return {**params, MODULE: source[MODULE]}


def _floats(observation: types.PyTree) -> dict[str, types.PyTree]:
  """Returns the arrays of floats by their path in the observation."""
  leaves = jax.tree_util.tree_leaves_with_path(
    action_masks.without(observation)
  )
  return {
    jax.tree_util.keystr(path): x
    for path, x in leaves
    if jnp.issubdtype(x.dtype, jnp.floating)
  }


def _pack(moments: dict[str, running.Running]) -> dict[str, types.Array]:
  """Returns the arrays of a module; all entries have the same count."""
  count = next((x.count for x in moments.values()), jnp.zeros(()))
  packed = {'count': count}
  for name, x in moments.items():
    packed |= {f'mean{name}': x.mean, f'variance{name}': x.variance}
  return packed
