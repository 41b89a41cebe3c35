"""Mixed-mode differentiation of an agent's update (MixFlow-MG).

The meta-gradient differentiates through g(theta, m) = grad_theta L(theta, m),
where m are the rule's targets. Reverse mode over reverse mode keeps and visits
both passes of the inner gradient. Because the Hessian is symmetric, one product
in forward mode yields both results (Kemaev et al., ICML 2025):

  jvp(theta -> grad_(theta, m) L; v) = (H v, M v) = (v^T dg/dtheta, v^T dg/dm).
"""

from collections.abc import Callable
import functools

import jax

from disco_rl import types

# (parameters, targets, rollout) -> loss [].
Loss = Callable[[types.Params, types.PyTree, types.Rollout], types.Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def known_gradient(
  loss: Loss,
  params: types.Params,
  targets: types.PyTree,
  rollout: types.Rollout,
  gradient: types.Params,
) -> types.Params:
  """Returns a gradient that was computed before, with its own derivative.

  Args:
    loss: The loss of the agent.
    params: theta; differentiable.
    targets: m; differentiable.
    rollout: The batch; constant.
    gradient: grad_theta loss(params, targets, rollout).

  Returns:
    `gradient`, differentiable with respect to theta and m.
  """
  del loss, params, targets, rollout
  return gradient


def _forward(
  loss: Loss,
  params: types.Params,
  targets: types.PyTree,
  rollout: types.Rollout,
  gradient: types.Params,
) -> tuple[types.Params, tuple[types.Params, types.PyTree, types.Rollout]]:
  del loss
  # Only inputs: the product in `_backward` makes the activations again, while
  # reverse mode would have to keep those of the gradient until then.
  return gradient, (params, targets, rollout)


def _backward(
  loss: Loss,
  residuals: tuple[types.Params, types.PyTree, types.Rollout],
  cotangent: types.Params,
) -> tuple[types.Params, types.PyTree, None, None]:
  params, targets, rollout = residuals
  gradients = jax.grad(loss, argnums=(0, 1))
  _, (params_gradient, targets_gradient) = jax.jvp(
    lambda params: gradients(params, targets, rollout), (params,), (cotangent,)
  )
  # Data are constant. The gradient has no cotangent of its own: what depends on
  # it has been differentiated with respect to theta and m.
  return params_gradient, targets_gradient, None, None


known_gradient.defvjp(_forward, _backward)
