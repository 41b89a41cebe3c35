"""A backward transformer along the trajectory, which can replace the LSTM.

Each time step attends to itself and to later steps of its episode, like the
backward LSTM. There are no embeddings of positions: attention decreases with
the distance (ALiBi; Press et al., 2022), so any length is possible.
"""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types

# The units of a block's hidden layer divided by its width.
_EXPANSION = 4


class BackwardTransformer(hk.Module):
  """Blocks of attention and a dense layer, each after a layer norm."""

  def __init__(
    self, size: int, num_layers: int, num_heads: int, name: str = 'transformer'
  ):
    super().__init__(name)
    self._size = size
    self._num_layers = num_layers
    self._num_heads = num_heads

  def __call__(self, inputs: types.Array, is_end: types.Array) -> types.Array:
    """Processes all time steps at once.

    Args:
      inputs: [T, B, F].
      is_end: [T, B] bool; later steps belong to another episode.

    Returns:
      [T, B, size].
    """
    bias = attention_bias(is_end, self._num_heads).astype(inputs.dtype)
    x = hk.Linear(self._size, name='inputs')(inputs)
    for i in range(self._num_layers):
      attended = Attention(self._num_heads, name=f'attention_{i}')(
        _norm(f'attention_norm_{i}')(x), bias
      )
      x = x + attended
      dense = hk.nets.MLP(
        [_EXPANSION * self._size, self._size],
        activation=jax.nn.gelu,
        name=f'dense_{i}',
      )
      x = x + dense(_norm(f'dense_norm_{i}')(x))
    return _norm('norm')(x)


class Attention(hk.Module):
  """Self-attention along the first axis."""

  def __init__(self, num_heads: int, name: str):
    super().__init__(name)
    self._num_heads = num_heads

  def __call__(self, x: types.Array, bias: types.Array) -> types.Array:
    """Attends, [T, B, D], with a bias of the logits [B, H, T, T]."""
    size = x.shape[-1]
    shape = (size, 3, self._num_heads, size // self._num_heads)
    init = hk.initializers.TruncatedNormal(size**-0.5)
    w = hk.get_parameter('w', shape, x.dtype, init)
    queries, keys, values = jnp.einsum('tbd,dihk->itbhk', x, w)
    logits = jnp.einsum('tbhk,sbhk->bhts', queries, keys)
    weights = jax.nn.softmax(logits * shape[-1] ** -0.5 + bias)
    attended = jnp.einsum('bhts,sbhk->tbhk', weights, values)
    return hk.Linear(size, name='outputs')(attended.reshape(x.shape))


def attention_bias(is_end: types.Array, num_heads: int) -> types.Array:
  """Computes the bias of step t for step s: minus the slope times s - t.

  Args:
    is_end: [T, B] bool.
    num_heads: H; the slopes of heads are 2^(-8 / H), 2^(-16 / H), ..., 2^-8.

  Returns:
    [B, H, T, T], -inf if s is before t or in another episode.
  """
  time = np.arange(is_end.shape[0])
  distance = time[None, :] - time[:, None]
  ended = jnp.cumsum(is_end, axis=0) - is_end
  is_same_episode = ended.T[:, :, None] == ended.T[:, None, :]
  is_visible = is_same_episode & (distance >= 0)
  slopes = 2.0 ** (-8.0 * np.arange(1, num_heads + 1) / num_heads)
  bias = -slopes[:, None, None] * distance
  return jnp.where(is_visible[:, None], bias, -jnp.inf)


def _norm(name: str) -> hk.LayerNorm:
  return hk.LayerNorm(axis=-1, create_scale=True, create_offset=True, name=name)
