"""Tests of disco_rl/agent/learner.py and of the update rules."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rollouts
import small

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.maths import optimizers
from disco_rl.networks import agent_network
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import ppo

T, B, A = 4, 3, 3
SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((2,), jnp.float32), num_actions=A
)
LEARNING_RATE = 0.01

DISCO = disco.Disco(small.META_NETWORK, num_bins=11, max_abs_value=5.0)
ACTOR_CRITIC = actor_critic.ActorCritic(num_bins=11, max_abs_value=5.0)
POLICY_GRADIENT = policy_gradient.PolicyGradient(num_bins=11, max_abs_value=5.0)
# With moments that change at each update.
PPO = ppo.PPO(num_bins=11, max_abs_value=5.0, moments_decay=0.5)
PPO_EPOCHS = dataclasses.replace(PPO, updates_per_rollout=2)


@dataclasses.dataclass(frozen=True)
class Agent:
  """An agent at its initial state, and its update as one program.

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
  network = small.network(
    SPEC,
    rule.output_spec(A),
    hidden_sizes=(8, 6),
    action_model_lstm=5,
    action_model_head=4,
  )
  optimizer = optimizers.agent_optimizer(LEARNING_RATE)

  @jax.jit
  def init(key: jax.Array) -> tuple[types.Params, learner.LearnerState]:
    rule_key, agent_key = jax.random.split(key)
    rule_params = rule.init_params(rule_key)
    return rule_params, learner.init(network.init(agent_key), rule, optimizer)

  rule_params, state = init(jax.random.key(0))

  @jax.jit
  def update(*args: Any) -> tuple[learner.LearnerState, types.Logs]:
    state, update = learner.update(network, rule, optimizer, *args)
    return state, update.logs

  return Agent(network, rule_params, state, update)


def make_rollout(seed: int, **changes: Any) -> types.Rollout:
  """Random, with an end and a masked step; with changed fields."""
  is_terminal, mask = np.zeros((T, B), bool), np.ones((T, B), bool)
  is_terminal[1, 0], mask[2, 0] = True, False
  changes = {'is_terminal': is_terminal, 'mask': mask, **changes}
  return rollouts.draw(seed, T, B, A, **changes)


# All rules.


@pytest.mark.parametrize('rule', [DISCO, ACTOR_CRITIC, POLICY_GRADIENT, PPO])
def test_every_leaf_moves(rule: base.UpdateRule) -> None:
  """Parameters, optimizer and the rule's state, at each update."""
  agent = make_agent(rule)
  states = [agent.state]
  for seed in range(3):
    state, _ = agent.update(agent.rule_params, states[-1], make_rollout(seed))
    states.append(state)

  def still(before: Any, after: Any) -> list[str]:
    same = jax.tree.map(np.array_equal, before, after)
    leaves = jax.tree.leaves_with_path(same)
    return [jax.tree_util.keystr(path) for path, is_same in leaves if is_same]

  assert not still(states[0].params, states[1].params)
  # The target network starts as a copy of the agent's, so it moves later.
  assert not still(states[1], states[2])
  assert not still(states[2], states[3])
  for before, after in zip(states, states[1:]):
    step = jax.tree.map(lambda x, y: np.abs(y - x), before.params, after.params)
    assert optax.tree.max(step) <= LEARNING_RATE * (1 + 1e-3)


RULES = [DISCO, ACTOR_CRITIC, POLICY_GRADIENT, PPO, PPO_EPOCHS]


@pytest.mark.parametrize('rule', RULES)
def test_batches_without_real_steps_do_not_change_parameters(
  rule: base.UpdateRule,
) -> None:
  agent = make_agent(rule)
  nothing = make_rollout(1, mask=np.zeros((T, B), bool))
  state, logs = agent.update(agent.rule_params, agent.state, nothing)
  assert logs['loss'] == 0.0
  jax.tree.map(np.testing.assert_array_equal, state.params, agent.state.params)


