"""One update of an agent: from a batch of trajectories to new parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.networks import agent_network
from disco_rl.runtime import sharding
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


@types.record
class Update:
  """What one update computed on its way.

  Attributes:
    targets: where the rule wants the agent to move.
    gradient: of the loss, of the shape of the parameters.
    logs: scalars.
  """

  targets: Any
  gradient: types.Params
  logs: types.Logs


def update(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  state: LearnerState,
  rollout: types.Rollout,
) -> tuple[LearnerState, Update]:
  """One step of gradient descent towards the rule's targets.

  The network runs once: the same forward pass feeds the rule (all outputs,
  beside the gradient's path) and the loss (outputs of the taken actions).

  Args:
    network: the agent's.
    rule: what to learn from.
    optimizer: the agent's.
    rule_params: eta.
    state: before the update.
    rollout: T transitions of B trajectories; this device's share of them, where
      devices share batches.

  Returns:
    The state after the update, and what was computed on the way.
  """

  def forward(params: types.Params) -> tuple[types.Outputs, types.Outputs]:
    outputs, taken = network.unroll(params, rollout)
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
  taken_gradient, logs = jax.grad(total_loss, has_aux=True, argnums=1)(
    rule, taken, targets, rollout
  )
  (gradient,) = sharding.mean(pullback(taken_gradient))
  state, update_norm = step(optimizer, state, gradient, rule_state)
  logs = {
    **target_logs,
    **logs,
    'gradient_norm': optax.tree.norm(gradient),
    'update_norm': update_norm,
  }
  return state, Update(
    targets=targets, gradient=gradient, logs=sharding.mean(logs)
  )


def total_loss(
  rule: base.UpdateRule,
  taken: types.Outputs,
  targets: Any,
  rollout: types.Rollout,
) -> tuple[types.Array, types.Logs]:
  """The rule's loss over the real transitions, and scalars to log."""
  loss, logs = rule.loss(taken, targets, rollout)
  total = masked_mean(loss, rollout.mask)
  return total, {'loss': total, **jax.tree.map(jnp.mean, logs)}


def masked_mean(x: types.Array, mask: types.Array) -> types.Array:
  """Mean of x where the mask is set, as all losses are averaged."""
  weighted, weight = sharding.total((jnp.sum(x * mask), jnp.sum(mask)))
  return weighted / (weight + 1e-8)


def step(
  optimizer: optax.GradientTransformation,
  state: LearnerState,
  gradient: types.Params,
  rule_state: Any,
) -> tuple[LearnerState, types.Array]:
  """Takes a step of the optimiser.

  Args:
    optimizer: the agent's.
    state: before the update.
    gradient: of the loss.
    rule_state: the rule's share after the update.

  Returns:
    The state after the update, and the norm of the change of the parameters.
  """
  updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
  state = LearnerState(
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
    rule_state=rule_state,
  )
  return state, optax.tree.norm(updates)
