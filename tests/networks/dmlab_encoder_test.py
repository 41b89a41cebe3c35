"""DMLab's part of IMPALA's network: words, the last action, the last reward."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.networks import dmlab_encoder
from disco_rl.networks import torsos

ROWS = 16
# As the three kinds of instructions: ids of several words, of one, none.
SENTENCES = ((924, 841, 79, 263, 0, 0), (1000, 0, 0, 0, 0, 0), (0,) * 6)


def observations() -> dict[str, types.Array]:
  rng = np.random.default_rng(0)
  words = [SENTENCES[i % len(SENTENCES)] for i in range(ROWS)]
  return {
    'image': jnp.asarray(rng.integers(0, 256, (ROWS, 28, 32, 3)), jnp.uint8),
    'instruction': jnp.array(words, jnp.int32),
    'last_action': jnp.eye(9)[rng.integers(9, size=ROWS)],
    'last_reward': jnp.asarray(rng.choice([-5.0, 0.5, 10.0], (ROWS, 1))),
  }


def make_torso(kind: str) -> Any:
  return small.torso(
    torsos.TorsoConfig(kind, channels=(4, 8), hidden_sizes=(32,))
  )


def sigmoid(x: np.ndarray) -> np.ndarray:
  return 1 / (1 + np.exp(-x))


def read(params: types.Params, words: tuple[int, ...]) -> np.ndarray:
  """Runs the LSTM over the words, one after the other, in float64."""
  table = np.asarray(params['torso/words']['embeddings'], np.float64)
  w, b = (
    np.asarray(params['torso/language/linear'][x], np.float64) for x in 'wb'
  )
  hidden, cell = np.zeros(64), np.zeros(64)
  for word in words:
    if not word:
      break
    gates = np.concatenate([table[word], hidden]) @ w + b
    i, g, f, o = np.split(gates, 4)
    cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(cell)
  return hidden


def test_what_is_appended_is_that_of_numpy() -> None:
  torso, observation = make_torso('impala'), observations()
  params = torso.init(jax.random.key(0), observation)
  embedding = torso.apply(params, observation)
  assert embedding.shape == (ROWS, 32 + 1 + 9 + 64)
  image = {'other': observation['image']}
  without = {k: v for k, v in params.items() if 'words' not in k}
  encoded = torso.apply(without, image)
  np.testing.assert_allclose(
    embedding[:, :32], jax.nn.relu(encoded), rtol=1e-5, atol=1e-6
  )
  clipped = np.clip(observation['last_reward'], -1, 1)
  np.testing.assert_array_equal(embedding[:, 32:33], clipped)
  np.testing.assert_array_equal(embedding[:, 33:42], observation['last_action'])
  language = [read(params, words) for words in SENTENCES]
  for row in range(ROWS):
    np.testing.assert_allclose(
      embedding[row, 42:], language[row % len(SENTENCES)], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['mlp', 'impala'])
def test_instructions_do_not_drown_images(kind: str) -> None:
  torso, observation = make_torso(kind), observations()
  params = torso.init(jax.random.key(0), observation)
  embedding = np.asarray(torso.apply(params, observation))
  image, words = embedding[:, :32], embedding[::3, 42:]
  # As raw numbers, words had made it 150 times as large.
  assert 0.1 < words.std() / image.std() < 10

  def loss(params: types.Params, observation: types.PyTree) -> types.Array:
    return (torso.apply(params, observation) ** 2).sum()

  silent = jnp.zeros_like(observation['instruction'])
  for seen in (observation, {**observation, 'instruction': silent}):
    for module, gradient in jax.grad(loss)(params, seen).items():
      moves = any(jnp.any(x != 0) for x in jax.tree.leaves(gradient))
      is_of_words = module in ('torso/words', 'torso/language/linear')
      assert moves == (seen is observation or not is_of_words)


def test_other_dictionaries_are_not_those_of_dmlab() -> None:
  observation = observations()
  assert dmlab_encoder.is_observation(observation)
  assert not dmlab_encoder.is_observation({**observation, 'other': 0})
  assert not dmlab_encoder.is_observation(observation['image'])
