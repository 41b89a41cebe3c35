"""Torsos: encode an observation as the embedding that all heads share."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import difflib
import functools
from typing import Annotated
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.networks import convolutions
from disco_rl.networks import dmlab_encoder
from disco_rl.networks import nethack_encoder

# Rows of observations, leaves [N, ...] -> embedding [N, D]; may use Haiku.
Torso = Callable[[types.PyTree], types.Array]
# The same, with sizes and the type of the computations as arguments.
_Named = Callable[[types.PyTree, 'TorsoConfig', Any], types.Array]
# In place of a size of chunks; and the sizes to choose from, the fastest first.
AUTOMATIC = -1
CHUNK_SIZES = (0, 512, 128, 32)
HiddenSizes = Annotated[
  config_lib.Widths,
  config_lib.Requirement('widths of at least one dense layer', bool),
]


@dataclasses.dataclass(frozen=True)
class TorsoConfig(config_lib.Settings):
  """Kind and sizes of a torso.

  Attributes:
    kind: 'mlp', 'impala', 'resnet', 'dmlab', 'nethack' or one that you
      registered; or in Python a function of your own: it is called inside a
      Haiku transformation with an observation whose leaves have one leading
      axis N, and returns [N, D].
    channels: channels of the stages of convolutions of 'impala' and 'resnet',
      which images [H, W, C] pass; images with channels first are refused.
    hidden_sizes: widths of the dense layers that end every named torso; ReLU
      between them, none after the last.
    chunk_size: observations that the torso computes at a time, at most, to save
      memory: chunks follow one another, and are computed again where the torso
      is differentiated; 0: all; -1: launchers choose the first of all, 512, 128
      and 32 that fits into the memory.
    stride: factor by which each stage of convolutions divides height and width;
      1 for boards whose cells are symbols.
  """

  kind: Annotated[
    str | Torso,
    config_lib.Called('torso'),
    config_lib.Requirement(
      'a name or a function', lambda x: isinstance(x, str) or callable(x)
    ),
  ] = 'mlp'
  channels: config_lib.Widths = (16, 32, 32)
  hidden_sizes: HiddenSizes = (512, 512)
  chunk_size: Annotated[
    int, config_lib.at_least(-1), config_lib.Called('torso_chunk_size')
  ] = 0
  stride: config_lib.Count = 2

  def conflicts(self) -> Iterator[str]:
    """Names must be registered."""
    if isinstance(self.kind, str) and self.kind not in _TORSOS:
      nearest = difflib.get_close_matches(self.kind, _TORSOS)
      yield (
        f'Unknown torso {self.kind!r}. Nearest: '
        f'{", ".join(nearest) or "none"}. There are {", ".join(names())}.'
      )


def names() -> tuple[str, ...]:
  """Torsos that can be chosen by name."""
  return tuple(_TORSOS)


def register(name: str, torso: Torso) -> None:
  """Registers a torso of your own under a name, for configs and flags.

  Args:
    name: not taken yet.
    torso: see `TorsoConfig.kind`.

  Raises:
    ValueError: the name is taken.
  """
  if name in _TORSOS:
    raise ValueError(f'There is a torso {name!r} already.')
  _TORSOS[name] = lambda observation, *_: torso(observation)


class TorsoModule(hk.Module):
  """Runs the torso of a config on rows of observations."""

  def __init__(self, config: TorsoConfig, name: str = 'torso'):
    super().__init__(name)
    if config.chunk_size == AUTOMATIC:
      raise ValueError(
        f'torso_chunk_size={AUTOMATIC} is for disco-rl meta-train and '
        'disco-rl evaluate, which choose one that fits into the memory; give a '
        'number here, or 0 for all observations at a time.'
      )
    self._config = config

  def __call__(
    self, observation: types.PyTree, dtype: Any = jnp.float32
  ) -> types.Array:
    """Leaves [N, *shape] -> [N, D].

    Args:
      observation: uint8 leaves are pixels, and are scaled to [0, 1]; the mask
        of legal actions is left out.
      dtype: The dtype of the computations.

    Returns:
      The embedding.

    Raises:
      ValueError: a torso of the user's own returned something else, or the
        axes of an image are not those of a convolutional torso.
    """
    observation = action_masks.without(observation)
    embed = functools.partial(self._embed, dtype=dtype)
    return _map_chunks(self._config.chunk_size, embed, observation)

  # Layers are named as if `__call__` made them.
  @hk.transparent
  def _embed(self, observation: types.PyTree, dtype: Any) -> types.Array:
    rows = jax.tree.leaves(observation)[0].shape[0]
    torso = self._config.kind
    if torso in _CONVOLUTIONAL:
      for leaf in jax.tree.leaves(observation):
        convolutions.check_image(leaf.shape[1:], leaf.dtype)
    observation = jax.tree.map(lambda x: _as_input(x, dtype), observation)
    if isinstance(torso, str):
      return _TORSOS[torso](observation, self._config, dtype)
    embedding = torso(observation)
    if jnp.ndim(embedding) != 2 or embedding.shape[0] != rows:
      raise ValueError(
        f'The torso {torso} returned shape {jnp.shape(embedding)} for '
        f'{rows} observations; it must return [{rows}, width].'
      )
    return embedding.astype(dtype)


def _map_chunks(
  size: int, torso: Torso, observation: types.PyTree
) -> types.Array:
  """Applies a torso to chunks of rows, and differentiates one at a time.

  Args:
    size: rows of a chunk, at most; 0: all.
    torso: The torso of some rows; may use Haiku.
    observation: all rows, leaves [N, ...].

  Returns:
    The embedding, [N, D].
  """
  rows = jax.tree.leaves(observation)[0].shape[0]
  # Haiku would call the torso twice to initialize it, and name its layers anew.
  if hk.running_init() or not 0 < size < rows:
    return torso(observation)
  count = -(-rows // size)
  size = -(-rows // count)

  def split(leaf: types.Array) -> types.Array:
    # Copies of a real row: zeros might have no finite derivative.
    filled = [(0, count * size - rows)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, filled, 'edge').reshape(count, size, *leaf.shape[1:])

  # In a loop nothing is there to be eliminated as a common subexpression.
  torso = hk.remat(torso, prevent_cse=False)
  embedding = hk.map(torso, jax.tree.map(split, observation))
  return embedding.reshape(count * size, -1)[:rows]


def _as_input(leaf: types.Array, dtype: Any) -> types.Array:
  """Scales pixels to [0, 1]; leaves other integers as they are."""
  if leaf.dtype == jnp.uint8:
    return leaf.astype(dtype) / 255
  if jnp.issubdtype(leaf.dtype, jnp.integer):
    return leaf
  return leaf.astype(dtype)


def _flat(leaves: Sequence[types.Array], dtype: Any) -> types.Array:
  """Concatenates leaves [N, ...] to [N, sum of their sizes]."""
  return jnp.concatenate(
    [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in leaves], axis=-1
  )


def _dense(x: types.Array, config: TorsoConfig) -> types.Array:
  return hk.nets.MLP(config.hidden_sizes, name='mlp')(x)


def _layers(
  encode: Callable[[types.Array, TorsoConfig, Any], types.Array],
) -> _Named:
  """A torso of dense layers over all leaves, each of which is encoded first.

  In DeepMind Lab this holds for the image; the rest of the observation is
  appended to their output as in IMPALA's network.
  """

  def torso(
    observation: types.PyTree, config: TorsoConfig, dtype: Any
  ) -> types.Array:
    rest = []
    if dmlab_encoder.is_observation(observation):
      rest = [dmlab_encoder.context(observation, dtype)]
      observation = observation['image']
    encoded = [
      encode(leaf, config, dtype) for leaf in jax.tree.leaves(observation)
    ]
    embedding = _dense(_flat(encoded, dtype), config)
    if not rest:
      return embedding
    return jnp.concatenate([jax.nn.relu(embedding), *rest], axis=-1)

  return torso


def _convolutional(
  stages: Callable[[types.Array, Sequence[int], int], types.Array],
) -> _Named:
  """A torso that applies convolutions to images, leaves [N, H, W, C].

  Their outputs and all other leaves are inputs of the dense layers. Without an
  image it is the MLP.
  """

  def encode(leaf: types.Array, config: TorsoConfig, dtype: Any) -> types.Array:
    if leaf.ndim != 4:
      return leaf
    image = leaf.astype(dtype)
    return jax.nn.relu(stages(image, config.channels, config.stride))

  return _layers(encode)


def _nethack(
  observation: types.PyTree, config: TorsoConfig, dtype: Any
) -> types.Array:
  """Encodes the dictionaries of NetHack's environments."""
  return _dense(nethack_encoder.encode(observation, dtype), config)


_CONVOLUTIONAL = {
  'impala': _convolutional(convolutions.impala),
  'resnet': _convolutional(convolutions.resnet),
}
_TORSOS: dict[str, _Named] = {
  'mlp': _layers(lambda leaf, *_: leaf),
  **_CONVOLUTIONAL,
  'nethack': _nethack,
}
