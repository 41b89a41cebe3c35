"""Tests of maths/value_targets.py and maths/moments.py: invariants."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import rollouts

from disco_rl import types
from disco_rl.maths import moments
from disco_rl.maths import value_targets

pytestmark = pytest.mark.usefixtures('usual_compilation')

T, B, A = 8, 3, 3
DISCOUNT = 0.9
BINS = 41
MAX_ABS_VALUE = 10.0
DECAY = 0.99
# In float32, h^-1 moves in steps of 1.2e-4.
RESOLUTION = 1e-3


make_rollout = functools.partial(
  rollouts.draw, length=T, batch_size=B, num_actions=A
)


def two_hot_logits(value: Any) -> jax.Array:
  """Logits [..., BINS] of exactly this value."""
  transformed = value_targets.TRANSFORM.apply(jnp.asarray(value))
  code = rlax.transform_to_2hot(
    transformed, -MAX_ABS_VALUE, MAX_ABS_VALUE, BINS
  )
  return jnp.log(jnp.maximum(code, 1e-30))


# One signature for all: (rollout, logits of pi, values [T+1, B, A] of the
# actions) -> the target [T, B], the advantage [T, B]. A state's value is the
# average by pi.
Estimator = Callable[[types.Rollout, Any, Any], tuple[types.Array, types.Array]]


def state_value(policy_logits: Any, q_value: Any) -> jax.Array:
  return jnp.sum(jax.nn.softmax(policy_logits) * q_value, axis=-1)


OPTIONS = {'discount': DISCOUNT, 'moments_decay': DECAY}
START = value_targets.init_moments()


@functools.partial(jax.jit, static_argnames='lambda_')
def retrace(
  rollout: types.Rollout, policy_logits: Any, q_value: Any, lambda_: float = 0.8
) -> tuple[types.Array, types.Array]:
  estimates, _ = value_targets.retrace(
    START,
    rollout,
    policy_logits,
    jnp.zeros((*q_value.shape, BINS)),
    two_hot_logits(q_value),
    lambda_=lambda_,
    max_abs_value=MAX_ABS_VALUE,
    **OPTIONS,
  )
  return estimates.q_target, estimates.advantage


@functools.partial(jax.jit, static_argnames='lambda_')
def vtrace(
  rollout: types.Rollout, policy_logits: Any, q_value: Any, lambda_: float = 0.8
) -> tuple[types.Array, types.Array]:
  value = state_value(policy_logits, q_value)
  estimates, _ = value_targets.vtrace(
    START, rollout, policy_logits, value, lambda_=lambda_, **OPTIONS
  )
  return estimates.value_target, estimates.advantage


@jax.jit
def monte_carlo(
  rollout: types.Rollout, policy_logits: Any, q_value: Any
) -> tuple[types.Array, types.Array]:
  value = state_value(policy_logits, q_value)
  estimates, _ = value_targets.monte_carlo(
    START, rollout, policy_logits, value, **OPTIONS
  )
  return estimates.value_target, estimates.advantage


ESTIMATORS = [retrace, vtrace, monte_carlo]


def random_values(seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Logits of pi, and values of the actions, [T+1, B, A]."""
  rng = np.random.default_rng(seed)
  logits, q_value = rng.normal(size=(2, T + 1, B, A)).astype(np.float32)
  return logits, q_value


# Returns.


def returns(rollout: types.Rollout, last_value: Any) -> np.ndarray:
  """Discounted observed returns, [T, B]."""
  outcome, result = last_value, []
  for reward, is_terminal in zip(
    rollout.reward[::-1], rollout.is_terminal[::-1]
  ):
    outcome = reward + DISCOUNT * ~is_terminal * outcome
    result.append(outcome)
  return np.stack(result[::-1])


