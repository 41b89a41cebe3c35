"""The outer loss and its regularizers against NumPy in float64.

The references go through the transitions one by one and share no code with
disco_rl/meta_training/outer_loss.py; gradients are compared with their finite
differences.
"""

from collections.abc import Callable
from collections.abc import Iterator
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.meta_training import outer_loss
from disco_rl.update_rules import disco

# All different, so that no axis passes for another.
T, B, A, Y = 4, 3, 2, 5
# Uneven over time and over the batch; 7 of 12 transitions are real.
MASK = np.array(
  [[True, False, True], [True, True, False], [False, False, True],
   [True, False, True]]
)  # fmt: skip
EMPTY = np.zeros_like(MASK)
ACTION = np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]])

Costs = dict[str, float]
DISTINCT: Costs = {
  'policy_entropy_cost': 0.3,
  'y_entropy_cost': 0.7,
  'z_entropy_cost': 1.1,
  'target_kl_cost': 1.7,
  'target_mean_cost': 2.3,
}
# Of the published small-scale recipe.
PUBLISHED: Costs = {
  'policy_entropy_cost': 1e-2,
  'y_entropy_cost': 1e-3,
  'z_entropy_cost': 1e-3,
  'target_kl_cost': 1e-2,
  'target_mean_cost': 1e-3,
}
CONFIG = outer_loss.OuterLossConfig(**DISTINCT)

Arrays = dict[str, np.ndarray]
# Arrays, mask -> the loss, and logs.
Reference = Callable[[Arrays, np.ndarray], tuple[float, dict[str, float]]]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
  with jax.enable_x64(True):
    yield


def make_arrays(shapes: dict[str, tuple[int, ...]]) -> Arrays:
  """Random numbers whose means differ from tensor to tensor."""
  rng = np.random.default_rng(0)
  return {
    name: rng.normal(0.4 * (i + 1), 1.5, size=shape)
    for i, (name, shape) in enumerate(shapes.items())
  }


TAKEN = make_arrays(
  {
    'logits': (T + 1, B, A),
    'y': (T + 1, B, Y),
    'z': (T, B, Y),
    'aux_pi': (T, B, A),
    'advantage': (T, B),
  }
)
TARGETS = make_arrays(
  {
    'pi': (T, B, A),
    'y': (T, B, Y),
    'z': (T, B, Y),
    'q': (T, B),
    'target_policy': (T, B, A),
  }
)


def make_rollout(mask: Any) -> types.Rollout:
  """Only actions and the mask matter; all else is NaN."""
  return types.Rollout(
    observation=jnp.full((T + 1, B, 1), jnp.nan),
    action=jnp.asarray(ACTION, jnp.int32),
    logits=jnp.full((T + 1, B, A), jnp.nan),
    reward=jnp.full((T, B), jnp.nan),
    is_terminal=jnp.zeros((T, B), bool),
    mask=mask,
  )


# The references.


def log_probabilities(logits: np.ndarray) -> np.ndarray:
  return logits - np.log(np.sum(np.exp(logits)))


def entropy(logits: np.ndarray) -> float:
  log_p = log_probabilities(logits)
  return -float(np.sum(np.exp(log_p) * log_p))


def mean_of(term: Callable[[int, int], float], mask: np.ndarray) -> float:
  """Mean of a function of t and b over the real transitions."""
  real = [(t, b) for t in range(T) for b in range(B) if mask[t, b]]
  return sum(term(t, b) for t, b in real) / (len(real) + 1e-8)


def reference_validation(
  costs: Costs, taken: Arrays, mask: np.ndarray
) -> tuple[float, dict[str, float]]:
  """-log pi(a) A, minus the weighted entropies."""

  def policy_loss(t: int, b: int) -> float:
    log_pi = log_probabilities(taken['logits'][t, b])[ACTION[t, b]]
    return -float(log_pi * taken['advantage'][t, b])

  logs = {'meta_policy_loss': mean_of(policy_loss, mask)}
  for name, head in (('policy', 'logits'), ('y', 'y'), ('z', 'z')):
    logs[f'validation_{name}_entropy'] = mean_of(
      lambda t, b, head=head: entropy(taken[head][t, b]), mask
    )
  loss = logs['meta_policy_loss']
  for name in ('policy', 'y', 'z'):
    loss -= costs[f'{name}_entropy_cost'] * logs[f'validation_{name}_entropy']
  return loss, logs


