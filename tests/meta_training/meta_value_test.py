"""Tests of disco_rl/meta_training/meta_value.py: a chain with known values."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.meta_training import meta_value

# A chain 0 -> 1 -> 2 -> end. The reward of action 0 depends on the state; of
# action 1, which ends the episode, it is zero.
NUM_STATES, NUM_ACTIONS = 3, 2
REWARD = np.array([1.0, -2.0, 4.0])
DISCOUNT = 0.9
T, B = 10, 32
# In units of the return; values of the chain are up to 4.
TOLERANCE = 0.2
# In float32, h^-1 moves in steps of 1.2e-4.
RESOLUTION = 1e-3
NUM_BATCHES, NUM_EPOCHS = 50, 100

META_VALUE = meta_value.MetaValue(
  meta_value.MetaValueConfig(
    hidden_sizes=(16,), learning_rate=3e-3, discount=DISCOUNT
  ),
  # Not NUM_STATES: an observation more, of the state that a reset comes after.
  types.EnvironmentSpec(
    jax.ShapeDtypeStruct((NUM_STATES + 1,), jnp.float32), NUM_ACTIONS
  ),
)


def true_values(go_on: float) -> np.ndarray:
  """By Bellman's equation, for the probability of action 0."""
  values = np.zeros(NUM_STATES + 1)
  for state in reversed(range(NUM_STATES)):
    values[state] = go_on * (REWARD[state] + DISCOUNT * values[state + 1])
  return values[:-1]


def logits_of(go_on: float) -> np.ndarray:
  probabilities = np.array([go_on, 1.0 - go_on])
  return np.log(np.maximum(probabilities, 1e-9)).astype(np.float32)


def rollouts(go_on: float, dummies: bool = False) -> types.Rollout:
  """[NUM_BATCHES, ...] in which action 0 is taken with this probability.

  Args:
    go_on: probability.
    dummies: whether a reset takes a step, whose reward is wrong but masked.

  Returns:
    Consecutive rollouts.
  """
  rng = np.random.default_rng(0)
  steps = NUM_BATCHES * T + 1
  state = rng.integers(NUM_STATES, size=B)
  steps_of: dict[str, list[np.ndarray]] = {
    name: [] for name in ('state', 'action', 'reward', 'is_terminal', 'mask')
  }
  for _ in range(steps):
    action = (rng.random(B) >= go_on).astype(np.int32)
    at_the_end = state == NUM_STATES
    going_on = (action == 0) & ~at_the_end
    reward = np.where(going_on, np.append(REWARD, 0.0)[state], 0.0)
    ends = ~at_the_end & ((action == 1) | (state == NUM_STATES - 1))
    for name, value in (
      ('state', state),
      ('action', action),
      ('reward', np.where(at_the_end, -9.0, reward).astype(np.float32)),
      ('is_terminal', ends),
      ('mask', ~at_the_end),
    ):
      steps_of[name].append(value)
    after_the_end = NUM_STATES if dummies else 0
    state = np.where(ends, after_the_end, np.where(at_the_end, 0, state + 1))
  whole = {name: np.stack(values) for name, values in steps_of.items()}

  def pieces(x: np.ndarray, length: int) -> np.ndarray:
    return np.stack([x[i * T : i * T + length] for i in range(NUM_BATCHES)])

  observation = np.eye(NUM_STATES + 1, dtype=np.float32)[whole['state']]
  return types.Rollout(
    observation=pieces(observation, T + 1),
    action=pieces(whole['action'], T + 1),
    logits=np.broadcast_to(
      logits_of(go_on), (NUM_BATCHES, T + 1, B, NUM_ACTIONS)
    ),
    reward=pieces(whole['reward'], T),
    is_terminal=pieces(whole['is_terminal'], T),
    mask=pieces(whole['mask'], T),
  )


@functools.cache
def initial_state() -> meta_value.MetaValueState:
  return jax.jit(META_VALUE.init)(jax.random.key(0))


