"""The interface of update rules."""

from collections.abc import Callable
from typing import Protocol

from disco_rl import types

Unroll = Callable[[types.Params], types.Outputs]


class UpdateRule(Protocol):
  """Computes an agent's targets, and the loss that moves it towards them.

  A rule is a record of pure functions. Its state for an agent (lifetime
  moments, target network, recurrent state) is a tree that is passed in and out.
  To learn with your own rule, implement these five methods and pass an
  instance to `disco_rl.Trainer` or `disco_rl.Learner`; both check the shapes
  that the methods return.
  """

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Returns the heads that the agent's network must have."""
    ...

  def init_params(self, key: types.Array) -> types.Params:
    """Makes the rule's parameters (meta-parameters, eta in the paper).

    They are random, or {} if the rule has none.
    """
    ...

  def init_state(self, agent_params: types.Params) -> types.PyTree:
    """Makes the rule's state for an agent before its first update."""
    ...

  def targets(
    self,
    rule_params: types.Params,
    state: types.PyTree,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: Unroll,
  ) -> tuple[types.PyTree, types.PyTree, types.Logs]:
    """Computes the agent's targets.

    Args:
      rule_params: eta.
      state: The rule's state before this update.
      agent_params: The parameters theta before this update.
      rollout: T transitions of B trajectories.
      outputs: The outputs of the agent's network on the rollout, for all
        actions; see `AgentNetwork.unroll`.
      unroll: A function from other parameters, such as those of a target
        network, to the same outputs.

    Returns:
      The targets, a tree of [T, B, ...] (constants for the agent's gradient,
      but not for the meta-gradient); the rule's next state; and values [T, B]
      or [] to log, whose means over real transitions are logged. Means in
      the rule's state should also use `maths.masked.mean`.
    """
    ...

  def loss(
    self, taken: types.Outputs, targets: types.PyTree, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """Computes the loss of each step, to be averaged over real transitions.

    Args:
      taken: The outputs of the agent's network: heads of the state, [T+1, B,
        width], and heads of the actions only for taken actions, [T, B, width].
      targets: The targets that `targets` returned.
      rollout: T transitions of B trajectories.

    Returns:
      The loss [T, B], and values [T, B] or [] to log, whose means over real
      transitions are logged.
    """
    ...
