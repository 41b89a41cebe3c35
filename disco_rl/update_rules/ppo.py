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
from disco_rl.update_rules import base

_OF_IMAGES = cast(
  Mapping[str, object], actor_critic.ActorCritic.recommended['images']
)
# Eight epochs of eight batches. docs/experiments.md compares other rollouts.
_ROLLOUTS = {
  'unroll_length': 128,
  'batch_size': 2,
  'num_environments': 16,
  'updates_per_rollout': 64,
  'replay_capacity': 16,
}


@types.record
class PPOState:
  """What PPO keeps from update to update.

  Attributes:
    moments: The moments of the batches taken from the rollout so far.
    params: theta_old, the agent's parameters before the first update with the
      rollout; {} if each rollout has only one.
    updates: The number of updates so far, [].
  """

  moments: value_targets.ValueMoments
  params: types.Params
  updates: types.Array


@dataclasses.dataclass(frozen=True)
class PPO(actor_critic.ActorCritic):
  """Clipped policy gradient on advantages of the policy that acted.

  Advantages are estimated by GAE(lambda), with values of the parameters before
  the first update with a rollout, so that they are the same in all its epochs.
  They are normalized to mean 0 and standard deviation 1 by the moments of the
  rollout, as far as batches were taken from it. `ActorCritic` has the same
  categorical value and entropy bonus.
  Agents go through each rollout in eight epochs of eight batches, of whole
  trajectories. Policy and value have a torso each, except in tasks with images.

  Attributes:
    clip: epsilon; the ratio pi(a) / mu(a) of the current policy to the acting
      policy is clipped to [1 - epsilon, 1 + epsilon].
    moments_decay: least weight of the past in the moments, for which those of
      earlier rollouts count; 0: only the rollout's own.
    updates_per_rollout: K, updates with each rollout, for which values are
      those before the first. In training it is always that of the agent.
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
  moments_decay: config_lib.Decay = 0.0
  entropy_cost: config_lib.Finite = 0.01
  updates_per_rollout: config_lib.Count = 1

  def init_state(self, agent_params: types.Params) -> PPOState:
    """Returns the state before the first update with the first rollout."""
    return PPOState(
      moments=value_targets.init_moments(),
      params=agent_params if self.updates_per_rollout > 1 else {},
      updates=jnp.zeros((), jnp.int32),
    )

  def targets(
    self,
    rule_params: types.Params,
    state: PPOState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[actor_critic.ActorCriticTargets, PPOState, types.Logs]:
    """Computes value targets and advantages; see `UpdateRule.targets`."""
    del rule_params
    # The number of earlier updates with the same rollout.
    index = state.updates % self.updates_per_rollout
    params, v = {}, outputs['v']
    if self.updates_per_rollout > 1:
      params = jax.tree.map(
        lambda new, old: jnp.where(index == 0, new, old),
        agent_params,
        state.params,
      )
      v = unroll(params)['v']
    # All batches of the rollout weigh the same, and earlier ones nothing.
    past = index / (index + 1)
    # V-trace with ratios of 1, for the acting policy: GAE.
    targets, moments, logs = self._targets(
      state.moments,
      rollout,
      {'logits': rollout.logits, 'v': v},
      jnp.maximum(past, self.moments_decay),
    )
    state = PPOState(moments=moments, params=params, updates=state.updates + 1)
    return targets, state, logs

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
