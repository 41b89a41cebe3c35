"""The interface of update rules."""

from collections.abc import Callable
from typing import Any
from typing import Protocol

from disco_rl import types

Unroll = Callable[[types.Params], types.Outputs]


class UpdateRule(Protocol):
  """Computes an agent's targets, and the loss that moves it towards them.

  A rule is a record of pure functions. Its state for an agent (lifetime
  moments, target network, recurrent state) is a tree that is passed in and out.
  To learn with a rule of your own, implement these five methods and pass an
  instance to `disco_rl.Trainer` or `disco_rl.Learner`; both check the shapes
  that the methods return.
  """

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Heads that the agent's network must have."""
    ...

  def init_params(self, key: types.Array) -> types.Params:
    """The rule's parameters (meta-parameters, eta in the paper).

    Random, or {} if it has none.
    """
    ...

  def init_state(self, agent_params: types.Params) -> Any:
    """State of the rule for an agent before its first update."""
    ...

  def targets(
    self,
    rule_params: types.Params,
    state: Any,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: Unroll,
  ) -> tuple[Any, Any, types.Logs]:
    """Computes the agent's targets.

    Args:
      rule_params: eta.
      state: the rule's state before this update.
      agent_params: theta before this update.
      rollout: T transitions of B trajectories.
      outputs: The outputs of the agent's network on the rollout, with heads of
        the actions for all actions; see `AgentNetwork.unroll`.
      unroll: parameters -> the same outputs for them, for target networks.

    Returns:
      targets, a tree of [T, B, ...] (constants for the agent's gradient, not
      for the meta-gradient); the rule's next state; and values [T, B] or [] to
      log, of which the learner logs the means over real transitions. Means that
      the state keeps are over these too, by `maths.masked.mean`.
    """
    ...

  def loss(
    self, taken: types.Outputs, targets: Any, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """The loss of each step; the learner averages it over real transitions.

    Args:
      taken: outputs of the agent's network: heads of the state [T+1, B, width],
        heads of the actions for the taken actions alone, [T, B, width].
      targets: as computed by `targets`.
      rollout: T transitions of B trajectories.

    Returns:
      loss [T, B], and values [T, B] or [] to log; the learner logs their means
      over real transitions.
    """
    ...
