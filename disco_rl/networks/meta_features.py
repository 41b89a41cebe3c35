"""Inputs of the meta-network: 27 numbers for each time step of a rollout.

`step_features` makes the first 23. The policy embedding of `meta_network`, made
from `action_channels`, supplies the other 4: its two channels' means over
actions, then those of the taken action. Published weights depend on this order.
Variants without q, or without y and z, lack the numbers made from them.
`features` in analysis/templates/rule.js repeats them in JavaScript.
"""

import jax
import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.maths import action_masks
from disco_rl.maths import value_targets


@types.record
class MetaInputs:
  """The inputs of a rule, for T transitions of B trajectories.

  Attributes:
    rollout: The rollout: actions, rewards, terminals and behavior logits.
    outputs: The outputs of the agent's network: logits, y, z.
    target_outputs: The same outputs of its target network.
    estimates: The Retrace estimates of values, returns and advantages; None
      without q.
  """

  rollout: types.Rollout
  outputs: types.Outputs
  target_outputs: types.Outputs
  estimates: value_targets.RetraceEstimates | None


@types.record
class EmbeddedPredictions:
  """Predictions, each embedded as one number by E_y or E_z.

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
  """The inputs of a rule, prepared for the features.

  Attributes:
    raw: The rollout, the agent's outputs, and Retrace estimates.
    policy: [T+1, B, A] probabilities pi, stop-gradient.
    behavior: [T+1, B, A] probabilities mu.
    target_policy: [T+1, B, A] probabilities of the target network,
      stop-gradient.
    embedded: The embedded predictions; None without y and z.
    legal: [T+1, B, A] bool; None if all actions are legal. Illegal actions are
      not part of means and maxima over actions.
  """

  raw: MetaInputs
  policy: types.Array
  behavior: types.Array
  target_policy: types.Array
  embedded: EmbeddedPredictions | None
  legal: types.Array | None


def prepare(
  inputs: MetaInputs, embedded: EmbeddedPredictions | None
) -> PreparedInputs:
  """Turns logits into probabilities that carry no gradient."""
  probabilities = lambda logits: jax.lax.stop_gradient(jax.nn.softmax(logits))
  return PreparedInputs(
    raw=inputs,
    policy=probabilities(inputs.outputs['logits']),
    behavior=probabilities(inputs.rollout.logits),
    target_policy=probabilities(inputs.target_outputs['logits']),
    embedded=embedded,
    legal=action_masks.find(inputs.rollout.observation),
  )


def _now(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 1], the value at t."""
  return x[:-1, :, None]


def _pair(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 2], the values at t and t+1."""
  return jnp.stack([x[:-1], x[1:]], axis=-1)


def step_features(inputs: PreparedInputs) -> types.Array:
  """Computes the first 23 of the 27 numbers of a step.

  To add one, add a column. Rules that were discovered before no longer load,
  unless the column depends on a new field of `MetaNetworkConfig` whose default
  leaves it out, as those of q depend on `has_q`: the file of a rule contains
  these fields (see `update_rules.weights`).

  Returns:
    [T, B, 23]; 19 without q, 9 without y and z, 5 without all three.
  """
  estimates, rollout = inputs.raw.estimates, inputs.raw.rollout
  policy, embedded = inputs.policy, inputs.embedded
  compress = rlax.signed_logp1  # sign(x) log(1 + |x|).
  taken = lambda x: _now(value_targets.taken(x, rollout.action))
  expected = lambda x: _pair(jnp.sum(policy * x, axis=-1))
  largest = lambda x: _pair(action_masks.maximum(x, inputs.legal))
  columns = [
    taken(policy),
    taken(inputs.behavior),
    compress(rollout.reward)[..., None],
    1.0 - rollout.is_terminal[..., None],
  ]
  if estimates is not None:
    columns += [
      _pair(compress(estimates.value)),
      compress(estimates.advantage)[..., None],
      estimates.normalized_advantage[..., None],
    ]
  columns.append(taken(inputs.target_policy))
  if embedded is not None:
    columns += [
      _pair(embedded.y),
      _pair(embedded.target_y),
      taken(embedded.z),
      expected(embedded.z),
      largest(embedded.z),
      taken(embedded.target_z),
      expected(embedded.target_z),  # Under the online policy.
      largest(embedded.target_z),
    ]
  return jnp.concatenate(columns, axis=-1)


def action_channels(inputs: PreparedInputs) -> types.Array:
  """Computes the channels per action, inputs of the policy embedding.

  Returns:
    [T, B, A, 9]; 6 channels without q, 7 without y and z, 4 without all three.
  """
  estimates, embedded = inputs.raw.estimates, inputs.embedded
  action = inputs.raw.rollout.action
  num_actions = inputs.policy.shape[-1]
  channels = [inputs.policy, inputs.behavior, inputs.target_policy]
  if embedded is not None:
    channels += [embedded.z, embedded.target_z]
  if estimates is not None:
    channels += [
      rlax.signed_logp1(estimates.target_q_value),
      rlax.signed_logp1(estimates.qv_advantage),
      estimates.normalized_qv_advantage,
    ]
  channels.append(
    jax.nn.one_hot(action, num_actions, dtype=inputs.policy.dtype)
  )
  return jnp.stack([channel[:-1] for channel in channels], axis=-1)


def legal_actions(inputs: PreparedInputs) -> types.Array | None:
  """Returns the legal actions of the steps, [T, B, A] bool; None for all."""
  return None if inputs.legal is None else inputs.legal[:-1]


def zeros(prediction_size: int, has_q: bool) -> MetaInputs:
  """Makes the smallest inputs with which a rule's network can be built.

  Args:
    prediction_size: Y; 0: without y and z.
    has_q: Whether agents predict action values.
  """
  time, batch, num_actions = 1, 1, 2
  spec = types.EnvironmentSpec((), num_actions)
  zeros = lambda *shape: jnp.zeros((time + 1, batch, *shape))
  step = jnp.zeros((time, batch))
  outputs = {'logits': zeros(num_actions)}
  if prediction_size:
    outputs['y'] = zeros(prediction_size)
    outputs['z'] = zeros(num_actions, prediction_size)
  estimates = value_targets.RetraceEstimates(
    value=zeros(),
    q_value=zeros(num_actions),
    target_q_value=zeros(num_actions),
    q_target=step,
    q_td=step,
    normalized_q_td=step,
    advantage=step,
    normalized_advantage=step,
    qv_advantage=zeros(num_actions),
    normalized_qv_advantage=zeros(num_actions),
  )
  return MetaInputs(
    rollout=types.empty_rollout(spec, (), time, batch),
    outputs=outputs,
    target_outputs=outputs,
    estimates=estimates if has_q else None,
  )
