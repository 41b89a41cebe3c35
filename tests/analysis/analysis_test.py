"""Tests of disco_rl/analysis, on a small random rule."""

from collections.abc import Iterator
import dataclasses
import functools
import math
import pathlib
import types as python_types

import jax
import jax.numpy as jnp
from matplotlib import figure
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import horizon
from disco_rl.analysis import probes
from disco_rl.analysis import questions
from disco_rl.analysis import recording
from disco_rl.analysis import rules
from disco_rl.analysis import scenes
from disco_rl.analysis import sensitivity
from disco_rl.analysis import traces
from disco_rl.environments.jax_native import catch
from disco_rl.maths import categorical
from disco_rl.maths import value_targets
from disco_rl.meta_training import initial_rule
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights

SIZE = 5
RULE = disco.Disco(
  network=meta_network.MetaNetworkConfig(
    prediction_size=SIZE,
    prediction_embedding=(4, 1),
    policy_channels=(4, 3),
    policy_target_channels=(4,),
    lstm_size=8,
    meta_rnn_input_size=4,
    meta_rnn_size=6,
  ),
  num_bins=7,
  max_abs_value=2.0,
)
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
# Ends of episodes of a hand-made trajectory of T = 6.
ENDS = [False, False, True, False, False, False]


@pytest.fixture(autouse=True, scope='module')
def quick_compilation() -> Iterator[None]:
  """Programs run for moments here: to optimise them would take longer."""
  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)


@functools.cache
def rule_params() -> types.Params:
  return initial_rule.draw(jax.random.key(0), RULE.network)[0]


@functools.cache
def scene() -> scenes.Scene:
  """A trajectory with an end within, random predictions, some life behind."""
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
def recorded() -> recording.Recording:
  environment = catch.Catch(rows=4, columns=3)
  key = jax.random.key(1)
  return recording.record(AGENT, environment, rule_params(), key, updates=2)


@functools.cache
def movement(name: str, scale: float = 1.0) -> np.ndarray:
  """[T+1, T], of the only trajectory."""
  moved = horizon.movement(
    RULE, rule_params(), scene(), jax.random.key(2), name, scale
  )
  assert moved.shape == (7, 6, 1)
  return np.asarray(moved[..., 0])


@pytest.mark.slow
def test_a_recording_shows_the_rule_what_the_learner_does() -> None:
  found = recorded()
  rollout = found.scene.rollout

  @jax.jit
  def of_learner(state: learner.LearnerState) -> disco.DiscoTargets:
    unroll = lambda params: AGENT.network.unroll(params, rollout)[0]
    targets, _, _ = RULE.targets(
      rule_params(),
      state.rule_state,
      state.params,
      rollout,
      unroll(state.params),
      unroll,
    )
    return targets

  jax.tree.map(
    lambda own, true: np.testing.assert_allclose(own, true, atol=1e-5),
    scenes.targets(RULE, rule_params(), found.scene),
    of_learner(found.state),
  )
  assert found.scene.rollout.reward.shape == (9, 2)
  # It has lived.
  assert np.any(found.state.rule_state.meta_rnn.hidden)


def test_recording_needs_an_environment_on_the_device() -> None:
  record = functools.partial(
    recording.record, AGENT, rule_params=rule_params(), key=jax.random.key(0)
  )
  with pytest.raises(ValueError, match='lives on the host'):
    record(environment=python_types.SimpleNamespace(), updates=1)
  with pytest.raises(ValueError, match='updates=0'):
    record(environment=catch.Catch(), updates=0)


def test_a_scene_by_hand_is_a_newborns() -> None:
  rewards = [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
  made = hand_made.scene(RULE, [0, 1, 2, 0, 0, 0], rewards, ENDS, [0] * 3)
  assert made.outputs['z'].shape == (7, 1, 3, SIZE)
  targets = scenes.targets(RULE, rule_params(), made)
  assert targets.pi.shape == (6, 1, 3)
  assert targets.z.shape == (6, 1, SIZE)
  # The meta-RNN is silent, so that the rule cannot tell one step from another.
  np.testing.assert_array_equal(targets.y[0], targets.y[1])
  # Values are 0, and nothing is paid later.
  np.testing.assert_allclose(targets.q[1:, 0], [1, 0, 0, 0, 0], atol=5e-4)
  assert 0 < targets.q[0, 0] < 1


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'actions': [0, 3]}, 'actions has 3, but values has 3 entries'),
    ({'actions': [0, -1]}, 'actions has -1'),
    ({'rewards': [0.0]}, '2, 1 and 2 entries'),
    ({'values': [0.0, 9.0, 0.0]}, r'values reach 9.0, but q of .* at 7\.'),
    ({'actions': [], 'rewards': [], 'ends': []}, 'at least one step'),
  ],
)
def test_a_scene_by_hand_is_checked(change: dict, message: str) -> None:
  scene = {
    'actions': [0, 1],
    'rewards': [0.0, 1.0],
    'ends': [False, True],
    'values': [0.0] * 3,
  }
  with pytest.raises(ValueError, match=message):
    hand_made.scene(RULE, **{**scene, **change})