@jax.jit
def _learn(
  state: meta_value.MetaValueState, rollouts: types.Rollout, logits: Any
) -> jax.Array:
  def one(state: meta_value.MetaValueState, rollout: types.Rollout) -> Any:
    policy_logits = jnp.broadcast_to(logits, rollout.logits.shape)
    return META_VALUE.estimate_and_update(state, rollout, policy_logits)[
      0
    ], None

  def epoch(state: meta_value.MetaValueState, _: None) -> Any:
    return jax.lax.scan(one, state, rollouts)

  state, _ = jax.lax.scan(epoch, state, length=NUM_EPOCHS)
  states = jnp.eye(NUM_STATES + 1)[:NUM_STATES]
  return META_VALUE.values(state.params, states[None])[0]


def learned_values(rollouts: types.Rollout, go_on: float) -> np.ndarray:
  """Values of the states, for the policy that takes action 0 with go_on."""
  return np.asarray(_learn(initial_state(), rollouts, logits_of(go_on)))


def error(values: np.ndarray, expected: np.ndarray) -> float:
  return float(np.max(np.abs(values - expected)))


def test_values_are_those_of_the_target_policy() -> None:
  """The agents that acted gave up half of the time, the target never does.

  V-trace cuts its ratios at 1, so that in general the values are those of a
  policy between the two; of a target that is certain they are its own.
  """
  data = rollouts(0.5)
  assert error(learned_values(data, 1.0), true_values(1.0)) < TOLERANCE
  # Not those of the policy that acted; these come out on-policy.
  assert error(true_values(0.5), true_values(1.0)) > 5.0 * TOLERANCE
  assert error(learned_values(data, 0.5), true_values(0.5)) < TOLERANCE
  # min(pi, mu), normalized: theorem 1 of Espeholt et al. (2018).
  between = 0.5 / (0.5 + 0.1)
  assert error(learned_values(data, 0.9), true_values(between)) < TOLERANCE


def test_masked_steps_are_ignored() -> None:
  go_on = 0.8
  data = rollouts(go_on, dummies=True)
  assert 0.2 < np.mean(~data.mask) < 0.5
  # The dummies are seen under an observation of their own. Show them as state
  # 2, so that they spoil its value if they are learned from.
  observation = data.observation.copy()
  observation[..., NUM_STATES - 1] += observation[..., NUM_STATES]
  observation[..., NUM_STATES] = 0.0
  data = dataclasses.replace(data, observation=observation)
  values = learned_values(data, go_on)
  assert error(values, true_values(go_on)) < TOLERANCE
  everything = dataclasses.replace(data, mask=np.ones_like(data.mask))
  values = learned_values(everything, go_on)
  assert error(values, true_values(go_on)) > 5.0 * TOLERANCE


def test_values_begin_near_zero() -> None:
  """The head is linear, with weights of 0.01 and no bias."""
  states = jnp.eye(NUM_STATES + 1)
  values = META_VALUE.values(initial_state().params, states[None])
  assert 0.0 < np.max(np.abs(values)) < 0.05


def test_an_update() -> None:
  """Estimates are by the network before it; everything has moved after it."""
  data = jax.tree.map(lambda x: jnp.asarray(x[0]), rollouts(0.8))
  before = initial_state()

  @jax.jit
  def update(state: meta_value.MetaValueState) -> Any:
    value = META_VALUE.values(state.params, data.observation)
    expected = value_targets.vtrace(
      state.moments,
      data,
      data.logits,
      value,
      discount=DISCOUNT,
      lambda_=META_VALUE.config.lambda_,
      moments_decay=META_VALUE.config.moments_decay,
    )
    return META_VALUE.estimate_and_update(state, data, data.logits), expected

  (after, estimates, logs), (expected, _) = update(before)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, atol=RESOLUTION),
    estimates,
    expected,
  )
  # The loss is 0.5 times the square of the normalized TD errors.
  assert logs['meta_value_loss'] == pytest.approx(
    0.5 * float(np.mean(np.square(expected.normalized_td))), rel=1e-3
  )
  for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after)):
    assert np.any(old != new)
