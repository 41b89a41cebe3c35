"""Distillation of rules whose terms are known."""

import dataclasses
import pathlib
from typing import Any
from unittest import mock

import analysis_test
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.analysis import distillation
from disco_rl.analysis import figures
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.update_rules import disco

WEIGHTS = {
  distillation.POLICY_GRADIENT: 0.03,
  distillation.ALL_ACTIONS: -0.02,
  distillation.ENTROPY: 0.04,
  distillation.TARGET_NETWORK: 0.5,
}


def softmax(x: np.ndarray) -> np.ndarray:
  return np.exp(x) / np.exp(x).sum()


def entropy(logits: np.ndarray) -> float:
  pi = softmax(logits)
  return float(-np.sum(pi * np.log(pi)))


def moved(scene: scenes.Scene, estimates: Any) -> np.ndarray:
  """The sum of the weighted terms, step by step."""
  logits = np.asarray(scene.outputs['logits'], float)
  of_target = scenes.as_outputs(scene.state.target_params)['logits']
  time, batch = scene.rollout.reward.shape
  result = np.zeros((time, batch, logits.shape[-1]))
  for t, b in np.ndindex(time, batch):
    pi = softmax(logits[t, b])
    advantages = np.asarray(estimates.normalized_qv_advantage)[t, b]
    taken = np.eye(len(pi))[scene.rollout.action[t, b]]
    directions = {
      distillation.POLICY_GRADIENT: (taken - pi)
      * float(estimates.normalized_advantage[t, b]),
      distillation.ALL_ACTIONS: [
        p * (x - np.dot(pi, advantages)) for p, x in zip(pi, advantages)
      ],
      # By finite differences of the entropy.
      distillation.ENTROPY: [
        (entropy(logits[t, b] + e) - entropy(logits[t, b] - e)) / 2e-5
        for e in 1e-5 * np.eye(len(pi))
      ],
      distillation.TARGET_NETWORK: softmax(np.asarray(of_target)[t, b]) - pi,
    }
    for name, weight in WEIGHTS.items():
      result[t, b] += weight * np.asarray(directions[name])
  return result


def random_scene() -> scenes.Scene:
  """A scene whose target network differs, with a step that does not count."""
  scene = analysis_test.scene()
  target = jax.tree.map(lambda x: x[::-1], scene.outputs)
  state = dataclasses.replace(
    scene.state, target_params=scenes.as_params(target)
  )
  mask = jnp.asarray(scene.rollout.mask).at[3].set(False)
  rollout = dataclasses.replace(scene.rollout, mask=mask)
  return dataclasses.replace(scene, state=state, rollout=rollout)


@pytest.fixture(name='scene')
def make_scene(monkeypatch: pytest.MonkeyPatch) -> scenes.Scene:
  """A scene, in which the rule's target of the policy is the known sum."""
  scene = random_scene()
  inputs, _ = analysis_test.RULE.inputs(
    scene.state.moments,
    scene.rollout,
    scene.outputs,
    scenes.as_outputs(scene.state.target_params),
  )
  change = moved(scene, inputs.estimates)
  change[3] = 0.0  # It is masked.
  pi = jax.nn.softmax(scene.outputs['logits'][:-1]) + change
  assert pi.min() > 0
  found = scenes.targets(analysis_test.RULE, analysis_test.rule_params(), scene)
  known = dataclasses.replace(found, pi=jnp.log(pi))
  monkeypatch.setattr(scenes, 'targets', lambda *_: known)
  return scene


def test_known_terms_are_found(scene: scenes.Scene) -> None:
  found = distillation.distill(analysis_test.RULE, {}, scene)
  assert found.coefficients == pytest.approx(WEIGHTS, abs=1e-4)
  assert found.r_squared == pytest.approx(1.0, abs=1e-5)
  assert all(0 <= x < 0.999 for x in found.alone.values())


