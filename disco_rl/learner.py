"""One update of an agent: from a batch of trajectories to new parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.networks import agent_network
from disco_rl.update_rules import base


@types.record
class LearnerState:
  """What learning changes; lives as long as the agent.

  Attributes:
    params: theta.
    opt_state: of the agent's optimiser.
    rule_state: the rule's share: moments, target network, recurrent state.
  """

  params: types.Params
  opt_state: Any
  rule_state: Any


def init(
  key: types.Array,
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
) -> LearnerState:
  """A newborn agent."""
  params = network.init(key)
  return LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    rule_state=rule.init_state(params),
  )


def update(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  state: LearnerState,
  rollout: types.Rollout,
) -> tuple[LearnerState, types.Logs]:
  """One step of gradient descent towards the rule's targets.

  The network runs once: the same forward pass feeds the rule (all outputs,
  beside the gradient's path) and the loss (outputs of the taken actions).

  Args:
    network: the agent's.
    rule: what to learn from.
    optimizer: the agent's.
    rule_params: eta.
    state: before the update.
    rollout: T transitions of B trajectories.

  Returns:
    The state after the update, and scalars to log.
  """

  def forward(params: types.Params) -> tuple[types.Outputs, types.Outputs]:
    outputs, taken = network.unroll(params, rollout.observation, rollout.action)
    return taken, outputs

  taken, pullback, outputs = jax.vjp(forward, state.params, has_aux=True)
  targets, rule_state, target_logs = rule.targets(
    rule_params,
    state.rule_state,
    state.params,
    rollout,
    outputs,
    lambda params: forward(params)[1],
  )

  def total_loss(taken: types.Outputs) -> tuple[types.Array, types.Logs]:
    loss, logs = rule.loss(taken, targets, rollout)
    total = jnp.sum(loss * rollout.mask) / (jnp.sum(rollout.mask) + 1e-8)
    return total, {'loss': total, **jax.tree.map(jnp.mean, logs)}

  taken_gradient, logs = jax.grad(total_loss, has_aux=True)(taken)
  (gradient,) = pullback(taken_gradient)
  updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
  state = LearnerState(
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
    rule_state=rule_state,
  )
  logs = {
    **target_logs,
    **logs,
    'gradient_norm': optax.tree.norm(gradient),
    'update_norm': optax.tree.norm(updates),
  }
  return state, logs
