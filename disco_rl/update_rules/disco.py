"""DiscoRL: a meta-network computes the targets (Oh et al., Nature 2025).

The agent's predictions y and z have no fixed semantics: discovery gives them
their meaning. q is an action value; aux_pi predicts the policy one step ahead.
"""

import dataclasses
import functools
import operator
from typing import Annotated

import haiku as hk
import jax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import categorical
from disco_rl.maths import value_targets
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.update_rules import base


@types.record
class DiscoState:
  """State of the rule for one agent.

  Attributes:
    meta_rnn: The state of the meta-RNN; None without it.
    target_params: theta_bar, the Polyak average of the agent's parameters.
    moments: The moments of advantages and TD errors.
  """

  meta_rnn: hk.LSTMState | None
  target_params: types.Params
  moments: value_targets.ValueMoments


@types.record
class DiscoTargets:
  """Targets: logits for the predictions, returns for q.

  Attributes:
    pi: [T, B, A].
    y: [T, B, Y]; None without y and z.
    z: [T, B, Y] for the taken action; None without them.
    q: [T, B] returns of scaled rewards; None without q.
    target_policy: [T, B, A] logits of the target network's policy, used only by
      the regularizer of pi in discovery.
  """

  pi: types.Array
  y: types.Array | None
  z: types.Array | None
  q: types.Array | None
  target_policy: types.Array