def test_on_policy_vtrace_is_the_return() -> None:
  policy_logits, q_value = random_values(0)
  is_terminal = np.random.default_rng(1).random((T, B)) < 0.3
  rollout = make_rollout(2, is_terminal=is_terminal, logits=policy_logits)
  value = state_value(policy_logits, q_value)
  expected = returns(rollout, value[-1])
  for target, advantage in (
    vtrace(rollout, policy_logits, q_value, lambda_=1.0),
    monte_carlo(rollout, policy_logits, q_value),
  ):
    np.testing.assert_allclose(target, expected, atol=1e-5)
    np.testing.assert_allclose(advantage, expected - value[:-1], atol=1e-5)


def test_monte_carlo_advantages_are_weighted_by_the_ratio() -> None:
  policy_logits, q_value = random_values(3)
  rollout = make_rollout(4)
  target, advantage = monte_carlo(rollout, policy_logits, q_value)
  value = state_value(policy_logits, q_value)
  np.testing.assert_allclose(target, returns(rollout, value[-1]), atol=1e-5)
  rho = value_targets.importance_ratio(policy_logits, rollout)[:-1]
  assert np.any(rho > 1.0)
  np.testing.assert_allclose(
    advantage, np.minimum(rho, 1.0) * (target - value[:-1]), atol=1e-5
  )


def test_retrace_by_hand() -> None:
  """Three steps with discount 0.5 and lambda 0.8.

  The taken action is 0 and pi is uniform. V is the mean of a row of q:
  (2, 1, 4, 3). mu(0) is (0.5, 0.25, 0.8), so rho is (1, 2, 0.625) and c is
  (0.8, 0.8, 0.5).

  G2 = 4 + 0.5 * 3                               = 5.5
  G1 = 2 + 0.5 * (4 + 0.5 * (G2    - q(s2, 0)))  = 2 + 0.5 * 5.25 = 4.625
  G0 = 1 + 0.5 * (1 + 0.8 * (G1    - q(s1, 0)))  = 1 + 0.5 * 3.1  = 2.55
  """
  target_q = np.array([[1.0, 3.0], [2.0, 0.0], [3.0, 5.0], [4.0, 2.0]])
  online_q = np.array([[0.5, 0.0], [0.25, 0.0], [1.0, 0.0], [0.0, 0.0]])
  behavior = np.array([[0.5, 0.5], [0.25, 0.75], [0.8, 0.2], [0.5, 0.5]])
  rollout = types.Rollout(
    observation=(),
    action=np.zeros((4, 1), np.int32),
    logits=np.log(behavior)[:, None],
    reward=np.array([[1.0], [2.0], [4.0]]),
    is_terminal=np.zeros((3, 1), bool),
    mask=np.ones((3, 1), bool),
  )
  estimates, _ = jax.jit(
    lambda: value_targets.retrace(
      value_targets.init_moments(),
      rollout,
      jnp.zeros((4, 1, 2)),
      two_hot_logits(online_q[:, None]),
      two_hot_logits(target_q[:, None]),
      discount=0.5,
      lambda_=0.8,
      max_abs_value=MAX_ABS_VALUE,
      moments_decay=DECAY,
    )
  )()
  for actual, expected in (
    (estimates.q_target, [2.55, 4.625, 5.5]),
    (estimates.q_td, [2.05, 4.375, 4.5]),
    (estimates.advantage, [0.55, 3.625, 1.5]),
    (estimates.value, [0.25, 0.125, 0.5, 0.0]),
    (estimates.qv_advantage[:, :, 0], [-1.0, 1.0, -1.0, 1.0]),
  ):
    np.testing.assert_allclose(actual[:, 0], expected, atol=RESOLUTION)


# Ends of episodes.


def part(rollout: types.Rollout, start: int, stop: int) -> types.Rollout:
  """Transitions start .. stop - 1."""
  states = jax.tree.map(
    lambda x: x[start : stop + 1],
    (rollout.observation, rollout.action, rollout.logits),
  )
  outcomes = jax.tree.map(
    lambda x: x[start:stop], (rollout.reward, rollout.is_terminal, rollout.mask)
  )
  return types.Rollout(*states, *outcomes)


