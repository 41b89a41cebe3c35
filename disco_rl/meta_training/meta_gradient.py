"""The meta-gradient: the gradient of the outer loss with respect to eta.

After the inner loop has made the N updates, a sweep from the last to the first
takes one vector-Jacobian product of each. Environments are not differentiated,
and the activations of only one update are kept at a time, unless the mode is
'plain'.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import learner
from disco_rl.environments import base
from disco_rl.maths import shared_batch
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import outer_loss

MODES = ('plain', 'checkpointed', 'mixed')
Mode = Annotated[str, config_lib.one_of(*MODES)]
# Gradients of the outer loss with respect to the differentiable leaves of a
# learner state, and with respect to eta in the updates after that state.
Cotangents = tuple[types.PyTree, types.Params]


@dataclasses.dataclass(frozen=True)
class MetaGradient(config_lib.Settings):
  """Computes the meta-gradient by differentiation, the same in all modes.

  Attributes:
    inner_loop: The inner loop, with the states that it keeps.
    loss: The weights of the outer loss.
    mode: 'plain' differentiates each segment of updates as a whole, and keeps
      the activations of all of its updates; 'checkpointed' takes one update at
      a time, reverse over reverse; 'mixed' also does, but differentiates the
      known inner gradient forward over reverse, see `maths.mixed_mode`.
  """

  inner_loop: inner_loop_lib.InnerLoop
  loss: outer_loss.OuterLossConfig = outer_loss.OuterLossConfig()
  mode: Mode = 'mixed'

  @property
  def steps(self) -> inner_loop_lib.Steps:
    """The steps of N updates and validation, all of them by the member."""
    steps = self.inner_loop.steps
    return inner_loop_lib.Steps(steps, steps)

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.Member, types.Logs]:
    """Runs the inner loop, then differentiates; an `inner_loop.Estimator`."""
    member, trajectory, logs = self.inner_loop.run(
      environment, rule_params, member
    )
    member, validation = self.inner_loop.validate(environment, member)
    gradient, member, outer_logs = self.differentiate(
      rule_params, member, trajectory, validation
    )
    return gradient, member, {**logs, **outer_logs}

  def differentiate(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    trajectory: inner_loop_lib.Trajectory,
    validation: types.Rollout,
  ) -> tuple[types.Params, inner_loop_lib.Member, types.Logs]:
    """Evaluates the outer loss, and sweeps back through the updates.

    Args:
      rule_params: eta.
      member: The member after its N updates.
      trajectory: The N updates.
      validation: The validation trajectories, made with the last parameters.

    Returns:
      The gradient, the member with its meta-value function updated, and scalars
      to log.
    """
    cotangents, member, logs = self.outer_gradient(
      rule_params, member, validation
    )
    gradient, target_logs = self.sweep(rule_params, trajectory, cotangents)
    return gradient, member, {**logs, **target_logs}

  def outer_gradient(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    validation: types.Rollout,
  ) -> tuple[Cotangents, inner_loop_lib.Member, types.Logs]:
    """Differentiates the outer loss; the meta-value function learns.

    `MetaValue.update` estimates the advantages before the function learns.

    Args:
      rule_params: eta.
      member: The member after its N updates.
      validation: The validation trajectories, made with the last parameters.

    Returns:
      The cotangents that the sweep starts from, the member, and scalars to log.
    """
    validation = shared_batch.own_shard(validation)
    meta_value, estimates, logs = self.inner_loop.meta_value.update(
      member.meta_value, validation, validation.logits
    )
    agent = self.inner_loop.agent

    def validation_loss(
      params: types.Params,
    ) -> tuple[types.Array, types.Logs]:
      _, taken = agent.network.unroll(params, validation)
      return outer_loss.validation_loss(
        self.loss, taken, validation, estimates.normalized_advantage
      )

    last = member.agent.learner
    of_params, loss_logs = jax.grad(validation_loss, has_aux=True)(last.params)
    cotangents = initial_cotangents(
      rule_params, last, shared_batch.mean(of_params)
    )
    member = dataclasses.replace(member, meta_value=meta_value)
    return cotangents, member, {**logs, **loss_logs}

  def sweep(
    self,
    rule_params: types.Params,
    trajectory: inner_loop_lib.Trajectory,
    cotangents: Cotangents,
  ) -> tuple[types.Params, types.Logs]:
    """Carries the outer loss's gradient from the last parameters back to eta.

    Args:
      rule_params: eta.
      trajectory: The N updates.
      cotangents: The cotangents of the state after them, by `outer_gradient`.

    Returns:
      The gradient of the outer loss and of the regularizers of all updates, and
      means over the updates to log.
    """
    (_, gradient), logs = jax.lax.scan(
      lambda carry, segment: self.backward(
        rule_params, carry, self.inner_loop.to_device(segment)
      ),
      cotangents,
      trajectory,
      reverse=True,
    )
    return gradient, jax.tree.map(jnp.mean, logs)

  def backward(
    self,
    rule_params: types.Params,
    cotangents: Cotangents,
    segment: inner_loop_lib.Trajectory,
  ) -> tuple[Cotangents, types.Logs]:
    """Carries the cotangents back through one segment of k updates.

    Args:
      rule_params: eta.
      cotangents: The cotangents of the state after the segment.
      segment: The segment, on the device, without the leading axis of segments.

    Returns:
      The cotangents of the state before it, and logs [k].
    """
    back = self._segment_at_once if self.mode == 'plain' else self._segment
    return back(rule_params, cotangents, segment)

  def _segment_at_once(
    self,
    rule_params: types.Params,
    cotangents: Cotangents,
    segment: inner_loop_lib.Trajectory,
  ) -> tuple[Cotangents, types.Logs]:
    """Differentiates through a segment without recomputation."""

    def update(
      rule_params: types.Params,
      state: learner.LearnerState,
      batch: types.Rollout,
    ) -> tuple[learner.LearnerState, tuple[types.Array, types.Logs]]:
      state, loss, logs = self._update(rule_params, state, batch, None)
      return state, (loss, logs)

    def updates(
      rule_params: types.Params, state: learner.LearnerState
    ) -> tuple[learner.LearnerState, types.Array, types.Logs]:
      state, (losses, logs) = jax.lax.scan(
        functools.partial(update, rule_params), state, segment.batches
      )
      return state, jnp.sum(losses), logs

    return _backpropagate(updates, rule_params, segment.states, cotangents)

  def _segment(
    self,
    rule_params: types.Params,
    cotangents: Cotangents,
    segment: inner_loop_lib.Trajectory,
  ) -> tuple[Cotangents, types.Logs]:
    """Differentiates through a segment, one update at a time."""
    states, gradients = self._states(rule_params, segment)

    def back(
      cotangents: Cotangents,
      one: tuple[learner.LearnerState, types.Rollout, types.PyTree],
    ) -> tuple[Cotangents, types.Logs]:
      state, batch, gradient = one
      return _backpropagate(
        lambda rule_params, state: self._update(
          rule_params, state, batch, gradient
        ),
        rule_params,
        state,
        cotangents,
      )

    return jax.lax.scan(
      back, cotangents, (states, segment.batches, gradients), reverse=True
    )

  def _states(
    self, rule_params: types.Params, segment: inner_loop_lib.Trajectory
  ) -> tuple[learner.LearnerState, types.Params | None]:
    """Computes states before each update, and gradients for mixed mode."""
    is_mixed, is_single = self.mode == 'mixed', len(segment.batches.action) == 1
    is_stored = segment.gradients is not None if is_mixed else is_single
    if is_stored:
      states = jax.tree.map(lambda x: x[None], segment.states)
      return states, segment.gradients

    def update_again(
      state: learner.LearnerState, batch: types.Rollout
    ) -> tuple[learner.LearnerState, tuple[learner.LearnerState, types.PyTree]]:
      after, update = self.inner_loop.agent.learn(rule_params, state, batch)
      return after, (state, update.gradient if is_mixed else None)

    _, kept = jax.lax.scan(update_again, segment.states, segment.batches)
    return kept

  def _update(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    batch: types.Rollout,
    gradient: types.Params | None,
  ) -> tuple[learner.LearnerState, types.Array, types.Logs]:
    """Repeats one update of the agent, to be differentiated.

    Returns:
      The state after the update; the regularizer, divided by N; and logs.
    """
    state, update = self.inner_loop.agent.learn(
      rule_params, state, batch, gradient if self.mode == 'mixed' else None
    )
    loss, logs = outer_loss.target_regularizer(self.loss, update.targets, batch)
    return state, loss / self.inner_loop.config.inner_updates, logs


def initial_cotangents(
  rule_params: types.Params, last: learner.LearnerState, of_params: types.Params
) -> Cotangents:
  """Makes the initial cotangents of the sweep, zero except for parameters.

  Args:
    rule_params: eta.
    last: The learner state after the last update.
    of_params: The gradient of the outer loss with respect to its parameters.
  """
  of_state = jax.tree.map(jnp.zeros_like, _partition(last)[0])
  of_state = dataclasses.replace(of_state, params=of_params)
  return of_state, jax.tree.map(jnp.zeros_like, rule_params)


def _backpropagate(
  function: Callable[
    [types.Params, learner.LearnerState],
    tuple[learner.LearnerState, types.Array, types.Logs],
  ],
  rule_params: types.Params,
  state: learner.LearnerState,
  cotangents: Cotangents,
) -> tuple[Cotangents, types.Logs]:
  """Computes one vector-Jacobian product, from the cotangents after `function`.

  `function` maps (eta, state) to the next state, a term of the outer loss, and
  logs.

  Returns:
    The cotangents of the state, and the logs.
  """
  of_after, of_rule = cotangents
  differentiable, constant = _partition(state)

  def outputs(
    rule_params: types.Params, differentiable: types.PyTree
  ) -> tuple[tuple[types.PyTree, types.Array], types.Logs]:
    after, loss, logs = function(
      rule_params, _combine(differentiable, constant)
    )
    return (_partition(after)[0], loss), logs

  (_, loss), pullback, logs = jax.vjp(
    outputs, rule_params, differentiable, has_aux=True
  )
  of_rule_here, of_before = shared_batch.mean(
    pullback((of_after, jnp.ones_like(loss)))
  )
  return (of_before, jax.tree.map(jnp.add, of_rule, of_rule_here)), logs


def _partition(tree: types.PyTree) -> tuple[types.PyTree, types.PyTree]:
  """Splits into differentiable leaves and others, with None elsewhere."""
  is_real = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)
  return (
    jax.tree.map(lambda x: x if is_real(x) else None, tree),
    jax.tree.map(lambda x: None if is_real(x) else x, tree),
  )


def _combine(
  differentiable: types.PyTree, constant: types.PyTree
) -> types.PyTree:
  """Joins the results of `_partition`."""
  return jax.tree.map(
    lambda x, y: y if x is None else x,
    differentiable,
    constant,
    is_leaf=lambda x: x is None,
  )
