"""What the meta-RNN holds and changes, where it is known."""

import dataclasses
import pathlib
from typing import Any
from unittest import mock

import analysis_test
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import meta_rnn
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.update_rules import disco

RULE, SIZE = analysis_test.RULE, analysis_test.RULE.network.meta_rnn_size
SETTINGS: dict[str, Any] = {
  x.name: getattr(RULE, x.name) for x in dataclasses.fields(RULE)
}


def state(value: float) -> hk.LSTMState:
  return hk.LSTMState(jnp.full(SIZE, value), jnp.full(SIZE, value))


def masked_scene() -> scenes.Scene:
  """The scene of other tests; its step 3 does not count."""
  scene = analysis_test.scene()
  mask = jnp.asarray(scene.rollout.mask).at[3].set(False)
  rollout = dataclasses.replace(scene.rollout, mask=mask)
  return dataclasses.replace(scene, rollout=rollout)


def log_softmax(logits: types.Array | None) -> np.ndarray:
  x = np.asarray(logits, float)
  return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def ridge(
  x: np.ndarray, y: np.ndarray, held_out: int, penalty: float
) -> np.ndarray:
  """Predicts the agent that is held out, by augmented least squares."""
  x = x / x.std(axis=(0, 1))
  rest, answers = np.delete(x, held_out, 0), np.delete(y, held_out, 0)
  rest, answers = rest.reshape(-1, x.shape[-1]), answers.ravel()
  size = np.sqrt(len(rest) * penalty)
  weights, *_ = np.linalg.lstsq(
    np.concatenate([rest - rest.mean(0), size * np.eye(x.shape[-1])]),
    np.concatenate([answers - answers.mean(), np.zeros(x.shape[-1])]),
  )
  return (x[held_out] - rest.mean(0)) @ weights + answers.mean()


def test_each_agent_is_predicted_from_the_others() -> None:
  draw = np.random.default_rng(0)
  x = draw.normal(size=(3, 6, 4)) * [1, 10, 0.1, 1] + 5.0
  y = x[..., 0] - 0.05 * x[..., 1] + draw.normal(size=(3, 6))
  errors = np.array(
    [
      [np.mean((ridge(x, y, i, p) - y[i]) ** 2) for i in range(3)]
      for p in 10.0 ** np.arange(-6, 2)
    ]
  )
  best = errors[errors.sum(axis=1).argmin()]
  spread = np.mean((y - y.mean()) ** 2)
  found = meta_rnn.r_squared(x, y)
  np.testing.assert_allclose(found, 1 - best / spread, atol=1e-6)
  assert 0.1 < found.mean() < 0.9


def test_what_says_nothing_explains_nothing() -> None:
  """The mean of the other is 1 off; the variance is a quarter."""
  y = np.array([[0.0, 0.0], [1.0, 1.0]])
  assert meta_rnn.r_squared(np.ones((2, 2, 3)), y).tolist() == [-3.0, -3.0]
  assert np.isnan(meta_rnn.r_squared(np.ones((2, 2, 3)), 0 * y)).all()
  assert np.isnan(meta_rnn.r_squared(np.ones((2, 2, 3)), y * np.nan)).all()


@pytest.mark.parametrize('name', ['lstm/linear', None])
def test_a_meta_rnn_that_is_cut_off_has_no_effect(name: str | None) -> None:
  params: dict[str, Any] = {**analysis_test.rule_params()}
  if name:
    gate = params[name]
    params[name] = {'w': 0.0 * gate['w'], 'b': gate['b'] + 1.0}
  found = meta_rnn.movement(RULE, params, masked_scene(), state(0.7))
  assert [*found] == ['policy', 'y', 'z']
  for share in found.values():
    assert (share == 0.0) == (name is not None)


def test_movement_in_units_of_what_is_asked_for() -> None:
  params, scene = analysis_test.rule_params(), masked_scene()
  other = dataclasses.replace(scene.state, meta_rnn=state(0.7))
  before = scenes.targets(RULE, params, scene)
  after = scenes.targets(RULE, params, dataclasses.replace(scene, state=other))
  found = meta_rnn.movement(RULE, params, scene, state(0.7))
  taken = np.asarray(scene.rollout.action)[:-1, 0]
  predictions = {
    'policy': scene.outputs['logits'][:-1, 0],
    'y': scene.outputs['y'][:-1, 0],
    'z': scene.outputs['z'][np.arange(6), 0, taken],
  }
  for name, prediction in predictions.items():
    field = 'pi' if name == 'policy' else name
    target, moved = (
      log_softmax(getattr(x, field))[:, 0] for x in (before, after)
    )
    changed, asked = (
      np.delete(np.sum(np.exp(target) * (target - x), axis=-1), 3).mean()
      for x in (moved, log_softmax(prediction))
    )
    assert changed > 0
    assert found[name] == pytest.approx(changed / asked, rel=1e-3)
  same = scene.state.meta_rnn
  unmoved = meta_rnn.movement(RULE, params, scene, same)
  assert {*unmoved.values()} == {0.0}