@pytest.mark.parametrize('estimate', ESTIMATORS)
def test_two_episodes_are_two_traces(estimate: Estimator) -> None:
  cut = 3
  policy_logits, q_value = random_values(7)
  is_terminal = np.zeros((T, B), bool)
  is_terminal[cut - 1] = True
  rollout = make_rollout(8, is_terminal=is_terminal)
  together = estimate(rollout, policy_logits, q_value)
  apart = [
    estimate(
      part(rollout, start, stop),
      policy_logits[start : stop + 1],
      q_value[start : stop + 1],
    )
    for start, stop in ((0, cut), (cut, T))
  ]
  for actual, first, second in zip(together, *apart):
    np.testing.assert_allclose(
      actual, np.concatenate([first, second]), atol=RESOLUTION
    )


@pytest.mark.parametrize('estimate', ESTIMATORS)
def test_values_are_bootstrapped_at_a_time_limit(estimate: Estimator) -> None:
  """Step 3 hits a time limit; step 4 is the masked transition of a reset.

  observation[4] is the last of the episode, from which step 3 bootstraps.
  Nothing else of step 4, or later, affects the steps before.
  """
  last = 3
  policy_logits, q_value = random_values(9)
  mask = np.ones((T, B), bool)
  mask[last + 1] = False
  rollout = make_rollout(10, mask=mask)
  target, advantage = estimate(rollout, policy_logits, q_value)
  value = state_value(policy_logits, q_value)
  np.testing.assert_allclose(
    target[last],
    # V-trace weights a step by min(1, rho).
    one_step_target(estimate, rollout, policy_logits, value)[last],
    atol=RESOLUTION,
  )

  other, other_values = make_rollout(11), random_values(12)
  since = lambda mine, theirs, t: np.concatenate([mine[:t], theirs[t:]])
  later = dataclasses.replace(
    rollout,
    action=since(rollout.action, other.action, last + 1),
    logits=since(rollout.logits, other.logits, last + 1),
    reward=since(rollout.reward, other.reward, last + 1),
    is_terminal=since(rollout.is_terminal, ~rollout.is_terminal, last + 1),
    mask=since(rollout.mask, rollout.reward > 0.0, last + 2),
  )
  changed_target, changed_advantage = estimate(
    later,
    since(policy_logits, other_values[0], last + 2),
    since(q_value, other_values[1], last + 2),
  )
  np.testing.assert_array_equal(changed_target[: last + 1], target[: last + 1])
  np.testing.assert_array_equal(
    changed_advantage[: last + 1], advantage[: last + 1]
  )
  assert not np.any(changed_target[last + 1 :] == target[last + 1 :])

  # Later steps of the same episode do affect them.
  real = dataclasses.replace(rollout, mask=np.ones((T, B), bool))
  assert not np.any(
    estimate(real, policy_logits, q_value)[0][last] == target[last]
  )


def one_step_target(
  estimate: Estimator, rollout: types.Rollout, policy_logits: Any, value: Any
) -> jax.Array:
  target = rollout.reward + DISCOUNT * value[1:]
  if estimate is not vtrace:
    return target
  rho = value_targets.importance_ratio(policy_logits, rollout)[:-1]
  return value[:-1] + jnp.minimum(rho, 1.0) * (target - value[:-1])


# Gradients.


def test_estimates_have_no_gradient() -> None:
  """No gradient flows through estimates or moments."""
  policy_logits, q_value = random_values(15)
  rollout = make_rollout(16)
  options = {'lambda_': 0.8, **OPTIONS}
  estimate_q = functools.partial(
    value_targets.retrace, max_abs_value=MAX_ABS_VALUE, **options
  )
  estimate_v = functools.partial(value_targets.vtrace, **options)

  def total(policy_logits: Any, q_logits: Any) -> jax.Array:
    value = q_logits[..., 0, 0]
    outcome = (
      estimate_q(START, rollout, policy_logits, q_logits, q_logits),
      estimate_v(START, rollout, policy_logits, value),
    )
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(outcome))

  gradient = jax.jit(jax.grad(total, argnums=(0, 1)))(
    policy_logits, two_hot_logits(q_value)
  )
  for leaf in jax.tree.leaves(gradient):
    assert not np.any(leaf)


# Categorical values.