def reference_regularizer(
  costs: Costs, targets: Arrays, mask: np.ndarray
) -> tuple[float, dict[str, float]]:
  """KL(target policy || pi_hat), and the sum of three squares of a mean."""

  def kl(t: int, b: int) -> float:
    log_target = log_probabilities(targets['target_policy'][t, b])
    log_pi = log_probabilities(targets['pi'][t, b])
    return float(np.sum(np.exp(log_target) * (log_target - log_pi)))

  squares = 0.0
  for name in ('pi', 'y', 'z'):
    logits = targets[name]
    mean = mean_of(
      lambda t, b, logits=logits: sum(logits[t, b]) / len(logits[t, b]), mask
    )
    squares += mean**2
  logs = {'target_kl': mean_of(kl, mask), 'target_squared_mean': squares}
  loss = (
    costs['target_kl_cost'] * logs['target_kl']
    + costs['target_mean_cost'] * squares
  )
  return loss, logs


def differences(
  reference: Reference, arrays: Arrays, mask: np.ndarray, name: str
) -> np.ndarray:
  """The gradient of a reference's loss with respect to one array."""
  gradient, size = np.zeros_like(arrays[name]), 1e-5
  for index in np.ndindex(gradient.shape):
    losses = []
    for sign in (1.0, -1.0):
      moved = arrays[name].copy()
      moved[index] += sign * size
      losses.append(reference({**arrays, name: moved}, mask)[0])
    gradient[index] = (losses[0] - losses[1]) / (2.0 * size)
  return gradient


# What is checked.


def validation(
  config: outer_loss.OuterLossConfig, arrays: Any, mask: Any
) -> Any:
  taken = {name: x for name, x in arrays.items() if name != 'advantage'}
  return outer_loss.validation_loss(
    config, taken, make_rollout(mask), arrays['advantage']
  )


def regularizer(
  config: outer_loss.OuterLossConfig, arrays: Any, mask: Any
) -> Any:
  return outer_loss.target_regularizer(
    config, disco.DiscoTargets(**arrays), make_rollout(mask)
  )


CASES = {
  'validation': (
    validation,
    reference_validation,
    TAKEN,
    ('logits', 'y', 'z'),
  ),
  'regularizer': (
    regularizer,
    reference_regularizer,
    TARGETS,
    ('pi', 'y', 'z'),
  ),
}


def test_costs_are_the_published_ones_by_default() -> None:
  assert outer_loss.OuterLossConfig() == outer_loss.OuterLossConfig(**PUBLISHED)


@pytest.mark.parametrize('function', CASES)
def test_loss_logs_and_gradients(function: str) -> None:
  """Only what is named in CASES has a gradient; of all else it is exactly 0."""
  checked, reference, arrays, differentiable = CASES[function]
  reference = functools.partial(reference, DISTINCT)
  evaluate = jax.jit(
    jax.value_and_grad(functools.partial(checked, CONFIG), has_aux=True)
  )
  for mask in (MASK, EMPTY):
    (loss, logs), gradient = evaluate(arrays, mask)
    expected_loss, expected_logs = reference(arrays, mask)
    assert loss == pytest.approx(expected_loss, rel=1e-10)
    assert set(logs) == set(expected_logs)
    for name, value in expected_logs.items():
      assert logs[name] == pytest.approx(value, rel=1e-10), name
    for name in arrays:
      if name in differentiable:
        expected = differences(reference, arrays, mask, name)
        np.testing.assert_allclose(gradient[name], expected, atol=1e-9)
        assert np.any(expected) == np.any(mask)
      else:
        np.testing.assert_array_equal(gradient[name], 0.0, err_msg=name)


def test_real_transitions_alone_matter() -> None:
  """Neither what is masked nor step T, whose action is never learned from."""
  spoilt = {}
  for name, x in TAKEN.items():
    spoilt[name] = x.copy()
    spoilt[name][:T][~MASK] += 100.0
    spoilt[name][T:] -= 50.0
  evaluate = jax.jit(functools.partial(validation, CONFIG))
  loss, _ = evaluate(TAKEN, MASK)
  assert evaluate(spoilt, MASK)[0] == pytest.approx(float(loss), rel=1e-12)
  assert evaluate(spoilt, np.ones_like(MASK))[0] != pytest.approx(float(loss))


def test_the_mean_of_the_targets_is_squared_once() -> None:
  """Means of steps that cancel over a batch cost nothing."""
  sign = np.where(np.arange(T) % 2, 1.0, -1.0)[:, None, None]
  targets = {
    'pi': sign * np.ones((T, B, A)),
    'y': -3.0 * sign * np.ones((T, B, Y)),
    'z': 2.0 + 0.0 * TARGETS['z'],
    'q': np.zeros((T, B)),
    # The same policy as pi's: no divergence.
    'target_policy': np.zeros((T, B, A)),
  }
  config = outer_loss.OuterLossConfig(target_mean_cost=0.5)
  loss, logs = jax.jit(functools.partial(regularizer, config))(
    targets, np.ones((T, B), bool)
  )
  assert logs['target_kl'] == pytest.approx(0.0, abs=1e-12)
  assert logs['target_squared_mean'] == pytest.approx(4.0)
  assert loss == pytest.approx(2.0)
