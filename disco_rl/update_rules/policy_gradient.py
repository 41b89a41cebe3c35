"""REINFORCE with a value baseline and an entropy bonus (Williams, 1992)."""

import dataclasses

from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.update_rules import actor_critic


@dataclasses.dataclass(frozen=True)
class PolicyGradient(actor_critic.ActorCritic):
  """Actor-critic with observed returns instead of V-trace.

  Advantages are weighted by the clipped importance ratio min(1, pi(a) / mu(a)).
  `lambda_` is not used.
  """

  def estimate(
    self,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    policy_logits: types.Array,
    value: types.Array,
    moments_decay: float | types.Array,
  ) -> tuple[value_targets.ValueEstimates, value_targets.ValueMoments]:
    """Estimates values and advantages by Monte Carlo returns."""
    return value_targets.monte_carlo(
      moments,
      rollout,
      policy_logits,
      value,
      discount=self.discount,
      moments_decay=moments_decay,
    )
