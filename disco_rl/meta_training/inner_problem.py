"""The inner problem: what a rule trains, as estimators of its gradient see it.

In discovery this is an agent with its environments, `AgentProblem`. Estimators
only call the functions of `InnerProblem`, so they can be tested on a problem
whose answer is known. No meta-gradient is computed here.
"""

import dataclasses
from typing import Any
from typing import Protocol
from typing import TypeVar

import jax
import optax

from disco_rl import types
from disco_rl.agent import learner as learner_lib
from disco_rl.environments import base
from disco_rl.maths import categorical
from disco_rl.maths import masked
from disco_rl.maths import shared_batch
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import outer_loss

_Learning = TypeVar('_Learning', bound=inner_loop_lib.Learning)


class InnerProblem(Protocol):
  """Pure functions over a state, such as `inner_loop.Member`.

  The environment may be None, if the problem has none. The learner state is the
  part of the state that updates change and that is differentiated: a record
  whose field `params` the outer loss depends on.
  """

  @property
  def num_updates(self) -> int:
    """N, the updates of a meta-step."""

  def steps(self, updates: int, validations: int) -> int:
    """Counts the environment steps of updates and calls of `validate`."""

  def key(self, state: Any) -> types.Array:
    """Returns the PRNG key that the state's future depends on."""

  def with_key(self, state: Any, key: types.Array) -> Any:
    """Replaces that key."""

  def run(
    self, environment: Any, rule_params: types.Params, state: Any, updates: int
  ) -> tuple[Any, inner_loop_lib.Trajectory, types.Logs]:
    """Makes updates; returns the state, the trajectory and means to log."""

  def advance(
    self, environment: Any, rule_params: types.Params, state: Any, updates: int
  ) -> Any:
    """Makes updates, possibly none, of which nothing is kept."""

  def validate(self, environment: Any, state: Any) -> tuple[Any, Any]:
    """Returns the state, and fresh data for the outer loss."""

  def reward(self, validation: Any) -> types.Array:
    """Returns the mean reward of this data, []."""

  def learner(self, state: Any) -> Any:
    """Returns the learner state."""

  def outer_gradient(
    self, state: Any, validation: Any
  ) -> tuple[types.Params, Any, types.Logs]:
    """Differentiates the outer loss with respect to the learner's parameters.

    Returns:
      The gradient; the state, whose baseline has learned; scalars to log.
    """

  def outer_step(self, state: Any, gradient: types.Params) -> types.Params:
    """Returns the parameters after one update along the outer gradient."""

  def divergence_gradient(
    self, params: types.Params, target: types.Params, validation: Any
  ) -> tuple[types.Params, types.Logs]:
    """Differentiates the distance from what other parameters do, with logs."""

  def to_device(
    self, segment: inner_loop_lib.Trajectory
  ) -> inner_loop_lib.Trajectory:
    """Moves a part of the trajectory to the device, if it is offloaded."""

  def learn(
    self, rule_params: types.Params, state: Any, batch: Any
  ) -> tuple[Any, types.Params]:
    """Repeats one update of a learner state; also returns its gradient."""

  def update(
    self,
    rule_params: types.Params,
    state: Any,
    batch: Any,
    gradient: types.Params | None,
  ) -> tuple[Any, types.Array, types.Logs]:
    """Repeats one update of a learner state, to be differentiated.

    Args:
      rule_params: eta.
      state: The learner state before the update.
      batch: The batch of the update.
      gradient: The gradient of the update if it is known, for mixed mode.

    Returns:
      The learner state, a term of the outer loss, and scalars to log.
    """