def test_values_by_hand() -> None:
  values = [0.5, -1.25, 0.0]
  made = hand_made.scene(RULE, [0], [0.0], [False], values)
  for outputs in (
    made.outputs,
    scenes.as_outputs(made.state.target_params),
  ):
    q = value_targets.values_from_logits(outputs['q'], RULE.max_abs_value)
    np.testing.assert_allclose(q, np.broadcast_to(values, q.shape), atol=1e-3)


def test_a_rule_settles() -> None:
  before = scene()
  same = scenes.settle(RULE, rule_params(), before, 0)
  jax.tree.map(np.testing.assert_array_equal, same, before)
  after = scenes.settle(RULE, rule_params(), before, 1)
  assert np.any(after.state.meta_rnn.hidden != before.state.meta_rnn.hidden)
  still = lambda x: (x.rollout, x.outputs, x.state.target_params)
  jax.tree.map(np.testing.assert_array_equal, still(after), still(before))


def test_trace() -> None:
  made = hand_made.scene(RULE, [0] * 6, [0.0, 0, 1, 0, 0, 0], ENDS, [0] * 3)
  outputs = {**made.outputs, 'y': made.outputs['y'].at[4, 0, 1].set(50.0)}
  found = traces.trace(dataclasses.replace(made, outputs=outputs))
  expected = np.full((6, 1), -math.log(SIZE))
  expected[4] = 0.0
  np.testing.assert_allclose(found.y_confidence, expected, atol=1e-5)
  np.testing.assert_allclose(found.policy_entropy, math.log(3), rtol=1e-5)
  assert found.ended[:, 0].tolist() == ENDS
  assert found.reward[:, 0].tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize('name', horizon.PREDICTIONS)
def test_targets_move_by_what_follows_in_their_episode(name: str) -> None:
  moved = movement(name)
  assert np.all(moved >= 0) and np.all(moved <= 1)
  for s in range(7):
    for t in range(6):
      if s < t:
        assert moved[s, t] == 0, f'{name} at {s} is past at {t}'
      # The observation at 3 is a feature of the step to it, which ends the
      # episode; see `horizon.by_distance`.
      if t <= 2 and s >= 4:
        assert moved[s, t] == 0, f'{name} at {s} is of another episode than {t}'
  # From each observation of its episode, however far ahead.
  assert np.all(moved[:3, 0] > 0)
  assert np.all(moved[3:, 3] > 0)
  assert not np.any(movement(name, scale=0.0))


def test_only_y_and_z_can_be_disturbed() -> None:
  with pytest.raises(ValueError, match="name='q'"):
    horizon.movement(RULE, rule_params(), scene(), jax.random.key(0), 'q')


def test_means_by_distance() -> None:
  # What moves at t by noise at s: 10 s + t.
  moved = 10.0 * jnp.arange(7)[:, None, None] + jnp.arange(6)[:, None]
  rollout = dataclasses.replace(
    scene().rollout, mask=jnp.ones((6, 1), bool).at[3].set(False)
  )
  means = horizon.by_distance(moved, rollout)
  # Episodes hold observations 0..2, 3 and, as the step at 3 is an artefact of
  # resetting, 4..6: transitions 0, 1, 2, 4, 5.
  pairs = {
    0: [0, 11, 22, 44, 55],
    1: [10, 21, 54, 65],
    2: [20, 64],
  }
  for k, values in pairs.items():
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
  """Which targets are others if y and z are."""
  a, b = (
    scenes.targets(rule, rule_params(), _with_predictions(factor))
    for factor in (1.0, -1.0)
  )
  return {
    field.name: bool(np.any(getattr(a, field.name) != getattr(b, field.name)))
    for field in dataclasses.fields(a)
  }


def test_a_blind_rule_heeds_neither_y_nor_z() -> None:
  nothing = dict.fromkeys(('pi', 'y', 'z', 'q', 'target_policy'), False)
  assert _moved(ablation.blind(RULE)) == nothing
  assert _moved(ablation.blind(RULE, 'y_and_z')) == {**nothing, 'pi': True}
  assert _moved(RULE) == {**nothing, 'pi': True, 'y': True, 'z': True}


