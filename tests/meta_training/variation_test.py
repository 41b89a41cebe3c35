"""Tests of agents that differ: narrow ones, and learning rates of their own."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.maths import optimizers
from disco_rl.meta_training import variation
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.networks import widths
from disco_rl.update_rules import disco

T, B, A = 3, 2, 3
SPEC = types.EnvironmentSpec(jax.ShapeDtypeStruct((4,), jnp.float32), A)
RULE = disco.Disco(small.META_NETWORK, num_bins=5, max_abs_value=2.0)
RATE = 0.01
DENSE = 'agent/~/torso/mlp/~/linear_'


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


def make_rollout(core_state: Any) -> types.Rollout:
  rng = np.random.default_rng(0)
  return types.Rollout(
    observation=rng.normal(size=(T + 1, B, 4)).astype(np.float32),
    action=rng.integers(A, size=(T + 1, B), dtype=np.int32),
    logits=rng.normal(size=(T + 1, B, A)).astype(np.float32),
    reward=rng.normal(size=(T, B)).astype(np.float32),
    is_terminal=np.zeros((T, B), bool),
    mask=np.ones((T, B), bool),
    core_state=jax.tree.map(lambda x: x[None], core_state),
  )


def learn(agent: agent_lib.Agent, params: Any) -> tuple[Any, Any]:
  """Parameters after three updates, and all outputs of the network then."""
  batch = make_rollout(agent.network.initial_state(B))

  def loss(params: Any) -> tuple[jax.Array, Any]:
    outputs = agent.network.unroll(params, batch)
    leaves = jax.tree.leaves(outputs)
    return sum(jnp.mean(jnp.sin(x + 1)) for x in leaves), outputs

  @jax.jit
  def update(params: Any, state: Any) -> Any:
    gradient, outputs = jax.grad(loss, has_aux=True)(params)
    updates, state = agent.optimizer.update(gradient, state)
    return optax.apply_updates(params, updates), state, outputs

  state = agent.optimizer.init(params)
  for _ in range(4):
    before = params
    params, state, outputs = update(params, state)
  return before, outputs


def cut(wide: Any, like: Any, core: int) -> Any:
  """The entries of wide parameters that narrow ones have.

  The core's weights have those of the embedding first, then its own.
  """

  def of(path: Any, shape: Any) -> Any:
    x = np.asarray(wide[path[0].key][path[1].key])
    if 'core' in path[0].key and x.ndim == 2:
      return np.concatenate([x[: shape.shape[0] - core], x[-core:]])
    return x[tuple(slice(n) for n in shape.shape)]

  return jax.tree_util.tree_map_with_path(of, like)


@pytest.mark.parametrize('core', [0, 4])
def test_a_narrow_agent_learns_as_one_with_fewer_units(core: int) -> None:
  wide, narrow = make_agent((6, 4), core), make_agent((3, 2), core)
  start = jax.jit(wide.network.init)(jax.random.key(0))
  masked = widths.narrow(start, wide.config.network, ['y'], jnp.float32(0.5))
  like = jax.eval_shape(narrow.network.init, jax.random.key(0))
  params, outputs = learn(wide, masked)
  want_params, want = learn(narrow, cut(masked, like, core))
  for pair in (
    (cut(params, like, core), want_params),
    (outputs, want),
  ):
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), *pair
    )
  # They have moved, and absent units are still absent.
  kept = np.outer(np.arange(6) < 3, np.arange(4) < 2)
  hidden = np.asarray(params[f'{DENSE}1']['w'])
  np.testing.assert_array_equal(hidden != 0, kept)
  assert (np.abs(hidden - masked[f'{DENSE}1']['w'])[kept] > RATE / 2).all()


def test_inputs_of_heads_next_to_the_embedding_are_kept() -> None:
  """In DMLab, the last action and others follow the dense layers."""
  network = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig('mlp', (), (4,))
  )
  params = {
    f'{DENSE}0': {'w': jnp.ones((3, 4)), 'b': jnp.ones(4)},
    'agent/~/logits': {'w': jnp.ones((6, A))},
  }
  narrowed = widths.narrow(params, network, [], jnp.float32(0.5))
  heads = narrowed['agent/~/logits']['w']
  np.testing.assert_array_equal(heads[:, 0], [1, 1, 0, 0, 1, 1])


def test_narrow_agents_start_as_narrow_networks_do() -> None:
  """Weights of a layer with n inputs have the deviation 1 / sqrt(n)."""
  wide = make_agent((512, 256))
  start = jax.jit(wide.network.init)(jax.random.key(0))
  masked = widths.narrow(start, wide.config.network, ['y'], jnp.float32(0.25))
  for module, rows, columns, deviation in (
    (f'{DENSE}1', 128, 64, 128**-0.5),
    ('agent/~/action_model/root', 64, 3, 64**-0.5),
    ('agent/~/y', 64, 10, 1e-2),
  ):
    w = np.asarray(masked[module]['w'])
    assert (w != 0).sum() == rows * columns
    # Haiku's truncated normal has that deviation before it is cut at two.
    got = w[:rows, :columns].std() / 0.88
    assert got == pytest.approx(deviation, rel=0.15)
  # At least one unit of each layer remains.
  least = widths.narrow(start, wide.config.network, ['y'], jnp.float32(1e-6))
  assert (np.asarray(least[f'{DENSE}1']['w']) != 0).sum() == 1


def test_rates_are_drawn_log_uniformly_and_used() -> None:
  agent = make_agent((2,))
  config = variation.VariationConfig(learning_rate_range=(1e-4, 1e-2))
  own = variation.prepare(config, agent)

  @jax.jit
  def draw(keys: Any) -> Any:
    state = own.init(jax.random.key(0))
    each = jax.vmap(
      lambda key: variation.draw(
        config, own, dataclasses.replace(state, key=key)
      )
    )
    return each(keys)

  states = draw(jax.random.split(jax.random.key(0), 500))
  rates = np.asarray(states.learner.opt_state.learning_rate)
  scaled = np.log10(rates) / 2 + 2
  assert scaled.min() > 0 and scaled.max() < 1
  want = np.arange(0.1, 1, 0.1)
  np.testing.assert_allclose(np.quantile(scaled, want), want, atol=0.08)
  # An update is that of the optimiser with this rate.
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


def test_agents_without_heads_of_actions_can_be_narrow() -> None:
  network = small.network(SPEC, types.OutputSpec({'v': 1}, {}), (6, 4))
  config = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(hidden_sizes=(6, 4))
  )
  start = network.init(jax.random.key(0))
  narrow = widths.narrow(start, config, ['v'], jnp.float32(0.5))
  for head in ('logits', 'v'):
    rows = np.asarray(narrow[f'agent/~/{head}']['w']).any(axis=1)
    np.testing.assert_array_equal(rows, [True, True, False, False])


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
  agent = make_agent((2,))
  none = variation.VariationConfig()
  state: Any = object()
  assert variation.draw(none, agent, state) is state


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'width_range': (0.5, 2.0)}, r'width_range=\(0.5, 2.0\) .* at most 1'),
    ({'width_range': (0.5,)}, 'width_range=.* two positive numbers'),
    ({'learning_rate_range': (1e-2, 1e-4)}, 'the lower one first'),
    ({'learning_rate_range': (0.0, 1e-4)}, 'learning_rate_range=.*positive'),
    ({'learning_rate_range': 'ab'}, 'learning_rate_range=.*numbers'),
  ],
)
def test_impossible_ranges_are_refused(settings: Any, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    variation.VariationConfig(**settings)


def test_torsos_without_dense_layers_are_refused() -> None:
  network = agent_network.AgentNetworkConfig(
    torsos.TorsoConfig(kind=lambda x: x, hidden_sizes=(2,))
  )
  params = {'agent/~/logits': {'w': jnp.zeros((2, A))}}
  with pytest.raises(
    ValueError, match='not end in dense layers.* no width_range'
  ):
    widths.narrow(params, network, ['y'], jnp.float32(0.5))
