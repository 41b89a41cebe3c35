"""Haiku's LSTM with its inputs' share of the gates computed in one product.

Parameters, names and numbers are those of `hk.LSTM`.
"""

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import linear


def gate_weights(
  hidden_size: int, input_size: int, dtype: jnp.dtype
) -> tuple[types.Array, types.Array, types.Array]:
  """Weights of the inputs [I, 4H], of the hidden state [H, 4H], bias [4H]."""
  w, b = linear.LinearWeights(4 * hidden_size)(input_size + hidden_size, dtype)
  return w[:input_size], w[input_size:], b


def apply_gates(gates: types.Array, cell: types.Array) -> hk.LSTMState:
  """One step of an LSTM from its pre-activations.

  Args:
    gates: [..., 4H] input, cell, forget and output gate, in Haiku's order.
    cell: [..., H], broadcast against the gates.

  Returns:
    Hidden and cell state, [..., H].
  """
  i, g, f, o = jnp.split(gates, 4, axis=-1)
  # The forget gate starts open (Jozefowicz et al., 2015).
  cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
  return hk.LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)


class BackwardLSTM(hk.Module):
  """An LSTM that runs from the end of a trajectory to its beginning."""

  def __init__(self, hidden_size: int, name: str = 'lstm'):
    super().__init__(name)
    self._hidden_size = hidden_size

  def __call__(self, inputs: types.Array, reset: types.Array) -> types.Array:
    """The output at t depends on the inputs at t, t+1, ... up to a reset.

    Args:
      inputs: [T, B, F].
      reset: [T, B] bool; the state is forgotten before time t is processed.

    Returns:
      [T, B, hidden_size].
    """
    w_input, w_hidden, b = gate_weights(
      self._hidden_size, inputs.shape[-1], inputs.dtype
    )
    keep = 1.0 - reset[..., None].astype(inputs.dtype)

    def step(
      state: hk.LSTMState, x: tuple[types.Array, types.Array]
    ) -> tuple[hk.LSTMState, types.Array]:
      gates, keep_t = x
      hidden, cell = keep_t * state.hidden, keep_t * state.cell
      state = apply_gates(gates + hidden @ w_hidden, cell)
      return state, state.hidden

    zeros = jnp.zeros((inputs.shape[1], self._hidden_size), inputs.dtype)
    _, hidden = jax.lax.scan(
      step,
      hk.LSTMState(hidden=zeros, cell=zeros),
      (inputs @ w_input + b, keep),
      reverse=True,
    )
    return hidden