def test_means_over_the_steps_that_count() -> None:
  scene = masked_scene()
  found = meta_rnn.quantities(RULE, scene)
  log_pi = log_softmax(scene.outputs['logits'])[:-1, 0]
  entropy = -np.sum(np.exp(log_pi) * log_pi, axis=-1)
  inputs, _ = RULE.inputs(
    scene.state.moments,
    scene.rollout,
    scene.outputs,
    scenes.as_outputs(scene.state.target_params),
  )
  assert inputs.estimates is not None
  advantage = np.abs(inputs.estimates.advantage)[:, 0]
  for name, values in (
    (meta_rnn.ENTROPY, entropy),
    (meta_rnn.ADVANTAGE, advantage),
  ):
    mean = np.delete(values, 3).mean()
    assert found[name] == pytest.approx(mean, rel=1e-4)
  network = dataclasses.replace(RULE.network, has_q=False)
  found = meta_rnn.quantities(disco.Disco(network), scene)
  assert [*found] == [meta_rnn.ENTROPY]


def test_an_untrained_meta_rnn_sees_the_same() -> None:
  """Both states are those of rules on their own."""
  arguments = [0, 1, 2], [0.0, 1.0, -1.0], [False, True, False], [0.5, 0, 0]
  plain = hand_made.scene(RULE, *arguments)
  compared = meta_rnn.Compared(**SETTINGS)
  both = hand_made.scene(compared, *arguments)
  params = analysis_test.rule_params()
  after = scenes.settle(compared, params, both, 3).state
  own = scenes.settle(RULE, params, plain, 3).state
  untrained_params = RULE.init_params(jax.random.key(0))
  untrained = scenes.settle(RULE, untrained_params, plain, 3).state
  assert isinstance(after, meta_rnn.ComparedState)
  for found, expected in (
    (after.meta_rnn, own.meta_rnn),
    (after.untrained, untrained.meta_rnn),
    (after.moments, own.moments),
  ):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
      np.testing.assert_allclose(x, y, atol=1e-6)
  assert np.ptp(after.meta_rnn.hidden - after.untrained.hidden) > 1e-3
  targets = scenes.targets(compared, params, both)
  expected = scenes.targets(RULE, params, plain)
  np.testing.assert_allclose(targets.pi, expected.pi, atol=1e-6)


@types.record
class Learner:
  """An agent that is its number."""

  params: types.Array
  rule_state: meta_rnn.ComparedState


