"""Tests of disco_rl/meta_training/initial_rule.py."""

import dataclasses
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.meta_training import initial_rule
from disco_rl.networks import meta_network

# A single last channel, so that many random rules are dead.
CONFIG = meta_network.MetaNetworkConfig(
  prediction_size=4,
  prediction_embedding=(3, 1),
  policy_channels=(2, 1),
  policy_target_channels=(3,),
  lstm_size=4,
  meta_rnn_input_size=3,
  meta_rnn_size=4,
)
# The policy embedding of the rule itself, not that of its meta-RNN.
LAST_BLOCK = 'lstm/sequential/conv1_d_1'
TIME, TRAJECTORY, ACTION = np.indices(initial_rule._SHAPE)


@jax.jit
def spread(key: jax.Array, params: types.Params) -> jax.Array:
  return initial_rule.spread(key, CONFIG, params)


@jax.jit
def random_rules(key: jax.Array) -> Any:
  """64 rules, and their spreads."""
  params = jax.vmap(lambda key: meta_network.init(key, CONFIG))(
    jax.random.split(key, 64)
  )
  return params, jax.vmap(
    lambda params: initial_rule.spread(key, CONFIG, params)
  )(params)


def test_outputs_begin_at_the_published_scale() -> None:
  """A normal distribution of deviation 0.3, truncated at two deviations."""
  params, _ = random_rules(jax.random.key(0))
  for layer in ('linear_1', 'linear_2', 'linear_3', 'linear_4'):
    w = params[f'lstm/{layer}']['w']
    assert jnp.std(w) == pytest.approx(0.88 * 0.3, rel=0.2), layer
    assert jnp.max(jnp.abs(w)) <= 0.6


def test_a_dead_rule_has_no_spread() -> None:
  params, spreads = random_rules(jax.random.key(0))
  best = jax.tree.map(lambda x: x[jnp.argmax(spreads)], params)
  key = jax.random.key(1)
  assert spread(key, best) > initial_rule.MIN_SPREAD
  block = best[LAST_BLOCK]
  dead = {**best, LAST_BLOCK: {**block, 'b': block['b'] - 1e3}}
  assert spread(key, dead) == 0.0


@pytest.mark.slow
def test_pi_hat_of_a_drawn_rule_depends_on_the_action() -> None:
  _, spreads = random_rules(jax.random.key(2))
  # Drawn once, many would not.
  assert jnp.mean(spreads < initial_rule.MIN_SPREAD) > 0.3
  first, again, other = (
    initial_rule.draw(jax.random.key(seed), CONFIG) for seed in (3, 3, 4)
  )
  # On random inputs other than those that they were drawn by.
  for params in (first, other):
    assert spread(jax.random.key(5), params) > initial_rule.MIN_SPREAD
  equal = lambda a, b: jax.tree.all(jax.tree.map(jnp.array_equal, a, b))
  assert equal(first, again)
  assert not equal(first, other)


def test_sizes_that_make_every_rule_dead(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(initial_rule, '_program', lambda _: lambda _: ({}, 0.0))
  with pytest.raises(ValueError, match=r'rule_policy_channels=\(2, 1\)'):
    initial_rule.draw(jax.random.key(0), CONFIG)


# The spread is over actions, and over nothing else.


@dataclasses.dataclass(frozen=True)
class Outputs:
  """Attributes: pi: [T, B, A]."""

  pi: types.Array


@dataclasses.dataclass(frozen=True)
class Emits:
  """In the place of the meta-network: its outputs are given.

  Attributes:
    pi: [T, B, A].
  """

  pi: np.ndarray

  def apply(self, params: None, inputs: Any, state: Any) -> Any:
    del params
    assert inputs.rollout.logits[:-1].shape == self.pi.shape
    return Outputs(jnp.asarray(self.pi, jnp.float32)), state


def spread_of(monkeypatch: pytest.MonkeyPatch, pi: np.ndarray) -> float:
  """Spread of a rule that emits pi, whatever its parameters."""
  monkeypatch.setattr(meta_network, 'transform', lambda _: Emits(pi))
  params: Any = None
  return float(initial_rule.spread(jax.random.key(0), CONFIG, params))


@pytest.mark.parametrize(
  'pi, share',
  [
    (0.7 + 0 * ACTION, 0.0),
    (TIME, 0.0),
    (TRAJECTORY, 0.0),
    (np.sin(TIME) * TRAJECTORY, 0.0),
    (ACTION, 1.0),
    (10 * TIME + TRAJECTORY + ACTION, 1.0),
    # The mean over all inputs does not differ between actions.
    ((ACTION + TIME + TRAJECTORY) % 3, 1.0),
    # In one trajectory of B, at all times; in all of them, at one of T times.
    (ACTION * (TRAJECTORY == 2), 1 / initial_rule._SHAPE[1]),
    (ACTION * (TIME == 5), 1 / initial_rule._SHAPE[0]),
  ],
)
def test_actions_count_and_neither_time_nor_trajectory(
  monkeypatch: pytest.MonkeyPatch, pi: np.ndarray, share: float
) -> None:
  """0, 1 and 2 deviate from their mean by sqrt(2 / 3)."""
  expected = pytest.approx(share * (2 / 3) ** 0.5, rel=1e-4, abs=1e-6)
  assert spread_of(monkeypatch, pi) == expected


def test_the_spread_is_a_mean_over_inputs(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  pi = np.sin(3.0 * TIME + 5.0 * TRAJECTORY + 7.0 * ACTION * (1 + TRAJECTORY))
  expected = statistics.fmean(
    statistics.pstdev(row) for row in pi.reshape(-1, pi.shape[-1]).tolist()
  )
  assert spread_of(monkeypatch, pi) == pytest.approx(expected, rel=1e-4)
