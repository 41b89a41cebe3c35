"""Values, returns and advantages from categorical or scalar value predictions.

Values are predicted in the space of the signed hyperbolic transform h (Pohlen
et al., 2018). No gradient flows through anything that `retrace` and `vtrace`
return: they are constants for the losses and for the meta-network.
"""

import jax
import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.maths import categorical
from disco_rl.maths import masked
from disco_rl.maths import moments

TRANSFORM = rlax.SIGNED_HYPERBOLIC_PAIR


@types.record
class ValueMoments:
  """Lifetime moments of an agent's advantages and of its TD errors."""

  advantage: moments.Moments
  td: moments.Moments


@types.record
class RetraceEstimates:
  """Retrace estimates of a rollout.

  q and V are the online network's, q_bar and V_bar the target network's. Both
  state values average over the current policy: V(s) = sum_a pi(a) q(s, a).

  `retrace` makes them; `meta_features.zeros`, `initial_rule` and `imitation`
  make artificial ones.

  Attributes:
    value: [T+1, B] V(s).
    q_value: [T+1, B, A] q(s, a).
    target_q_value: [T+1, B, A] q_bar(s, a).
    q_target: [T, B] the return G, from q_bar and V_bar.
    q_td: [T, B] G - q(s, a).
    normalized_q_td: [T, B] divided by its lifetime deviation, mean kept.
    advantage: [T, B] G - V_bar(s).
    normalized_advantage: [T, B] by the lifetime moments of the advantage.
    qv_advantage: [T+1, B, A] q_bar(s, a) - V_bar(s).
    normalized_qv_advantage: [T+1, B, A] by the moments of the advantage.
  """

  value: types.Array
  q_value: types.Array
  target_q_value: types.Array
  q_target: types.Array
  q_td: types.Array
  normalized_q_td: types.Array
  advantage: types.Array
  normalized_advantage: types.Array
  qv_advantage: types.Array
  normalized_qv_advantage: types.Array


@types.record
class ValueEstimates:
  """Estimates of a rollout from state values.

  Attributes:
    value: [T+1, B].
    value_target: [T, B].
    td: [T, B] value_target - V(s_t).
    normalized_td: [T, B] divided by its lifetime deviation, mean kept.
    advantage: [T, B] for the policy gradient, weighted by min(1, rho).
    normalized_advantage: [T, B] by the lifetime moments of the advantage.
  """

  value: types.Array
  value_target: types.Array
  td: types.Array
  normalized_td: types.Array
  advantage: types.Array
  normalized_advantage: types.Array


def init_moments() -> ValueMoments:
  """Makes the moments before the first batch."""
  return ValueMoments(advantage=moments.init(), td=moments.init())


def taken(x: types.Array, action: types.Array) -> types.Array:
  """Selects the taken action's entry: [..., A], [...] -> [...]."""
  return jnp.take_along_axis(x, action[..., None], axis=-1)[..., 0]


def values_from_logits(
  logits: types.Array, max_abs_value: float
) -> types.Array:
  """Converts categorical predictions l to h^-1(sum_i softmax(l)_i bin_i).

  Bins are evenly spaced on [-max_abs_value, max_abs_value]. Logits [..., N]
  become values [...] in units of the return.
  """
  bins = jnp.linspace(
    -max_abs_value, max_abs_value, logits.shape[-1], dtype=logits.dtype
  )
  mean = categorical.expectation(logits, bins[:, None])[..., 0]
  return TRANSFORM.apply_inv(mean)


def categorical_value_loss(
  logits: types.Array, target: types.Array, max_abs_value: float
) -> types.Array:
  """Computes cross-entropy between the two-hot code of h(target) and logits.

  Args:
    logits: [..., N].
    target: [...] in units of the return; constant.
    max_abs_value: The largest bin.

  Returns:
    The loss, [...].
  """
  probabilities = rlax.transform_to_2hot(
    TRANSFORM.apply(jax.lax.stop_gradient(target)),
    -max_abs_value,
    max_abs_value,
    num_bins=logits.shape[-1],
  )
  return categorical.cross_entropy(probabilities, logits)


def importance_ratio(
  policy_logits: types.Array, rollout: types.Rollout
) -> types.Array:
  """Computes rho = pi(a) / mu(a) of the taken actions, [T+1, B]."""
  log_ratio = jax.nn.log_softmax(policy_logits) - jax.nn.log_softmax(
    rollout.logits
  )
  return jax.lax.stop_gradient(jnp.exp(taken(log_ratio, rollout.action)))


def retrace(
  value_moments: ValueMoments,
  rollout: types.Rollout,
  policy_logits: types.Array,
  q_logits: types.Array,
  target_q_logits: types.Array,
  *,
  discount: float,
  lambda_: float,
  max_abs_value: float,
  moments_decay: float,
) -> tuple[RetraceEstimates, ValueMoments]:
  """Estimates returns by Retrace (Munos et al., 2016) from target values.

  Args:
    value_moments: The lifetime moments before this batch.
    rollout: T transitions of B trajectories.
    policy_logits: [T+1, B, A] of the current policy, for V and V_bar.
    q_logits: [T+1, B, A, N] of the online network.
    target_q_logits: [T+1, B, A, N] of the target network.
    discount: gamma.
    lambda_: The decay of the trace.
    max_abs_value: The largest bin of q.
    moments_decay: The weight of the past in the lifetime moments.

  Returns:
    Estimates, normalized by the moments after this batch, and those moments.
  """
  policy = jax.nn.softmax(policy_logits)
  q_value = values_from_logits(q_logits, max_abs_value)
  target_q_value = values_from_logits(target_q_logits, max_abs_value)
  value = jnp.sum(policy * q_value, axis=-1)
  target_value = jnp.sum(policy * target_q_value, axis=-1)

  rho = importance_ratio(policy_logits, rollout)[:-1]
  q_target = _retrace_returns(
    rollout, rho, target_q_value, target_value, discount, lambda_
  )
  q_td = q_target - taken(q_value, rollout.action)[:-1]
  advantage = q_target - target_value[:-1]
  qv_advantage = target_q_value - target_value[..., None]

  value_moments = _update_moments(
    value_moments, advantage, q_td, rollout.mask, moments_decay
  )
  estimates = RetraceEstimates(
    value=value,
    q_value=q_value,
    target_q_value=target_q_value,
    q_target=q_target,
    q_td=q_td,
    normalized_q_td=moments.normalize(
      value_moments.td, q_td, subtract_mean=False
    ),
    advantage=advantage,
    normalized_advantage=moments.normalize(value_moments.advantage, advantage),
    qv_advantage=qv_advantage,
    normalized_qv_advantage=moments.normalize(
      value_moments.advantage, qv_advantage
    ),
  )
  return jax.lax.stop_gradient((estimates, value_moments))