def test_a_blind_rule_is_otherwise_the_same() -> None:
  assert ablation.blind(dataclasses.replace(RULE, q_cost=0.7)).q_cost == 0.7
  # Blind to what is there, and seeing that there is nothing.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
    scenes.targets(ablation.blind(RULE), rule_params(), scene()),
    scenes.targets(RULE, rule_params(), _with_predictions(0.0)),
  )
  with pytest.raises(ValueError, match="extent='half'"):
    ablation.blind(RULE, 'half')


def test_gradient_norms_are_those_of_the_jacobian() -> None:
  found = recorded()
  rollout = found.scene.rollout
  norms = sensitivity.gradient_norms(
    RULE, AGENT.network, found.state.params, rollout
  )
  assert set(norms) == set(sensitivity.PREDICTIONS)
  t, b = 4, 1

  @jax.jit
  @jax.jacfwd
  def jacobian(board: types.Array) -> types.Outputs:
    observation = rollout.observation.at[t, b].set(board)
    seen = dataclasses.replace(rollout, observation=observation)
    _, taken = AGENT.network.unroll(found.state.params, seen)
    return {
      'policy': jax.nn.softmax(taken['logits'][t, b]),
      'y': jax.nn.softmax(taken['y'][t, b]),
      'z': jax.nn.softmax(taken['z'][t, b]),
      'aux_pi': jax.nn.softmax(taken['aux_pi'][t, b]),
      'value': value_targets.values_from_logits(
        taken['q'][t, b], RULE.max_abs_value
      )[None],
    }

  for name, gradient in jacobian(rollout.observation[t, b]).items():
    assert norms[name].shape == (9, 2, 4, 3)
    true = jnp.sqrt(jnp.sum(gradient**2, axis=0))
    assert np.any(true > 1e-4)
    np.testing.assert_allclose(norms[name][t, b], true, rtol=1e-3, atol=1e-6)


def test_what_has_no_gradient() -> None:
  rollout = recorded().scene.rollout
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
        recorded().state.params,
        dataclasses.replace(rollout, **change),
      )


def test_figures(tmp_path: pathlib.Path) -> None:
  found = recorded()
  observation = found.scene.rollout.observation
  trace = traces.trace(found.scene)
  targets = scenes.targets(RULE, rule_params(), found.scene)
  means = np.array([0.5, 0.25, np.nan])
  drawn = {
    'targets': figures.targets(found.scene, targets, trajectory=1),
    'trace': figures.trace(trace, trajectory=1),
    'horizon': figures.horizon({'a': means, 'b': 2 * means}),
    'sensitivity': figures.sensitivity(
      observation, {'y': observation[:-1] ** 2}, step=2
    ),
  }
  for name, fig in drawn.items():
    plotting.save(fig, tmp_path / f'{name}.png')
  assert len(list(tmp_path.iterdir())) == 4
  np.testing.assert_array_equal(_lines(drawn['targets'])[0], targets.q[:, 1])
  np.testing.assert_array_equal(
    _lines(drawn['trace'])[0], trace.y_confidence[:, 1]
  )
  np.testing.assert_array_equal(_lines(drawn['horizon'])[1], 2 * means)
  (image,) = drawn['sensitivity'].axes[0].images
  np.testing.assert_array_equal(image.get_array(), observation[2, 0])
  with pytest.raises(ValueError, match=r'shape \(4,\) is no image'):
    figures.sensitivity(jnp.zeros((3, 1, 4)), {}, step=0)


def _lines(fig: figure.Figure) -> list[np.ndarray]:
  """Heights of the curves; ends of episodes are lines of two points."""
  lines = [line.get_ydata() for ax in fig.axes for line in ax.lines]
  return [line for line in lines if len(line) > 2]


def test_a_random_rule_says_so(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(tmp_path))
  monkeypatch.setattr(meta_network, 'MetaNetworkConfig', lambda: RULE.network)
  rule, params, note = rules.disco103_or_random()
  assert 'RANDOM' in note
  assert 'disco_103.npz' in note
  assert rule == disco.Disco(network=RULE.network)
  jax.tree.map(np.testing.assert_array_equal, params, rule_params())


def test_disco103_is_taken_where_it_can_be_had(
  monkeypatch: pytest.MonkeyPatch, disco103_path: pathlib.Path
) -> None:
  monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(disco103_path.parent))
  rule, params, note = rules.disco103_or_random()
  assert 'RANDOM' not in note
  jax.tree.map(np.testing.assert_array_equal, params, weights.load('disco103'))
  assert rule == disco.Disco()


