"""Actor-critic with V-trace (Espeholt et al., 2018), hand-designed."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated
from typing import ClassVar

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.update_rules import base


@types.record
class ActorCriticTargets:
  """Targets of actor-critic.

  Attributes:
    value: The values, [T, B], in units of the return.
    advantage: The weights of the actions' log-probabilities, [T, B].
  """

  value: types.Array
  advantage: types.Array


@dataclasses.dataclass(frozen=True)
class ActorCritic(base.UpdateRule, config_lib.Settings):
  """Policy gradient with V-trace, a categorical value and an entropy bonus.

  Attributes:
    num_bins: bins of the categorical value.
    max_abs_value: largest bin: bins are evenly spaced on [-max_abs_value,
      max_abs_value], in the space of the signed hyperbolic transform.
    discount: gamma, the discount of values.
    lambda_: lambda of V-trace.
    moments_decay: decay of the lifetime moments of TD errors and advantages.
    normalize_advantage: whether advantages are normalized by their lifetime
      moments.
    policy_cost: weight of the policy gradient.
    value_cost: weight of the value loss.
    entropy_cost: weight of the entropy bonus.
  """

  # Part of its card. docs/baselines.md has what settings are worth.
  # On Catch 8x8, with an entropy cost of 0.01 and a torso for the value, agents
  # have 0.9 after 64,000 steps, and 0.98 after 128,000; with half the learning
  # rate 0.06 and 0.92, with twice of it, a cost of 0.05 and one torso 0.5 and
  # 0.97. On CartPole half the learning rate is steadier: five agents have 274
  # after 100,000 steps, and 485 if greedy, instead of 240 and 250.
  # With bins up to 300, one of three agents did not learn Catch 6x5 in 300
  # updates; with 101 or 601 bins up to 20, ten of ten did. Rewards of games may
  # be larger: bins up to 60 stand for values up to 3,325.
  recommended: ClassVar[Mapping[str, object]] = {
    'learning_rate': 1e-3,
    'separate_torsos': True,
    'unroll_length': 16,
    'batch_size': 8,
    'num_environments': 8,
    'replay_capacity': 8,
    'activation': 'tanh',
    'max_gradient_norm': 0.5,
    'discount': 0.99,
    'normalize_advantage': True,
    'entropy_cost': 0.01,
    'num_bins': 101,
    'max_abs_value': 20.0,
    'images': {
      'separate_torsos': False,
      'activation': 'relu',
      'entropy_cost': 0.05,
      'num_bins': 301,
      'max_abs_value': 60.0,
    },
  }
  # A value lies between two bins.
  num_bins: Annotated[int, config_lib.between(2, config_lib.LARGEST_WIDTH)] = (
    601
  )
  max_abs_value: config_lib.Positive = 300.0
  discount: config_lib.Fraction = 0.997
  lambda_: config_lib.Fraction = 0.95
  moments_decay: config_lib.Decay = 0.99
  normalize_advantage: bool = False
  policy_cost: config_lib.Finite = 1.0
  value_cost: config_lib.Finite = 0.5
  # The best of 0.01, 0.05 and 0.2 on Catch 8x8 (0.91 after 300 updates, against
  # -0.19 and 0.60); in a grid world 0.01 is better. The published code has 0.2.
  entropy_cost: config_lib.Finite = 0.05

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Requires one head, the categorical value v; no action model."""
    del num_actions
    return types.OutputSpec(state={'v': self.num_bins}, action={})

  def init_params(self, key: types.Array) -> types.Params:
    """Returns {}: hand-designed rules have no parameters."""
    del key
    return {}

  def init_state(self, agent_params: types.Params) -> types.PyTree:
    """Returns the initial lifetime moments."""
    del agent_params
    return value_targets.init_moments()

  def estimate(
    self,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    policy_logits: types.Array,
    value: types.Array,
    moments_decay: float | types.Array,
  ) -> tuple[value_targets.ValueEstimates, value_targets.ValueMoments]:
    """Estimates values and advantages by V-trace."""
    return value_targets.vtrace(
      moments,
      rollout,
      policy_logits,
      value,
      discount=self.discount,
      lambda_=self.lambda_,
      moments_decay=moments_decay,
    )

  def targets(
    self,
    rule_params: types.Params,
    state: types.PyTree,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[ActorCriticTargets, types.PyTree, types.Logs]:
    """Computes value targets and advantages; see `UpdateRule.targets`."""
    del rule_params, agent_params, unroll
    return self._targets(state, rollout, outputs, self.moments_decay)

  def _targets(
    self,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    outputs: types.Outputs,
    moments_decay: float | types.Array,
  ) -> tuple[ActorCriticTargets, value_targets.ValueMoments, types.Logs]:
    """Estimates, for the policy and the values of outputs [T+1, B, ...]."""
    estimates, moments = self.estimate(
      moments,
      rollout,
      outputs['logits'],
      value_targets.values_from_logits(outputs['v'], self.max_abs_value),
      moments_decay,
    )
    targets = ActorCriticTargets(
      value=estimates.value_target,
      advantage=(
        estimates.normalized_advantage
        if self.normalize_advantage
        else estimates.advantage
      ),
    )
    logs = {
      'value': estimates.value[:-1],
      'td': estimates.td,
      'normalized_td': estimates.normalized_td,
      'advantage': estimates.advantage,
    }
    return targets, moments, logs

  def policy_loss(
    self,
    log_taken: types.Array,
    advantage: types.Array,
    rollout: types.Rollout,
  ) -> types.Array:
    """Computes minus the weighted log-probabilities of actions, [T, B]."""
    del rollout
    return -log_taken * advantage

  def loss(
    self,
    taken: types.Outputs,
    targets: ActorCriticTargets,
    rollout: types.Rollout,
  ) -> tuple[types.Array, types.Logs]:
    """Sums the policy, value and entropy terms; see `UpdateRule.loss`."""
    logits, v = taken['logits'][:-1], taken['v'][:-1]
    log_policy = jax.nn.log_softmax(logits)
    log_taken = value_targets.taken(log_policy, rollout.action[:-1])
    entropy = -jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1)
    advantage = jax.lax.stop_gradient(targets.advantage)
    policy_loss = self.policy_loss(log_taken, advantage, rollout)
    value_loss = value_targets.categorical_value_loss(
      v, targets.value, self.max_abs_value
    )
    loss = (
      self.policy_cost * policy_loss
      + self.value_cost * value_loss
      - self.entropy_cost * entropy
    )
    logs = {
      'policy_loss': policy_loss,
      'value_loss': value_loss,
      'policy_entropy': entropy,
    }
    return loss, logs
