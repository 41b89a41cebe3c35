"""Responses of rules that are known in closed form."""

import dataclasses
import functools
import pathlib
from typing import Any

import analysis_test
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.analysis import responses
from disco_rl.analysis import scenes
from disco_rl.maths import moments
from disco_rl.maths import value_targets
from disco_rl.update_rules import disco

DISCOUNT, LAMBDA, DEVIATION = 0.9, 0.8, 50.0
ENDS = np.array(analysis_test.ENDS)


class ByHand(disco.Disco):
  """The policy's target adds 0.1 R to the logit of action 0, y's 0.1 (R - r).

  R is the sum of the rewards r of the step and of all later ones. They are
  constants, as in rules.
  """

  def targets(
    self, rule_params: Any, state: Any, agent_params: Any, *args: Any
  ) -> Any:
    del rule_params, agent_params
    reward = jax.lax.stop_gradient(args[0].reward)
    later = jnp.cumsum(reward[::-1], axis=0)[::-1]
    logits = jnp.zeros((*later.shape, 2))
    found = disco.DiscoTargets(
      pi=logits.at[..., 0].set(0.1 * later),
      y=logits.at[..., 0].set(0.1 * (later - reward)),
      z=None,
      q=None,
      target_policy=logits,
    )
    return found, state, {}


@functools.cache
def scene() -> scenes.Scene:
  """Actions are by the policy, and the moments of advantages do not move."""
  made = analysis_test.scene()
  own = moments.Moments(jnp.zeros(()), jnp.square(DEVIATION), jnp.zeros(()))
  state = dataclasses.replace(
    made.state, moments=value_targets.ValueMoments(own, own)
  )
  rollout = dataclasses.replace(made.rollout, logits=made.outputs['logits'])
  return dataclasses.replace(made, rollout=rollout, state=state)


RULE = dataclasses.replace(
  analysis_test.RULE,
  discount=DISCOUNT,
  lambda_=LAMBDA,
  moments_decay=1 - 1e-9 - 1e-9,
)


@functools.cache
def measured() -> dict[str, dict[str, np.ndarray]]:
  """[T, T] by change and target, of the only trajectory."""
  found = responses.measure(RULE, analysis_test.rule_params(), scene())
  return jax.tree.map(lambda x: np.asarray(x, float)[..., 0], found)


def probability(t: int) -> float:
  """The policy's probability of the action at t."""
  logits = np.asarray(scene().outputs['logits'], float)[t, 0]
  own = np.exp(logits) / np.exp(logits).sum()
  return float(own[scene().rollout.action[t, 0]])


def test_a_policy_gradient_responds_to_later_rewards() -> None:
  """By 0.3 (gamma lambda)^d (1 - pi(a)) / the deviation of advantages."""
  found = measured()[responses.REWARD][responses.POLICY_GRADIENT]
  expected = np.zeros((6, 6))
  for s, t in np.ndindex(6, 6):
    if s >= t and not ENDS[t:s].any():
      decayed = (DISCOUNT * LAMBDA) ** (s - t)
      expected[s, t] = 0.3 / DEVIATION * decayed * (1 - probability(t))
  np.testing.assert_allclose(found, expected, rtol=0.01, atol=5e-6)


def test_automatic_differentiation_would_give_zero() -> None:
  def of_reward(reward: types.Array) -> types.Array:
    rollout = dataclasses.replace(scene().rollout, reward=reward)
    seen = dataclasses.replace(scene(), rollout=rollout)
    return responses.policy_gradient(RULE, seen)[0, 0]

  derivatives = jax.jacobian(of_reward)(scene().rollout.reward)
  assert not np.any(derivatives)
  found = measured()[responses.REWARD][responses.POLICY_GRADIENT]
  assert found[0, 0] > 1e-3


