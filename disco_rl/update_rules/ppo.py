"""Proximal policy optimization (Schulman et al., 2017), hand-designed."""

from collections.abc import Mapping
import dataclasses
from typing import ClassVar
from typing import cast

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.update_rules import actor_critic

_OF_IMAGES = cast(
  Mapping[str, object], actor_critic.ActorCritic.recommended['images']
)
# Eight epochs of four batches.
_ROLLOUTS = {
  'unroll_length': 64,
  'batch_size': 4,
  'num_environments': 16,
  'updates_per_rollout': 32,
  'replay_capacity': 16,
}


@dataclasses.dataclass(frozen=True)
class PPO(actor_critic.ActorCritic):
  """Clipped policy gradient on advantages of the policy that acted.

  Advantages are estimated by GAE(lambda), and normalized to mean 0 and standard
  deviation 1 in each batch. `ActorCritic` has the same categorical value and
  entropy bonus.
  Agents go through each rollout in eight epochs of four batches, of whole
  trajectories; advantages are estimated anew in each. Policy and value have a
  torso each, except in tasks with images.

  Attributes:
    clip: epsilon; the ratio pi(a) / mu(a) of the current policy to the acting
      policy is clipped to [1 - epsilon, 1 + epsilon].
  """

  recommended: ClassVar[Mapping[str, object]] = {
    **actor_critic.ActorCritic.recommended,
    **_ROLLOUTS,
    'images': {**_OF_IMAGES, 'entropy_cost': 0.01},
    # It also learns from new rollouts alone with the paper's networks.
    'paper': {**_ROLLOUTS, 'on_policy_share': 1.0},
  }
  clip: config_lib.Positive = 0.2
  normalize_advantage: bool = True
  moments_decay: config_lib.Decay = 0.0  # Moments of each batch.
  entropy_cost: config_lib.Finite = 0.01

  def estimate(
    self,
    state: value_targets.ValueMoments,
    rollout: types.Rollout,
    policy_logits: types.Array,
    value: types.Array,
  ) -> tuple[value_targets.ValueEstimates, value_targets.ValueMoments]:
    """Estimates by GAE: V-trace with ratios of 1, for the acting policy."""
    del policy_logits
    return super().estimate(state, rollout, rollout.logits, value)

  def policy_loss(
    self,
    log_taken: types.Array,
    advantage: types.Array,
    rollout: types.Rollout,
  ) -> types.Array:
    """Computes minus the clipped surrogate objective, equation 7, [T, B]."""
    log_acting = value_targets.taken(
      jax.nn.log_softmax(rollout.logits[:-1]), rollout.action[:-1]
    )
    ratio = jnp.exp(log_taken - log_acting)
    clipped = jnp.clip(ratio, 1.0 - self.clip, 1.0 + self.clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage)
