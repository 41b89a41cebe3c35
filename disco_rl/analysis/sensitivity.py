"""Sensitivity of an agent's predictions to its observations (Fig. 4b)."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco

# Prediction -> the head of the network that outputs it.
_HEADS = {
  'policy': 'logits',
  'value': 'q',
  'y': 'y',
  'z': 'z',
  'aux_pi': 'aux_pi',
}
PREDICTIONS = tuple(_HEADS)


@functools.partial(jax.jit, static_argnums=(0, 1))
def gradient_norms(
  rule: disco.Disco,
  network: agent_network.AgentNetwork,
  params: types.Params,
  rollout: types.Rollout,
) -> Mapping[str, types.PyTree]:
  """Computes the norms of the gradients of predictions w.r.t. observations.

  They are sqrt(sum_i (d p_i / d o)^2) for each entry o of the observation. The
  vector p contains the probabilities of the policy, y, z or aux_pi, or only the
  expected q; z, aux_pi and q are for the taken action. Each p_i requires one
  backward pass.

  Returns:
    For each of `PREDICTIONS` that the rule has, a tree like an observation,
    [T, B, ...]. Pictures are scaled to [0, 1].

  Raises:
    ValueError: The network has a recurrent core, or an observation has integers
      of more than 8 bits.
  """
  if jax.tree.leaves(rollout.core_state):
    raise ValueError(
      'The network has a recurrent core, so that a prediction depends on all '
      'earlier observations. Use an agent with core_lstm=0.'
    )
  seen = action_masks.without(rollout.observation)
  observation = jax.tree_util.tree_map_with_path(_as_float, seen)

  def predict(name: str, observation: types.PyTree) -> types.Array:
    if types.has_action_mask(rollout.observation):
      observation = rollout.observation | observation
    seen = dataclasses.replace(rollout, observation=observation)
    _, taken = network.unroll(params, seen)
    return _prediction(rule, taken, name)

  num_actions = rollout.logits.shape[-1]
  spec = rule.output_spec(num_actions)
  heads = {'logits', *spec.state, *spec.action}
  return {
    name: _norms(functools.partial(predict, name), observation)
    for name in PREDICTIONS
    if _HEADS[name] in heads
  }


def has_gradient(leaf: types.Array) -> bool:
  """Returns whether the torso reads a leaf as numbers, not as indices."""
  return leaf.dtype in (jnp.uint8, bool) or jnp.issubdtype(
    leaf.dtype, jnp.floating
  )


def _as_float(path: tuple[object, ...], leaf: types.Array) -> types.Array:
  """Converts a leaf of an observation to float32, like the torso."""
  if not has_gradient(leaf):
    raise ValueError(
      f'observation{jax.tree_util.keystr(path)} is of type {leaf.dtype}, which '
      'has no gradient. Use an environment with float, uint8 or bool '
      'observations.'
    )
  scale = 255 if types.is_picture(leaf.shape[2:], leaf.dtype) else 1
  return leaf.astype(jnp.float32) / scale


def _prediction(
  rule: disco.Disco, taken: types.Outputs, name: str
) -> types.Array:
  """Computes one of `PREDICTIONS`, [T, B, n]."""
  output = taken[_HEADS[name]]
  if name == 'value':
    value = value_targets.values_from_logits(output, rule.max_abs_value)
    return value[..., None]
  # Heads of the state also have outputs for the last observation.
  is_of_state = name in ('policy', 'y')
  return jax.nn.softmax(output[:-1] if is_of_state else output)


def _norms(
  predict: Callable[[types.PyTree], types.Array], observation: types.PyTree
) -> types.PyTree:
  """Computes norms over the last axis of a prediction, for T steps."""
  prediction, pullback = jax.vjp(predict, observation)

  def add(squares: types.PyTree, i: types.Array) -> tuple[types.PyTree, None]:
    # Rows are independent: the gradient of their sum contains all gradients.
    (gradient,) = pullback(jnp.zeros_like(prediction).at[..., i].set(1.0))
    return jax.tree.map(lambda s, g: s + g**2, squares, gradient), None

  zeros = jax.tree.map(jnp.zeros_like, observation)
  indices = jnp.arange(prediction.shape[-1])
  squares, _ = jax.lax.scan(add, zeros, indices)
  return jax.tree.map(lambda x: jnp.sqrt(x[:-1]), squares)