VALUES = np.array([-90.0, -1.5, -0.01, 0.0, 0.3, 2.0, 7.77, 100.0], np.float32)


def test_values_from_logits_inverts_the_two_hot_code() -> None:
  values = value_targets.values_from_logits(
    two_hot_logits(VALUES), MAX_ABS_VALUE
  )
  np.testing.assert_allclose(values, VALUES, rtol=1e-4, atol=RESOLUTION)


def test_a_value_is_of_the_expected_bin() -> None:
  """Not the expected value of the bins: h^-1 is not linear."""
  logits = (
    jnp.full((BINS,), -1e9)
    .at[jnp.array([0, BINS - 1])]
    .set(jnp.log(jnp.array([0.25, 0.75])))
  )
  value = value_targets.values_from_logits(logits, MAX_ABS_VALUE)
  expected = value_targets.TRANSFORM.apply_inv(0.5 * MAX_ABS_VALUE)
  np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_categorical_value_loss_is_least_at_the_two_hot_code() -> None:
  loss = lambda logits, target: jnp.sum(
    value_targets.categorical_value_loss(logits, target, MAX_ABS_VALUE)
  )
  gradient_of = jax.jit(jax.grad(loss, argnums=(0, 1)))
  best = two_hot_logits(VALUES)
  to_logits, to_target = gradient_of(best, VALUES)
  np.testing.assert_allclose(to_logits, 0.0, atol=1e-5)
  assert not np.any(to_target)
  to_logits, _ = gradient_of(best, VALUES + 1.0)
  assert np.all(np.max(np.abs(to_logits), axis=-1) > 1e-3)

  # Cross-entropy: at the optimum, the entropy of the code.
  code = jax.nn.softmax(best)
  entropy = -jnp.sum(code * jnp.log(jnp.maximum(code, 1e-30)))
  np.testing.assert_allclose(loss(best, VALUES), entropy, rtol=1e-4)


# Moments.


def test_moments_are_of_real_steps_and_decay_with_the_age_of_batches() -> None:
  """The third batch has no real step, and counts as none."""
  rng = np.random.default_rng(18)
  batches = rng.normal(1.0, 3.0, (5, 4, 3))
  masks = rng.random(batches.shape) < 0.6
  masks[2] = False
  state = moments.init()
  for batch, mask in zip(batches, masks):
    # Artifacts: minus the value of the last observation.
    seen = np.where(mask, batch, -300.0).astype(np.float32)
    state = moments.update(state, seen, mask, 0.8)
  real = [batches[i][masks[i]] for i in (0, 1, 3, 4)]
  weights = 0.8 ** np.arange(4)[::-1]
  weights /= weights.sum()
  mean = weights @ [np.mean(x) for x in real]
  variance = weights @ [np.mean(np.square(x)) for x in real] - mean**2
  for actual, expected in zip(moments.statistics(state), (mean, variance)):
    assert actual == pytest.approx(expected, rel=1e-4)
  x = np.array([-1.0, 0.0, 5.0], np.float32)
  np.testing.assert_allclose(
    moments.normalize(state, x), (x - mean) / variance**0.5, rtol=1e-4
  )
  np.testing.assert_allclose(
    moments.normalize(state, x, subtract_mean=False),
    x / variance**0.5,
    rtol=1e-4,
  )


def test_without_data_nothing_is_normalized() -> None:
  nothing = jnp.zeros((3, 2), bool)
  state = moments.update(moments.init(), jnp.ones((3, 2)), nothing, DECAY)
  x = jnp.array([-1.0, 0.0, 5.0])
  np.testing.assert_allclose(moments.normalize(state, x), x, rtol=1e-5)


def test_a_constant_signal_is_normalized_to_something_finite() -> None:
  twos = jnp.full((3, 1), 2.0)
  state = moments.update(moments.init(), twos, twos > 0.0, DECAY)
  # sqrt(0 + 1e-12) + 1e-6 = 2e-6
  np.testing.assert_allclose(
    moments.normalize(state, jnp.array([2.0, 3.0]), subtract_mean=False),
    [1e6, 1.5e6],
    rtol=1e-3,
  )
