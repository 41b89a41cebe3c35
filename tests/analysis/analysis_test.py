"""Tests of the analyses, with a small random rule."""

import dataclasses
import functools
import math
import pathlib
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from matplotlib import figure
import numpy as np
import pytest
import scipy.stats
import small

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import horizon
from disco_rl.analysis import pictures
from disco_rl.analysis import probes
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.analysis import sensitivity
from disco_rl.analysis import traces
from disco_rl.environments import base
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import on_host
from disco_rl.maths import value_targets
from disco_rl.meta_training import initial_rule
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco

RULE = disco.Disco(network=small.META_NETWORK, num_bins=7, max_abs_value=2.0)
SIZE = RULE.network.prediction_size
NETWORK = agent_network.AgentNetworkConfig(
  torso=torsos.TorsoConfig(hidden_sizes=(8,)),
  action_model_lstm=6,
  action_model_head=7,
)
# T = 9: three episodes of three steps each.
AGENT = agent_lib.make(
  agent_lib.AgentConfig(
    network=NETWORK,
    unroll_length=9,
    batch_size=2,
    num_environments=2,
    on_policy_share=1.0,
    replay_capacity=2,
  ),
  catch.Catch(rows=4, columns=3).spec,
  RULE,
)
# Ends of episodes of a hand-made trajectory with T = 6.
ENDS = [False, False, True, False, False, False]


@functools.cache
def rule_params() -> types.Params:
  return initial_rule.draw(jax.random.key(0), RULE.network)


@functools.cache
def scene() -> scenes.Scene:
  """Two episodes, random predictions, and a rule's state that has advanced."""
  made = hand_made.scene(
    RULE, [0, 1, 2, 2, 1, 0], [0.0, 0.0, 1.0, 0.0, -1.0, 0.0], ENDS, [0] * 3
  )
  randomize = lambda x, seed: jax.random.normal(jax.random.key(seed), x.shape)
  outputs = {
    name: randomize(x, i) for i, (name, x) in enumerate(made.outputs.items())
  }
  made = dataclasses.replace(made, outputs=outputs)
  return scenes.settle(RULE, rule_params(), made, 3)


@functools.cache
def learned() -> learner.LearnerState:
  """An agent that is not new: its target network and meta-RNN differ."""
  init = jax.jit(AGENT.init_learner)
  # Among seeds whose ReLUs have no kinks near the boards.
  state, other = (init(jax.random.split(jax.random.key(i))[0]) for i in (1, 2))
  meta_rnn = jax.tree.map(lambda x: x + 0.3, state.rule_state.meta_rnn)
  rule_state = dataclasses.replace(
    state.rule_state, target_params=other.params, meta_rnn=meta_rnn
  )
  return dataclasses.replace(state, rule_state=rule_state)


@functools.cache
def recorded() -> scenes.Scene:
  rollout = recording.play(
    AGENT.network,
    catch.Catch(rows=4, columns=3),
    learned().params,
    jax.random.key(1),
    length=9,
  )
  return scenes.from_agent(AGENT.network, learned(), rollout)


@functools.cache
def movement(name: str, scale: float = 1.0) -> np.ndarray:
  """[T+1, T], of the only trajectory."""
  moved = horizon.movement(
    RULE, rule_params(), scene(), jax.random.key(2), name, scale
  )
  assert moved.shape == (7, 6, 1)
  return np.asarray(moved[..., 0])


@pytest.mark.slow
def test_a_recording_holds_the_inputs_of_the_rule_in_the_learner() -> None:
  rollout = recorded().rollout
  assert rollout.reward.shape == (9, recording.NUM_TRAJECTORIES)
  unroll = lambda params: AGENT.network.unroll(params, rollout)[0]
  of_learner = jax.jit(
    lambda rule_state, params: RULE.targets(
      rule_params(), rule_state, params, rollout, unroll(params), unroll
    )[0]
  )
  # The inverse of the value transform amplifies float32 rounding 500 times.
  jax.tree.map(
    lambda own, true: np.testing.assert_allclose(own, true, atol=1e-4),
    scenes.targets(RULE, rule_params(), recorded()),
    of_learner(learned().rule_state, learned().params),
  )


