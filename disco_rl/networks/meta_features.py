"""Inputs of the meta-network: 27 numbers for each time step of a rollout.

`step_features` makes the first 23. The policy embedding of `meta_network`, made
from `action_channels`, supplies the other 4: its two channels' means over
actions, then those of the taken action. Published weights depend on this order.
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
    outputs: outputs of the agent's network: logits, y, z.
    target_outputs: the same of its target network.
    estimates: values, returns and advantages by Retrace.
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
class PreparedInputs:
  """Inputs of a rule as the features read them.

  Attributes:
    raw: the rollout, the agent's outputs, and Retrace estimates.
    policy: [T+1, B, A] probabilities pi, stop-gradient.
    behaviour: [T+1, B, A] probabilities mu.
    target_policy: [T+1, B, A] probabilities of the target network,
      stop-gradient.
    embedded: the predictions, by their embeddings.
  """

  raw: MetaInputs
  policy: types.Array
  behaviour: types.Array
  target_policy: types.Array
  embedded: EmbeddedPredictions


def prepare(
  inputs: MetaInputs, embedded: EmbeddedPredictions
) -> PreparedInputs:
  """Turns logits into probabilities that carry no gradient."""
  probabilities = lambda logits: jax.lax.stop_gradient(jax.nn.softmax(logits))
  return PreparedInputs(
    raw=inputs,
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


def step_features(inputs: PreparedInputs) -> types.Array:
  """The first 23 of the 27 numbers of a step.

  To add one, add a column. Weights that were discovered before no longer load.

  Args:
    inputs: T transitions of B trajectories.

  Returns:
    [T, B, 23].
  """
  estimates, rollout = inputs.raw.estimates, inputs.raw.rollout
  policy, embedded = inputs.policy, inputs.embedded
  compress = rlax.signed_logp1  # sign(x) log(1 + |x|).
  taken = lambda x: _now(value_targets.taken(x, rollout.action))
  expected = lambda x: _pair(jnp.sum(policy * x, axis=-1))
  largest = lambda x: _pair(jnp.max(x, axis=-1))
  columns = (
    taken(policy),
    taken(inputs.behaviour),
    compress(rollout.reward)[..., None],
    1.0 - rollout.is_terminal[..., None],
    _pair(compress(estimates.value)),
    compress(estimates.advantage)[..., None],
    estimates.normalized_advantage[..., None],
    taken(inputs.target_policy),
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


def action_channels(inputs: PreparedInputs) -> types.Array:
  """The 9 channels per action, inputs of the policy embedding.

  Args:
    inputs: T transitions of B trajectories.

  Returns:
    [T, B, A, 9].
  """
  estimates = inputs.raw.estimates
  action = inputs.raw.rollout.action
  num_actions = inputs.policy.shape[-1]
  channels = (
    inputs.policy,
    inputs.behaviour,
    inputs.target_policy,
    inputs.embedded.z,
    inputs.embedded.target_z,
    rlax.signed_logp1(estimates.target_q_value),
    rlax.signed_logp1(estimates.qv_advantage),
    estimates.normalized_qv_advantage,
    jax.nn.one_hot(action, num_actions, dtype=inputs.policy.dtype),
  )
  return jnp.stack([channel[:-1] for channel in channels], axis=-1)
