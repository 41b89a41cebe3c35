"""An encoder for the observations of NetHack's environments.

In the spirit of the baseline of the NetHack Learning Environment (Kuettler et
al., 2020): the whole map, the hero's surroundings, the bottom line, and the
message, each by its own few layers.
"""

from collections.abc import Mapping
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import convolutions

NUM_GLYPHS = 5977  # Of NetHack 3.6; the last stands for none.
NUM_CHARACTERS = 256
KEYS = ('glyphs', 'blstats', 'message')

_GLYPH_SIZE = 32
_CROP = 9  # Cells on a side around the hero.
_MAP_CHANNELS = (16, 32, 32)
_HIDDEN_SIZE = 64


def encode(observation: Mapping[str, types.Array], dtype: Any) -> types.Array:
  """Encodes a batch of observations.

  Args:
    observation: `glyphs` [N, 21, 79] integers, `blstats` [N, S] numbers, the
      first two of which are the hero's column and row, `message` [N, L]
      integers, characters. Other entries are not looked at.
    dtype: in which it computes.

  Returns:
    [N, D], before a dense layer.

  Raises:
    ValueError: the observation is none of NetHack's.
  """
  if not isinstance(observation, Mapping) or not set(KEYS) <= set(observation):
    raise ValueError(
      "torso='nethack' wants observations with the entries "
      f"{', '.join(KEYS)}, as nethack/score has; choose 'mlp', 'impala' or "
      "'resnet' for other environments."
    )
  stats = observation['blstats'].astype(jnp.float32)
  embedding = hk.Embed(NUM_GLYPHS, _GLYPH_SIZE, name='glyphs')
  embed = lambda glyphs: embedding(glyphs).astype(dtype)
  glyphs = observation['glyphs'].astype(jnp.int32)
  characters = hk.Embed(NUM_CHARACTERS, _GLYPH_SIZE, name='characters')(
    observation['message'].astype(jnp.int32)
  )
  nearby = convolutions.Convolution(_HIDDEN_SIZE, name='nearby')(
    embed(surroundings(glyphs, stats))
  )
  parts = [
    convolutions.impala(embed(glyphs), _MAP_CHANNELS),
    convolutions.residual_block(nearby, 'nearby_block'),
    hk.nets.MLP([_HIDDEN_SIZE, _HIDDEN_SIZE], name='stats')(
      squash(stats).astype(dtype)
    ),
    hk.Conv1D(_HIDDEN_SIZE, 5, stride=4, name='message')(
      characters.astype(dtype)
    ).max(axis=1),
  ]
  return jax.nn.relu(
    jnp.concatenate([x.reshape(x.shape[0], -1) for x in parts], axis=-1)
  )


def surroundings(glyphs: types.Array, stats: types.Array) -> types.Array:
  """Cuts out the cells around the hero.

  Args:
    glyphs: [N, H, W] int32.
    stats: [N, S], the hero's column and row first.

  Returns:
    [N, 9, 9] int32; beyond the map's border the glyph that stands for none.
  """
  half = _CROP // 2
  padded = jnp.pad(
    glyphs,
    ((0, 0), (half, half), (half, half)),
    constant_values=NUM_GLYPHS - 1,
  )
  cut = lambda one, row, column: jax.lax.dynamic_slice(
    one, (row, column), (_CROP, _CROP)
  )
  column, row = (stats[:, i].astype(jnp.int32) for i in range(2))
  return jax.vmap(cut)(padded, row, column)


def squash(stats: types.Array) -> types.Array:
  """Numbers of all magnitudes on one scale: sign(x) log(1 + |x|)."""
  return jnp.sign(stats) * jnp.log1p(jnp.abs(stats))
