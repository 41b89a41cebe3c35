"""The action model: one step of an LSTM per action, and heads on its output.

In the style of MuZero (Schrittwieser et al., 2020) and Muesli (Hessel et al.,
2021), but for a single step: all actions are evaluated from the same state.
"""

from collections.abc import Mapping

import haiku as hk
import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.networks import lstm


class ActionLSTM(hk.Module):
  """An LSTM step from one state with each one-hot action as its input."""

  def __init__(self, hidden_size: int, name: str = 'lstm'):
    super().__init__(name)
    self._hidden_size = hidden_size

  def __call__(
    self, cell: types.Array, num_actions: int, action: types.Array
  ) -> tuple[types.Array, types.Array]:
    """Steps with all actions, and with the taken ones.

    Args:
      cell: The state, [N, H]; its hidden half is tanh(cell).
      num_actions: A.
      action: The actions taken in the first M states, [M] int32.

    Returns:
      Outputs for all actions [N, A, H], and for the taken ones [M, H].
    """
    w_action, w_hidden, b = lstm.gate_weights(
      self._hidden_size, num_actions, cell.dtype
    )
    # A one-hot input selects a row; all actions share the term of the state.
    gates = jnp.tanh(cell) @ w_hidden + b
    one_hot = jax.nn.one_hot(action, num_actions, dtype=cell.dtype)
    every = lstm.apply_gates(gates[..., None, :] + w_action, cell[..., None, :])
    taken = lstm.apply_gates(
      gates[: len(action)] + one_hot @ w_action, cell[: len(action)]
    )
    return every.hidden, taken.hidden


class ActionModel(hk.Module):
  """Action-conditional heads, each an MLP with one hidden layer."""

  def __init__(
    self,
    num_actions: int,
    heads: Mapping[str, int],
    lstm_size: int,
    head_hidden_size: int,
    name: str = 'action_model',
  ):
    super().__init__(name)
    self._num_actions = num_actions
    self._heads = heads
    self._lstm_size = lstm_size
    self._head_hidden_size = head_hidden_size

  def __call__(
    self, embedding: types.Array, action: types.Array
  ) -> tuple[types.Outputs, types.Outputs]:
    """Predicts for all actions, and for the taken ones.

    Predictions for taken actions are computed separately, not selected: a loss
    that reads only them has a backward pass A times smaller.

    Args:
      embedding: The embeddings of states, [N, D].
      action: The actions taken in the first M states, [M] int32.

    Returns:
      By head, [N, A, width] for all actions, and [M, width] for taken actions.
    """
    cell = hk.Linear(self._lstm_size, name='root')(embedding)
    every, taken = ActionLSTM(self._lstm_size)(cell, self._num_actions, action)
    heads = {
      name: hk.nets.MLP([self._head_hidden_size, width], name=name)
      for name, width in self._heads.items()
    }
    return (
      {name: head(every) for name, head in heads.items()},
      {name: head(taken) for name, head in heads.items()},
    )