def test_a_recording_on_the_host_is_what_the_environments_did() -> None:
  task = catch.Catch(rows=4, columns=3)
  rollout = recording.play(
    AGENT.network,
    on_host.OnHost(task, 2, seed=3),
    learned().params,
    jax.random.key(5),
    length=9,
  )
  by_hand = on_host.OnHost(task, 2, seed=3)
  observation = by_hand.reset()
  for t in range(9):
    np.testing.assert_array_equal(rollout.observation[t], observation)
    timestep = by_hand.step(np.asarray(rollout.action[t]))
    np.testing.assert_array_equal(rollout.reward[t], timestep.reward)
    np.testing.assert_array_equal(rollout.is_terminal[t], timestep.is_terminal)
    np.testing.assert_array_equal(rollout.mask[t], timestep.mask)
    observation = timestep.observation
  np.testing.assert_array_equal(rollout.observation[9], observation)
  assert np.any(rollout.reward) and np.any(rollout.is_terminal)
  np.testing.assert_allclose(
    rollout.logits, AGENT.network.policy(learned().params, rollout), atol=1e-5
  )


def test_a_recording_closes_environments_on_the_host(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  environment = mock.Mock(spec=base.HostEnvironment)
  subject: Any = mock.Mock(environments=lambda _: environment)
  monkeypatch.setattr(recording, 'play', mock.Mock(side_effect=OSError))
  with pytest.raises(OSError):
    recording.record(subject, seed=0, length=1)
  environment.close.assert_called_once_with()


def test_a_recording_is_of_the_agent_in_environments_like_the_runs(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  config = mock.Mock(environment='catch', seed=3, preprocessing='P')
  agent: Any = mock.Mock()
  learner_state: Any = mock.Mock(params='theta')
  subject = recording.Subject(config, RULE, {}, agent, learner_state)
  environment = mock.Mock(spec=base.HostEnvironment)
  make = mock.Mock(return_value=environment)
  monkeypatch.setattr(recording.environment_registry, 'make', make)
  played = []
  monkeypatch.setattr(recording, 'play', lambda *x: played.append(x))
  monkeypatch.setattr(jax, 'jit', lambda function, **_: function)
  monkeypatch.setattr(scenes, 'from_agent', lambda *x: x)
  found: Any = recording.record(subject, seed=5, length=9)
  make.assert_called_once_with('catch', recording.NUM_TRAJECTORIES, 3, 'P')
  environment.close.assert_called_once_with()
  ((network, where, params, key, length),) = played
  assert (network, where) == (agent.network, environment)
  assert (params, length) == ('theta', 9)
  assert key == jax.random.key(5)
  assert found == (agent.network, learner_state, None)


def test_agents_of_a_run_are_loaded_with_their_rule(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  one, other = mock.Mock(seed=3), mock.Mock(seed=4)
  one.config.rule = 'mine'
  one.rule.rule, one.rule.params = RULE, {'eta': np.ones(2)}
  one.train_state.learner = {'w': np.array([[1.0, 2.0]])}
  other.train_state.learner = {'w': np.array([[3.0, 4.0]])}
  read = mock.Mock(return_value=one)
  monkeypatch.setattr(recording.stored, 'read', read)
  monkeypatch.setattr(recording.stored, 'read_all', lambda _: [one, other])
  both = recording.load('run')
  read.assert_not_called()
  assert {seed: x.learner['w'].tolist() for seed, x in both.items()} == {
    3: [1, 2],
    4: [3, 4],
  }
  found = both[3]
  assert (found.config, found.rule, found.agent) == (
    one.config,
    RULE,
    one.agent,
  )
  assert found.rule_params['eta'].tolist() == [1, 1]
  assert [*recording.load('run', 3)] == [3]
  read.assert_called_once_with('run', 3)
  one.rule.rule = 'actor_critic'
  with pytest.raises(ValueError, match='of run, mine, is hand-designed'):
    recording.load('run')


def test_lives_are_shown_at_equal_distances(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  class Trained:
    def init(self, keys: Any) -> Any:
      own = [jax.random.key(3), jax.random.key(4)]
      assert [*keys] == own
      return 0

    def advance(self, rule_params: Any, state: Any, number: int) -> Any:
      assert rule_params == 'of the run'
      return state + number, {}

  agent = mock.Mock(environment_steps=lambda update: 10 * update)
  agent.config.whole = lambda updates: updates
  monkeypatch.setattr(agent_lib, 'make', lambda *_: agent)
  monkeypatch.setattr(recording.parallel, 'make', lambda *_: Trained())
  subject: Any = mock.Mock(rule_params='of the run')
  environment: Any = mock.Mock(spec=base.HostEnvironment)
  environment.spec = None
  # Four for each of two seeds.
  subject.environments = lambda number: {8: environment}[number]
  subject.config.configure_mock(seed=3, seeds=2)
  subject.config.agent.num_environments = 4
  ages = recording.lives(subject, RULE, updates=7, number=3)
  assert list(ages) == [recording.Age(x, 10 * x, x) for x in (2, 4, 6)]
  environment.close.assert_called_once_with()
  few = recording.lives(subject, RULE, updates=2, number=3)
  assert [age.update for age in few] == [1, 2]


@pytest.mark.slow
def test_a_part_of_a_scene_has_the_same_predictions() -> None:
  part = scenes.cut(recorded(), 3, 4, slice(1, 3))
  rollout = recorded().rollout
  np.testing.assert_array_equal(part.rollout.reward, rollout.reward[3:7, 1:3])
  np.testing.assert_array_equal(part.rollout.action, rollout.action[3:8, 1:3])
  np.testing.assert_array_equal(
    part.outputs['z'], recorded().outputs['z'][3:8, 1:3]
  )
  of_target, whole = (
    scenes.as_outputs(x.state.target_params) for x in (part, recorded())
  )
  np.testing.assert_array_equal(of_target['y'], whole['y'][3:8, 1:3])
  found = scenes.targets(RULE, rule_params(), part)
  assert found.pi.shape == (4, 2, 3)


def test_a_hand_made_scene_is_that_of_an_initial_agent() -> None:
  rewards = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
  made = hand_made.scene(RULE, [0, 1, 2, 0, 0, 0], rewards, ENDS, [0] * 3)
  assert made.outputs['z'].shape == (7, 1, 3, SIZE)
  targets = scenes.targets(RULE, rule_params(), made)
  assert targets.pi.shape == (6, 1, 3)
  assert targets.z.shape == (6, 1, SIZE)
  # The output of the meta-RNN is zero, so that these steps are equal.
  np.testing.assert_array_equal(targets.y[0], targets.y[1])
  # Values are 0, and all later rewards are.
  np.testing.assert_allclose(targets.q[1:, 0], [1, 0, 0, 0, 0], atol=5e-4)
  assert 0 < targets.q[0, 0] < 1


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'actions': [0, 3]}, 'actions has 3, but values has 3 entries'),
    ({'actions': [0, -1]}, 'actions has -1'),
    ({'rewards': [0.0]}, '2, 1 and 2 entries'),
    (
      {'values': [0.0, 9.0, 0.0]},
      r'values reach 9.0, but the largest q of .* is 7\.',
    ),
    ({'actions': [], 'rewards': [], 'ends': []}, 'at least one step'),
  ],
)
def test_a_hand_made_scene_is_checked(change: dict, message: str) -> None:
  scene = {
    'actions': [0, 1],
    'rewards': [0.0, 1.0],
    'ends': [False, True],
    'values': [0.0] * 3,
  }
  with pytest.raises(ValueError, match=message):
    hand_made.scene(RULE, **{**scene, **change})


