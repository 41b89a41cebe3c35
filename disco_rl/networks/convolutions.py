"""Residual convolutions over images, the first layers of a torso."""

from collections.abc import Sequence

import haiku as hk
import jax

from disco_rl import types


def impala(image: types.Array, channels: Sequence[int]) -> types.Array:
  """IMPALA's small network (Espeholt et al., 2018): two blocks a stage.

  Args:
    image: [N, H, W, C].
    channels: of each stage; each halves height and width, rounded up.

  Returns:
    [N, H', W', channels[-1]], before a ReLU.
  """
  for stage, width in enumerate(channels):
    image = hk.Conv2D(width, 3, name=f'stage_{stage}')(image)
    image = hk.max_pool(image, (1, 3, 3, 1), (1, 2, 2, 1), 'SAME')
    for block in range(2):
      image = residual_block(image, f'stage_{stage}_block_{block}')
  return image


def resnet(image: types.Array, channels: Sequence[int]) -> types.Array:
  """The network of the paper's large agents: one residual block a stage.

  The paper states the number of blocks and their filters (256, 384, 384, 256);
  that a strided convolution leads into each is ours.

  Args:
    image: [N, H, W, C].
    channels: of each stage; each halves height and width, rounded up.

  Returns:
    [N, H', W', channels[-1]], before a ReLU.
  """
  for stage, width in enumerate(channels):
    image = hk.Conv2D(width, 3, stride=2, name=f'stage_{stage}')(image)
    image = residual_block(image, f'stage_{stage}_block')
  return image


def residual_block(image: types.Array, name: str) -> types.Array:
  """Two convolutions beside the identity, each after a ReLU."""
  width = image.shape[-1]
  x = image
  for layer in range(2):
    x = hk.Conv2D(width, 3, name=f'{name}_{layer}')(jax.nn.relu(x))
  return image + x
