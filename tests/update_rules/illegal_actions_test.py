"""Rules with illegal actions behave as if there were only the legal ones.

Trajectories of three actions are compared with the same ones among five, two of
which are illegal. These differ between states, and have other numbers.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.maths import action_masks
from disco_rl.maths import optimizers
from disco_rl.meta_training import outer_loss
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import disco
from disco_rl.update_rules import policy_gradient
from disco_rl.update_rules import ppo

T, B, FEW, MANY = 5, 4, 3, 5
# Legal actions of the states, in order.
LEGAL = np.sort(
  np.argsort(np.random.default_rng(0).random((T + 1, B, MANY)))[..., :FEW]
)
MASK = np.zeros((T + 1, B, MANY), bool)
np.put_along_axis(MASK, LEGAL, True, axis=-1)
DISCO = disco.Disco(
  small.META_NETWORK, num_bins=11, max_abs_value=5.0, aux_pi_cost=0.0
)
HAND_MADE = [
  actor_critic.ActorCritic(num_bins=11, max_abs_value=5.0),
  policy_gradient.PolicyGradient(num_bins=11, max_abs_value=5.0),
  ppo.PPO(num_bins=11, max_abs_value=5.0),
]


def among_many(few: np.ndarray, seed: int) -> np.ndarray:
  """[T+1, B, 3, ...] -> [T+1, B, 5, ...], with noise for illegal actions."""
  shape = (*MASK.shape, *few.shape[3:])
  many = np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)
  many[MASK] = few.reshape(-1, *few.shape[3:])
  return many


def masked_logits(few: np.ndarray) -> np.ndarray:
  return np.where(MASK, among_many(few, 7), np.float32(action_masks.ILLEGAL))


@dataclasses.dataclass(frozen=True)
class Case:
  """A rollout and outputs of two networks, of three actions or of five."""

  rollout: types.Rollout
  outputs: types.Outputs
  target_outputs: types.Outputs

  def taken(self) -> types.Outputs:
    """Outputs of the taken actions."""
    action = np.asarray(self.rollout.action)

    def pick(name: str, x: Any) -> Any:
      if name not in ('z', 'q'):
        return x
      x = np.take_along_axis(x, action[..., None, None], axis=2)
      return x[:-1, :, 0]

    return {name: pick(name, x) for name, x in self.outputs.items()}


def make_cases() -> tuple[Case, Case]:
  """Makes the case of three actions, and that of five."""
  rng = np.random.default_rng(1)
  normal = lambda *shape: rng.normal(size=(T + 1, B, *shape)).astype(np.float32)
  heads = {'logits': (FEW,), 'y': (10,), 'z': (FEW, 10), 'q': (FEW, 11)}
  outputs, targets = (
    {name: normal(*shape) for name, shape in heads.items()} for _ in range(2)
  )
  action = rng.integers(FEW, size=(T + 1, B), dtype=np.int32)
  is_terminal, mask = np.zeros((T, B), bool), np.ones((T, B), bool)
  is_terminal[1, 0], mask[2, 1] = True, False
  few = types.Rollout(
    observation=normal(2),
    action=action,
    logits=normal(FEW),
    reward=normal()[:-1],
    is_terminal=is_terminal,
    mask=mask,
  )
  many = dataclasses.replace(
    few,
    observation={'observation': few.observation, 'action_mask': MASK},
    action=np.take_along_axis(LEGAL, action[..., None], -1)[..., 0].astype(
      np.int32
    ),
    logits=masked_logits(few.logits),
  )

  def widen(outputs: Any, seed: int) -> Any:
    return {
      'logits': masked_logits(outputs['logits']),
      'y': outputs['y'],
      'z': among_many(outputs['z'], seed),
      'q': among_many(outputs['q'], seed + 1),
    }

  return (
    Case(few, outputs, targets),
    Case(many, widen(outputs, 2), widen(targets, 4)),
  )


@jax.jit
def disco_targets(
  rule_params: types.Params,
  state: Any,
  rollout: types.Rollout,
  outputs: types.Outputs,
  target_outputs: types.Outputs,
) -> Any:
  return DISCO.targets(
    rule_params, state, {}, rollout, outputs, lambda _: target_outputs
  )


def test_disco_does_not_see_illegal_actions() -> None:
  rule_params = small.nest(small.arrays())
  found = []
  for case in make_cases():
    state: Any = DISCO.init_state({})
    # The second update has a state of the meta-RNN that the first one left.
    for _ in range(2):
      targets, state, logs = disco_targets(
        rule_params, state, case.rollout, case.outputs, case.target_outputs
      )
    loss, loss_logs = DISCO.loss(case.taken(), targets, case.rollout)
    regularizer, _ = outer_loss.target_regularizer(
      outer_loss.OuterLossConfig(target_kl_cost=1.0, target_mean_cost=1.0),
      targets,
      case.rollout,
    )
    found.append((targets, state, logs, loss, loss_logs, regularizer))
  few, many = found
  np.testing.assert_allclose(
    np.asarray(many[0].pi)[MASK[:-1]].reshape(T, B, FEW),
    few[0].pi,
    rtol=1e-4,
    atol=1e-5,
  )
  assert (np.asarray(many[0].pi)[~MASK[:-1]] == action_masks.ILLEGAL).all()
  without_pi = lambda results: (
    dataclasses.replace(results[0], pi=None, target_policy=None),
    *results[1:],
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
    without_pi(many),
    without_pi(few),
  )


@pytest.mark.parametrize('rule', HAND_MADE, ids=lambda x: type(x).__name__)
def test_hand_made_rules_do_not_see_illegal_actions(
  rule: actor_critic.ActorCritic,
) -> None:
  losses = []
  for case in make_cases():
    outputs = {'logits': case.outputs['logits'], 'v': case.target_outputs['y']}
    outputs['v'] = np.concatenate([outputs['v'], outputs['v'][..., :1]], -1)
    targets, *_ = rule.targets(
      {},
      rule.init_state({}),
      {},
      case.rollout,
      outputs,
      lambda _, outputs=outputs: outputs,
    )
    losses.append(rule.loss(outputs, targets, case.rollout)[0])
  np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5, atol=1e-5)


SPEC = types.EnvironmentSpec(
  {
    'observation': jax.ShapeDtypeStruct((2,), jnp.float32),
    'action_mask': jax.ShapeDtypeStruct((MANY,), bool),
  },
  MANY,
)


@pytest.mark.parametrize(
  'rule', [DISCO, *HAND_MADE], ids=lambda x: type(x).__name__
)
def test_no_gradient_reaches_illegal_actions(rule: base.UpdateRule) -> None:
  """Action 4 is illegal in all states: nothing about it is learned."""
  _, many = make_cases()
  mask = MASK & (np.arange(MANY) != 4) | (np.arange(MANY) == 0)
  behavior = np.random.default_rng(5).normal(size=mask.shape)
  rollout = dataclasses.replace(
    many.rollout,
    observation={**many.rollout.observation, 'action_mask': mask},
    action=np.where(many.rollout.action == 4, 0, many.rollout.action),
    logits=np.where(mask, behavior, action_masks.ILLEGAL).astype(np.float32),
  )
  network = small.network(
    SPEC, rule.output_spec(MANY), action_model_lstm=5, action_model_head=4
  )
  optimizer = optimizers.agent_optimizer(0.01)
  state = learner.init(network.init(jax.random.key(0)), rule, optimizer)
  rule_params = (
    small.nest(small.arrays()) if isinstance(rule, disco.Disco) else {}
  )
  update, _ = jax.jit(
    lambda state: learner.gradient(network, rule, rule_params, state, rollout)
  )(state)
  for leaf in jax.tree.leaves(update.gradient):
    assert np.isfinite(leaf).all()
  bias = np.asarray(update.gradient['agent/~/logits']['b'])
  assert bias[4] == 0.0
  assert (bias[:4] != 0.0).all()


def test_masked_policy_gradient_by_hand() -> None:
  """Actor-critic's policy and entropy, state by state over legal actions."""
  rule = actor_critic.ActorCritic(
    num_bins=11, max_abs_value=5.0, value_cost=0.0, entropy_cost=0.3
  )
  _, many = make_cases()
  rollout = many.rollout
  network = small.network(SPEC, rule.output_spec(MANY))
  unmasked = small.network(
    dataclasses.replace(SPEC, observation=SPEC.observation['observation']),
    rule.output_spec(MANY),
  )
  params = network.init(jax.random.key(0))
  # Far from uniform, unlike initial policies.
  params = jax.tree.map(lambda x: 10 * x, params)
  _, taken = network.unroll(params, rollout)
  advantage = np.random.default_rng(3).normal(size=(T, B)).astype(np.float32)
  value = np.zeros((T, B), np.float32)
  loss, _ = rule.loss(
    taken, actor_critic.ActorCriticTargets(value, advantage), rollout
  )
  raw = unmasked.unroll(
    params,
    dataclasses.replace(
      rollout, observation=rollout.observation['observation']
    ),
  )[0]['logits']
  expected = np.zeros((T, B))
  for t, b in np.ndindex(T, B):
    weights = {
      a: float(np.exp(np.float64(raw[t, b, a])))
      for a in range(MANY)
      if MASK[t, b, a]
    }
    total = sum(weights.values())
    policy = {a: w / total for a, w in weights.items()}
    entropy = -sum(p * np.log(p) for p in policy.values())
    taken_log = np.log(policy[int(rollout.action[t, b])])
    expected[t, b] = -taken_log * advantage[t, b] - 0.3 * entropy
  np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


def test_masks_are_read_from_dictionaries_alone() -> None:
  assert action_masks.find(np.zeros((2, 3))) is None
  assert action_masks.find({'observation': np.zeros((2, 3))}) is None
  legal = action_masks.find({'action_mask': np.array([[0, 2, 1], [0, 0, 0]])})
  # Where nothing is legal, as after an episode, the policy stays finite.
  np.testing.assert_array_equal(legal, [[0, 1, 1], [1, 1, 1]])


def test_a_mask_is_one_number_for_each_action() -> None:
  observation = {'action_mask': jax.ShapeDtypeStruct((4,), bool)}
  with pytest.raises(ValueError, match=r'of shape \[4\], and there are 5 act'):
    types.EnvironmentSpec(observation, 5)
