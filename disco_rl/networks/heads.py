"""The heads that a rule requires, for the user's own networks."""

import haiku as hk
import jax

from disco_rl import types
from disco_rl.networks import action_model
from disco_rl.networks import agent_network


class Heads(hk.Module):
  """The policy and a rule's heads, on embeddings of whole trajectories.

  They are the heads of `AgentNetwork`, for embeddings by any network, such as a
  transformer over time. Call the module inside a Haiku transformation.
  """

  def __init__(
    self,
    num_actions: int,
    output_spec: types.OutputSpec,
    action_model_lstm: int = 128,
    action_model_head: int = 128,
    name: str = 'heads',
  ):
    """Makes the heads.

    Args:
      num_actions: A.
      output_spec: The output spec of the rule, `rule.output_spec(num_actions)`.
      action_model_lstm: The size of the LSTM of the action model.
      action_model_head: The width of the hidden layer of each of its heads.
      name: The name of the module.
    """
    super().__init__(name)
    init = hk.initializers.TruncatedNormal(agent_network.HEAD_INIT_STD)
    widths = {'logits': num_actions, **output_spec.state}
    self._state_heads = {
      head: hk.Linear(width, w_init=init, name=head)
      for head, width in widths.items()
    }
    self._action_model = None
    if output_spec.action:
      self._action_model = action_model.ActionModel(
        num_actions, output_spec.action, action_model_lstm, action_model_head
      )

  def policy(self, embedding: types.Array) -> types.Array:
    """Computes logits of the policy, [..., D] -> [..., A], for acting."""
    return self._state_heads['logits'](embedding)

  def __call__(
    self, embedding: types.Array, action: types.Array
  ) -> tuple[types.Outputs, types.Outputs]:
    """Computes all outputs, and those of the taken actions.

    Args:
      embedding: The embeddings, [T+1, B, D].
      action: The actions of a rollout, [T+1, B] int32.

    Returns:
      The outputs, in the format of `AgentNetwork.unroll`.
    """
    batch_size = action.shape[1]
    # The action model expects rows.
    rows = embedding.reshape(-1, embedding.shape[-1])
    outputs = {head: f(rows) for head, f in self._state_heads.items()}
    every, taken = outputs, outputs
    if self._action_model is not None:
      for_all, for_taken = self._action_model(rows, action[:-1].reshape(-1))
      every, taken = {**outputs, **for_all}, {**outputs, **for_taken}
    return jax.tree.map(
      lambda x: x.reshape(-1, batch_size, *x.shape[1:]), (every, taken)
    )
