"""Inputs of the meta-network: the 27 features of each time step of a rollout.

The published weights depend on the order of the features.
"""

import jax
import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.maths import value_targets


@types.record
class MetaInputs:
  """Inputs of a rule; T transitions of B trajectories.

  Attributes:
    rollout: actions, rewards, terminals and behaviour logits.
    outputs: of the agent's network: logits, y, z.
    target_outputs: the same of its target network.
    estimates: by Retrace.
  """

  rollout: types.Rollout
  outputs: types.Outputs
  target_outputs: types.Outputs
  estimates: value_targets.RetraceEstimates


@types.record
class EmbeddedPredictions:
  """Predictions, each embedded into one number by E_y or E_z.

  Attributes:
    y: [T+1, B].
    target_y: [T+1, B].
    z: [T+1, B, A].
    target_z: [T+1, B, A].
  """

  y: types.Array
  target_y: types.Array
  z: types.Array
  target_z: types.Array


@types.record
class FeatureInputs:
  """Inputs of all features, policies as probabilities.

  Attributes:
    inputs: the rollout, the agent's outputs, and Retrace estimates.
    policy: [T+1, B, A] pi, stop-gradient.
    behaviour: [T+1, B, A] mu.
    target_policy: [T+1, B, A], stop-gradient.
    embedded: predictions by their embeddings.
  """

  inputs: MetaInputs
  policy: types.Array
  behaviour: types.Array
  target_policy: types.Array
  embedded: EmbeddedPredictions


def prepare(inputs: MetaInputs, embedded: EmbeddedPredictions) -> FeatureInputs:
  """Turns logits into probabilities that carry no gradient."""
  probabilities = lambda logits: jax.lax.stop_gradient(jax.nn.softmax(logits))
  return FeatureInputs(
    inputs=inputs,
    policy=probabilities(inputs.outputs['logits']),
    behaviour=probabilities(inputs.rollout.logits),
    target_policy=probabilities(inputs.target_outputs['logits']),
    embedded=embedded,
  )


def _now(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 1], the value at t."""
  return x[:-1, :, None]


def _pair(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 2], the values at t and t+1."""
  return jnp.stack([x[:-1], x[1:]], axis=-1)


def step_features(features: FeatureInputs) -> types.Array:
  """Features 1 to 16, concatenated; the policy embedding supplies 17 and 18.

  Args:
    features: of T transitions of B trajectories.

  Returns:
    [T, B, 23].
  """
  estimates, rollout = features.inputs.estimates, features.inputs.rollout
  policy, embedded = features.policy, features.embedded
  compress = rlax.signed_logp1  # sign(x) log(1 + |x|).
  taken = lambda x: _now(value_targets.taken(x, rollout.action))
  expected = lambda x: _pair(jnp.sum(policy * x, axis=-1))
  largest = lambda x: _pair(jnp.max(x, axis=-1))
  columns = (
    taken(policy),
    taken(features.behaviour),
    compress(rollout.reward)[..., None],
    1.0 - rollout.is_terminal[..., None],
    _pair(compress(estimates.value)),
    compress(estimates.advantage)[..., None],
    estimates.normalized_advantage[..., None],
    taken(features.target_policy),
    _pair(embedded.y),
    _pair(embedded.target_y),
    taken(embedded.z),
    expected(embedded.z),
    largest(embedded.z),
    taken(embedded.target_z),
    expected(embedded.target_z),  # By the online policy.
    largest(embedded.target_z),
  )
  return jnp.concatenate(columns, axis=-1)


def action_channels(features: FeatureInputs) -> types.Array:
  """The 9 channels per action, inputs of the policy embedding.

  Args:
    features: of T transitions of B trajectories.

  Returns:
    [T, B, A, 9].
  """
  estimates = features.inputs.estimates
  action = features.inputs.rollout.action
  num_actions = features.policy.shape[-1]
  channels = (
    features.policy,
    features.behaviour,
    features.target_policy,
    features.embedded.z,
    features.embedded.target_z,
    rlax.signed_logp1(estimates.target_q_value),
    rlax.signed_logp1(estimates.qv_advantage),
    estimates.normalized_qv_advantage,
    jax.nn.one_hot(action, num_actions, dtype=features.policy.dtype),
  )
  return jnp.stack([channel[:-1] for channel in channels], axis=-1)
