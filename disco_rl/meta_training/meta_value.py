"""The meta-value function: the baseline of the outer loss.

A separate network, used in discovery only, and trained by V-trace on the
validation trajectories. It predicts values in the space of the signed
hyperbolic transform, by a linear head on a torso like the agents'. It is
trained by Adam, whatever the optimizer of the agents.
"""

import dataclasses
from typing import Annotated
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.maths import masked
from disco_rl.maths import optimizers
from disco_rl.maths import shared_batch
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import disco

_TORSO = torsos.TorsoConfig()


@dataclasses.dataclass(frozen=True)
class MetaValueConfig(config_lib.Settings, prefix='meta_value_'):
  """Settings of the meta-value function.

  Attributes:
    hidden_sizes: widths of the dense layers that end the torso.
    learning_rate: step size of its Adam.
    discount: gamma, the same setting as the rule's.
    lambda_: lambda of V-trace, the same setting as the rule's.
    moments_decay: decay of the lifetime moments of advantages and TD errors.
    on_inner_batches: whether it also learns from the batches of the agent's
      updates, with off-policy corrections, and not only from validation.
  """

  hidden_sizes: torsos.HiddenSizes = (512, 512)
  learning_rate: config_lib.Positive = 3e-4
  # Without the prefix: one setting for these and the rule's fields.
  discount: Annotated[config_lib.Fraction, config_lib.Alias('discount')] = (
    disco.Disco.discount
  )
  lambda_: Annotated[config_lib.Fraction, config_lib.Alias('lambda_')] = (
    disco.Disco.lambda_
  )
  moments_decay: config_lib.Decay = 0.99
  on_inner_batches: bool = False


@types.record
class MetaValueState:
  """The state of an agent's meta-value function.

  Attributes:
    params: The parameters of the network.
    opt_state: The state of its optimizer.
    moments: The moments of advantages and TD errors.
  """

  params: types.Params
  opt_state: types.PyTree
  moments: value_targets.ValueMoments


class MetaValue:
  """Pure functions over `MetaValueState` for one kind of environment."""

  def __init__(
    self,
    config: MetaValueConfig,
    environment_spec: types.EnvironmentSpec,
    torso: torsos.TorsoConfig = _TORSO,
  ):
    """Makes the network.

    Args:
      config: The settings.
      environment_spec: The spec of the observations.
      torso: The torso of the agent; this network's differs in `hidden_sizes`.
    """
    self.config = config
    self._torso = dataclasses.replace(torso, hidden_sizes=config.hidden_sizes)
    self._spec = environment_spec
    # One vector of moments, as in `variation.prepare`.
    self._optimizer = optax.flatten(
      optimizers.agent_optimizer(config.learning_rate)
    )
    self._network: Any = hk.without_apply_rng(hk.transform(self._predict))

  def init(self, key: types.Array) -> MetaValueState:
    """Makes the initial state."""
    observation = jax.tree.map(
      lambda leaf: jnp.zeros((1, 1, *leaf.shape), leaf.dtype),
      self._spec.observation,
    )
    params = self._network.init(key, observation)
    return MetaValueState(
      params=params,
      opt_state=self._optimizer.init(params),
      moments=value_targets.init_moments(),
    )

  def values(
    self, params: types.Params, observation: types.PyTree
  ) -> types.Array:
    """Predicts values in units of the return, [T, B]."""
    return value_targets.TRANSFORM.apply_inv(
      self._network.apply(params, observation)
    )

  def estimate_and_update(
    self,
    state: MetaValueState,
    rollout: types.Rollout,
    policy_logits: types.Array,
  ) -> tuple[MetaValueState, value_targets.ValueEstimates, types.Logs]:
    """Estimates values and advantages by V-trace, then learns from them.

    The loss is 0.5 (v - sg(v + normalized_td))^2 over the real transitions, on
    the network's output v in the transformed space. `normalized_advantage` of
    the estimates is what the outer loss weighs log-probabilities by.

    Args:
      state: The state before the update.
      rollout: T transitions of B trajectories.
      policy_logits: [T+1, B, A] of the policy whose values are estimated.

    Returns:
      The state after the update, the estimates by the network before it, and
      scalars to log.
    """
    gradient, (estimates, moments, logs) = jax.grad(self._loss, has_aux=True)(
      state.params, state.moments, rollout, policy_logits
    )
    updates, opt_state = self._optimizer.update(
      shared_batch.mean(gradient), state.opt_state
    )
    state = MetaValueState(
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
      moments=moments,
    )
    return state, estimates, logs

  def _loss(
    self,
    params: types.Params,
    moments: value_targets.ValueMoments,
    rollout: types.Rollout,
    policy_logits: types.Array,
  ) -> tuple[
    types.Array,
    tuple[value_targets.ValueEstimates, value_targets.ValueMoments, types.Logs],
  ]:
    """Computes the loss of an update; also estimates, next moments, logs."""
    v = self._network.apply(params, rollout.observation)
    estimates, moments = value_targets.vtrace(
      moments,
      rollout,
      policy_logits,
      value_targets.TRANSFORM.apply_inv(v),
      discount=self.config.discount,
      lambda_=self.config.lambda_,
      moments_decay=self.config.moments_decay,
    )
    target = jax.lax.stop_gradient(v[:-1] + estimates.normalized_td)
    by_step = {
      'meta_value_loss': 0.5 * jnp.square(v[:-1] - target),
      'meta_value': estimates.value[:-1],
      'meta_value_td': jnp.abs(estimates.td),
    }
    logs = masked.mean(by_step, rollout.mask)
    return logs['meta_value_loss'], (estimates, moments, logs)

  def _predict(self, observation: types.PyTree) -> types.Array:
    shape = jax.tree.leaves(observation)[0].shape[:2]
    rows = lambda x: x.reshape(-1, *x.shape[2:])
    x = torsos.TorsoModule(self._torso)(jax.tree.map(rows, observation))
    w_init = hk.initializers.TruncatedNormal(agent_network.HEAD_INIT_STD)
    return hk.Linear(1, w_init=w_init, name='value')(x).reshape(shape)
