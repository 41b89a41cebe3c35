"""Convolutional torsos against the layers of Haiku.

Same parameters, same observations: outputs and gradients must agree.
"""

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.networks import convolutions
from disco_rl.networks import torsos

ROWS = 4
CHANNELS = (4, 5)
HIDDEN_SIZES = (12, 4)


def plain_block(x: types.Array, width: int, name: str) -> types.Array:
  y = hk.Conv2D(width, kernel_shape=3, name=f'{name}_0')(jax.nn.relu(x))
  y = hk.Conv2D(width, kernel_shape=3, name=f'{name}_1')(jax.nn.relu(y))
  return x + y


def plain_impala(image: types.Array) -> types.Array:
  """Espeholt et al., 2018, figure 3, with two stages; before the last ReLU."""
  pool = hk.MaxPool(window_shape=(3, 3, 1), strides=(2, 2, 1), padding='SAME')
  x = pool(hk.Conv2D(4, kernel_shape=3, name='stage_0')(image))
  x = plain_block(x, 4, 'stage_0_block_0')
  x = plain_block(x, 4, 'stage_0_block_1')
  x = pool(hk.Conv2D(5, kernel_shape=3, name='stage_1')(x))
  x = plain_block(x, 5, 'stage_1_block_0')
  return plain_block(x, 5, 'stage_1_block_1')


def plain_resnet(image: types.Array) -> types.Array:
  """Strided convolutions, a residual block after each; two stages."""
  x = hk.Conv2D(4, kernel_shape=3, stride=2, name='stage_0')(image)
  x = plain_block(x, 4, 'stage_0_block')
  x = hk.Conv2D(5, kernel_shape=3, stride=2, name='stage_1')(x)
  return plain_block(x, 5, 'stage_1_block')


PLAIN = {'impala': plain_impala, 'resnet': plain_resnet}


def plain_torso(kind: str, observation: Any) -> types.Array:
  """Pixels in [0, 1], convolutions, then dense layers; see `torsos`."""
  image = observation['image'].astype(np.float64)
  embedding = jax.nn.relu(PLAIN[kind](image))
  # The vector joins; leaves are sorted by their names.
  x = jnp.concatenate(
    [embedding.reshape(ROWS, -1), observation['vector']], axis=-1
  )
  x = jax.nn.relu(hk.Linear(12, name='linear_0')(x))
  return hk.Linear(4, name='linear_1')(x)


def observe(height: int, width: int, channels: int) -> Any:
  rng = np.random.default_rng(height * width)
  shape = (ROWS, height, width, channels)
  return {
    'image': rng.integers(0, 256, shape).astype(np.uint8),
    'vector': rng.normal(size=(ROWS, 3)),
  }


def by_layer(params: types.Params) -> types.Params:
  """Parameters by the last part of the names of their modules."""
  layers = {name.split('/')[-1]: values for name, values in params.items()}
  assert len(layers) == len(params)
  return layers


@pytest.mark.parametrize('stages', [convolutions.impala, convolutions.resnet])
def test_a_stride_of_one_keeps_the_cells_of_boards(stages: Any) -> None:
  def shape(stride: int) -> tuple[int, ...]:
    function = hk.transform(lambda x: stages(x, (4, 5, 5, 4), stride))
    board = jnp.zeros((2, 10, 10, 16))
    init = lambda: function.init(jax.random.key(0), board)
    apply = lambda params: function.apply(params, None, board)
    return jax.eval_shape(apply, jax.eval_shape(init)).shape

  assert shape(1) == (2, 10, 10, 4)
  assert shape(2) == (2, 1, 1, 4)


@pytest.mark.parametrize('kind', PLAIN)
@pytest.mark.parametrize('height, width, channels', [(9, 7, 3), (6, 5, 2)])
def test_torsos_are_plain_haiku(
  kind: str, height: int, width: int, channels: int
) -> None:
  """Outputs, and gradients for all parameters of an uneven loss."""
  with jax.enable_x64(True):
    ours, plain = run_both(kind, observe(height, width, channels))
  embedding, gradient = ours
  expected, expected_gradient = plain
  assert embedding.dtype == expected.dtype == np.float64
  np.testing.assert_allclose(embedding, expected, rtol=1e-9, atol=1e-12)
  assert gradient.keys() == expected_gradient.keys()
  for name, layer in expected_gradient.items():
    for key, values in layer.items():
      assert np.abs(values).max() > 1e-4, f'{name}/{key} is not looked at'
      np.testing.assert_allclose(
        gradient[name][key],
        values,
        rtol=1e-9,
        atol=1e-12,
        err_msg=f'{name}/{key}',
      )


def run_both(kind: str, observation: Any) -> tuple[Any, Any]:
  """Embedding and gradient of our torso and of the plain one, in float64."""
  config = torsos.TorsoConfig(kind, CHANNELS, HIDDEN_SIZES)
  ours = small.torso(config, jnp.float64)
  plain = hk.without_apply_rng(hk.transform(lambda x: plain_torso(kind, x)))
  shapes = jax.eval_shape(ours.init, jax.random.key(0), observation)
  expected_shapes = jax.eval_shape(plain.init, jax.random.key(0), observation)
  assert by_layer(shapes) == dict(expected_shapes)

  # Numbers stay near one from layer to layer, and biases keep most ReLUs alive.
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: rng.normal(
      loc=0.3 * (x.ndim == 1),
      scale=(1 + np.prod(x.shape[:-1])) ** -0.5,
      size=x.shape,
    ),
    shapes,
  )
  weights = rng.normal(size=(ROWS, HIDDEN_SIZES[-1]))

  def run(transformed: Any, params: types.Params) -> Any:
    def loss(params: types.Params) -> Any:
      embedding = transformed.apply(params, observation)
      return jnp.sum(weights * jnp.sin(embedding)), embedding

    differentiate = jax.jit(jax.grad(loss, has_aux=True))
    gradient, embedding = jax.device_get(differentiate(params))
    return embedding, by_layer(gradient)

  return run(ours, params), run(plain, by_layer(params))


@pytest.mark.parametrize(
  ('shape', 'dtype', 'is_refused'),
  [
    ((4, 84, 84), np.uint8, True),
    ((3, 210, 160), np.uint8, True),
    ((4, 10, 10), np.bool_, True),
    ((1, 28, 28), np.float32, True),
    ((4, 84, 96), np.float32, True),
    ((84, 84), np.uint8, True),
    ((4, 84, 84, 3), np.uint8, True),
    ((84, 84, 4), np.uint8, False),
    ((64, 64, 3), np.float32, False),
    ((10, 10, 16), np.float32, False),
    ((9, 11, 21), np.float32, False),
    ((5, 6, 6), np.float32, False),
    ((13, 84), np.float32, False),
    ((84,), np.uint8, False),
  ],
)
def test_images_have_their_channels_last(
  shape: tuple[int, ...], dtype: Any, is_refused: bool
) -> None:
  torso = small.torso(torsos.TorsoConfig('impala', CHANNELS, HIDDEN_SIZES))
  observation = {'image': np.zeros((ROWS, *shape), dtype)}
  init = lambda: torso.init(jax.random.key(0), observation)
  if not is_refused:
    layers = by_layer(jax.eval_shape(init))
    assert layers['linear_1']['w'].shape == HIDDEN_SIZES
    return
  with pytest.raises(ValueError, match=r'\[height, width, channels\]'):
    jax.eval_shape(init)
