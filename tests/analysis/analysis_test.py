"""Tests of the analyses, with a small random rule."""

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
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import horizon
from disco_rl.analysis import questions
from disco_rl.analysis import recording
from disco_rl.analysis import rules
from disco_rl.analysis import scenes
from disco_rl.analysis import sensitivity
from disco_rl.analysis import traces
from disco_rl.environments.jax_native import catch
from disco_rl.maths import value_targets
from disco_rl.meta_training import initial_rule
from disco_rl.networks import agent_network
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights

pytestmark = pytest.mark.usefixtures('quick_compilation')

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
def test_a_recording_holds_the_inputs_of_the_rule_in_the_learner() -> None:
  found = recorded()
  rollout = found.scene.rollout
  unroll = lambda params: AGENT.network.unroll(params, rollout)[0]
  of_learner = jax.jit(
    lambda rule_state, params: RULE.targets(
      rule_params(), rule_state, params, rollout, unroll(params), unroll
    )[0]
  )
  # The inverse of the value transform amplifies float32 rounding 500 times.
  jax.tree.map(
    lambda own, true: np.testing.assert_allclose(own, true, atol=1e-4),
    scenes.targets(RULE, rule_params(), found.scene),
    of_learner(found.state.rule_state, found.state.params),
  )
  assert rollout.reward.shape == (9, 2)
  # The agent was trained.
  assert np.any(found.state.rule_state.meta_rnn.hidden)


def test_recording_needs_an_environment_on_the_device() -> None:
  record = functools.partial(
    recording.record, AGENT, rule_params=rule_params(), key=jax.random.key(0)
  )
  with pytest.raises(ValueError, match='steps on the host'):
    record(environment=python_types.SimpleNamespace(), updates=1)
  with pytest.raises(ValueError, match='updates=0'):
    record(environment=catch.Catch(), updates=0)


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


def test_settling_changes_only_the_state_of_the_rule() -> None:
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


def test_only_y_and_z_can_be_perturbed() -> None:
  with pytest.raises(ValueError, match="name='q'"):
    horizon.movement(RULE, rule_params(), scene(), jax.random.key(0), 'q')


def test_means_by_distance() -> None:
  # What moves at t by noise at s: 10 s + t.
  moved = 10.0 * jnp.arange(7)[:, None, None] + jnp.arange(6)[:, None]
  rollout = dataclasses.replace(
    scene().rollout, mask=jnp.ones((6, 1), bool).at[3].set(False)
  )
  means = horizon.by_distance(moved, rollout)
  # Episodes have observations 0..2, 3 and, as the step at 3 is an artefact of
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


def test_inputs_without_a_gradient_are_rejected() -> None:
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
  with pytest.raises(ValueError, match=r'shape \(4,\) is not an image'):
    figures.sensitivity(jnp.zeros((3, 1, 4)), {}, step=0)


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
  params = initial_rule.draw(jax.random.key(0), BARE.network)
  targets = scenes.targets(BARE, params, bare)
  assert (targets.y, targets.z, targets.q) == (None, None, None)
  # Reward, pi and pi_hat; the colour bars are axes, too.
  assert len(figures.targets(bare, targets).axes) == 3 + 2
  trace = traces.trace(bare)
  assert trace.y_confidence is None
  (entropy,) = _lines(figures.trace(trace))
  np.testing.assert_array_equal(entropy, trace.policy_entropy[:, 0])
  assert set(questions.predictions(BARE, bare)) == {'pi'}
  made = hand_made.scene(WITHOUT_Y_AND_Z, [0], [0.0], [False], [0.5, 0, 0])
  assert set(questions.predictions(WITHOUT_Y_AND_Z, made)) == {'pi', 'q'}


def test_sensitivity_of_what_a_rule_has() -> None:
  made = hand_made.scene(BARE, [0] * 2, [0.0] * 2, [False] * 2, [0] * 3)
  seen = dataclasses.replace(made.rollout, observation=jnp.ones((3, 1, 4)))
  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((4,), jnp.float32), 3)
  network = agent_network.make(spec, BARE.output_spec(3), NETWORK)
  params = network.init(jax.random.key(0))
  norms = sensitivity.gradient_norms(BARE, network, params, seen)
  assert {name: x.shape for name, x in norms.items()} == {'policy': (2, 1, 4)}


def test_what_needs_y_and_z_refuses_a_rule_without_them() -> None:
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


def test_a_random_rule_is_named_as_such(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(tmp_path))
  monkeypatch.setattr(meta_network, 'MetaNetworkConfig', lambda: RULE.network)
  rule, params, note = rules.disco103_or_random()
  assert 'RANDOM' in note
  assert 'disco_103.npz' in note
  assert rule == disco.Disco(network=RULE.network)
  jax.tree.map(np.testing.assert_array_equal, params, rule_params())


def test_disco103_is_loaded_if_available(
  monkeypatch: pytest.MonkeyPatch, disco103_path: pathlib.Path
) -> None:
  monkeypatch.setenv(weights.DIRECTORY_VARIABLE, str(disco103_path.parent))
  rule, params, note = rules.disco103_or_random()
  assert 'RANDOM' not in note
  jax.tree.map(np.testing.assert_array_equal, params, weights.load('disco103'))
  assert rule == disco.Disco()