@pytest.mark.parametrize('rule', RULES)
def test_masked_steps_do_not_change_the_update(rule: base.UpdateRule) -> None:
  """Nor the lifetime moments and the meta-RNN, in an agent's second update."""
  agent = make_agent(rule)
  state, _ = agent.update(agent.rule_params, agent.state, make_rollout(15))
  mask = np.ones((T, B), bool)
  mask[[0, 2, T - 1], [0, 1, 2]] = False
  rollout, other = make_rollout(13, mask=mask), make_rollout(14)
  garbage = dataclasses.replace(
    rollout,
    reward=np.where(mask, rollout.reward, 1e3),
    action=np.where(
      np.pad(mask, ((0, 1), (0, 0))), rollout.action, other.action
    ),
    is_terminal=np.where(mask, rollout.is_terminal, True),
  )
  update = lambda batch: agent.update(agent.rule_params, state, batch)[0]
  expected, actual = update(rollout), update(garbage)
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  unmasked = update(dataclasses.replace(garbage, mask=np.ones_like(mask)))
  for leaf, changed in zip(
    jax.tree.leaves(expected.params), jax.tree.leaves(unmasked.params)
  ):
    assert not np.array_equal(leaf, changed)


# DiscoRL.


def test_new_agents_choose_and_predict_almost_uniformly() -> None:
  agent = make_agent(DISCO)
  rollout = make_rollout(3)
  outputs, taken = agent.network.unroll(agent.state.params, rollout)
  for logits in (outputs['logits'], outputs['y'], taken['z']):
    weights = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    probabilities = weights / weights.sum(axis=-1, keepdims=True)
    entropy = -np.sum(probabilities * np.log(probabilities), axis=-1)
    assert np.min(entropy) > 0.9 * np.log(logits.shape[-1])


def test_rewards_are_scaled_by_reward_scale() -> None:
  agent = make_agent(DISCO)
  rng = np.random.default_rng(0)
  rule_state = dataclasses.replace(
    agent.state.rule_state,
    meta_rnn=jax.tree.map(
      lambda x: x + rng.normal(size=x.shape).astype(np.float32),
      agent.state.rule_state.meta_rnn,
    ),
  )
  rollout = make_rollout(6)
  larger = dataclasses.replace(rollout, reward=8.0 * rollout.reward)
  scaled = dataclasses.replace(DISCO, reward_scale=8.0)

  @functools.partial(jax.jit, static_argnums=0)
  def targets(
    rule: disco.Disco, rule_params: Any, params: Any, rollout: types.Rollout
  ) -> Any:
    unroll = lambda params: agent.network.unroll(params, rollout)[0]
    return rule.targets(
      rule_params, rule_state, params, rollout, unroll(params), unroll
    )[:2]

  plain, expected, actual = (
    targets(rule, agent.rule_params, agent.state.params, seen)
    for rule, seen in ((DISCO, rollout), (DISCO, larger), (scaled, rollout))
  )
  jax.tree.map(np.testing.assert_array_equal, actual, expected)
  assert np.max(np.abs(actual[0].pi - plain[0].pi)) > 1e-3


# Policy gradients.