def test_a_probe_reads_what_is_there_and_no_more() -> None:
  x_key, noise_key, key = jax.random.split(jax.random.key(3), 3)
  x = jax.random.normal(x_key, (12, 10, 2))
  noise = jax.random.normal(noise_key, (12, 10))
  is_known = jnp.ones((12, 10), bool).at[:, ::3].set(False)
  # Where it is not known, an answer must not matter.
  ask = lambda answer: questions.Question(
    jnp.where(is_known, answer, 1e3).astype(jnp.float32), is_known
  )
  config = probes.ProbeConfig(hidden_sizes=(16,), folds=2, learning_rate=1e-2)
  there, absent = (
    probes.r_squared(key, x, ask(answer), config)
    for answer in (3.0 * x[..., 0] + 1.0, noise)
  )
  assert there.shape == (2,)
  assert np.all(there > 0.9) and np.all(there <= 1.0)
  assert np.all(absent < 0.3)
  right, guessed = (
    probes.accuracy(key, x, ask(answer > 0), config)
    for answer in (x[..., 1] - 0.5, noise)
  )
  assert np.all(right > 0.85)
  assert np.all(guessed < 0.75)


def test_probes_are_scored_on_other_trajectories() -> None:
  """What marks a trajectory gives its answers away, unless it is held out."""
  marks = jnp.broadcast_to(jnp.eye(10), (12, 10, 10))
  answer = jnp.broadcast_to(jnp.arange(10) % 3, (12, 10)).astype(jnp.float32)
  question = questions.Question(answer, jnp.ones((12, 10), bool))
  config = probes.ProbeConfig(hidden_sizes=(16,), folds=2, learning_rate=1e-2)
  scores = probes.r_squared(jax.random.key(4), marks, question, config)
  assert np.all(scores < 0.1)


def test_probes_need_trajectories() -> None:
  question = questions.Question(jnp.zeros((3, 4)), jnp.ones((3, 4), bool))
  with pytest.raises(ValueError, match='4 trajectories cannot make folds=5'):
    probes.r_squared(jax.random.key(0), jnp.zeros((3, 4, 2)), question)
  with pytest.raises(ValueError, match=r'shape \(3, 2, 2\)'):
    probes.accuracy(jax.random.key(0), jnp.zeros((3, 2, 2)), question)


def test_the_more_frequent_answer() -> None:
  question = questions.Question(
    jnp.array([[1.0], [0.0], [0.0], [1.0]]),
    jnp.array([[True], [True], [True], [False]]),
  )
  np.testing.assert_allclose(probes.majority(question), 2 / 3, rtol=1e-6)


def test_questions_about_the_policy() -> None:
  asked = questions.future_policy_entropy(scene(), steps=2)
  # The episodes hold observations 0..2 and 3..6.
  known = [True, False, False, True, True, False]
  assert asked.is_known[:, 0].tolist() == known
  entropy = categorical.entropy(scene().outputs['logits'])
  for t in (0, 3, 4):
    assert asked.answer[t, 0] == entropy[t + 2, 0]
  with pytest.raises(ValueError, match='steps=0'):
    questions.future_policy_entropy(scene(), steps=0)


def test_questions_about_rewards() -> None:
  rewards = [0.0, 0.0, 1.0, 0.0, -1.0, 0.1]
  made = hand_made.scene(RULE, [0] * 6, rewards, ENDS, [0] * 3)
  asked = questions.large_reward(made.rollout, steps=2, size=0.5)
  assert asked.answer[:, 0].tolist() == [0, 1, 1, 1, 1, 0]
  # After step 5 the trajectory is over, and the episode is not.
  assert asked.is_known[:, 0].tolist() == [True] * 5 + [False]
  ahead = questions.large_reward(made.rollout, steps=1, size=0.5)
  assert ahead.answer[:, 0].tolist() == [0, 0, 1, 0, 1, 0]
  assert np.all(ahead.is_known)


def test_what_probes_look_at() -> None:
  found = questions.predictions(RULE, scene())
  widths = {name: x.shape for name, x in found.items()}
  assert widths == {
    'pi': (6, 1, 3),
    'q': (6, 1, 3),
    'y': (6, 1, SIZE),
    'z': (6, 1, SIZE),
  }
  # The action at 2 is 2.
  np.testing.assert_allclose(
    found['z'][2, 0], jax.nn.softmax(scene().outputs['z'][2, 0, 2]), rtol=1e-6
  )
