"""Tests of disco_rl/agent/learner.py and of the update rules."""

import dataclasses
import functools
from typing import Any

import goldens
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.maths import optimizers
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient

T, B, A = 4, 3, 3
SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((2,), jnp.float32), num_actions=A
)
LEARNING_RATE = 0.01

DISCO = disco.Disco(
  network=meta_network.MetaNetworkConfig(
    prediction_size=6,
    prediction_embedding=(5, 1),
    policy_channels=(4, 2),
    policy_target_channels=(4,),
    lstm_size=7,
    meta_rnn_input_size=3,
    meta_rnn_size=8,
  ),
  num_bins=11,
  max_abs_value=5.0,
)
ACTOR_CRITIC = actor_critic.ActorCritic(num_bins=11, max_abs_value=5.0)
POLICY_GRADIENT = policy_gradient.PolicyGradient(num_bins=11, max_abs_value=5.0)


@dataclasses.dataclass(frozen=True)
class Agent:
  """A newborn agent, and its update as one program.

  Attributes:
    network: the agent's.
    rule_params: eta.
    state: before any update.
    update: (eta, state, rollout) -> state, logs.
  """

  network: agent_network.AgentNetwork
  rule_params: types.Params
  state: learner.LearnerState
  update: Any


@functools.cache
def make_agent(rule: base.UpdateRule) -> Agent:
  network = agent_network.make(
    SPEC,
    rule.output_spec(A),
    agent_network.AgentNetworkConfig(
      torsos.TorsoConfig(hidden_sizes=(8, 6)),
      action_model_lstm=5,
      action_model_head=4,
    ),
  )
  optimizer = optimizers.agent_optimizer(LEARNING_RATE)

  @goldens.quick_jit
  def init(key: jax.Array) -> tuple[types.Params, learner.LearnerState]:
    rule_key, agent_key = jax.random.split(key)
    rule_params = rule.init_params(rule_key)
    return rule_params, learner.init(agent_key, network, rule, optimizer)

  rule_params, state = init(jax.random.key(0))

  @goldens.quick_jit
  def update(*args: Any) -> tuple[learner.LearnerState, types.Logs]:
    state, update = learner.update(network, rule, optimizer, *args)
    return state, update.logs

  return Agent(network, rule_params, state, update)


def make_rollout(seed: int, **changes: Any) -> types.Rollout:
  """Random, with an end and a masked step; with changed fields."""
  rng = np.random.default_rng(seed)
  is_terminal, mask = np.zeros((T, B), bool), np.ones((T, B), bool)
  is_terminal[1, 0], mask[2, 0] = True, False
  rollout = types.Rollout(
    observation=rng.normal(size=(T + 1, B, 2)).astype(np.float32),
    action=rng.integers(A, size=(T + 1, B), dtype=np.int32),
    logits=rng.normal(size=(T + 1, B, A)).astype(np.float32),
    reward=rng.normal(size=(T, B)).astype(np.float32),
    is_terminal=is_terminal,
    mask=mask,
  )
  return dataclasses.replace(rollout, **changes)


def perturb(tree: Any, scale: float) -> Any:
  rng = np.random.default_rng(0)
  return jax.tree.map(
    lambda x: x + scale * rng.normal(size=x.shape).astype(np.float32), tree
  )


# A rule of one's own.


