"""One update of an agent: from a batch of trajectories to new parameters."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.maths import masked
from disco_rl.maths import mixed_mode
from disco_rl.maths import shared_batch
from disco_rl.networks import agent_network
from disco_rl.networks import observation_moments
from disco_rl.update_rules import base


@types.record
class LearnerState:
  """The state of learning.

  Attributes:
    params: theta, the parameters of the agent's network.
    opt_state: The state of the agent's optimizer.
    rule_state: The state of the rule: moments, target network, recurrent state.
  """

  params: types.Params
  opt_state: types.PyTree
  rule_state: types.PyTree


def init(
  params: types.Params,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
) -> LearnerState:
  """Makes the initial state of an agent with these parameters."""
  return LearnerState(
    params=params,
    opt_state=optimizer.init(params),
    rule_state=rule.init_state(params),
  )


@types.record
class Update:
  """Intermediate results of an update.

  Attributes:
    targets: The rule's targets for the outputs of the agent.
    gradient: The gradient of the loss, in the shapes of the parameters.
    logs: Scalars to log.
  """

  targets: types.PyTree
  gradient: types.Params
  logs: types.Logs


def update(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  state: LearnerState,
  rollout: types.Rollout,
  known_gradient: types.Params | None = None,
) -> tuple[LearnerState, Update]:
  """Takes one step of gradient descent on the rule's loss.

  Args:
    network: The agent's network.
    rule: The rule, which defines the targets and the loss.
    optimizer: The agent's optimizer.
    rule_params: eta.
    state: The learner's state before the update.
    rollout: T transitions of B trajectories, this device's shard.
    known_gradient: The gradient of the same update, if it was computed before;
      it replaces the backward pass when the update is differentiated, see
      `mixed_mode`, and no loss is logged.

  Returns:
    The state after the update, and intermediate results.
  """
  params = observation_moments.observe(state.params, rollout)
  state = dataclasses.replace(state, params=params)
  found, rule_state = gradient(
    network, rule, rule_params, state, rollout, known_gradient
  )
  state, norms = _apply(optimizer, state, found.gradient, rule_state)
  logs = {**found.logs, **norms}
  return state, dataclasses.replace(found, logs=logs)


def gradient(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  rule_params: types.Params,
  state: LearnerState,
  rollout: types.Rollout,
  known_gradient: types.Params | None = None,
) -> tuple[Update, types.PyTree]:
  """Computes the gradient of the rule's loss.

  One forward pass serves the rule (all outputs) and the loss (outputs of the
  taken actions). Targets are constants only for the agent's gradient.

  The arguments are as in `update`.

  Returns:
    The targets, the gradient and logs; and the rule's next state.
  """

  def forward(params: types.Params) -> tuple[types.Outputs, types.Outputs]:
    outputs, taken = network.unroll(params, rollout)
    return taken, outputs

  if known_gradient is None:
    taken, pullback, outputs = jax.vjp(forward, state.params, has_aux=True)
  else:
    _, outputs = forward(state.params)
  chex.assert_tree_shape_prefix(outputs, rollout.action.shape)
  targets, rule_state, logs = rule.targets(
    rule_params,
    state.rule_state,
    state.params,
    rollout,
    outputs,
    lambda params: forward(params)[1],
  )
  if known_gradient is None:
    taken_gradient, loss_logs = jax.grad(total_loss, has_aux=True, argnums=1)(
      rule, taken, targets, rollout
    )
    (params_gradient,) = shared_batch.mean(pullback(taken_gradient))
    logs = {**_means(logs, rollout.mask), **loss_logs}
  else:
    loss = functools.partial(_loss_of_params, network, rule)
    params_gradient = mixed_mode.known_gradient(
      loss, state.params, targets, rollout, known_gradient
    )
    logs = _means(logs, rollout.mask)
  chex.assert_trees_all_equal_shapes(params_gradient, state.params)
  return Update(targets, params_gradient, logs), rule_state


def _apply(
  optimizer: optax.GradientTransformation,
  state: LearnerState,
  gradient: types.Params,
  rule_state: types.PyTree,
) -> tuple[LearnerState, types.Logs]:
  """Takes a step of the optimizer."""
  updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)
  params = observation_moments.keep(params, state.params)
  return LearnerState(params, opt_state, rule_state), {
    'gradient_norm': optax.tree.norm(gradient),
    'update_norm': optax.tree.norm(updates),
  }


def total_loss(
  rule: base.UpdateRule,
  taken: types.Outputs,
  targets: types.PyTree,
  rollout: types.Rollout,
) -> tuple[types.Array, types.Logs]:
  """Computes the agent's loss; terms for all rules can be added here.

  Args:
    rule: The rule, which has the loss of each transition.
    taken: The outputs of the taken actions, by `AgentNetwork.unroll`.
    targets: The rule's targets for the outputs; constant.
    rollout: T transitions of B trajectories.

  Returns:
    The mean over the real transitions [], and scalars to log.
  """
  loss, logs = rule.loss(taken, targets, rollout)
  means = _means({'loss': loss, **logs}, rollout.mask)
  return means['loss'], means


def _means(values: types.Logs, mask: types.Array) -> types.Logs:
  """Averages values [T, B] or [] over real transitions."""
  by_step = {
    name: jnp.broadcast_to(x, mask.shape) for name, x in values.items()
  }
  return masked.mean(by_step, mask)


def _loss_of_params(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  params: types.Params,
  targets: types.PyTree,
  rollout: types.Rollout,
) -> types.Array:
  """Computes `total_loss` from the parameters; a `mixed_mode.Loss`.

  Only `update` with a known gradient calls it. Add terms to `total_loss`.
  """
  _, taken = network.unroll(params, rollout)
  return total_loss(rule, taken, targets, rollout)[0]
