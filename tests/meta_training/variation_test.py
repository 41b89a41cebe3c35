"""Tests of agents with learning rates of their own."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.maths import optimizers
from disco_rl.meta_training import variation
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import disco

T, B, A = 3, 2, 3
SPEC = types.EnvironmentSpec(jax.ShapeDtypeStruct((4,), jnp.float32), A)
RULE = disco.Disco(small.META_NETWORK, num_bins=5, max_abs_value=2.0)
RATE = 0.01


def make_agent(hidden_sizes: tuple[int, ...], core: int = 0) -> agent_lib.Agent:
  config = agent_lib.AgentConfig(
    network=agent_network.AgentNetworkConfig(
      torsos.TorsoConfig(hidden_sizes=hidden_sizes),
      core_lstm=core,
      action_model_lstm=3,
      action_model_head=3,
    ),
    batch_size=B,
    num_environments=B,
    replay_capacity=B,
    unroll_length=T,
    learning_rate=RATE,
  )
  return agent_lib.make(config, SPEC, RULE)


def test_rates_are_drawn_log_uniformly_and_used() -> None:
  agent = make_agent((2,))
  config = variation.VariationConfig(learning_rate_range=(1e-4, 1e-2))
  own = variation.prepare(config, agent)

  @jax.jit
  def draw(keys: Any) -> Any:
    state = own.init_learner(jax.random.key(0))
    return jax.vmap(lambda key: variation.draw(config, state, key))(keys)

  states, _ = draw(jax.random.split(jax.random.key(0), 500))
  rates = np.asarray(states.opt_state.learning_rate)
  scaled = np.log10(rates) / 2 + 2
  assert scaled.min() > 0 and scaled.max() < 1
  want = np.arange(0.1, 1, 0.1)
  np.testing.assert_allclose(np.quantile(scaled, want), want, atol=0.08)
  # An update is that of the optimizer with this rate.
  gradient = {'w': jnp.array([0.3, -2.0, 1e-4])}
  for rate in (rates[0], RATE):
    fixed = optimizers.agent_optimizer(float(rate))
    expected, _ = fixed.update(gradient, fixed.init(gradient))
    state = optimizers.set_own_rate(own.optimizer.init(gradient), rate)
    got, state = own.optimizer.update(gradient, state)
    np.testing.assert_allclose(got['w'], expected['w'], rtol=1e-6)
    assert state.learning_rate == rate


def test_drawn_rates_scale_the_schedule_of_all_agents() -> None:
  """With warm-up, decay, weight decay and bound of the other agents."""
  settings = {
    'max_abs_update': 0.7,
    'warm_up_updates': 2,
    'decay_updates': 5,
    'weight_decay': 0.3,
  }
  agent = make_agent((2,))
  config = dataclasses.replace(agent.config, **settings)
  agent = agent_lib.make(config, SPEC, RULE)
  ranges = variation.VariationConfig(learning_rate_range=(1e-4, 1e-2))
  own = variation.prepare(ranges, agent).optimizer
  params = {'w': jnp.array([1.0, -2.0])}
  gradient = {'w': jnp.array([0.3, -2.0])}
  state = agent.optimizer.init(params)
  own_state = optimizers.set_own_rate(own.init(params), 2 * RATE)
  for _ in range(5):
    expected, state = agent.optimizer.update(gradient, state, params)
    got, own_state = own.update(gradient, own_state, params)
    np.testing.assert_allclose(got['w'], 2 * expected['w'], rtol=1e-5)


def test_without_ranges_nothing_changes() -> None:
  agent = make_agent((2,))
  none = variation.VariationConfig()
  prepared = variation.prepare(none, agent)
  assert dataclasses.replace(prepared, optimizer=agent.optimizer) == agent
  params = gradient = {'v': jnp.array([2.0, -1.0]), 'w': jnp.array([[0.1]])}
  expected, _ = agent.optimizer.update(
    gradient, agent.optimizer.init(params), params
  )
  state = prepared.optimizer.init(params)
  updates, state = prepared.optimizer.update(gradient, state, params)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), updates, expected
  )
  assert {x.shape for x in jax.tree.leaves(state)} == {(), (3,)}


def test_without_ranges_nothing_is_drawn() -> None:
  none = variation.VariationConfig()
  given: tuple[Any, Any] = object(), object()
  assert variation.draw(none, *given) == given


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'learning_rate_range': (0.5,)}, 'range=.* two positive numbers'),
    ({'learning_rate_range': (1e-2, 1e-4)}, 'the lower one first'),
    ({'learning_rate_range': (0.0, 1e-4)}, 'learning_rate_range=.*positive'),
    ({'learning_rate_range': 'ab'}, 'learning_rate_range=.*numbers'),
  ],
)
def test_impossible_ranges_are_refused(settings: Any, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    variation.VariationConfig(**settings)
