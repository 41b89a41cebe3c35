"""Tests of probes, their inputs, and their questions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.analysis import hand_made
from disco_rl.analysis import probes
from disco_rl.analysis import questions
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.networks import meta_network
from disco_rl.update_rules import disco

pytestmark = pytest.mark.usefixtures('quick_compilation')

SIZE = 5
RULE = disco.Disco(
  network=meta_network.MetaNetworkConfig(prediction_size=SIZE),
  num_bins=7,
  max_abs_value=2.0,
)
# Ends of episodes of a trajectory with T = 6.
ENDS = [False, False, True, False, False, False]


def random_scene() -> scenes.Scene:
  made = hand_made.scene(RULE, [0, 1, 2, 2, 1, 0], [0.0] * 6, ENDS, [0] * 3)
  outputs = {
    name: jax.random.normal(jax.random.key(i), x.shape)
    for i, (name, x) in enumerate(made.outputs.items())
  }
  return dataclasses.replace(made, outputs=outputs)


def test_a_probe_finds_information_only_where_it_is() -> None:
  x_key, noise_key, key = jax.random.split(jax.random.key(3), 3)
  x = jax.random.normal(x_key, (12, 10, 2))
  noise = jax.random.normal(noise_key, (12, 10))
  is_known = jnp.ones((12, 10), bool).at[:, ::3].set(False)
  # Unknown answers must be ignored.
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


def test_probes_are_scored_on_held_out_trajectories() -> None:
  """An identifier of the trajectory predicts answers only in training data."""
  marks = jnp.broadcast_to(jnp.eye(10), (12, 10, 10))
  answer = jnp.broadcast_to(jnp.arange(10) % 3, (12, 10)).astype(jnp.float32)
  question = questions.Question(answer, jnp.ones((12, 10), bool))
  config = probes.ProbeConfig(hidden_sizes=(16,), folds=2, learning_rate=1e-2)
  scores = probes.r_squared(jax.random.key(4), marks, question, config)
  assert np.all(scores < 0.1)


def test_probes_need_trajectories() -> None:
  question = questions.Question(jnp.zeros((3, 4)), jnp.ones((3, 4), bool))
  with pytest.raises(
    ValueError, match='4 trajectories are too few for folds=5'
  ):
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
  scene = random_scene()
  asked = questions.future_policy_entropy(scene, steps=2)
  # The episodes have observations 0..2 and 3..6.
  known = [True, False, False, True, True, False]
  assert asked.is_known[:, 0].tolist() == known
  entropy = categorical.entropy(scene.outputs['logits'])
  for t in (0, 3, 4):
    assert asked.answer[t, 0] == entropy[t + 2, 0]
  with pytest.raises(ValueError, match='steps=0'):
    questions.future_policy_entropy(scene, steps=0)


def test_questions_about_rewards() -> None:
  rewards = [0.0, 0.0, 1.0, 0.0, -1.0, 0.1]
  scene = hand_made.scene(RULE, [0] * 6, rewards, ENDS, [0] * 3)
  asked = questions.large_reward(scene.rollout, steps=2, size=0.5)
  assert asked.answer[:, 0].tolist() == [0, 1, 1, 1, 1, 0]
  # After step 5 the trajectory ends, but not the episode.
  assert asked.is_known[:, 0].tolist() == [True] * 5 + [False]
  ahead = questions.large_reward(scene.rollout, steps=1, size=0.5)
  assert ahead.answer[:, 0].tolist() == [0, 0, 1, 0, 1, 0]
  assert np.all(ahead.is_known)


def test_inputs_of_probes() -> None:
  scene = random_scene()
  found = questions.predictions(RULE, scene)
  widths = {name: x.shape for name, x in found.items()}
  assert widths == {
    'pi': (6, 1, 3),
    'q': (6, 1, 3),
    'y': (6, 1, SIZE),
    'z': (6, 1, SIZE),
  }
  # The action at 2 is 2.
  np.testing.assert_allclose(
    found['z'][2, 0], jax.nn.softmax(scene.outputs['z'][2, 0, 2]), rtol=1e-6
  )