@dataclasses.dataclass(frozen=True)
class Uniform:
  """Clones the uniform policy; all that `base.UpdateRule` asks for."""

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    del num_actions
    return types.OutputSpec(state={}, action={})

  def init_params(self, key: jax.Array) -> types.Params:
    del key
    return {}

  def init_state(self, agent_params: types.Params) -> jax.Array:
    del agent_params
    return jnp.zeros((), jnp.int32)

  def targets(
    self,
    rule_params: types.Params,
    state: jax.Array,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[jax.Array, jax.Array, types.Logs]:
    del rule_params, agent_params, rollout, unroll
    uniform = jnp.full_like(outputs['logits'], 1.0 / A)
    return uniform, state + 1, {'num_updates': state}

  def loss(
    self, taken: types.Outputs, targets: jax.Array, rollout: types.Rollout
  ) -> tuple[jax.Array, types.Logs]:
    del rollout
    log_policy = jax.nn.log_softmax(taken['logits'])
    loss = -jnp.sum(targets * log_policy, axis=-1)[:-1]
    return loss, {'cross_entropy': loss}


def test_a_rule_of_ones_own_learns() -> None:
  rule: base.UpdateRule = Uniform()
  agent = make_agent(rule)
  rollout = make_rollout(0)
  policy = lambda state: jax.nn.softmax(
    agent.network.policy(state.params, rollout)[:-1]
  )
  # From a policy that is far from uniform.
  state = dataclasses.replace(
    agent.state, params=perturb(agent.state.params, 0.5)
  )
  assert np.max(np.abs(policy(state) - 1 / A)) > 0.1
  for _ in range(200):
    state, logs = agent.update(agent.rule_params, state, rollout)
  np.testing.assert_allclose(policy(state)[rollout.mask], 1 / A, atol=0.02)
  assert set(logs) >= {'loss', 'num_updates', 'cross_entropy'}
  assert logs['num_updates'] == 199
  assert state.rule_state == 200
  np.testing.assert_allclose(logs['loss'], np.log(A), atol=1e-3)


# What every rule has in common.


@pytest.mark.parametrize('rule', [DISCO, ACTOR_CRITIC, POLICY_GRADIENT])
def test_every_leaf_moves(rule: base.UpdateRule) -> None:
  """Parameters, optimiser and the rule's state, at each update."""
  agent = make_agent(rule)
  states = [agent.state]
  for seed in range(3):
    state, _ = agent.update(agent.rule_params, states[-1], make_rollout(seed))
    states.append(state)

  def still(before: Any, after: Any) -> list[str]:
    return [
      jax.tree_util.keystr(path)
      for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(before),
        jax.tree.leaves(after),
        strict=True,
      )
      if np.array_equal(old, new)
    ]

  assert not still(states[0].params, states[1].params)
  # The target network is born as a copy of the agent's, so it moves later.
  assert not still(states[1], states[2])
  assert not still(states[2], states[3])
  for before, after in zip(states, states[1:]):
    step = jax.tree.map(lambda x, y: np.abs(y - x), before.params, after.params)
    assert optax.tree.max(step) <= LEARNING_RATE * (1 + 1e-3)


@pytest.mark.parametrize('rule', [DISCO, ACTOR_CRITIC, POLICY_GRADIENT])
def test_without_real_steps_nothing_is_learnt(rule: base.UpdateRule) -> None:
  agent = make_agent(rule)
  nothing = make_rollout(1, mask=np.zeros((T, B), bool))
  state, logs = agent.update(agent.rule_params, agent.state, nothing)
  assert logs['loss'] == 0.0
  jax.tree.map(np.testing.assert_array_equal, state.params, agent.state.params)


def test_loss_is_the_mean_over_real_steps() -> None:
  agent = make_agent(Uniform())
  state = dataclasses.replace(
    agent.state, params=perturb(agent.state.params, 0.5)
  )
  mask = np.random.default_rng(2).random((T, B)) < 0.5
  rollout = make_rollout(3, mask=mask)
  _, logs = agent.update(agent.rule_params, state, rollout)
  logits = agent.network.policy(state.params, rollout)[:-1]
  losses = np.asarray(-jnp.mean(jax.nn.log_softmax(logits), axis=-1))
  assert logs['loss'] == pytest.approx(np.mean(losses[mask]), rel=1e-5)
  assert logs['loss'] != pytest.approx(np.mean(losses), rel=1e-2)


# DiscoRL.


def targets_of_disco(
  rule_params: types.Params,
  rule_state: disco.DiscoState,
  params: types.Params,
  rollout: types.Rollout,
  rule: disco.Disco = DISCO,
) -> tuple[disco.DiscoTargets, disco.DiscoState]:
  """Of an agent with these parameters."""
  network = make_agent(DISCO).network
  unroll = lambda params: network.unroll(params, rollout)[0]
  return rule.targets(
    rule_params, rule_state, params, rollout, unroll(params), unroll
  )[:2]


def test_the_target_network_follows_slowly() -> None:
  """0.9 of the old target and 0.1 of theta before the update."""
  agent = make_agent(DISCO)
  target_params = perturb(agent.state.params, 1.0)
  rule_state = dataclasses.replace(
    agent.state.rule_state, target_params=target_params
  )
  state = dataclasses.replace(agent.state, rule_state=rule_state)
  state, _ = agent.update(agent.rule_params, state, make_rollout(4))
  expected = jax.tree.map(
    lambda old, new: 0.9 * old + 0.1 * new, target_params, agent.state.params
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6),
    state.rule_state.target_params,
    expected,
  )


