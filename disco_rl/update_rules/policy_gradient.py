"""REINFORCE with a value baseline and an entropy bonus (Williams, 1992)."""

import dataclasses

from disco_rl import types, value_targets
from disco_rl.update_rules import actor_critic, base


@dataclasses.dataclass(frozen=True)
class PolicyGradient(actor_critic.ActorCritic):
  """This is `ActorCritic` with the return itself in place of V-trace.

  - value target: the discounted return of what was seen, bootstrapped from the
    value where the rollout or a time limit cuts the episode off;
  - advantage: that return minus the value, weighted by min(1, pi(a) / mu(a)) so
    that replayed actions count as often as the policy would take them.
  """

  def targets(
    self,
    rule_params: types.Params,
    state: value_targets.ValueMoments,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[
    actor_critic.ActorCriticTargets, value_targets.ValueMoments, types.Logs
  ]:
    """Returns of the rollout; see `UpdateRule.targets`."""
