"""What in an observation each prediction of an agent depends on (Fig. 4b)."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco

PREDICTIONS = ('policy', 'y', 'z', 'aux_pi', 'value')


@functools.partial(jax.jit, static_argnums=(0, 1))
def gradient_norms(
  rule: disco.Disco,
  network: agent_network.AgentNetwork,
  params: types.Params,
  rollout: types.Rollout,
) -> Mapping[str, types.PyTree]:
  """Norm of the gradient of each prediction at each place of an observation.

  sqrt(sum_i (d p_i / d o)^2): for the policy, y, z and aux_pi, p is the vector
  of probabilities, and for value the expected q, a single number; z, aux_pi and
  q are those of the taken action. One backward pass for each p_i.

  Args:
    rule: that the agent lives by.
    network: the agent's, without a recurrent core.
    params: theta.
    rollout: T transitions of B trajectories.

  Returns:
    By name in `PREDICTIONS`, a tree like an observation's, [T, B, ...]. Pixels
    count from 0 to 1.

  Raises:
    ValueError: the network has a recurrent core, or an observation holds
      integers that are no pixels.
  """
  if jax.tree.leaves(rollout.core_state):
    raise ValueError(
      'The network has a recurrent core, so that a prediction depends on all '
      'observations before it. Use an agent with core_lstm=0.'
    )
  observation = jax.tree_util.tree_map_with_path(_as_float, rollout.observation)

  def predict(name: str, observation: types.PyTree) -> types.Array:
    seen = dataclasses.replace(rollout, observation=observation)
    _, taken = network.unroll(params, seen)
    return _predictions(rule, taken)[name]

  return {
    name: _norms(functools.partial(predict, name), observation)
    for name in PREDICTIONS
  }


def _as_float(path: tuple[object, ...], leaf: types.Array) -> types.Array:
  """The observation as the torso sees it, to be differentiated."""
  if leaf.dtype == jnp.uint8:
    return leaf.astype(jnp.float32) / 255
  if not jnp.issubdtype(leaf.dtype, jnp.floating):
    raise ValueError(
      f'observation{jax.tree_util.keystr(path)} is of type {leaf.dtype}, which '
      'has no gradient. Use an environment that shows floats or uint8 pixels.'
    )
  return leaf


def _predictions(
  rule: disco.Disco, taken: types.Outputs
) -> dict[str, types.Array]:
  """By name, [T, B, n]."""
  value = value_targets.values_from_logits(taken['q'], rule.max_abs_value)
  return {
    'policy': jax.nn.softmax(taken['logits'][:-1]),
    'y': jax.nn.softmax(taken['y'][:-1]),
    'z': jax.nn.softmax(taken['z']),
    'aux_pi': jax.nn.softmax(taken['aux_pi']),
    'value': value[..., None],
  }


def _norms(
  predict: Callable[[types.PyTree], types.Array], observation: types.PyTree
) -> types.PyTree:
  """The norm over a prediction's last axis, of T steps."""
  prediction, pullback = jax.vjp(predict, observation)

  def add(squares: types.PyTree, i: types.Array) -> tuple[types.PyTree, None]:
    # Rows do not mix: the gradient of their sum holds the gradient of each.
    (gradient,) = pullback(jnp.zeros_like(prediction).at[..., i].set(1.0))
    return jax.tree.map(lambda s, g: s + g**2, squares, gradient), None

  zeros = jax.tree.map(jnp.zeros_like, observation)
  indices = jnp.arange(prediction.shape[-1])
  squares, _ = jax.lax.scan(add, zeros, indices)
  return jax.tree.map(lambda x: jnp.sqrt(x[:-1]), squares)
