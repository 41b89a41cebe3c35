"""The contract of an update rule."""

from collections.abc import Callable
from typing import Any
from typing import Protocol

from disco_rl import types

Unroll = Callable[[types.Params], types.Outputs]


class UpdateRule(Protocol):
  """What an agent learns from: targets, and a loss that moves it there.

  A rule is a record of pure functions; an agent's share of it, which lives as
  long as the agent (lifetime moments, target network, recurrent state), is a
  tree that passes in and out. To learn with a rule of your own, implement these
  five methods.
  """

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Heads that the agent's network must have."""
    ...

  def init_params(self, key: types.Array) -> types.Params:
    """Parameters of the rule itself, eta: random, or {} if it has none."""
    ...

  def init_state(self, agent_params: types.Params) -> Any:
    """State of the rule at the beginning of an agent's life."""
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
    """Computes what the agent should move towards.

    Args:
      rule_params: eta.
      state: the rule's state before this update.
      agent_params: theta before this update.
      rollout: T transitions of B trajectories.
      outputs: of the agent's network on the rollout, heads of the actions for
        all actions; see `AgentNetwork.unroll`.
      unroll: the same outputs for other parameters, for target networks.

    Returns:
      targets (constants for the agent's gradient, not for the meta-gradient),
      the rule's next state, and scalars to log.
    """
    ...

  def loss(
    self, taken: types.Outputs, targets: Any, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """The loss at each step; the learner averages it over real transitions.

    Args:
      taken: outputs of the agent's network: heads of the state [T+1, B, width],
        heads of the actions for the taken actions alone, [T, B, width].
      targets: as computed by `targets`.
      rollout: T transitions of B trajectories.

    Returns:
      loss [T, B], and values [T, B] or [] to log; the learner logs their means.
    """
    ...
