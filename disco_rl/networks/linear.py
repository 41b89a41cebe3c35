"""The parameters of a linear layer, for products that several layers share."""

import haiku as hk
import jax.numpy as jnp

from disco_rl import types


class LinearWeights(hk.Module):
  """Parameters of an `hk.Linear`: the same names, shapes and initialisation."""

  def __init__(self, output_size: int, name: str = 'linear'):
    super().__init__(name)
    self.output_size = output_size

  def __call__(
    self, input_size: int, dtype: jnp.dtype
  ) -> tuple[types.Array, types.Array]:
    """Returns w [input_size, output_size] and b [output_size]."""
    init = hk.initializers.TruncatedNormal(input_size**-0.5)
    w = hk.get_parameter('w', (input_size, self.output_size), dtype, init)
    b = hk.get_parameter('b', (self.output_size,), dtype, jnp.zeros)
    return w, b
