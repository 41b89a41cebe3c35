"""What the meta-network sees of a rollout: the 27 features of each time step.

Every feature is a named function of a `FeatureInputs`; the tables at the end
fix their order, which the published weights depend on.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import rlax

from disco_rl import types
from disco_rl.maths import value_targets


@types.record
class MetaInputs:
  """What a rule looks at; T transitions of B trajectories.

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
  """Everything that features are made of, policies as probabilities.

  Attributes:
    inputs: the rollout and what is estimated from it.
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


def sign_log(x: types.Array) -> types.Array:
  """sign(x) log(1 + |x|)."""
  return rlax.signed_logp1(x)


def _now(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 1], the value at t."""
  return x[:-1, :, None]


def _pair(x: types.Array) -> types.Array:
  """[T+1, B] -> [T, B, 2], the values at t and t+1."""
  return jnp.stack([x[:-1], x[1:]], axis=-1)


def _taken(x: types.Array, features: FeatureInputs) -> types.Array:
  """[T+1, B, A] -> [T, B, 1], the value of the taken action at t."""
  return _now(value_targets.taken(x, features.inputs.rollout.action))


def taken_policy(features: FeatureInputs) -> types.Array:
  """pi(a)."""
  return _taken(features.policy, features)


def taken_behaviour(features: FeatureInputs) -> types.Array:
  """mu(a)."""
  return _taken(features.behaviour, features)


def reward(features: FeatureInputs) -> types.Array:
  """Reward, compressed."""
  return sign_log(features.inputs.rollout.reward)[..., None]


def continuation(features: FeatureInputs) -> types.Array:
  """1 where the episode goes on, 0 where it ends."""
  return 1.0 - features.inputs.rollout.is_terminal[..., None]


def value(features: FeatureInputs) -> types.Array:
  """V of the online network, compressed, now and next."""
  return _pair(sign_log(features.inputs.estimates.value))


def advantage(features: FeatureInputs) -> types.Array:
  """Advantage, compressed."""
  return sign_log(features.inputs.estimates.advantage)[..., None]


def normalized_advantage(features: FeatureInputs) -> types.Array:
  """Advantage, by its lifetime moments."""
  return features.inputs.estimates.normalized_advantage[..., None]


def taken_target_policy(features: FeatureInputs) -> types.Array:
  """The target network's pi(a)."""
  return _taken(features.target_policy, features)


def y(features: FeatureInputs) -> types.Array:
  """Embedded y, now and next."""
  return _pair(features.embedded.y)


def target_y(features: FeatureInputs) -> types.Array:
  """The target network's embedded y, now and next."""
  return _pair(features.embedded.target_y)


def taken_z(features: FeatureInputs) -> types.Array:
  """Embedded z of the taken action."""
  return _taken(features.embedded.z, features)


def expected_z(features: FeatureInputs) -> types.Array:
  """Embedded z averaged by pi, now and next."""
  return _pair(jnp.sum(features.policy * features.embedded.z, axis=-1))


def max_z(features: FeatureInputs) -> types.Array:
  """Largest embedded z, now and next."""
  return _pair(jnp.max(features.embedded.z, axis=-1))


def taken_target_z(features: FeatureInputs) -> types.Array:
  """The target network's embedded z of the taken action."""
  return _taken(features.embedded.target_z, features)


def expected_target_z(features: FeatureInputs) -> types.Array:
  """The target network's embedded z averaged by the online pi."""
  return _pair(jnp.sum(features.policy * features.embedded.target_z, axis=-1))


def max_target_z(features: FeatureInputs) -> types.Array:
  """Largest embedded z of the target network, now and next."""
  return _pair(jnp.max(features.embedded.target_z, axis=-1))


Feature = Callable[[FeatureInputs], types.Array]

# Features 1 to 16; the policy embedding supplies 17 and 18.
STEP_FEATURES: tuple[Feature, ...] = (
  taken_policy,
  taken_behaviour,
  reward,
  continuation,
  value,
  advantage,
  normalized_advantage,
  taken_target_policy,
  y,
  target_y,
  taken_z,
  expected_z,
  max_z,
  taken_target_z,
  expected_target_z,
  max_target_z,
)


def step_features(features: FeatureInputs) -> types.Array:
  """Features 1 to 16, concatenated: [T, B, 23]."""
  return jnp.concatenate(
    [feature(features) for feature in STEP_FEATURES], axis=-1
  )


def action_channels(features: FeatureInputs) -> types.Array:
  """The 9 channels per action that the policy embedding is made of.

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
    sign_log(estimates.target_q_value),
    sign_log(estimates.qv_advantage),
    estimates.normalized_qv_advantage,
    jax.nn.one_hot(action, num_actions, dtype=features.policy.dtype),
  )
  return jnp.stack([channel[:-1] for channel in channels], axis=-1)
