"""The agents' optimizer."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from disco_rl import types


def scale_by_adam_sg_denom(
  b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
  """Makes Adam with a denominator that is constant for meta-gradients.

  Its results are those of `optax.scale_by_adam`. The derivative of the root of
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


def scale_by_rms_sg_denom(
  decay: float = 0.99, eps: float = 1e-8
) -> optax.GradientTransformation:
  """Makes RMSProp with a denominator that is constant for meta-gradients.

  v <- decay v + (1 - decay) g^2; the update is g / (sqrt(v) + eps), where v is
  initially zero, without bias correction (Tieleman and Hinton, 2012). The paper
  does not state the constants; the decay is IMPALA's.
  """

  def init(params: optax.Params) -> optax.ScaleByRmsState:
    return optax.ScaleByRmsState(nu=optax.tree.zeros_like(params))

  def update(
    updates: optax.Updates,
    state: optax.ScaleByRmsState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, optax.ScaleByRmsState]:
    del params
    nu = jax.lax.stop_gradient(
      optax.tree.update_moment(updates, state.nu, decay, 2)
    )
    updates = jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + eps), updates, nu)
    return updates, optax.ScaleByRmsState(nu=nu)

  return optax.GradientTransformation(init, update)


OPTIMIZERS: Mapping[str, Callable[[], optax.GradientTransformation]] = {
  'adam': scale_by_adam_sg_denom,
  'rmsprop': scale_by_rms_sg_denom,
}


def agent_optimizer(
  learning_rate: float,
  max_abs_update: float = 1.0,
  warm_up_updates: int = 0,
  decay_updates: int = 0,
  weight_decay: float = 0.0,
  optimizer: str = 'adam',
  max_gradient_norm: float = 0.0,
) -> optax.GradientTransformation:
  """Makes Adam or RMSProp with elementwise clipping and a step size.

  Args:
    learning_rate: The largest step size.
    max_abs_update: The bound of each entry of an update, before the step size.
    warm_up_updates: The number of updates over which the step size rises from
      zero; 0: no warm-up.
    decay_updates: The number of updates after which a cosine schedule ends at
      zero, counted from the first; 0: the step size is constant.
    weight_decay: The coefficient of decoupled weight decay (Loshchilov and
      Hutter, 2019), added after clipping.
    optimizer: A name in `OPTIMIZERS`.
    max_gradient_norm: The bound of the norm of the whole gradient, before Adam
      or RMSProp; 0: no bound.

  Returns:
    The transformation of gradients into updates.

  Raises:
    ValueError: The decay would end before the warm-up.
  """
  if 0 < decay_updates <= warm_up_updates:
    raise ValueError(
      f'decay_updates={decay_updates} must be above '
      f'warm_up_updates={warm_up_updates}, or 0.'
    )
  parts = [OPTIMIZERS[optimizer](), optax.clip(max_abs_update)]
  if max_gradient_norm:
    parts.insert(0, optax.clip_by_global_norm(max_gradient_norm))
  if weight_decay:
    parts.append(optax.add_decayed_weights(weight_decay))
  parts.append(
    optax.scale_by_learning_rate(
      schedule(learning_rate, warm_up_updates, decay_updates)
    )
  )
  return optax.chain(*parts)


class OwnRateState(NamedTuple):
  """The inner state of the optimizer, and the learning rate []."""

  inner: types.PyTree
  learning_rate: types.Array


def with_own_rate(
  optimizer: optax.GradientTransformation,
) -> optax.GradientTransformation:
  """Multiplies an optimizer's updates by a learning rate in its state.

  One program can then serve agents with different rates; see `set_own_rate`.

  Args:
    optimizer: An optimizer with a learning rate of 1.

  Returns:
    The transformation, with an initial rate of 1.
  """

  def init(params: optax.Params) -> OwnRateState:
    return OwnRateState(optimizer.init(params), jnp.ones(()))

  def update(
    updates: optax.Updates,
    state: OwnRateState,
    params: optax.Params | None = None,
  ) -> tuple[optax.Updates, OwnRateState]:
    updates, inner = optimizer.update(updates, state.inner, params)
    rate = jax.lax.stop_gradient(state.learning_rate)
    updates = jax.tree.map(lambda x: rate * x, updates)
    return updates, OwnRateState(inner, rate)

  return optax.GradientTransformation(init, update)


def set_own_rate(state: OwnRateState, rate: types.Array) -> OwnRateState:
  """Sets the learning rate in the state of `with_own_rate`."""
  return state._replace(learning_rate=rate)


def schedule(
  learning_rate: float, warm_up_updates: int = 0, decay_updates: int = 0
) -> optax.ScalarOrSchedule:
  """Makes a linear warm-up, then a cosine decay or a constant."""
  if decay_updates:
    return optax.warmup_cosine_decay_schedule(
      0.0, learning_rate, warm_up_updates, decay_updates
    )
  if warm_up_updates:
    return optax.linear_schedule(0.0, learning_rate, warm_up_updates)
  return learning_rate