def test_values_of_a_hand_made_scene() -> None:
  values = [0.5, -1.25, 0.0]
  made = hand_made.scene(RULE, [0], [0.0], [False], values)
  for outputs in (made.outputs, scenes.as_outputs(made.state.target_params)):
    q = value_targets.values_from_logits(outputs['q'], RULE.max_abs_value)
    np.testing.assert_allclose(q, np.broadcast_to(values, q.shape), atol=1e-3)


def test_the_scene_that_is_drawn_is_as_described(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  drawn = []
  monkeypatch.setattr(scenes, 'settle', lambda *args, **_: args[2])
  monkeypatch.setattr(scenes, 'targets', lambda *_: None)
  monkeypatch.setattr(figures, 'targets', lambda made, _: drawn.append(made))
  pictures.targets(RULE, {})
  rollout = drawn[0].rollout
  assert rollout.reward[:, 0].tolist() == [0] * 5 + [1, 0, -1] + [0] * 4
  assert np.flatnonzero(rollout.is_terminal).tolist() == [5]
  actions = rollout.action[:-1, 0].tolist()
  assert actions == [0, 1, 2, 1, 0, 2, 1, 1, 0, 2, 0, 1]
  q = value_targets.values_from_logits(
    drawn[0].outputs['q'], RULE.max_abs_value
  )
  np.testing.assert_allclose(q[0, 0], [0.5, 0, 0], atol=1e-3)


def test_settling_changes_only_the_state_of_the_rule() -> None:
  before = scene()
  same = scenes.settle(RULE, rule_params(), before, 0)
  jax.tree.map(np.testing.assert_array_equal, same, before)
  after = scenes.settle(RULE, rule_params(), before, 1)
  assert np.any(after.state.meta_rnn.hidden != before.state.meta_rnn.hidden)
  still = lambda x: (x.rollout, x.outputs, x.state.target_params)
  jax.tree.map(np.testing.assert_array_equal, still(after), still(before))


def test_trace() -> None:
  values = [0.0, -0.25, 1.0]
  made = hand_made.scene(RULE, [0] * 6, [0.0, 0, 1, 0, 0, 0], ENDS, values)
  outputs = {**made.outputs, 'y': made.outputs['y'].at[4, 0, 1].set(50.0)}
  found = traces.trace(RULE, dataclasses.replace(made, outputs=outputs))
  expected = np.full((6, 1), -math.log(SIZE))
  expected[4] = 0.0
  np.testing.assert_allclose(found.y_confidence, expected, atol=1e-5)
  np.testing.assert_allclose(found.policy_confidence, -math.log(3), rtol=1e-5)
  np.testing.assert_allclose(found.value, 0.25, atol=1e-3)
  np.testing.assert_allclose(found.y[4, 0], np.eye(SIZE)[1], atol=1e-6)
  assert found.ended[:, 0].tolist() == ENDS
  assert found.reward[:, 0].tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize('name', horizon.PREDICTIONS)
def test_targets_depend_on_later_predictions_of_their_episode(
  name: str,
) -> None:
  moved = movement(name)
  assert np.all(moved >= 0) and np.all(moved <= 1)
  for s in range(7):
    for t in range(6):
      if s < t:
        assert moved[s, t] == 0, f'{name} at {s} precedes {t}'
      # The observation at 3 is a feature of the step to it, which ends the
      # episode; see `horizon.by_distance`.
      if t <= 2 and s >= 4:
        assert moved[s, t] == 0, f'{name} at {s} and {t} are of other episodes'
  # From each observation of its episode, however far ahead.
  assert np.all(moved[:3, 0] > 0)
  assert np.all(moved[3:, 3] > 0)
  assert not np.any(movement(name, scale=0.0))


def test_means_by_distance() -> None:
  # What moves at t by noise at s: 10 s + t.
  moved = 10.0 * jnp.arange(7)[:, None, None] + jnp.arange(6)[:, None]
  rollout = dataclasses.replace(
    scene().rollout, mask=jnp.ones((6, 1), bool).at[3].set(False)
  )
  means = horizon.by_distance(moved, rollout)[:, 0]
  # Episodes have observations 0..2, 3 and, as the step at 3 is an artifact of
  # resetting, 4..6: transitions 0, 1, 2, 4, 5.
  pairs = ([0, 11, 22, 44, 55], [10, 21, 54, 65], [20, 64])
  for k, values in enumerate(pairs):
    np.testing.assert_allclose(means[k], np.mean(values), rtol=1e-6)
  assert np.all(np.isnan(means[3:]))


def _with_predictions(factor: float) -> scenes.Scene:
  """The scene with y and z multiplied, also the target network's."""
  change = lambda outputs: {
    name: x * (factor if name in ('y', 'z') else 1.0)
    for name, x in outputs.items()
  }
  target_outputs = scenes.as_outputs(scene().state.target_params)
  state = dataclasses.replace(
    scene().state, target_params=scenes.as_params(change(target_outputs))
  )
  return scenes.Scene(scene().rollout, change(scene().outputs), state)


def _moved(rule: disco.Disco) -> dict[str, bool]:
  """Which targets depend on y and z."""
  a, b = (
    scenes.targets(rule, rule_params(), _with_predictions(factor))
    for factor in (1.0, -1.0)
  )
  return {
    field.name: bool(np.any(getattr(a, field.name) != getattr(b, field.name)))
    for field in dataclasses.fields(a)
  }


def test_targets_of_an_ablated_rule_do_not_depend_on_y_and_z() -> None:
  nothing = dict.fromkeys(('pi', 'y', 'z', 'q', 'target_policy'), False)
  assert _moved(ablation.blind(RULE)) == nothing
  assert _moved(ablation.blind(RULE, 'y_and_z')) == {**nothing, 'pi': True}
  assert _moved(RULE) == {**nothing, 'pi': True, 'y': True, 'z': True}


def test_an_ablated_rule_is_otherwise_the_same() -> None:
  assert ablation.blind(dataclasses.replace(RULE, q_cost=0.7)).q_cost == 0.7
  # Equal to the rule on predictions that are zero, to the rounding of float32,
  # which differs between processors.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4),
    scenes.targets(ablation.blind(RULE), rule_params(), scene()),
    scenes.targets(RULE, rule_params(), _with_predictions(0.0)),
  )
  with pytest.raises(ValueError, match="extent='half'"):
    ablation.blind(RULE, 'half')


