"""The parts of IMPALA's network for DeepMind Lab after the encoded image.

They are an LSTM over the words of the instruction, the last action and the last
reward (Espeholt et al., 2018), with the sizes in the authors' code.
"""

from collections.abc import Mapping

import haiku as hk
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import lstm

KEYS = frozenset(('image', 'instruction', 'last_action', 'last_reward'))
NUM_WORD_IDS = 1_000  # Ids are 1 .. this number; 0 stands for no word.

_WORD_SIZE = 20
_LSTM_SIZE = 64


def is_observation(observation: types.PyTree) -> bool:
  """Returns whether an observation is a dictionary with exactly the `KEYS`."""
  return isinstance(observation, Mapping) and observation.keys() == KEYS


def context(
  observation: Mapping[str, types.Array], dtype: types.DType
) -> types.Array:
  """Encodes an observation without its image.

  Args:
    observation: `instruction` [N, W] int32, word ids, padded with zeros;
      `last_action` [N, A], one-hot; `last_reward` [N, 1], which is clipped to
      [-1, 1].
    dtype: The dtype of the computations.

  Returns:
    [N, 1 + A + 64]; the last entries are zero without an instruction.
  """
  return jnp.concatenate(
    [
      jnp.clip(observation['last_reward'], -1, 1).astype(dtype),
      observation['last_action'].astype(dtype),
      _read(observation['instruction'], dtype),
    ],
    axis=-1,
  )


def _read(words: types.Array, dtype: types.DType) -> types.Array:
  """[N, W] ids -> the LSTM's output after the last word, [N, 64]."""
  table = hk.Embed(NUM_WORD_IDS + 1, _WORD_SIZE, name='words')
  embedded = table(words).astype(dtype)
  by_time = embedded.swapaxes(0, 1)
  never = jnp.zeros(by_time.shape[:2], bool)
  outputs, _ = lstm.SequenceLSTM(_LSTM_SIZE, name='language')(by_time, never)
  is_last = jnp.logical_and(
    words > 0, jnp.pad(words[:, 1:], ((0, 0), (0, 1))) == 0
  )
  return jnp.einsum('wnh,nw->nh', outputs, is_last.astype(dtype))
