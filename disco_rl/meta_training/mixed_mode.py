"""Mixed-mode differentiation of an agent's update (MixFlow-MG).

The meta-gradient differentiates through g(theta, m) = grad_theta L(theta, m),
where m are the rule's targets. Reverse mode over reverse mode keeps and visits
both passes of the inner gradient. As the Hessian is symmetric, one product in
forward mode yields all that is needed (Kemaev et al., ICML 2025):

  jvp(theta -> grad_(theta, m) L; v) = (H v, M v) = (v^T dg/dtheta, v^T dg/dm).
"""

from collections.abc import Callable
import functools
from typing import Any

import jax
import optax

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.networks import agent_network
from disco_rl.update_rules import base

# (parameters, targets, rollout) -> loss [].
Loss = Callable[[types.Params, Any, types.Rollout], types.Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def known_gradient(
  loss: Loss,
  params: types.Params,
  targets: Any,
  rollout: types.Rollout,
  gradient: types.Params,
) -> types.Params:
  """The gradient of the loss, known already, with a derivative of its own.

  Args:
    loss: of the agent.
    params: theta; differentiable.
    targets: m; differentiable.
    rollout: the batch; constant.
    gradient: grad_theta loss(params, targets, rollout), computed before.

  Returns:
    `gradient`, differentiable with respect to theta and m.
  """
  del loss, params, targets, rollout
  return gradient


def _forward(
  loss: Loss,
  params: types.Params,
  targets: Any,
  rollout: types.Rollout,
  gradient: types.Params,
) -> tuple[types.Params, tuple[types.Params, Any, types.Rollout]]:
  del loss
  return gradient, (params, targets, rollout)


def _backward(
  loss: Loss,
  residuals: tuple[types.Params, Any, types.Rollout],
  cotangent: types.Params,
) -> tuple[types.Params, Any, None, None]:
  params, targets, rollout = residuals
  gradients = jax.grad(loss, argnums=(0, 1))
  _, (of_params, of_targets) = jax.jvp(
    lambda params: gradients(params, targets, rollout), (params,), (cotangent,)
  )
  return of_params, of_targets, None, None


known_gradient.defvjp(_forward, _backward)


def update(
  network: agent_network.AgentNetwork,
  rule: base.UpdateRule,
  optimizer: optax.GradientTransformation,
  rule_params: types.Params,
  state: learner.LearnerState,
  rollout: types.Rollout,
  gradient: types.Params,
) -> tuple[learner.LearnerState, Any]:
  """`learner.update`, made to be differentiated.

  Its numbers and derivatives are those of `learner.update`, but the inner
  gradient is not computed again: it is the one that was used while living.

  Args:
    network: the agent's.
    rule: what it learns from.
    optimizer: the agent's.
    rule_params: eta.
    state: before the update.
    rollout: T transitions of B trajectories.
    gradient: `learner.Update.gradient` of this very update.

  Returns:
    The state after the update, and the rule's targets.
  """

  def unroll(params: types.Params) -> tuple[types.Outputs, types.Outputs]:
    return network.unroll(params, rollout)

  def loss(
    params: types.Params, targets: Any, rollout: types.Rollout
  ) -> types.Array:
    _, taken = network.unroll(params, rollout)
    return learner.total_loss(rule, taken, targets, rollout)[0]

  targets, rule_state, _ = rule.targets(
    rule_params,
    state.rule_state,
    state.params,
    rollout,
    unroll(state.params)[0],
    lambda params: unroll(params)[0],
  )
  gradient = known_gradient(loss, state.params, targets, rollout, gradient)
  state, _ = learner.step(optimizer, state, gradient, rule_state)
  return state, targets
