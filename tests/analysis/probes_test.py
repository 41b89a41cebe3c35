"""Tests of probes, their inputs, and their questions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.analysis import hand_made
from disco_rl.analysis import probes
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.update_rules import disco

RULE = disco.Disco(network=small.META_NETWORK, num_bins=7, max_abs_value=2.0)
SIZE = RULE.network.prediction_size
# Ends of episodes of a trajectory with T = 6.
ENDS = [False, False, True, False, False, False]
CONFIG = probes.ProbeConfig(
  hidden_sizes=(16,), wide_sizes=(16,), folds=2, learning_rate=1e-2
)


def random_scene() -> scenes.Scene:
  rewards = [0.0, 0.0, 1.0, 0.5, -1.0, 0.1]
  made = hand_made.scene(RULE, [0, 1, 2, 2, 1, 0], rewards, ENDS, [0] * 3)
  outputs = {
    name: jax.random.normal(jax.random.key(i), x.shape)
    for i, (name, x) in enumerate(made.outputs.items())
  }
  return dataclasses.replace(made, outputs=outputs)


def test_predictions_have_wider_probes(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """They have many numbers, of which values and policies have few."""
  widths = []
  monkeypatch.setattr(
    probes, '_cross_validate', lambda *x: widths.append(x[3]) or {'q': 0.0}
  )
  asked = {'q': probes.Question(jnp.zeros((3, 4, 1)), jnp.ones((3, 4, 1)))}
  names = ('y', 'z', probes.INITIAL, 'policy', 'value', probes.SHUFFLED)
  found = dict.fromkeys(names, jnp.zeros((3, 4, 2)))
  config = probes.ProbeConfig(hidden_sizes=(3,), wide_sizes=(5,), folds=2)
  probes.score(jax.random.key(0), found, asked, config)
  assert widths == 3 * [(5,)] + 3 * [(3,)]


def test_a_probe_finds_information_only_where_it_is() -> None:
  x_key, noise_key, key = jax.random.split(jax.random.key(3), 3)
  x = jax.random.normal(x_key, (40, 10, 2))
  noise = jax.random.normal(noise_key, (40, 10))
  is_known = jnp.ones((40, 10, 3), bool).at[:, ::3].set(False)

  def ask(answer: jax.Array) -> probes.Question:
    """The number, its negative and noise; unknown answers are far off."""
    answers = jnp.stack([answer, -answer, noise], axis=-1)
    return probes.Question(jnp.where(is_known, answers, 1e3), is_known)

  linear = ask(3.0 * x[..., 0] + 1.0)
  yes_no = ask(x[..., 1] - 0.8)  # One in five.
  yes_no = dataclasses.replace(yes_no, answer=yes_no.answer > 0)
  asked = {'linear': linear, 'yes-no': yes_no}
  found = {'there': x, 'absent': jax.random.normal(key, x.shape)}
  scores = probes.score(key, found, asked, CONFIG)
  r_squared, accuracy = scores['linear'], scores['yes-no']
  assert r_squared['there'].shape == (2, 3)
  assert np.all(r_squared['there'][:, :2] > 0.9)
  assert np.all(r_squared['there'] <= 1.0)
  assert np.all(r_squared['there'][:, 2] < 0.2)
  assert np.all(r_squared['absent'] < 0.2)
  assert np.all(accuracy['there'][:, :2] > 0.85)
  # Always to say no would be right four times in five.
  assert np.all(accuracy['absent'] < 0.65)


def test_probes_are_scored_on_held_out_trajectories() -> None:
  """An identifier of the trajectory predicts answers only in training data."""
  marks = jnp.broadcast_to(jnp.eye(10), (12, 10, 10))
  answer = jnp.broadcast_to(jnp.arange(10) % 3, (12, 10)).astype(jnp.float32)
  answer = answer[..., None]
  asked = {'which': probes.Question(answer, jnp.ones_like(answer, bool))}
  scores = probes.score(jax.random.key(4), {'mark': marks}, asked, CONFIG)
  assert np.all(scores['which']['mark'] < 0.1)


def test_scores_are_those_of_numpy() -> None:
  generator = np.random.default_rng(0)
  given, answer = generator.normal(size=(2, 20, 2))
  weight = generator.integers(0, 2, (20, 2)).astype(float)
  scores, accuracies = [], []
  for own, true, is_known in zip(given.T, answer.T, weight.T > 0):
    kept, true = own[is_known], true[is_known]
    error, spread = kept - true, true - true.mean()
    scores.append(1 - np.sum(error**2) / np.sum(spread**2))
    of_yes = np.mean(kept[true > 0.5] > 0)
    of_no = np.mean(kept[true <= 0.5] <= 0)
    accuracies.append((of_yes + of_no) / 2)
  np.testing.assert_allclose(
    probes._r_squared(given, answer, weight), scores, rtol=1e-4
  )
  np.testing.assert_allclose(
    probes._accuracy(given, jnp.asarray(answer > 0.5), weight),
    accuracies,
    rtol=1e-5,
  )


def test_equal_answers_give_no_score() -> None:
  answer = jnp.full((3, 2), 0.1)  # Its mean in float32 is not 0.1.
  answer = answer.at[0, 1].set(7.0)
  given = jnp.zeros((3, 2))
  weight = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
  assert np.isnan(probes._r_squared(given, answer, weight)).all()
  assert not np.isnan(probes._r_squared(given, answer, np.ones((3, 2)))[1])


def test_probes_need_trajectories() -> None:
  answers = jnp.zeros((3, 4, 1))
  asked = {'a': probes.Question(answers, jnp.ones_like(answers, bool))}
  key = jax.random.key(0)
  with pytest.raises(
    ValueError, match='4 trajectories are too few for folds=5'
  ):
    probes.score(key, {'x': jnp.zeros((3, 4, 2))}, asked, probes.ProbeConfig())
  with pytest.raises(ValueError, match=r'x has shape \(3, 2, 2\)'):
    probes.score(key, {'x': jnp.zeros((3, 2, 2))}, asked, CONFIG)


def test_questions_about_the_future() -> None:
  scene = random_scene()
  asked = probes.questions(RULE, scene)
  assert list(asked) == ['policy entropy', 'large reward', 'reward', 'value']
  # The episodes are the steps 0..2 and 3..5.
  for t in range(6):
    for k in range(11):
      is_known = t + k <= (2 if t < 3 else 5)
      for name, question in asked.items():
        assert question.is_known[t, 0, k] == is_known, (name, t, k)
  entropy = categorical.entropy(scene.outputs['logits'])
  rewards = scene.rollout.reward
  for t, k in ((0, 0), (0, 2), (3, 1), (4, 1)):
    answer = lambda name, t=t, k=k: asked[name].answer[t, 0, k]
    np.testing.assert_allclose(answer('policy entropy'), entropy[t + k, 0])
    assert answer('reward') == rewards[t + k, 0]
    # Four are not zero; the largest tenth are those of size 1.
    assert answer('large reward') == (abs(rewards[t + k, 0]) == 1)


@pytest.mark.parametrize(
  ('rewards', 'is_large'),
  [
    ([0.0, 0.1, -0.2, 0.3, 0.4, -5.0], [0, 0, 0, 0, 1, 1]),
    ([0.0, 0.1, 0.1, -0.1, 0.1, 0.0], [0, 1, 1, 1, 1, 0]),
    ([0.0] * 6, [0] * 6),
  ],
)
def test_rewards_are_large_among_those_that_are_not_zero(
  rewards: list[float], is_large: list[int]
) -> None:
  """From the quantile 0.9 on, which is rounded down to one of them."""
  scene = random_scene()
  reward = jnp.asarray(rewards)[:, None]
  rollout = dataclasses.replace(scene.rollout, reward=reward)
  asked = probes.questions(RULE, dataclasses.replace(scene, rollout=rollout))
  answer = asked['large reward'].answer[:, 0, 0]
  np.testing.assert_array_equal(answer, is_large)


def test_artifacts_of_resets_are_not_asked_about() -> None:
  scene = random_scene()
  mask = scene.rollout.mask.at[2].set(False)
  rollout = dataclasses.replace(scene.rollout, mask=mask)
  asked = probes.questions(RULE, dataclasses.replace(scene, rollout=rollout))
  known = asked['reward'].is_known[:, 0]
  assert known[0].tolist() == [True, True] + 9 * [False]
  assert not np.any(known[2])


def test_inputs_of_probes() -> None:
  scene = random_scene()
  rollout = dataclasses.replace(
    scene.rollout, observation=jnp.arange(7.0)[:, None, None]
  )
  scene = dataclasses.replace(scene, rollout=rollout)
  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((1,), jnp.float32), 3)
  network = small.network(spec, RULE.output_spec(3))
  found = probes.inputs(RULE, network, scene, jax.random.key(0))
  assert {name: x.shape for name, x in found.items()} == {
    'policy': (6, 1, 3),
    'value': (6, 1, 3),
    'shuffled policy': (6, 1, 3),
    'y': (6, 1, SIZE),
    'z': (6, 1, SIZE),
    'initial y': (6, 1, SIZE),
  }
  # The action at 2 is 2.
  np.testing.assert_allclose(
    found['z'][2, 0], jax.nn.softmax(scene.outputs['z'][2, 0, 2]), rtol=1e-6
  )
  rows = lambda x: sorted(map(tuple, np.asarray(x)[:, 0].tolist()))
  # It sees, though it has not learned.
  assert np.ptp(found['initial y'][:, 0, 0]) > 0
  assert rows(found['shuffled policy']) == rows(found['policy'])
  assert np.any(found['shuffled policy'] != found['policy'])