def test_targets_move_by_what_the_rule_relies_on() -> None:
  key = jax.random.key(6)
  found = ablation.reliance(RULE, rule_params(), scene(), key)
  blind = ablation.blind(RULE)
  of_blind = ablation.reliance(blind, rule_params(), scene(), key)
  targets = scenes.targets(RULE, rule_params(), scene())
  hidden = scenes.targets(blind, rule_params(), scene())
  softmax = lambda x: np.asarray(jax.nn.softmax(x), np.float64)
  for name in ('pi', 'y', 'z'):
    # All steps are real: the mean of sum |p - q| / 2.
    apart = softmax(getattr(targets, name)) - softmax(getattr(hidden, name))
    np.testing.assert_allclose(
      found[name]['hidden'], np.abs(apart).sum(-1).mean() / 2, rtol=1e-4
    )
    assert of_blind[name]['shuffled'] == of_blind[name]['hidden'] == 0
    assert 0 < found[name]['shuffled'] < 1
  apart = softmax(targets.y) - softmax(scene().outputs['y'][:-1])
  np.testing.assert_allclose(
    found['y']['learned'], np.abs(apart).sum(-1).mean() / 2, rtol=1e-4
  )


def test_gradient_norms_are_finite_differences() -> None:
  rollout = recorded().rollout
  params = learned().params
  norms = sensitivity.gradient_norms(RULE, AGENT.network, params, rollout)
  assert set(norms) == set(sensitivity.PREDICTIONS)
  t, b, step = 4, 1, 0.1

  @jax.jit
  def predict(board: types.Array) -> types.Outputs:
    observation = rollout.observation.at[t, b].set(board)
    seen = dataclasses.replace(rollout, observation=observation)
    _, taken = AGENT.network.unroll(params, seen)
    return {
      'policy': jax.nn.softmax(taken['logits'][t, b]),
      'y': jax.nn.softmax(taken['y'][t, b]),
      'z': jax.nn.softmax(taken['z'][t, b]),
      'aux_pi': jax.nn.softmax(taken['aux_pi'][t, b]),
      'value': value_targets.values_from_logits(
        taken['q'][t, b], RULE.max_abs_value
      )[None],
    }

  board = rollout.observation[t, b]
  squares = {name: np.zeros(board.shape) for name in norms}
  for cell in np.ndindex(*board.shape):
    up, down = (predict(board.at[cell].add(x)) for x in (step, -step))
    for name, square in squares.items():
      gradient = np.asarray(up[name] - down[name], np.float64) / (2 * step)
      square[cell] = np.sum(gradient**2)
  for name, square in squares.items():
    assert norms[name].shape == (9, recording.NUM_TRAJECTORIES, 4, 3)
    true = np.sqrt(square)
    assert np.any(true > 1e-4)
    np.testing.assert_allclose(norms[name][t, b], true, atol=0.05 * true.max())


