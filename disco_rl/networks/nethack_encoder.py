"""An encoder for the observations of NetHack's environments.

Like the baseline of the NetHack Learning Environment (Kuettler et al., 2020),
it encodes the whole map, the hero's surroundings, the bottom line, and the
message, each by a few layers. The frames of a stack are channels.
"""

from collections.abc import Mapping
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.networks import convolutions

NUM_GLYPHS = 5977  # In NetHack 3.6; the last one is for empty cells.
NUM_CHARACTERS = 256
KEYS = ('glyphs', 'blstats', 'message')

_GLYPH_SIZE = 32
_CROP = 9  # Cells on a side around the hero.
_MAP_CHANNELS = (16, 32, 32)
_HIDDEN_SIZE = 64


def encode(
  observation: Mapping[str, types.Array], dtype: types.DType
) -> types.Array:
  """Encodes a batch of observations.

  Args:
    observation: `glyphs` [N, 21, 79, S] integers, `blstats` [N, K, S] numbers,
      the first two of which are the hero's column and row, `message` [N, L, S]
      integers, characters: S frames, the newest last. The last axis may be
      missing for single frames. Other entries are ignored.
    dtype: The dtype of the computations.

  Returns:
    [N, D], before a dense layer.

  Raises:
    ValueError: The observation is not from NetHack.
  """
  if not isinstance(observation, Mapping) or not set(KEYS) <= set(observation):
    raise ValueError(
      "torso='nethack' requires observations with the entries "
      f"{', '.join(KEYS)}, as nethack/score has; choose 'mlp', 'impala' or "
      "'resnet' for other environments."
    )
  glyphs, stats, message = (observation[key] for key in KEYS)
  if glyphs.ndim == 3:
    glyphs, stats, message = (x[..., None] for x in (glyphs, stats, message))
  stats = stats.astype(jnp.float32)
  embed = functools.partial(
    _embed, hk.Embed(NUM_GLYPHS, _GLYPH_SIZE, name='glyphs'), dtype=dtype
  )
  nearby = convolutions.Convolution(_HIDDEN_SIZE, name='nearby')(
    embed(surroundings(glyphs, stats))
  )
  characters = _embed(
    hk.Embed(NUM_CHARACTERS, _GLYPH_SIZE, name='characters'), message, dtype
  )
  parts = [
    convolutions.impala(embed(glyphs), _MAP_CHANNELS, stride=2),
    convolutions.residual_block(nearby, 'nearby_block'),
    hk.nets.MLP([_HIDDEN_SIZE, _HIDDEN_SIZE], name='stats')(
      rlax.signed_logp1(stats).astype(dtype).reshape(len(stats), -1)
    ),
    hk.Conv1D(_HIDDEN_SIZE, 5, stride=4, name='message')(characters).max(
      axis=1
    ),
  ]
  return jax.nn.relu(
    jnp.concatenate([x.reshape(x.shape[0], -1) for x in parts], axis=-1)
  )


def surroundings(glyphs: types.Array, stats: types.Array) -> types.Array:
  """Cuts out the cells around the hero's position in the newest frame.

  All frames show the same cells, so that motion is visible in the stack. Cells
  outside the map are empty.

  Args:
    glyphs: [N, H, W, S] integers.
    stats: [N, K, S], the hero's column and row first.

  Returns:
    [N, 9, 9, S].
  """
  half = _CROP // 2
  padded = jnp.pad(
    glyphs,
    ((0, 0), (half, half), (half, half), (0, 0)),
    constant_values=NUM_GLYPHS - 1,
  )
  cut = lambda one, row, column: jax.lax.dynamic_slice(
    one, (row, column, 0), (_CROP, _CROP, one.shape[-1])
  )
  column, row = (stats[:, i, -1].astype(jnp.int32) for i in range(2))
  return jax.vmap(cut)(padded, row, column)


def _embed(
  table: hk.Embed, ids: types.Array, dtype: types.DType
) -> types.Array:
  """Embeds integers, [..., S] -> [..., S * E], and concatenates frames."""
  embedded = table(ids.astype(jnp.int32)).astype(dtype)
  return embedded.reshape(*ids.shape[:-1], -1)