@dataclasses.dataclass(frozen=True)
class AgentProblem:
  """An agent in an environment, and the outer loss: an `InnerProblem`.

  Attributes:
    inner_loop: The inner loop of the agent.
    loss: The weights of the outer loss.
  """

  inner_loop: inner_loop_lib.InnerLoop
  loss: outer_loss.OuterLossConfig = outer_loss.OuterLossConfig()

  @property
  def num_updates(self) -> int:
    """Implements `InnerProblem.num_updates`."""
    return self.inner_loop.config.inner_updates

  def steps(self, updates: int, validations: int) -> int:
    """Implements `InnerProblem.steps`."""
    return self.inner_loop.steps(updates, validations)

  def key(self, state: inner_loop_lib.DeviceMember) -> types.Array:
    """Implements `InnerProblem.key`."""
    return state.acting.key

  def with_key(
    self, state: inner_loop_lib.DeviceMember, key: types.Array
  ) -> inner_loop_lib.DeviceMember:
    """Implements `InnerProblem.with_key`."""
    acting = dataclasses.replace(state.acting, key=key)
    return dataclasses.replace(state, acting=acting)

  def run(
    self,
    environment: base.JaxEnvironment,
    rule_params: types.Params,
    state: inner_loop_lib.DeviceMember,
    updates: int,
  ) -> tuple[
    inner_loop_lib.DeviceMember, inner_loop_lib.Trajectory, types.Logs
  ]:
    """Implements `InnerProblem.run`."""
    return self.inner_loop.run(environment, rule_params, state, updates)

  def advance(
    self,
    environment: base.JaxEnvironment,
    rule_params: types.Params,
    state: inner_loop_lib.DeviceMember,
    updates: int,
  ) -> inner_loop_lib.DeviceMember:
    """Implements `InnerProblem.advance`."""
    return self.inner_loop.advance(environment, rule_params, state, updates)

  def validate(
    self, environment: base.JaxEnvironment, state: inner_loop_lib.DeviceMember
  ) -> tuple[inner_loop_lib.DeviceMember, types.Rollout]:
    """Implements `InnerProblem.validate`."""
    return self.inner_loop.validate(environment, state)

  def reward(self, validation: types.Rollout) -> types.Array:
    """Implements `InnerProblem.reward`: the mean over real transitions."""
    return masked.mean(validation.reward, validation.mask)

  def learner(self, state: inner_loop_lib.Learning) -> learner_lib.LearnerState:
    """Implements `InnerProblem.learner`."""
    return state.learner

  def outer_gradient(
    self, state: _Learning, validation: types.Rollout
  ) -> tuple[types.Params, _Learning, types.Logs]:
    """Implements `InnerProblem.outer_gradient`.

    The advantages are estimated before the meta-value function learns.
    """
    validation = shared_batch.local_shard(validation)
    baseline = self.inner_loop.meta_value
    meta_value, estimates, logs = baseline.estimate_and_update(
      state.meta_value, validation, validation.logits
    )

    def validation_loss(
      params: types.Params,
    ) -> tuple[types.Array, types.Logs]:
      _, taken = self.inner_loop.agent.network.unroll(params, validation)
      return outer_loss.validation_loss(
        self.loss, taken, validation, estimates.normalized_advantage
      )

    gradient, loss_logs = jax.grad(validation_loss, has_aux=True)(
      state.learner.params
    )
    state = dataclasses.replace(state, meta_value=meta_value)
    return shared_batch.mean(gradient), state, {**logs, **loss_logs}

  def outer_step(
    self, state: inner_loop_lib.Learning, gradient: types.Params
  ) -> types.Params:
    """Implements `InnerProblem.outer_step`, with the agent's optimizer."""
    last = state.learner
    updates, _ = self.inner_loop.agent.optimizer.update(
      gradient, last.opt_state, last.params
    )
    return optax.apply_updates(last.params, updates)

  def divergence_gradient(
    self,
    params: types.Params,
    target: types.Params,
    validation: types.Rollout,
  ) -> tuple[types.Params, types.Logs]:
    """Implements `InnerProblem.divergence_gradient`: KL of policies."""
    validation = shared_batch.local_shard(validation)
    unroll = self.inner_loop.agent.network.unroll
    target_logits = unroll(target, validation)[0]['logits'][:-1]

    def divergence(
      params: types.Params,
    ) -> tuple[types.Array, types.Logs]:
      outputs, taken = unroll(params, validation)
      kl = categorical.kl_divergence(target_logits, outputs['logits'][:-1])
      return outer_loss.matching_loss(self.loss, kl, taken, validation)

    gradient, logs = jax.grad(divergence, has_aux=True)(params)
    return shared_batch.mean(gradient), logs

  def to_device(
    self, segment: inner_loop_lib.Trajectory
  ) -> inner_loop_lib.Trajectory:
    """Implements `InnerProblem.to_device`."""
    return self.inner_loop.to_device(segment)

  def learn(
    self,
    rule_params: types.Params,
    state: learner_lib.LearnerState,
    batch: types.Rollout,
  ) -> tuple[learner_lib.LearnerState, types.Params]:
    """Implements `InnerProblem.learn`."""
    after, update = self.inner_loop.agent.learn(rule_params, state, batch)
    return after, update.gradient

  def update(
    self,
    rule_params: types.Params,
    state: learner_lib.LearnerState,
    batch: types.Rollout,
    gradient: types.Params | None,
  ) -> tuple[learner_lib.LearnerState, types.Array, types.Logs]:
    """Implements `InnerProblem.update`; the regularizer is divided by N."""
    state, update = self.inner_loop.agent.learn(
      rule_params, state, batch, gradient
    )
    loss, logs = outer_loss.target_regularizer(self.loss, update.targets, batch)
    return state, loss / self.num_updates, logs