@pytest.mark.parametrize('dtype', [bool, np.uint8])
def test_gradient_norms_take_boards_as_numbers(dtype: Any) -> None:
  """Those of MinAtar are bool; Catch has zeros and ones as floats."""
  rollout = recorded().rollout
  board = rollout.observation.astype(dtype)
  expected, found = (
    sensitivity.gradient_norms(RULE, AGENT.network, learned().params, x)
    for x in (rollout, dataclasses.replace(rollout, observation=board))
  )
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_inputs_without_a_gradient_are_rejected() -> None:
  rollout = recorded().rollout
  refused = {
    'recurrent core': {'core_state': jnp.zeros((1, 2, 3))},
    r"observation\['map'\] is of type int32": {
      'observation': {'map': jnp.zeros((10, 2, 3), jnp.int32)}
    },
  }
  for message, change in refused.items():
    with pytest.raises(ValueError, match=message):
      sensitivity.gradient_norms(
        RULE,
        AGENT.network,
        learned().params,
        dataclasses.replace(rollout, **change),
      )


def test_figures(tmp_path: pathlib.Path) -> None:
  found = recorded()
  observation = found.rollout.observation
  trace = traces.trace(RULE, found)
  targets = scenes.targets(RULE, rule_params(), found)
  moved = np.array([[0.5, 0.3], [0.25, np.nan], [np.nan, np.nan]])
  scores = np.linspace(0, 1, 55).reshape(5, 11)
  reliance = {
    'pi': {'learned': 0.5, 'shuffled': 0.25, 'hidden': 0.02},
    'y': {'learned': 0.5, 'shuffled': 0.004, 'hidden': 0.0},
  }
  drawn = {
    'targets': figures.targets(found, targets, trajectory=1),
    'trace': figures.trace(trace, observation, start=20, trajectory=1),
    'horizon': figures.horizon({'y': moved, 'z': 2 * moved}),
    'reliance': figures.reliance(reliance),
    'probes': figures.probes({'reward': {'y': scores}}, {'reward': False}),
    'sensitivity': figures.sensitivity(
      observation, {'y': observation[:2] ** 2}
    ),
  }
  for name, fig in drawn.items():
    plotting.save(fig, tmp_path / f'{name}.png')
    # Otherwise titles and labels would overlap.
    assert fig.get_layout_engine() is not None, name
  assert len(list(tmp_path.iterdir())) == 6
  np.testing.assert_array_equal(_lines(drawn['targets'])[0], targets.q[:, 1])
  confidence, policy, value = _lines(drawn['trace'])
  np.testing.assert_array_equal(confidence, trace.y_confidence[:, 1])
  np.testing.assert_array_equal(policy, trace.policy_confidence[:, 1])
  np.testing.assert_array_equal(value, trace.value[:, 1])
  # Two trajectories and their mean, until none lasts as long.
  of_y = [line.get_ydata() for line in drawn['horizon'].axes[0].lines]
  np.testing.assert_array_equal(of_y, [[0.5, 0.25], [0.3, np.nan], [0.4, 0.25]])
  colors = {line.get_color() for line in drawn['horizon'].axes[0].lines}
  assert colors == {figures.COLORS['y']}
  labels = [x.get_text() for x in drawn['reliance'].axes[0].get_yticklabels()]
  assert [x.partition(':\n')[2] for x in labels] == [
    'moves by 0.5, used',
    'moves by 0.008, not used',
  ]
  panel = drawn['probes'].axes[0]
  assert panel.get_subplotspec().get_gridspec().ncols == 2
  (curve,) = panel.lines
  np.testing.assert_allclose(curve.get_ydata(), scores.mean(axis=0))
  (band,) = drawn['probes'].axes[0].collections
  (border,) = (path.vertices[:, 1] for path in band.get_paths())
  low, high = scipy.stats.t.interval(
    0.95, len(scores) - 1, scores.mean(axis=0), scipy.stats.sem(scores)
  )
  np.testing.assert_allclose(border.min(), low.min())
  np.testing.assert_allclose(border.max(), high.max())
  (image,) = drawn['sensitivity'].axes[0].images
  np.testing.assert_array_equal(image.get_array(), observation[0, 0])
  # The first 8 of 9 boards side by side.
  (film,) = drawn['trace'].axes[0].images
  assert film.get_array().shape == (4, 8 * 3)
  with pytest.raises(ValueError, match=r'shape \(4,\) is not an image'):
    figures.sensitivity(jnp.zeros((3, 1, 4)), {})