def _retrace_returns(
  rollout: types.Rollout,
  rho: types.Array,
  q_value: types.Array,
  value: types.Array,
  discount: float,
  lambda_: float,
) -> types.Array:
  """Computes off-policy returns G, [T, B]; q and V are the target network's.

  G_t = r_t + gamma_t (V(s_t+1) + c_t+1 (G_t+1 - q(s_t+1, a_t+1))),
  c = lambda min(1, rho), G_T-1 = r_T-1 + gamma_T-1 V(s_T).

  The trace is also cut at masked transitions, which separate an episode that a
  time limit ended from the next one.
  """
  trace = lambda_ * jnp.minimum(rho, 1.0) * rollout.mask
  return jax.vmap(
    rlax.general_off_policy_returns_from_q_and_v, in_axes=1, out_axes=1
  )(
    taken(q_value, rollout.action)[1:-1],
    value[1:],
    rollout.reward,
    discount * (1.0 - rollout.is_terminal),
    trace[1:],
  )


def vtrace(
  value_moments: ValueMoments,
  rollout: types.Rollout,
  policy_logits: types.Array,
  value: types.Array,
  *,
  discount: float,
  lambda_: float,
  moments_decay: float | types.Array,
) -> tuple[ValueEstimates, ValueMoments]:
  """Estimates values by V-trace (Espeholt et al., 2018), rho clipped at 1.

  Args:
    value_moments: The lifetime moments before this batch.
    rollout: T transitions of B trajectories.
    policy_logits: [T+1, B, A] of the current policy.
    value: [T+1, B] in units of the return.
    discount: gamma.
    lambda_: The decay of the trace.
    moments_decay: The weight of the past in the lifetime moments.

  Returns:
    Estimates, normalized by the moments after this batch, and those moments.
  """
  output = jax.vmap(rlax.vtrace_td_error_and_advantage, in_axes=1, out_axes=1)(
    value[:-1],
    value[1:],
    rollout.reward,
    discount * (1.0 - rollout.is_terminal),
    importance_ratio(policy_logits, rollout)[:-1],
    lambda_ * masked.next_is_real(rollout.mask).astype(rollout.reward.dtype),
  )
  return _value_estimates(
    value_moments,
    value,
    output.errors,
    output.pg_advantage,
    rollout.mask,
    moments_decay,
  )


def monte_carlo(
  value_moments: ValueMoments,
  rollout: types.Rollout,
  policy_logits: types.Array,
  value: types.Array,
  *,
  discount: float,
  moments_decay: float | types.Array,
) -> tuple[ValueEstimates, ValueMoments]:
  """Estimates values by observed returns, G_t = r_t + gamma_t G_t+1.

  They bootstrap from the value at the end of the rollout and at time limits.
  Arguments and results are those of `vtrace`.
  """
  returns = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)(
    rollout.reward,
    discount * (1.0 - rollout.is_terminal),
    value[1:],
    masked.next_is_real(rollout.mask).astype(rollout.reward.dtype),
  )
  td = returns - value[:-1]
  rho = importance_ratio(policy_logits, rollout)[:-1]
  return _value_estimates(
    value_moments,
    value,
    td,
    jnp.minimum(rho, 1.0) * td,
    rollout.mask,
    moments_decay,
  )


def _value_estimates(
  value_moments: ValueMoments,
  value: types.Array,
  td: types.Array,
  advantage: types.Array,
  mask: types.Array,
  moments_decay: float | types.Array,
) -> tuple[ValueEstimates, ValueMoments]:
  """Updates the moments, then normalizes with them."""
  value_moments = _update_moments(
    value_moments, advantage, td, mask, moments_decay
  )
  estimates = ValueEstimates(
    value=value,
    value_target=td + value[:-1],
    td=td,
    normalized_td=moments.normalize(value_moments.td, td, subtract_mean=False),
    advantage=advantage,
    normalized_advantage=moments.normalize(value_moments.advantage, advantage),
  )
  return jax.lax.stop_gradient((estimates, value_moments))


def _update_moments(
  value_moments: ValueMoments,
  advantage: types.Array,
  td: types.Array,
  mask: types.Array,
  decay: float | types.Array,
) -> ValueMoments:
  """Adds the real transitions of one batch to the lifetime moments."""
  # Together, so that devices that share the batch communicate once.
  before = (value_moments.advantage, value_moments.td)
  stacked = jax.tree.map(lambda *x: jnp.stack(x), *before)
  after = jax.vmap(moments.update, in_axes=(0, 0, None, None))(
    stacked, jnp.stack([advantage, td]), mask, decay
  )
  return ValueMoments(
    advantage=jax.tree.map(lambda x: x[0], after),
    td=jax.tree.map(lambda x: x[1], after),
  )
