"""Torsos, which encode an observation as an embedding for all heads."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import difflib
import functools
import math
from typing import Annotated

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
# The same, with the config and the dtype of computations as arguments.
_Named = Callable[[types.PyTree, 'TorsoConfig', types.DType], types.Array]
# The sizes to try if chunk_size is automatic, fastest first.
CHUNK_SIZES = (0, 512, 128, 32)
ACTIVATIONS = ('relu', 'tanh')
HiddenSizes = Annotated[
  config_lib.Widths,
  config_lib.Requirement('widths of at least one dense layer', bool),
]


@dataclasses.dataclass(frozen=True)
class TorsoConfig(config_lib.Settings):
  """The kind and sizes of a torso.

  Attributes:
    kind: 'mlp', 'impala', 'resnet', 'nethack', one that you registered, or in
      Python your own function: it is called inside a Haiku transformation with
      an observation whose leaves have one leading axis N, and returns [N, D].
    channels: channels of the convolutional stages of 'impala' and 'resnet', for
      images [H, W, C]; images with channels first are refused.
    hidden_sizes: widths of the dense layers at the end of these four torsos.
    activation: 'relu': ReLU between dense layers; 'tanh': hyperbolic tangent
      after each of them, and orthogonal initial weights, as is usual for PPO.
    final_relu: whether a ReLU also follows the last dense layer of 'impala' and
      'resnet', as in IMPALA (Espeholt et al., 2018), but not in the MLP of the
      published code. It changes nothing with 'tanh', nor in DeepMind Lab, where
      one always follows.
    chunk_size: maximal number of observations that the torso computes at a
      time, to save memory: chunks are sequential, and are recomputed when the
      torso is differentiated; 0: all; -1: launchers choose the first of all,
      512, 128 and 32 that fits into memory.
    stride: factor by which each convolutional stage divides height and width;
      1 for boards that several stages would shrink to one cell.
  """

  kind: Annotated[
    str | Torso,
    config_lib.Alias('torso'),
    config_lib.Requirement(
      'a name or a function', lambda x: isinstance(x, str) or callable(x)
    ),
  ] = 'mlp'
  channels: config_lib.Widths = (16, 32, 32)
  hidden_sizes: HiddenSizes = (512, 512)
  activation: Annotated[str, config_lib.one_of(*ACTIVATIONS)] = 'relu'
  final_relu: bool = False
  chunk_size: Annotated[
    int,
    config_lib.at_least(config_lib.AUTOMATIC),
    config_lib.Alias('torso_chunk_size'),
  ] = 0
  stride: config_lib.Count = 2

  def conflicts(self) -> Iterator[str]:
    """Yields an error if the kind is not registered."""
    if isinstance(self.kind, str) and self.kind not in _TORSOS:
      nearest = difflib.get_close_matches(self.kind, _TORSOS)
      yield (
        f'Unknown torso {self.kind!r}. Nearest: '
        f'{", ".join(nearest) or "none"}. There are {", ".join(names())}.'
      )


def names() -> tuple[str, ...]:
  """Returns the names of torsos."""
  return tuple(_TORSOS)


def register(name: str, torso: Torso) -> None:
  """Registers your own torso under a name, for configs and flags.

  Args:
    name: A name that is not taken.
    torso: A function, as in `TorsoConfig.kind`.

  Raises:
    ValueError: The name is taken.
  """
  if name in _TORSOS:
    raise ValueError(f'A torso {name!r} is already registered.')
  _TORSOS[name] = lambda observation, *_: torso(observation)


class TorsoModule(hk.Module):
  """Runs the torso of a config on rows of observations."""

  def __init__(self, config: TorsoConfig, name: str = 'torso'):
    super().__init__(name)
    if config.chunk_size == config_lib.AUTOMATIC:
      raise ValueError(
        f'torso_chunk_size={config_lib.AUTOMATIC} is for disco-rl meta-train '
        'and disco-rl train, which choose one that fits into memory; give a '
        'number here, or 0 for all observations at once.'
      )
    self._config = config

  def __call__(
    self, observation: types.PyTree, dtype: types.DType = jnp.float32
  ) -> types.Array:
    """Encodes leaves, [N, *shape] -> [N, D].

    Args:
      observation: The observations. Pictures are scaled to [0, 1], see
        `types.is_picture`; the mask of legal actions is ignored.
      dtype: The dtype of the computations.

    Returns:
      The embedding.

    Raises:
      ValueError: The user's own torso returned another shape, or the axes of an
        image do not fit a convolutional torso.
    """
    observation = action_masks.without(observation)
    embed = functools.partial(self._embed, dtype=dtype)
    return _map_chunks(self._config.chunk_size, embed, observation)

  # Layers have the same names as in `__call__`.
  @hk.transparent
  def _embed(
    self, observation: types.PyTree, dtype: types.DType
  ) -> types.Array:
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

  A chunk has at most `size` rows; 0: all.
  """
  rows = jax.tree.leaves(observation)[0].shape[0]
  # To initialize it, Haiku would call the torso twice and rename its layers.
  if hk.running_init() or not 0 < size < rows:
    return torso(observation)
  count = -(-rows // size)
  size = -(-rows // count)

  def split(leaf: types.Array) -> types.Array:
    # Copies of a real row, because derivatives at zero may not be finite.
    filled = [(0, count * size - rows)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, filled, 'edge').reshape(count, size, *leaf.shape[1:])

  # A loop has no common subexpressions to be eliminated.
  torso = hk.remat(torso, prevent_cse=False)
  embedding = hk.map(torso, jax.tree.map(split, observation))
  return embedding.reshape(count * size, -1)[:rows]


def _as_input(leaf: types.Array, dtype: types.DType) -> types.Array:
  """Scales pictures to [0, 1]; integers of more than 8 bits are unchanged."""
  if leaf.dtype == jnp.uint8:
    is_picture = types.is_picture(leaf.shape[1:], leaf.dtype)
    return leaf.astype(dtype) / (255 if is_picture else 1)
  if jnp.issubdtype(leaf.dtype, jnp.integer):
    return leaf
  return leaf.astype(dtype)


def _flat(leaves: Sequence[types.Array], dtype: types.DType) -> types.Array:
  """Concatenates leaves [N, ...] to [N, sum of their sizes]."""
  return jnp.concatenate(
    [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in leaves], axis=-1
  )


def _dense(x: types.Array, config: TorsoConfig) -> types.Array:
  is_tanh = config.activation == 'tanh'
  has_final_relu = config.final_relu and config.kind in _CONVOLUTIONAL
  return hk.nets.MLP(
    config.hidden_sizes,
    w_init=_orthogonal if is_tanh else None,
    activation=jnp.tanh if is_tanh else jax.nn.relu,
    activate_final=is_tanh or has_final_relu,
    name='mlp',
  )(x)


def _orthogonal(shape: Sequence[int], dtype: types.DType) -> types.Array:
  """Draws an orthogonal matrix times sqrt(2), for each of many agents in turn.

  The QR decompositions of a batch wait for threads of the pool that they
  occupy: on CPUs, before JAX 0.11, as many of them at once as the machine has
  cores never end (seen with 0.10.1). One at a time needs no other thread.

  Args:
    shape: The shape of the weights, (inputs, outputs).
    dtype: The type of the weights.

  Returns:
    Weights [inputs, outputs].
  """
  draw = jax.nn.initializers.orthogonal(math.sqrt(2))
  one_by_one = jax.custom_batching.sequential_vmap(
    lambda key: draw(key, shape, dtype)
  )
  return one_by_one(hk.next_rng_key())


def _layers(
  encode: Callable[[types.Array, TorsoConfig, types.DType], types.Array],
) -> _Named:
  """Makes a torso of dense layers over all encoded leaves.

  In DeepMind Lab only the image is encoded in this way; the rest of the
  observation is appended to the output, as in IMPALA's network.
  """

  def torso(
    observation: types.PyTree, config: TorsoConfig, dtype: types.DType
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
  """Makes a torso that applies convolutions to images, leaves [N, H, W, C].

  Their outputs and all other leaves are inputs of the dense layers. Without
  images it is the MLP.
  """

  def encode(
    leaf: types.Array, config: TorsoConfig, dtype: types.DType
  ) -> types.Array:
    if leaf.ndim != 4:
      return leaf
    image = leaf.astype(dtype)
    return jax.nn.relu(stages(image, config.channels, config.stride))

  return _layers(encode)


def _nethack(
  observation: types.PyTree, config: TorsoConfig, dtype: types.DType
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
