"""Haiku's LSTM, with one product for the inputs of all time steps.

Parameters, names and results are those of `hk.LSTM`.
"""

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import linear


def gate_weights(
  hidden_size: int, input_size: int, dtype: jnp.dtype
) -> tuple[types.Array, types.Array, types.Array]:
  """Returns weights of inputs [I, 4H] and hidden state [H, 4H], bias [4H]."""
  w, b = linear.LinearWeights(4 * hidden_size)(input_size + hidden_size, dtype)
  return w[:input_size], w[input_size:], b


def apply_gates(gates: types.Array, cell: types.Array) -> hk.LSTMState:
  """Computes one step of an LSTM from its pre-activations.

  Args:
    gates: [..., 4H] input, cell, forget and output gate, in Haiku's order.
    cell: [..., H], broadcast against the gates.

  Returns:
    The hidden and cell state, [..., H].
  """
  i, g, f, o = jnp.split(gates, 4, axis=-1)
  # The forget gate starts open (Jozefowicz et al., 2015).
  cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
  return hk.LSTMState(hidden=jax.nn.sigmoid(o) * jnp.tanh(cell), cell=cell)


def zero_state(batch_size: int, hidden_size: int) -> hk.LSTMState:
  """Makes the initial state, [B, hidden_size]."""
  zeros = jnp.zeros((batch_size, hidden_size))
  return hk.LSTMState(hidden=zeros, cell=zeros)


class SequenceLSTM(hk.Module):
  """An LSTM over a trajectory, from its beginning or from its end."""

  def __init__(
    self, hidden_size: int, reverse: bool = False, name: str = 'lstm'
  ):
    super().__init__(name)
    self._hidden_size = hidden_size
    self._reverse = reverse

  def __call__(
    self,
    inputs: types.Array,
    reset: types.Array,
    state: hk.LSTMState | None = None,
  ) -> tuple[types.Array, hk.LSTMState]:
    """Processes time steps one by one.

    Args:
      inputs: [T, B, F].
      reset: [T, B] bool; if True, the state is zeroed before time t.
      state: The state before the first step; None: `zero_state`.

    Returns:
      The outputs [T, B, hidden_size], and the final state.
    """
    w_input, w_hidden, b = gate_weights(
      self._hidden_size, inputs.shape[-1], inputs.dtype
    )
    keep = 1 - reset[..., None].astype(inputs.dtype)

    # The extra axis keeps XLA from updating the cell in place: on CPUs, loops
    # that write where they read are not vectorized.
    def step(
      carry: tuple[types.Array, types.Array], x: tuple[types.Array, types.Array]
    ) -> tuple[tuple[types.Array, types.Array], types.Array]:
      gates, keep_t = x
      hidden, cell = carry
      state = apply_gates(
        gates + (keep_t * hidden) @ w_hidden, keep_t * cell[0]
      )
      return (state.hidden, state.cell[None]), state.hidden

    first = state or zero_state(inputs.shape[1], self._hidden_size)
    first_hidden, first_cell = (x.astype(inputs.dtype) for x in first)
    (last_hidden, last_cell), hidden = jax.lax.scan(
      step,
      (first_hidden, first_cell[None]),
      (inputs @ w_input + b, keep),
      reverse=self._reverse,
    )
    last = hk.LSTMState(hidden=last_hidden, cell=last_cell[0])
    return hidden, last