@pytest.mark.parametrize('rule', [ACTOR_CRITIC, POLICY_GRADIENT])
def test_rewarded_actions_become_more_likely(
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
  learned = policy(state)
  assert learned[0, 1] > 0.6
  assert learned[1, 2] > 0.6


def gae(
  rollout: types.Rollout, value: np.ndarray, discount: float, lambda_: float
) -> np.ndarray:
  """Generalized advantage estimates, [T, B], backwards in time."""
  advantage, after = np.zeros((T, B)), np.zeros(B)
  for t in reversed(range(T)):
    gamma = discount * (1.0 - rollout.is_terminal[t])
    # A trace ends before a masked transition.
    trace = lambda_ * (rollout.mask[t + 1] if t + 1 < T else 1.0)
    td = rollout.reward[t] + gamma * value[t + 1] - value[t]
    after = td + gamma * trace * after
    advantage[t] = after
  return advantage


def value(logits: np.ndarray) -> np.ndarray:
  """Inverts h on the mean of the bins -1, 0 and 1: [..., 3] -> [...]."""
  odds = np.exp(logits)
  mean = (odds[..., 2] - odds[..., 0]) / odds.sum(-1)
  root = np.sqrt(1 + 4e-3 * (np.abs(mean) + 1 + 1e-3)) - 1
  return np.sign(mean) * ((root / 2e-3) ** 2 - 1)


def test_ppo_estimates_once_per_rollout() -> None:
  """With the parameters before it, and the moments of its batches so far."""
  rule = ppo.PPO(*(3, 1.0), discount=0.9, lambda_=0.7, updates_per_rollout=2)
  rng = np.random.default_rng(10)
  draws = rng.normal(size=(T + 1, B, 3))

  def outputs(params: Any) -> Any:
    return {
      'logits': jnp.asarray(rng.normal(size=(T + 1, B, A))),
      'v': jnp.asarray(params['w'] * draws),
    }

  state = rule.init_state({'w': jnp.zeros(())})
  batches: list[np.ndarray] = []
  for update, (w, old) in enumerate([(0.5, 0.5), (2.0, 0.5), (1.0, 1.0)]):
    rollout, params = make_rollout(update), {'w': jnp.asarray(w)}
    targets, state, _ = rule.targets(
      {}, state, params, rollout, outputs(params), outputs
    )
    if update == 2:
      batches = []
    batches.append(gae(rollout, value(old * draws), 0.9, 0.7))
    # All batches have the same mask.
    seen = np.stack([x[rollout.mask] for x in batches])
    close = functools.partial(np.testing.assert_allclose, atol=1e-3)
    close(targets.value, batches[-1] + value(old * draws)[:-1])
    close(targets.advantage, (batches[-1] - seen.mean()) / seen.std())


def test_ppo_is_that_of_its_paper() -> None:
  """GAE backwards in time, and both branches of the clipped objective."""
  rule = ppo.PPO(*(3, 1.0), discount=0.9, lambda_=0.7, clip=0.1)
  rollout = make_rollout(8)
  rng = np.random.default_rng(9)
  v = rng.normal(size=(T + 1, B, 3))
  # In float32 the inverse of h multiplies rounding errors.
  with jax.enable_x64(True):
    outputs = {'logits': rng.normal(size=(T + 1, B, A)), 'v': jnp.asarray(v)}
    targets, _, _ = rule.targets(
      {}, rule.init_state({}), {}, rollout, outputs, lambda _: outputs
    )
  advantage = gae(rollout, value(v), 0.9, 0.7)
  real = advantage[rollout.mask]
  expected = (advantage - real.mean()) / real.std()
  close = functools.partial(np.testing.assert_allclose, atol=1e-5)
  close(targets.advantage, expected)
  close(targets.value, advantage + value(v)[:-1])

  log_acting = np.log(
    np.take_along_axis(
      np.exp(rollout.logits) / np.exp(rollout.logits).sum(-1, keepdims=True),
      rollout.action[..., None],
      axis=-1,
    )
  )[:-1, :, 0]
  log_ratio = np.linspace(-0.3, 0.3, T * B).reshape(T, B)
  weight = np.where(rng.normal(size=(T, B)) > 0.0, 1.0, -1.0)
  loss, gradient = jax.value_and_grad(
    lambda x: jnp.sum(rule.policy_loss(x, weight, rollout))
  )(log_acting + log_ratio)
  ratio = np.exp(log_ratio)
  # An action is learned from until the ratio reaches the bound.
  learns = np.where(weight > 0.0, ratio < 1.1, ratio > 0.9)
  clipped = np.where(weight > 0.0, 1.1, 0.9)
  close(loss, -np.sum(weight * np.where(learns, ratio, clipped)))
  close(gradient, -weight * ratio * learns)
