"""Residual convolutions over images, the first layers of a torso."""

from collections.abc import Sequence
import functools

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.runtime import backend

_SIZE = 3  # The size of all filters.
# The minimal side of a board, and the maximal channels of a picture.
_BOARD, _MOST_CHANNELS = 8, 16
_LAYOUT = ('NHWC', 'HWIO', 'NHWC')


def check_image(shape: Sequence[int], dtype: types.DType) -> None:
  """Checks that an observation that looks like an image has axes [H, W, C].

  Boards of symbols may be small and have many channels, so observations without
  pixels are only refused if they are unlikely to be boards.

  Args:
    shape: The shape of one observation.
    dtype: The dtype of its numbers; pixels and boards may be uint8 or bool.

  Raises:
    ValueError: Channels come first, or the number of axes is wrong.
  """
  is_pixels = dtype in (jnp.uint8, jnp.bool_)
  if len(shape) == 3:
    first, *rest = shape
    is_square = rest[0] == rest[1]
    is_wrong = (
      first < min(rest)
      and min(rest)
      >= (_BOARD if is_pixels or is_square else types.PICTURE_SIDE)
      and (is_pixels or is_square or first <= _MOST_CHANNELS)
    )
    remedy = (
      'gymnasium.wrappers.TransformObservation with np.moveaxis(x, 0, -1)'
    )
  else:
    sides = sorted(shape)[-2:]
    is_wrong = len(shape) > 3 or (
      len(shape) == 2 and is_pixels and min(sides) >= types.PICTURE_SIDE
    )
    remedy = 'gymnasium.wrappers.ReshapeObservation'
  if is_wrong:
    raise ValueError(
      f'An observation has the shape {tuple(shape)}, but convolutions take '
      'images [height, width, channels]. Likely channels come first, frames '
      'are stacked in an axis of their own, or one is missing: change it with '
      f'{remedy}, or pass your own torso.'
    )


def impala(
  image: types.Array, channels: Sequence[int], stride: int
) -> types.Array:
  """Applies IMPALA's deep network (Espeholt et al., 2018): two blocks a stage.

  Args:
    image: [N, H, W, C].
    channels: The channels of each stage.
    stride: The factor by which each stage divides height and width, rounded up;
      2 in the paper.

  Returns:
    [N, H', W', channels[-1]], before a ReLU.
  """
  for stage, width in enumerate(channels):
    image = Convolution(width, name=f'stage_{stage}')(image)
    image = hk.max_pool(image, (1, 3, 3, 1), (1, stride, stride, 1), 'SAME')
    for block in range(2):
      image = residual_block(image, f'stage_{stage}_block_{block}')
  return image


def resnet(
  image: types.Array, channels: Sequence[int], stride: int
) -> types.Array:
  """Applies the network of the paper's large agents: one block a stage.

  The paper states the number of residual blocks and their filters (256, 384,
  384, 256). The strided convolution before each block is an assumption.
  Arguments and results are those of `impala`.
  """
  for stage, width in enumerate(channels):
    image = Convolution(width, stride, name=f'stage_{stage}')(image)
    image = residual_block(image, f'stage_{stage}_block')
  return image


def residual_block(image: types.Array, name: str) -> types.Array:
  """Adds the result of two convolutions, each after a ReLU, to the image."""
  width = image.shape[-1]
  x = image
  for layer in range(2):
    x = Convolution(width, name=f'{name}_{layer}')(jax.nn.relu(x))
  return image + x


class Convolution(hk.Module):
  """Filters of 3x3 and a bias, with the parameters of `hk.Conv2D`."""

  def __init__(self, width: int, stride: int = 1, name: str | None = None):
    """Makes the layer; the stride divides height and width, rounded up."""
    super().__init__(name)
    self._width = width
    self._stride = stride

  def __call__(self, image: types.Array) -> types.Array:
    """Applies the filters, [N, H, W, C] -> [N, H', W', width]."""
    shape = (_SIZE, _SIZE, image.shape[-1], self._width)
    fan_in = _SIZE * _SIZE * image.shape[-1]
    filters = hk.get_parameter(
      'w', shape, image.dtype, hk.initializers.TruncatedNormal(fan_in**-0.5)
    )
    bias = hk.get_parameter('b', shape[-1:], image.dtype, jnp.zeros)
    convolve = convolve_on_cpu if backend.is_cpu() else _convolve
    return convolve(image, filters, self._stride) + bias


def _convolve(
  image: types.Array, filters: types.Array, stride: int
) -> types.Array:
  return jax.lax.conv_general_dilated(
    image, filters, (stride, stride), 'SAME', dimension_numbers=_LAYOUT
  )


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def convolve_on_cpu(
  image: types.Array, filters: types.Array, stride: int
) -> types.Array:
  """Convolves [N, H, W, C] by [3, 3, C, D], with products as derivatives.

  On CPUs, XLA is fast at convolutions, but not at their transposes in reverse
  mode: within a loop the gradient for 16 filters takes 30 times as long.
  """
  return _convolve(image, filters, stride)


@convolve_on_cpu.defjvp
def _convolve_on_cpu_jvp(
  stride: int,
  primals: tuple[types.Array, types.Array],
  tangents: tuple[types.Array, types.Array],
) -> tuple[types.Array, types.Array]:
  image, filters = primals
  image_tangent, filters_tangent = tangents
  product = lambda image, filters: (
    patches(image, stride) @ filters.reshape(-1, filters.shape[-1])
  )
  return (
    convolve_on_cpu(image, filters, stride),
    product(image_tangent, filters) + product(image, filters_tangent),
  )


def patches(image: types.Array, stride: int) -> types.Array:
  """Extracts the inputs of each filter, [N, H, W, C] -> [N, H', W', 9 C]."""
  sizes = [-(-size // stride) for size in image.shape[1:3]]
  spans = [(size - 1) * stride + 1 for size in sizes]
  # Like XLA for 'SAME', with an odd row or column of padding at the end.
  needed = [
    max(span + _SIZE - 1 - size, 0)
    for span, size in zip(spans, image.shape[1:3])
  ]
  around = [(n // 2, n - n // 2) for n in needed]
  image = jnp.pad(image, ((0, 0), *around, (0, 0)))
  height, width = spans
  shifted = [
    image[:, i : i + height : stride, j : j + width : stride]
    for i in range(_SIZE)
    for j in range(_SIZE)
  ]
  return jnp.concatenate(shifted, axis=-1)