@pytest.mark.parametrize('number', [1, 3])
def test_states_of_lives(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
  """Three agents whose state is 10 i + log(age), the untrained one's noise."""
  environment = mock.Mock(spec=base.HostEnvironment)
  subject: Any = mock.Mock(rule=RULE, rule_params='eta')
  subject.environments = lambda _: environment
  subject.config.seeds = number
  noise = np.random.default_rng(0)

  def lives(_: Any, rule: Any, updates: int, ages: int) -> Any:
    assert isinstance(rule, meta_rnn.Compared) and rule.network == RULE.network
    assert (updates, ages) == (50, 20)
    for update in range(10, 60, 10):
      agents: Any = mock.Mock()
      values = 10.0 * np.arange(number)[:, None] + np.log(update)
      values = np.tile(values, (1, SIZE))
      random = noise.normal(size=values.shape)
      agents.learner = Learner(
        np.arange(number),
        meta_rnn.ComparedState(
          hk.LSTMState(values, np.tile(np.log(update), values.shape)),
          (),
          (),
          hk.LSTMState(random, random),
        ),
      )
      agents.acting.episodes = update * np.array([1.0, 1.1, 1.2])[:number]
      yield recording.Age(update, 100 * update, agents)
      environment.close.assert_not_called()

  def movement(rule: Any, eta: str, scene: Any, other: hk.LSTMState) -> Any:
    assert (rule, eta, scene[0].params) == (RULE, 'eta', scene[1])
    return {'policy': other.hidden[0]}

  monkeypatch.setattr(recording, 'lives', lives)
  monkeypatch.setattr(recording, 'player', lambda *_: lambda params, _: params)
  monkeypatch.setattr(episodes, 'mean_return_on_host', lambda x: x)
  monkeypatch.setattr(scenes, 'from_agent', lambda _, *x: x)
  monkeypatch.setattr(meta_rnn, 'quantities', lambda *_: {})
  monkeypatch.setattr(meta_rnn, 'movement', movement)
  found = meta_rnn.along_lives(subject, 50)
  environment.close.assert_called_once_with()
  assert found.environment_steps.tolist() == [1000, 2000, 3000, 4000, 5000]
  log, agents = np.log(10.0 * np.arange(1, 6)), 10.0 * np.arange(number)
  moved = {name: x['policy'] for name, x in found.moved.items()}
  assert not moved.pop(meta_rnn.INITIAL).any()
  half = moved.pop(meta_rnn.HALF)
  assert not half[:, 0].any()
  expected = agents[:, None] + log[[0, 0, 1, 1]]
  np.testing.assert_allclose(half[:, 1:], expected, rtol=1e-6)
  if number == 1:
    assert not moved and not found.r_squared
    return
  other = np.roll(agents, -1)[:, None] + log
  np.testing.assert_allclose(moved.pop(meta_rnn.OTHER), other, rtol=1e-6)
  assert not moved
  assert [*found.r_squared] == [meta_rnn.AGE, meta_rnn.RETURN]
  told = found.r_squared[meta_rnn.AGE]
  assert [*told] == [meta_rnn.STATE, meta_rnn.UNTRAINED]
  np.testing.assert_allclose(told[meta_rnn.STATE], 1.0, atol=1e-4)
  assert told[meta_rnn.UNTRAINED].mean() < 0.3
  # The others' returns are 1.15, 1.1 and 1.05 times the age in the mean.
  told = found.r_squared[meta_rnn.RETURN]
  assert [*told] == [*meta_rnn.SOURCES]
  ages = 10.0 * np.arange(1, 6)
  spread = np.var([ages, 1.1 * ages, 1.2 * ages])
  errors = np.array([0.15, 0.0, 0.15]) ** 2 * np.mean(ages**2)
  np.testing.assert_allclose(
    told[meta_rnn.AGE_ALONE], 1 - errors / spread, atol=0.01
  )


def test_findings_are_drawn_and_written(tmp_path: pathlib.Path) -> None:
  zeros = np.zeros((2, 1))
  moved = {'policy': zeros + 0.5, 'y': np.array([[0.25], [0.75]])}
  findings = meta_rnn.Findings(
    np.array([10]),
    {
      meta_rnn.AGE: {
        meta_rnn.STATE: np.array([0.5, 0.75]),
        meta_rnn.UNTRAINED: np.array([-1.0, 0.5]),
      },
      meta_rnn.RETURN: {
        name: np.array([0.25, 0.5]) for name in meta_rnn.SOURCES
      },
    },
    {meta_rnn.INITIAL: moved, meta_rnn.HALF: {'policy': zeros, 'y': zeros}},
  )
  effect, told = meta_rnn.write(tmp_path, findings, first_seed=3)
  assert effect == tmp_path / 'meta_rnn_effect.csv'
  assert effect.read_text() == (
    'seed,environment_steps,replacement,policy,y\n'
    '3,10,initial state,0.5,0.25\n4,10,initial state,0.5,0.75\n'
    '3,10,at half the age,0.0,0.0\n4,10,at half the age,0.0,0.0\n'
  )
  assert told == tmp_path / 'meta_rnn_state.csv'
  assert told.read_text().splitlines()[:4] == [
    'seed,quantity,from,r_squared',
    '3,log of the age,state,0.5',
    '4,log of the age,state,0.75',
    '3,log of the age,untrained state,-1.0',
  ]
  readouts, policy, y = figures.meta_rnn(findings).axes
  # By source: the state, the untrained one, and the age, of the return alone.
  assert [x.get_width() for x in readouts.patches] == [
    *(0.625, 0.375),
    *(0.0, 0.375),
    0.375,
  ]
  rows = [round(x.get_y() + x.get_height() / 2) for x in readouts.patches]
  assert rows == [0, 1, 0, 1, 1]
  for panel, mean in ((policy, 0.5), (y, 0.5)):
    lines = [x for x in panel.lines if x.get_linewidth() > 2]
    assert [line.get_ydata()[0] for line in lines] == [mean, 1e-6]
  alone = dataclasses.replace(findings, r_squared={})
  assert meta_rnn.write(tmp_path, alone, 3) == [effect]
  assert len(figures.meta_rnn(alone).axes) == 2
