"""Represents narrow agents by the parameters of wide ones, to share a program.

A unit with zero incoming and outgoing weights is absent: its output is zero,
and so are the gradients of its weights, also in meta-gradients. With any
optimizer that does not move parameters without gradients, it remains absent.
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
  """Narrows the dense layers of initial parameters.

  Layer i of the torso keeps its first max(1, round(fraction * width_i)) units.
  The rest has the distribution of the narrow network's initial parameters:
  weights whose spread depends on the number of inputs are scaled up.

  Args:
    params: The initial parameters of an agent's network.
    config: The sizes of the network.
    state_heads: The names of the rule's heads on the embedding.
    fraction: The fraction of units, [] in (0, 1].

  Returns:
    The parameters, with the same shapes.

  Raises:
    ValueError: The torso does not end in the dense layers of named torsos.
  """
  sizes = config.torso.hidden_sizes
  if f'{_DENSE}{len(sizes) - 1}' not in params:
    raise ValueError(
      f'The torso {config.torso.kind!r} does not end in dense layers, which '
      'width_range narrows. Use another torso, or no width_range.'
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
    _keep_inputs(
      narrowed[f'agent/~/{head}'], sizes[-1], counts[-1], is_scaled=False
    )
  return narrowed


def _keep_inputs(
  layer: dict[str, types.Array],
  size: int,
  count: types.Array,
  is_scaled: bool = True,
) -> None:
  """Narrows the first `size` inputs of a layer to `count`.

  All other inputs remain. If weights are scaled, their spread is
  1 / sqrt(number of inputs).
  """
  num_inputs = layer['w'].shape[0]
  row = jnp.arange(num_inputs)
  exists = (row < count) | (row >= size)
  if is_scaled:
    layer['w'] *= jnp.sqrt(num_inputs / (num_inputs - size + count))
  layer['w'] = jnp.where(exists[:, None], layer['w'], 0.0)