def test_rewards_are_scaled_before_the_rule_sees_them() -> None:
  agent = make_agent(DISCO)
  rule_state = dataclasses.replace(
    agent.state.rule_state,
    meta_rnn=perturb(agent.state.rule_state.meta_rnn, 1.0),
  )
  rollout = make_rollout(6)
  larger = dataclasses.replace(rollout, reward=8.0 * rollout.reward)
  scaled = dataclasses.replace(DISCO, reward_scale=8.0)
  plain, expected, actual = (
    targets_of_disco(
      agent.rule_params, rule_state, agent.state.params, seen, rule
    )
    for seen, rule in (
      (rollout, DISCO),
      (larger, DISCO),
      (rollout, scaled),
    )
  )
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  assert np.max(np.abs(actual[0].pi - plain[0].pi)) > 1e-3


def test_targets_of_q_do_not_depend_on_eta() -> None:
  agent = make_agent(DISCO)
  # From a state in which the meta-network's gate is open.
  rule_state = dataclasses.replace(
    agent.state.rule_state,
    meta_rnn=perturb(agent.state.rule_state.meta_rnn, 1.0),
  )
  targets = lambda rule_params: targets_of_disco(
    rule_params, rule_state, agent.state.params, make_rollout(5)
  )[0]

  @goldens.quick_jit
  def gradient_norms(rule_params: types.Params) -> dict[str, jax.Array]:
    """Of the sum of squares of each target."""
    outcome, pullback = jax.vjp(targets, rule_params)
    nothing = jax.tree.map(jnp.zeros_like, outcome)
    one = lambda name: dataclasses.replace(
      nothing, **{name: getattr(outcome, name)}
    )
    return {
      name: optax.tree.norm(pullback(one(name)))
      for name in ('pi', 'y', 'z', 'q')
    }

  norms = gradient_norms(agent.rule_params)
  assert norms.pop('q') == 0.0
  assert all(norm > 1e-6 for norm in norms.values()), norms


def test_the_meta_rnn_has_a_say_and_a_memory() -> None:
  """Under jit: a test of types once dropped it there, spec section 7."""
  agent, targets = make_agent(DISCO), goldens.quick_jit(targets_of_disco)
  params, rollout = agent.state.params, make_rollout(6)
  run = lambda rule_state: targets(
    agent.rule_params, rule_state, params, rollout
  )
  young = agent.state.rule_state
  first, old = run(young)
  # The moments would change the targets as well.
  second, older = run(dataclasses.replace(young, meta_rnn=old.meta_rnn))
  for name in ('pi', 'y', 'z'):
    difference = getattr(second, name) - getattr(first, name)
    assert np.max(np.abs(difference)) > 1e-4, name
  np.testing.assert_array_equal(second.q, first.q)
  for before, after in ((young, old), (old, older)):
    for x, y in zip(before.meta_rnn, after.meta_rnn):
      assert np.max(np.abs(x - y)) > 1e-3


# Policy gradients.


@pytest.mark.parametrize('rule', [ACTOR_CRITIC, POLICY_GRADIENT])
def test_what_is_rewarded_is_done_more_often(
  rule: actor_critic.ActorCritic,
) -> None:
  """Two steps; in the first action 1 pays at once, in the second action 2."""
  agent = make_agent(rule)
  every = np.stack(np.meshgrid(np.arange(A), np.arange(A)), -1).reshape(-1, 2).T
  best = np.array([[1], [2]])
  num = every.shape[1]
  rollout = types.Rollout(
    observation=np.broadcast_to(
      np.eye(2, dtype=np.float32)[[0, 1, 0], None], (3, num, 2)
    ),
    action=np.concatenate([every, every[:1]]).astype(np.int32),
    logits=np.zeros((3, num, A), np.float32),
    reward=(every == best).astype(np.float32),
    is_terminal=np.repeat([[False], [True]], num, axis=1),
    mask=np.ones((2, num), bool),
  )
  policy = lambda state: jax.nn.softmax(
    agent.network.step(state.params, np.eye(2, dtype=np.float32), ())[0]
  )
  state = agent.state
  np.testing.assert_allclose(policy(state), 1 / A, atol=0.05)
  for _ in range(100):
    state, _ = agent.update(agent.rule_params, state, rollout)
  learnt = policy(state)
  assert learnt[0, 1] > 0.6
  assert learnt[1, 2] > 0.6
