"""Tests of disco_rl/analysis/pictures.py and of launch/analyse.py."""

import functools
import pathlib
from typing import Any
from unittest import mock

import launching
import numpy as np
from PIL import Image
import pytest
import small
import train_runs

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import horizon
from disco_rl.analysis import pictures
from disco_rl.analysis import probes
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.analysis import sensitivity
from disco_rl.analysis import traces
from disco_rl.runtime import metrics
from disco_rl.training import learning_curves
from disco_rl.update_rules import disco
from launch import analyse

AGENT = (
  *train_runs.CATCH,
  '--config.seeds=1',
  '--config.updates=4',
  '--config.log_every=1',
)
NAMES = ('targets', 'trace', 'gradients', 'probes', 'horizon', 'reliance')


call = functools.partial(launching.call_main, analyse)
error = functools.partial(launching.error_of_main, analyse)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
  """A run with a small rule that has y and z."""
  small.save(tmp_path / 'rule.npz', small.arrays())
  rule = f'--config.rule={tmp_path / "rule.npz"}'
  train_runs.launch(tmp_path / 'run', *AGENT, rule)
  return tmp_path / 'run'


@pytest.mark.slow
def test_a_run_is_drawn(
  run: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  trained = []
  curve = pictures._curve

  def curve_of_one(subject: Any, rule: Any, updates: int) -> Any:
    # The second would compile as long, and says no more.
    trained.append(rule)
    if len(trained) > 1:
      return np.arange(3), np.ones((1, 3))
    steps, returns = curve(subject, rule, updates)
    assert steps[-1] == subject.agent.environment_steps(updates)
    return steps, returns

  monkeypatch.setattr(pictures, '_curve', curve_of_one)
  quick = probes.ProbeConfig((8,), (8,), steps=3)
  monkeypatch.setattr(pictures, '_PROBES', quick)
  before = launching.contents(run)
  call(workdir=str(run), recorded_steps=16, curve_updates=2, life_updates=2)
  paths = [
    run / 'analysis' / f'{name}.png'
    for name in (*NAMES, 'responses', 'without_predictions', 'terms')
  ]
  page = run / 'analysis' / 'explore.html'
  assert 'lstm/linear_4/w' in page.read_text()
  responding, table = (
    run / 'analysis' / f'{name}.csv' for name in ('responses', 'terms')
  )
  about, *printed = capsys.readouterr().out.splitlines()
  assert about.startswith('Recording 16 steps of the agent')
  *others, _ = written = [page, *paths, table]
  written.insert(others.index(paths[len(NAMES)]) + 1, responding)
  effect = run / 'analysis' / 'meta_rnn_effect.csv'
  paths.append(effect.with_name('meta_rnn.png'))
  written += [paths[-1], effect]
  assert printed == [f'{x}' for x in written]
  assert len(table.read_text().splitlines()) == 1 + 2
  assert len(effect.read_text().splitlines()) == 1 + 2 * 2
  for path in paths:
    with Image.open(path) as picture:
      assert len(picture.convert('L').getcolors() or ()) > 10, path
  assert [rule.extent for rule in trained] == ['y_and_z', 'all']
  assert all(isinstance(rule, ablation.Blind) for rule in trained)
  after = launching.contents(run)
  assert {name: after[name] for name in before} == before
  assert len(after) == len(before) + len(written)


def long_scene(rewarded: int, length: int = 100) -> scenes.Scene:
  """Three trajectories; the second has the largest reward at one step.

  Observations, one number each, are ten times the step, plus the trajectory.
  """
  reward = np.zeros((length, 3))
  reward[rewarded, 1] = -2.0
  reward[3, 0], reward[4, 2] = 1.0, 9.0
  mask = np.ones((length, 3), bool)
  mask[4, 2] = False  # No reward: the step begins an episode.
  steps = np.arange(length + 1.0)[:, None]
  number = 10.0 * steps + np.arange(3)
  return scenes.Scene(
    rollout=types.Rollout(
      observation=number[..., None, None],
      action=number.astype(int),
      logits=number[..., None],
      reward=reward,
      is_terminal=reward > 0,
      mask=mask,
      core_state=number[:1],
    ),
    outputs={'logits': number[..., None]},
    state=disco.DiscoState(None, scenes.as_params({'y': -number}), None),
  )


def test_a_part_of_a_scene() -> None:
  part = scenes.cut(long_scene(50), 3, 4, slice(1, 3))
  rollout = part.rollout
  states = 10.0 * np.arange(3, 8)[:, None] + [1, 2]
  np.testing.assert_array_equal(rollout.observation[..., 0, 0], states)
  np.testing.assert_array_equal(rollout.action, states)
  np.testing.assert_array_equal(rollout.logits[..., 0], states)
  np.testing.assert_array_equal(part.outputs['logits'][..., 0], states)
  np.testing.assert_array_equal(
    scenes.as_outputs(part.state.target_params)['y'], -states
  )
  assert rollout.reward.tolist() == [[0, 0], [0, 9], [0, 0], [0, 0]]
  assert rollout.is_terminal.tolist() == (rollout.reward > 0).tolist()
  assert rollout.mask.tolist() == (rollout.reward == 0).tolist()
  # The state of the core is from before the whole scene.
  assert rollout.core_state.tolist() == [[1, 2]]
  assert scenes.cut(long_scene(50), 0, 2).rollout.reward.shape == (2, 3)


def test_a_scene_of_an_agent() -> None:
  network: Any = mock.Mock(
    unroll=lambda params, rollout: ({'y': params * rollout.reward}, None)
  )
  state = disco.DiscoState(None, 2.0, None)
  learner: Any = mock.Mock(params=3.0, rule_state=state)
  rollout = long_scene(50).rollout
  made = scenes.from_agent(network, learner, rollout)
  assert made.rollout is rollout
  np.testing.assert_allclose(made.outputs['y'], 3 * rollout.reward)
  np.testing.assert_allclose(
    scenes.as_outputs(made.state.target_params)['y'], 2 * rollout.reward
  )


@pytest.mark.parametrize(
  ('rewarded', 'start', 'length'), [(50, 10, 60), (5, 0, 25), (95, 55, 45)]
)
@pytest.mark.parametrize('is_full', [True, False])
def test_analyses_of_an_agent(
  rewarded: int,
  start: int,
  length: int,
  is_full: bool,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """The trace is around the largest reward, other pictures show the end."""
  scene = long_scene(rewarded)
  rule: Any = mock.Mock()
  rule.network.prediction_size = 3 if is_full else 0
  agent: Any = mock.Mock()
  agent.config.unroll_length = 29
  agent.config.network.core_lstm = 0 if is_full else 4
  subject: Any = mock.Mock(rule=rule, rule_params='eta', agent=agent)

  def drawer(name: str) -> Any:
    return lambda *args, **options: (name, *args, options)

  for name in ('targets', 'trace', 'sensitivity', 'probes', 'horizon'):
    monkeypatch.setattr(figures, name, drawer(name))
  monkeypatch.setattr(figures, 'reliance', drawer('reliance'))
  monkeypatch.setattr(pictures, 'targets', lambda *x: x)
  monkeypatch.setattr(traces, 'trace', lambda *x: x)
  numbers, flags = np.zeros(2), np.zeros(2, bool)
  asked = {'a': mock.Mock(answer=numbers), 'b': mock.Mock(answer=flags)}
  monkeypatch.setattr(probes, 'questions', lambda *_: asked)
  monkeypatch.setattr(probes, 'inputs', lambda *x: x)
  monkeypatch.setattr(probes, 'score', lambda *x: x)
  monkeypatch.setattr(horizon, 'movement', lambda *x: x)
  monkeypatch.setattr(horizon, 'by_distance', lambda *x: x)
  monkeypatch.setattr(ablation, 'reliance', lambda *x: x)
  norms = lambda *x: {
    'policy': -x[3].observation[:1],
    'y': 2 * x[3].observation[:1],
  }
  monkeypatch.setattr(sensitivity, 'gradient_norms', norms)
  drawn: dict[str, Any] = dict(pictures.of_agent(subject, scene, seed=4))
  if not is_full:
    assert [*drawn] == ['targets', 'trace', 'probes']
    return
  assert [*drawn] == [*NAMES]
  assert drawn['targets'] == (rule, 'eta')
  _, (of_rule, traced), seen, options = drawn['trace']
  assert of_rule is rule and options == {'start': start}
  states = 10.0 * np.arange(start, start + length + 1) + 1
  np.testing.assert_array_equal(seen[:, 0, 0, 0], states)
  np.testing.assert_array_equal(traced.rollout.observation, seen)
  assert seen.shape[1] == 1
  # Three of its observations, at equal distances from the first one.
  _, observation, found, _ = drawn['gradients']
  chosen = states[[0, (length - 1) // 3, 2 * (length - 1) // 3]]
  np.testing.assert_array_equal(np.ravel(observation), chosen)
  np.testing.assert_array_equal(np.ravel(found['policy']), -chosen)
  np.testing.assert_array_equal(np.ravel(found['y']), 2 * chosen)
  assert [*found] == ['policy', 'y']
  _, (key, inputs, questions, config), are_accuracies, _ = drawn['probes']
  assert inputs == (rule, agent.network, scene, key)
  assert questions is asked and config == probes.ProbeConfig()
  assert are_accuracies == {'a': False, 'b': True}
  _, moved, _ = drawn['horizon']
  for name in horizon.PREDICTIONS:
    (*arguments, last, _, moved_name), rollout = moved[name]
    assert arguments == [rule, 'eta'] and moved_name == name
    assert rollout is last.rollout
  _, arguments, _ = drawn['reliance']
  assert arguments[:2] == (rule, 'eta') and arguments[3] is key
  # As many steps as in training, from the end.
  np.testing.assert_array_equal(
    arguments[2].rollout.action[:, 0], 10 * np.arange(71, 101)
  )


def test_learning_curves_with_and_without_predictions(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    for update in (1, 2, 3):
      # Of a fork, whose first update took more steps.
      row = {'update': update, 'environment_steps': 92 + 8 * update}
      writer.write([{**row, 'seed': 0, 'return': 0.5 * update}])
  subject: Any = mock.Mock(rule=disco.Disco())
  subject.config.environment = 'catch'

  def lives(_: Any, rule: Any, updates: int, number: int) -> Any:
    assert number >= 20 and updates == 2
    for update in range(1, updates + 1):
      returns = np.array([update, -update]) * (rule.extent == 'all')
      agents: Any = mock.Mock()
      agents.acting.episodes = returns
      yield recording.Age(update, 8 * update, agents)

  monkeypatch.setattr(recording, 'lives', lives)
  monkeypatch.setattr(
    episodes,
    'mean_return_on_host',
    lambda found: found,
  )
  monkeypatch.setattr(learning_curves, 'draw', lambda *x: x)
  drawn: Any = pictures.without_predictions(subject, tmp_path, 2)
  curves, title = drawn
  assert title == 'catch'
  assert {
    name: [x.tolist() for x in curve] for name, curve in curves.items()
  } == {
    'the rule': [[100, 108], [[0.5, 1.0]]],
    'without bootstrapping': [[8, 16], [[0, 0], [0, 0]]],
    'without predictions': [[8, 16], [[1, 2], [-1, -2]]],
  }


def test_curves_need_metrics_of_the_run(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    row = {'update': 10, 'seed': 0, 'environment_steps': 80, 'return': 0.5}
    writer.write([row])
  subject = mock.Mock()
  with pytest.raises(ValueError, match='^9 updates are too few .* after 10.'):
    pictures.without_predictions(subject, tmp_path, 9)


def test_what_cannot_be_drawn_is_refused(tmp_path: pathlib.Path) -> None:
  assert 'Name the run' in error()
  assert 'holds no run of disco-rl train' in error(workdir=str(tmp_path))
  train_runs.launch(tmp_path, *AGENT)
  message = 'actor_critic, is hand-designed'
  assert message in error(workdir=str(tmp_path))