def test_responses_of_a_rule_written_by_hand() -> None:
  rule = ByHand(dataclasses.replace(RULE.network, has_q=False))
  found = responses.measure(rule, {}, scene())[responses.REWARD]
  assert [*found] == ['policy', 'y']
  reward = np.asarray(scene().rollout.reward, float)[:, 0]
  for name, own in (('policy', 0), ('y', 1)):
    for s, t in np.ndindex(6, 6):
      p = 1 / (1 + np.exp(-0.1 * reward[t + own :].sum()))
      slope = 0.1 * p * (1 - p) if s >= t + own else 0.0
      np.testing.assert_allclose(
        found[name][s, t, 0], slope, rtol=1e-3, atol=1e-5
      )


@pytest.mark.parametrize('s', [1, 4])
def test_other_changes_of_a_step(s: int) -> None:
  """As if the rule were applied to a rollout that was changed by hand."""
  rollout = scene().rollout
  logits = np.array(scene().outputs['logits'])[s, 0]
  action, is_terminal = np.array(rollout.action), np.array(rollout.is_terminal)
  logits[action[s, 0]] = -np.inf
  action[s] = np.argmax(logits)
  assert action[s] != rollout.action[s] and not is_terminal[s]
  is_terminal[s] = True
  before = scenes.targets(RULE, analysis_test.rule_params(), scene())
  for change, changed in (
    (responses.ACTION, {'action': jnp.asarray(action)}),
    (responses.END, {'is_terminal': jnp.asarray(is_terminal)}),
  ):
    seen = dataclasses.replace(
      scene(), rollout=dataclasses.replace(rollout, **changed)
    )
    after = scenes.targets(RULE, analysis_test.rule_params(), seen)
    largest = 0.0
    for name, field in (('policy', 'pi'), ('y', 'y'), ('z', 'z')):
      p, q = (
        np.asarray(jax.nn.softmax(getattr(x, field)))[:, 0]
        for x in (before, after)
      )
      moved = np.abs(p - q).sum(axis=-1) / 2
      largest = max(largest, moved[s])
      np.testing.assert_allclose(measured()[change][name][s], moved, atol=5e-7)
    assert largest > 1e-5


def test_means_by_distance() -> None:
  # What moves at t by a change at s: 10 s + t.
  moved = (10.0 * np.arange(6)[:, None] + np.arange(6))[..., None]
  rollout = dataclasses.replace(
    scene().rollout, mask=jnp.ones((6, 1), bool).at[3].set(False)
  )
  found = responses.by_distance(
    {name: {'y': moved} for name in responses.CHANGES}, rollout
  )
  # Episodes are the steps 0, 1, 2 and 4, 5; the third ends the first anyway.
  for change, pairs in (
    (responses.REWARD, ([2], [1, 12, 45], [0, 11, 22, 44, 55], [10, 21, 54])),
    (responses.END, ([2], [1, 12, 45], [0, 11, 44, 55], [10, 54])),
  ):
    by_distance = found[change]['y']
    assert by_distance.shape == (11,)
    np.testing.assert_allclose(
      by_distance[3:7], [np.mean(x) for x in pairs], rtol=1e-6
    )
    assert np.isnan(by_distance[[0, 1, 2, 8, 9, 10]]).all()
  assert found[responses.REWARD]['y'][7] == 20
  assert np.isnan(found[responses.END]['y'][7])


def test_a_table_of_agents(tmp_path: pathlib.Path) -> None:
  one = {responses.REWARD: {'policy': np.array([0.0, 0.5, 0.25])}}
  two = {responses.REWARD: {'policy': np.array([0.0, 1.0, np.nan])}}
  responses.write(tmp_path / 'responses.csv', {3: one, 4: two})
  assert (tmp_path / 'responses.csv').read_text() == (
    'seed,change,distance,policy\n'
    '3,reward,-1,0.0\n3,reward,0,0.5\n3,reward,1,0.25\n'
    '4,reward,-1,0.0\n4,reward,0,1.0\n4,reward,1,nan\n'
  )