@dataclasses.dataclass(frozen=True)
class Disco(base.UpdateRule, config_lib.Settings):
  """DiscoRL's update rule; with its published weights, Disco103.

  Variants of the method (Fig. 3, Extended Data Fig. 3) lack some predictions:
  agents have no heads for them, and the meta-network has no such inputs and
  outputs.
  `network` determines whether there are y and z, and whether there is q.

  Attributes:
    network: sizes of the meta-network, and which predictions it reads.
    num_bins: bins of the categorical value.
    max_abs_value: largest bin: bins are evenly spaced on [-max_abs_value,
      max_abs_value], in the space of the signed hyperbolic transform.
    reward_scale: factor of all rewards; values and advantages are in these
      units. How far the policy moves depends on their size: with small rewards,
      Disco103's targets are close to the policy.
    discount: gamma, the discount of values.
    lambda_: lambda of Retrace and of V-trace.
    moments_decay: decay of the lifetime moments of TD errors and advantages.
    target_decay: weight of the old target network in its Polyak average.
    pi_cost: weight of KL(pi_hat, pi).
    y_cost: weight of KL(y_hat, y).
    z_cost: weight of KL(z_hat, z).
    aux_pi_cost: weight of KL(pi at t+1, aux_pi); 0: agents have no aux_pi.
    q_cost: weight of the categorical value loss of q.
  """

  network: meta_network.MetaNetworkConfig = meta_network.MetaNetworkConfig()
  # A value lies between two bins.
  num_bins: Annotated[int, config_lib.between(2, config_lib.LARGEST_WIDTH)] = (
    601
  )
  max_abs_value: config_lib.Positive = 300.0
  reward_scale: config_lib.Positive = 1.0
  discount: config_lib.Fraction = 0.997
  lambda_: config_lib.Fraction = 0.95
  moments_decay: config_lib.Decay = 0.99
  target_decay: config_lib.Fraction = 0.9
  pi_cost: config_lib.Finite = 1.0
  y_cost: config_lib.Finite = 1.0
  z_cost: config_lib.Finite = 1.0
  aux_pi_cost: config_lib.Finite = 1.0
  q_cost: config_lib.Finite = 0.2

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Requires a head y of the state; z, aux_pi and q of the actions."""
    size = self.network.prediction_size
    action = {
      'z': size,
      'aux_pi': num_actions if self.aux_pi_cost else 0,
      'q': self.num_bins if self.network.has_q else 0,
    }
    return types.OutputSpec(
      state={'y': size} if size else {},
      action={name: width for name, width in action.items() if width},
    )

  def init_params(self, key: types.Array) -> types.Params:
    """Makes the parameters of an untrained meta-network."""
    return meta_network.init(key, self.network)

  def init_state(self, agent_params: types.Params) -> DiscoState:
    """Makes the initial state, with the agent's network as target network."""
    return DiscoState(
      meta_rnn=meta_network.initial_state(self.network),
      target_params=agent_params,
      moments=value_targets.init_moments(),
    )

  def targets(
    self,
    rule_params: types.Params,
    state: DiscoState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[DiscoTargets, DiscoState, types.Logs]:
    """Runs the meta-network on the rollout; see `UpdateRule.targets`."""
    target_outputs = unroll(state.target_params)
    inputs, moments = self.inputs(
      state.moments, rollout, outputs, target_outputs
    )
    estimates = inputs.estimates
    network = meta_network.transform(self.network)
    meta_outputs, meta_rnn = network.apply(rule_params, inputs, state.meta_rnn)
    state = DiscoState(
      meta_rnn=meta_rnn,
      target_params=jax.tree.map(
        lambda old, new: (
          self.target_decay * old + (1.0 - self.target_decay) * new
        ),
        state.target_params,
        agent_params,
      ),
      moments=moments,
    )
    targets = DiscoTargets(
      pi=meta_outputs.pi,
      y=meta_outputs.y,
      z=meta_outputs.z,
      q=None if estimates is None else estimates.q_target,
      target_policy=target_outputs['logits'][:-1],
    )
    logs = {}
    if estimates is not None:
      logs = {
        'value': estimates.value[:-1],
        'q_td': estimates.q_td,
        'normalized_q_td': estimates.normalized_q_td,
        'advantage': estimates.advantage,
      }
    return targets, state, logs

  def inputs(
    self,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    outputs: types.Outputs,
    target_outputs: types.Outputs,
  ) -> tuple[meta_features.MetaInputs, value_targets.ValueMoments]:
    """Makes the inputs of the meta-network.

    Args:
      moments: The moments of advantages and TD errors before the update.
      rollout: The rollout, with the environment's rewards.
      outputs: The outputs of the agent's network.
      target_outputs: The outputs of its target network.

    Returns:
      The inputs, with scaled rewards, and the moments after the update.
    """
    rollout = dataclasses.replace(
      rollout, reward=self.reward_scale * rollout.reward
    )
    estimates, moments = self._estimate(
      moments, rollout, outputs, target_outputs
    )
    inputs = meta_features.MetaInputs(
      rollout=rollout,
      outputs=outputs,
      target_outputs=target_outputs,
      estimates=estimates,
    )
    return inputs, moments

  def loss(
    self, taken: types.Outputs, targets: DiscoTargets, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """Sums divergences from the targets; see `UpdateRule.loss`."""
    pi = taken['logits'][:-1]
    losses = {'pi': categorical.kl_divergence(targets.pi, pi)}
    if targets.y is not None and targets.z is not None:
      losses['y'] = categorical.kl_divergence(targets.y, taken['y'][:-1])
      losses['z'] = categorical.kl_divergence(targets.z, taken['z'])
    if self.aux_pi_cost:
      next_policy = jax.lax.stop_gradient(taken['logits'][1:])
      losses['aux_pi'] = categorical.kl_divergence(
        next_policy, taken['aux_pi']
      ) * (1.0 - rollout.is_terminal)
    if targets.q is not None:
      losses['q'] = value_targets.categorical_value_loss(
        taken['q'], targets.q, self.max_abs_value
      )
    costs = {
      'pi': self.pi_cost,
      'y': self.y_cost,
      'z': self.z_cost,
      'aux_pi': self.aux_pi_cost,
      'q': self.q_cost,
    }
    terms = (costs[name] * loss for name, loss in losses.items())
    logs = {
      **{f'{name}_loss': loss for name, loss in losses.items()},
      'policy_entropy': categorical.entropy(pi),
      'policy_target_entropy': categorical.entropy(targets.pi),
    }
    return functools.reduce(operator.add, terms), logs

  def _estimate(
    self,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    outputs: types.Outputs,
    target_outputs: types.Outputs,
  ) -> tuple[value_targets.RetraceEstimates | None, value_targets.ValueMoments]:
    """Estimates returns by Retrace, and updates moments; None without q."""
    if not self.network.has_q:
      return None, moments
    return value_targets.retrace(
      moments,
      rollout,
      outputs['logits'],
      outputs['q'],
      target_outputs['q'],
      discount=self.discount,
      lambda_=self.lambda_,
      max_abs_value=self.max_abs_value,
      moments_decay=self.moments_decay,
    )
