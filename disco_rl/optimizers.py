"""The agents' optimiser."""

import jax
import jax.numpy as jnp
import optax


def scale_by_adam_sg_denom(
  b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
  """Adam whose second-moment denominator is a constant for meta-gradients.

  The numbers are `optax.scale_by_adam`'s. Differentiating through the root of
  second moments near zero would blow up the meta-gradient, so it is stopped.
  """

  def init(params: optax.Params) -> optax.ScaleByAdamState:
    zeros = optax.tree.zeros_like(params)
    return optax.ScaleByAdamState(
      count=jnp.zeros((), jnp.int32), mu=zeros, nu=zeros
    )

  def update(
    updates: optax.Updates,
    state: optax.ScaleByAdamState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, optax.ScaleByAdamState]:
    del params
    count = optax.safe_increment(state.count)
    mu = optax.tree.update_moment(updates, state.mu, b1, 1)
    nu = jax.lax.stop_gradient(
      optax.tree.update_moment(updates, state.nu, b2, 2)
    )
    mu_hat = optax.tree.bias_correction(mu, b1, count)
    nu_hat = optax.tree.bias_correction(nu, b2, count)
    updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu_hat, nu_hat)
    return updates, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

  return optax.GradientTransformation(init, update)


def agent_optimizer(
  learning_rate: float, max_abs_update: float = 1.0
) -> optax.GradientTransformation:
  """Adam, its updates clipped elementwise, times -learning_rate.

  Args:
    learning_rate: step size.
    max_abs_update: bound of each entry of Adam's update, before the step size.

  Returns:
    The transformation of gradients into updates.
  """
  return optax.chain(
    scale_by_adam_sg_denom(),
    optax.clip(max_abs_update),
    optax.scale(-learning_rate),
  )