# Variants of configs/ablations.py.
WITHOUT_Y_AND_Z = dataclasses.replace(
  RULE, network=dataclasses.replace(RULE.network, prediction_size=0)
)
BARE = dataclasses.replace(
  RULE,
  network=dataclasses.replace(
    RULE.network, prediction_size=0, has_q=False, meta_rnn_size=0
  ),
  aux_pi_cost=0.0,
)


def test_what_a_rule_lacks_is_left_out() -> None:
  bare = hand_made.scene(BARE, [0] * 6, [1.0] * 6, ENDS, [0] * 3)
  assert set(bare.outputs) == {'logits'}
  params = small.nest(small.arrays(BARE.network))
  targets = scenes.targets(BARE, params, bare)
  assert (targets.y, targets.z, targets.q) == (None, None, None)
  # Reward, pi and pi_hat; the color bars are axes, too.
  assert len(figures.targets(bare, targets).axes) == 3 + 2
  trace = traces.trace(BARE, bare)
  assert trace.y_confidence is None
  (confidence,) = _lines(figures.trace(trace, bare.rollout.observation))
  np.testing.assert_array_equal(confidence, trace.policy_confidence[:, 0])
  key = jax.random.key(0)
  names = {'policy', 'shuffled policy'}
  assert set(probes.inputs(BARE, AGENT.network, bare, key)) == names
  assert 'value' not in probes.questions(BARE, bare)
  made = hand_made.scene(WITHOUT_Y_AND_Z, [0], [0.0], [False], [0.5, 0, 0])
  found = probes.inputs(WITHOUT_Y_AND_Z, AGENT.network, made, key)
  assert set(found) == {*names, 'value'}


