"""Parameters of linear layers, for products that several layers share."""

from collections.abc import Sequence
import itertools

import haiku as hk
import jax.numpy as jnp

from disco_rl import types


class LinearWeights(hk.Module):
  """Parameters of an `hk.Linear`: the same names, shapes and initialization."""

  def __init__(
    self,
    output_size: int,
    w_init: hk.initializers.Initializer | None = None,
    name: str = 'linear',
  ):
    super().__init__(name)
    self.output_size = output_size
    self._w_init = w_init

  def __call__(
    self, input_size: int, dtype: jnp.dtype
  ) -> tuple[types.Array, types.Array]:
    """Returns w [input_size, output_size] and b [output_size]."""
    init = self._w_init or hk.initializers.TruncatedNormal(input_size**-0.5)
    w = hk.get_parameter('w', (input_size, self.output_size), dtype, init)
    b = hk.get_parameter('b', (self.output_size,), dtype, jnp.zeros)
    return w, b


def concatenate(
  layers: Sequence[LinearWeights], input_size: int, dtype: jnp.dtype
) -> tuple[types.Array, types.Array]:
  """Returns w and b of all layers, concatenated along the outputs."""
  weights, biases = zip(*(layer(input_size, dtype) for layer in layers))
  return jnp.concatenate(weights, axis=-1), jnp.concatenate(biases)


def split(layers: Sequence[LinearWeights], x: types.Array) -> list[types.Array]:
  """Splits the joint output, [..., sum of sizes], by layer."""
  ends = itertools.accumulate(layer.output_size for layer in layers[:-1])
  return jnp.split(x, [*ends], axis=-1)