@pytest.mark.parametrize(
  ('size', 'expected'), [(1e-2, 1e2 * WEIGHTS[distillation.ENTROPY]), (1e-6, 0)]
)
def test_a_term_that_vanishes_has_no_coefficient(
  scene: scenes.Scene,
  monkeypatch: pytest.MonkeyPatch,
  size: float,
  expected: float,
) -> None:
  whole = distillation.terms

  def terms(*args: Any) -> dict[str, np.ndarray]:
    return {
      name: np.asarray(x) * (size if name == distillation.ENTROPY else 1.0)
      for name, x in whole(*args).items()
    }

  monkeypatch.setattr(distillation, 'terms', terms)
  found = distillation.distill(analysis_test.RULE, {}, scene)
  assert found.coefficients[distillation.ENTROPY] == pytest.approx(
    expected, rel=1e-3
  )
  assert (found.alone[distillation.ENTROPY] == 0.0) == (expected == 0)


def test_a_random_rule_is_no_sum_of_them() -> None:
  rule, params = analysis_test.RULE, analysis_test.rule_params()
  found = distillation.distill(rule, params, random_scene())
  assert 0 < found.r_squared < 0.99
  assert found.r_squared >= max(found.alone.values())


def test_rules_without_q_have_fewer_terms() -> None:
  network = dataclasses.replace(analysis_test.RULE.network, has_q=False)
  scene = analysis_test.scene()
  assert [*distillation.terms(disco.Disco(network), scene)] == [
    distillation.ENTROPY,
    distillation.TARGET_NETWORK,
  ]


def test_every_agent_is_distilled_at_every_age(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Agents are numbers, 10 and 20, plus the update; plays are their key."""
  environment = mock.Mock(spec=base.HostEnvironment)
  subject: Any = mock.Mock(rule='rule', rule_params='eta')
  subject.environments = lambda number: {16: environment}[number]
  subject.config.seeds = 2
  subject.agent.config.unroll_length = 7

  def lives(_: Any, rule: Any, updates: int, number: int) -> Any:
    assert (rule, updates, number) == ('rule', 30, 10)
    for update in (3, 6):
      agents: Any = mock.Mock()
      params = np.array([10, 20]) + update
      agents.learner = Learner(params)
      yield recording.Age(update, 100 * update, agents)
      environment.close.assert_not_called()

  @jax.tree_util.register_dataclass
  @dataclasses.dataclass(frozen=True)
  class Learner:
    params: Any

  def player(network: Any, played: Any, length: int) -> Any:
    assert (network, played, length) == (subject.agent.network, environment, 7)
    return lambda params, key: (params, jax.random.key_data(key))

  monkeypatch.setattr(recording, 'lives', lives)
  monkeypatch.setattr(recording, 'player', player)
  monkeypatch.setattr(scenes, 'from_agent', lambda _, *x: x)
  monkeypatch.setattr(distillation, 'distill', lambda *x: x)
  found = distillation.along_lives(subject, 30)
  assert found.environment_steps.tolist() == [300, 600]
  keys = []
  for first, of_agent in zip((10, 20), found.found, strict=True):
    for update, one in zip((3, 6), of_agent, strict=True):
      rule, rule_params, (learner, (params, key)) = one
      assert (rule, rule_params) == ('rule', 'eta')
      assert params == learner.params == first + update
      keys.append(tuple(key.tolist()))
  assert len({*keys}) == 4
  environment.close.assert_called_once_with()


def test_lives_are_drawn(tmp_path: pathlib.Path) -> None:
  one = distillation.Distillation({'entropy': 0.5}, 0.75, {'entropy': 0.25})
  lives = distillation.Lives(np.array([10, 20]), [[one, one], [one, one]])
  distillation.write(tmp_path / 'terms.csv', lives, first_seed=3)
  assert (tmp_path / 'terms.csv').read_text() == (
    'environment_steps,seed,"all terms, explained","entropy, coefficient",'
    '"entropy, explained alone"\n'
    '10,3,0.75,0.5,0.25\n20,3,0.75,0.5,0.25\n'
    '10,4,0.75,0.5,0.25\n20,4,0.75,0.5,0.25\n'
  )
  left, right = figures.terms(lives).axes
  for panel, values in ((left, [0.5]), (right, [0.75, 0.25])):
    means = [line for line in panel.lines if line.get_linewidth() > 2]
    assert [line.get_ydata()[0] for line in means] == values
  # Curves at 0 and 1 are seen.
  low, high = right.get_ylim()
  assert low < 0 and high > 1