def test_sensitivity_of_what_a_rule_has() -> None:
  made = hand_made.scene(BARE, [0] * 2, [0.0] * 2, [False] * 2, [0] * 3)
  seen = dataclasses.replace(made.rollout, observation=jnp.ones((3, 1, 4)))
  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((4,), jnp.float32), 3)
  network = agent_network.make(spec, BARE.output_spec(3), NETWORK)
  params = network.init(jax.random.key(0))
  norms = sensitivity.gradient_norms(BARE, network, params, seen)
  assert {name: x.shape for name, x in norms.items()} == {'policy': (2, 1, 4)}


def test_what_needs_y_and_z_refuses_others() -> None:
  with pytest.raises(ValueError, match="name='q'"):
    horizon.movement(RULE, rule_params(), scene(), jax.random.key(0), 'q')
  made = hand_made.scene(WITHOUT_Y_AND_Z, [0], [0.0], [False], [0.5, 0, 0])
  with pytest.raises(ValueError, match='has no prediction z .*prediction_size'):
    horizon.movement(WITHOUT_Y_AND_Z, {}, made, jax.random.key(0))
  with pytest.raises(ValueError, match='no predictions y and z'):
    ablation.blind(WITHOUT_Y_AND_Z)
  with pytest.raises(ValueError, match=r'values are \[1.0, 0.0\], but .* no q'):
    hand_made.scene(BARE, [0], [0.0], [False], [1.0, 0.0])


def _lines(fig: figure.Figure) -> list[np.ndarray]:
  """The curves; lines of two points mark the ends of episodes."""
  lines = [line.get_ydata() for ax in fig.axes for line in ax.lines]
  return [line for line in lines if len(line) > 2]
