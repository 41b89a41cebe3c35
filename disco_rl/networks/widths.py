"""Narrow agents in the parameters of wide ones, so that one program serves all.

A unit whose incoming and outgoing weights are zero is absent: its output is
zero, and so are the gradients of its weights, in meta-gradients too. Under any
optimizer that does not move a parameter without a gradient it stays absent.
"""

from collections.abc import Iterable

import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import agent_network

_DENSE = 'agent/~/torso/mlp/~/linear_'
_ACTION_MODEL = 'agent/~/action_model/root'  # Absent without heads of actions.


def narrow(
  params: types.Params,
  config: agent_network.AgentNetworkConfig,
  state_heads: Iterable[str],
  fraction: types.Array,
) -> types.Params:
  """Makes initial parameters those of a network with narrower dense layers.

  Layer i of the torso keeps its first max(1, round(fraction * width_i)) units.
  What is left has the distribution of the narrow network's initial parameters:
  weights whose spread depends on the number of inputs are scaled up.

  Args:
    params: initial ones of an agent's network.
    config: sizes of that network.
    state_heads: names of the rule's heads on the embedding.
    fraction: [] in (0, 1].

  Returns:
    The parameters, with the same shapes.

  Raises:
    ValueError: the torso does not end in the dense layers of the named torsos.
  """
  sizes = config.torso.hidden_sizes
  if f'{_DENSE}{len(sizes) - 1}' not in params:
    raise ValueError(
      f'The torso {config.torso.kind!r} has no dense layers at its end that '
      'could be narrower. Use another torso, or no width_range.'
    )
  narrowed = {module: dict(leaves) for module, leaves in params.items()}
  counts = [jnp.maximum(1.0, jnp.round(fraction * size)) for size in sizes]
  for i, (size, count) in enumerate(zip(sizes, counts)):
    layer = narrowed[f'{_DENSE}{i}']
    exists = jnp.arange(size) < count
    layer['w'] = jnp.where(exists, layer['w'], 0.0)
    layer['b'] = jnp.where(exists, layer['b'], 0.0)
  for i, (size, count) in enumerate(zip(sizes[:-1], counts)):
    _keep_inputs(narrowed[f'{_DENSE}{i + 1}'], size, count)
  if config.core_lstm:
    _keep_inputs(narrowed['agent/~/core/linear'], sizes[-1], counts[-1])
    return narrowed
  if _ACTION_MODEL in narrowed:
    _keep_inputs(narrowed[_ACTION_MODEL], sizes[-1], counts[-1])
  for head in ('logits', *state_heads):
    # Their spread does not depend on the number of inputs.
    layer = narrowed[f'agent/~/{head}']
    exists = jnp.arange(sizes[-1]) < counts[-1]
    layer['w'] = jnp.where(exists[:, None], layer['w'], 0.0)
  return narrowed


def _keep_inputs(
  layer: dict[str, types.Array], size: int, count: types.Array
) -> None:
  """Changes a layer whose first `size` inputs are units; `count` of them exist.

  Its weights have the spread 1 / sqrt(number of inputs).
  """
  num_inputs = layer['w'].shape[0]
  row = jnp.arange(num_inputs)
  exists = (row < count) | (row >= size)
  scale = jnp.sqrt(num_inputs / (num_inputs - size + count))
  layer['w'] = jnp.where(exists[:, None], scale * layer['w'], 0.0)
