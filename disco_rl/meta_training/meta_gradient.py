"""The meta-gradient: the gradient of the outer loss with respect to eta.

After the inner loop has made the N updates, a sweep from the last to the first
takes one vector-Jacobian product of each. Environments are not differentiated,
and the activations of only one update are kept at a time, unless the mode is
'plain'.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import learner
from disco_rl.environments import base
from disco_rl.maths import shared_batch
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import outer_loss

MODES = ('plain', 'mixed')
Cotangents = estimator_lib.Cotangents


@dataclasses.dataclass(frozen=True)
class SweepConfig(estimator_lib.EstimatorConfig):
  """Settings of estimators that differentiate through the window.

  Attributes:
    mode: mode of differentiation, 'mixed' or 'plain', with equal gradients;
      'plain' keeps the activations of save_every updates at a time, 'mixed' of
      one update.
  """

  # Without a prefix: one setting for all of them.
  mode: Annotated[str, config_lib.one_of(*MODES), config_lib.Alias('mode')] = (
    'mixed'
  )

  @property
  def needs_gradients(self) -> bool:
    """Implements `EstimatorConfig.needs_gradients`."""
    return self.mode == 'mixed'


@dataclasses.dataclass(frozen=True)
class Differentiation(SweepConfig):
  """Settings of differentiation through the window, `differentiation`.

  Attributes:
    outer_losses: number of points in the window, the last of which is its end,
      at which agents act for validation; the outer loss is the mean over them.
  """

  outer_losses: config_lib.Count = 1

  def conflicts_with(
    self,
    inner_loop: inner_loop_lib.InnerLoopConfig,
    loss: outer_loss.OuterLossConfig,
  ) -> Iterator[str]:
    """Yields an error if segments of updates do not end at these points."""
    yield from super().conflicts_with(inner_loop, loss)
    updates, number = inner_loop.inner_updates, self.outer_losses
    if updates % (number * inner_loop.save_every):
      yield (
        f'needs outer_losses={number} * save_every={inner_loop.save_every} to '
        f'divide inner_updates={updates}. Lower one of the first two.'
      )

  def on_device(self, problem: inner_problem.AgentProblem) -> 'MetaGradient':
    """Implements `EstimatorConfig.on_device`."""
    return MetaGradient(problem, self)

  def on_host(
    self, problem: inner_problem.AgentProblem
  ) -> 'MetaGradient | None':
    """Implements `EstimatorConfig.on_host`, for one point."""
    return MetaGradient(problem, self) if self.outer_losses == 1 else None


@dataclasses.dataclass(frozen=True)
class MetaGradient(estimator_lib.DeviceEstimator, estimator_lib.HostEstimator):
  """Computes the meta-gradient by differentiation, the same in all modes.

  Attributes:
    problem: The inner problem.
    settings: The number of outer losses, and the mode. 'plain' differentiates
      each segment of updates as a whole, reverse over reverse, and keeps the
      activations of all of its updates; 'mixed' takes one update at a time, and
      differentiates the known inner gradient forward over reverse, see
      `maths.mixed_mode`.
  """

  problem: inner_problem.InnerProblem
  settings: Differentiation = Differentiation()

  @property
  def steps(self) -> estimator_lib.Steps:
    """The steps of N updates and validation, all of them by the member."""
    steps = self.problem.steps(
      self.problem.num_updates, validations=self.settings.outer_losses
    )
    return estimator_lib.Steps(steps, steps)

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Runs the inner loop, then differentiates."""
    problem = self.problem
    if self.settings.outer_losses > 1:
      return self._with_several_losses(rule_params, member, environment)
    member, trajectory, logs = problem.run(
      environment, rule_params, member, problem.num_updates
    )
    member, validation = problem.validate(environment, member)
    gradient, member, outer_logs = self.differentiate(
      rule_params, member, trajectory, validation
    )
    return gradient, member, {**logs, **outer_logs}

  def _with_several_losses(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Evaluates the outer loss after each part of the window; sweeps once."""
    problem, number = self.problem, self.settings.outer_losses

    def part(
      member: inner_loop_lib.DeviceMember, _: None
    ) -> tuple[inner_loop_lib.DeviceMember, tuple[types.PyTree, ...]]:
      member, trajectory, logs = problem.run(
        environment, rule_params, member, problem.num_updates // number
      )
      member, validation = problem.validate(environment, member)
      gradient, member, outer_logs = problem.outer_gradient(member, validation)
      return member, (trajectory, gradient, {**logs, **outer_logs})

    member, (trajectories, gradients, logs) = jax.lax.scan(
      part, member, length=number
    )

    def back(
      cotangents: Cotangents,
      part: tuple[inner_loop_lib.Trajectory, types.Params],
    ) -> tuple[Cotangents, types.Logs]:
      trajectory, gradient = part
      state_cotangent, rule_cotangent = cotangents
      params_gradient = optax.tree.add_scale(
        state_cotangent.params, 1 / number, gradient
      )
      state_cotangent = dataclasses.replace(
        state_cotangent, params=params_gradient
      )
      return self._sweep_part(
        rule_params, trajectory, (state_cotangent, rule_cotangent)
      )

    last = problem.learner(member)
    nothing = initial_cotangents(
      rule_params, last, optax.tree.zeros_like(last.params)
    )
    (_, gradient), target_logs = jax.lax.scan(
      back, nothing, (trajectories, gradients), reverse=True
    )
    return gradient, member, jax.tree.map(jnp.mean, {**logs, **target_logs})

  def differentiate(
    self,
    rule_params: types.Params,
    learning: estimator_lib.AnyLearning,
    trajectory: inner_loop_lib.Trajectory,
    validation: types.Rollout,
  ) -> tuple[types.Params, estimator_lib.AnyLearning, types.Logs]:
    """Evaluates the outer loss, and sweeps back through the updates.

    Args:
      rule_params: eta.
      learning: The member, or what learns of it, after its N updates.
      trajectory: The N updates.
      validation: The validation trajectories, made with the last parameters.

    Returns:
      The gradient, `learning` with the next meta-value function, and scalars to
      log.
    """
    cotangents, learning, logs = self.outer_gradient(
      rule_params, learning, validation
    )
    gradient, target_logs = self.sweep(rule_params, trajectory, cotangents)
    return gradient, learning, {**logs, **target_logs}

  def outer_gradient(
    self,
    rule_params: types.Params,
    learning: estimator_lib.AnyLearning,
    validation: types.Rollout,
  ) -> tuple[Cotangents, estimator_lib.AnyLearning, types.Logs]:
    """Differentiates the outer loss; the meta-value function learns.

    Implements `HostEstimator.outer_gradient`.
    """
    gradient, learning, logs = self.problem.outer_gradient(learning, validation)
    cotangents = initial_cotangents(
      rule_params, self.problem.learner(learning), gradient
    )
    return cotangents, learning, logs

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
    (_, gradient), logs = self._sweep_part(rule_params, trajectory, cotangents)
    return gradient, jax.tree.map(jnp.mean, logs)

  def _sweep_part(
    self,
    rule_params: types.Params,
    trajectory: inner_loop_lib.Trajectory,
    cotangents: Cotangents,
  ) -> tuple[Cotangents, types.Logs]:
    """Carries cotangents back through a trajectory, one segment at a time."""
    return jax.lax.scan(
      lambda carry, segment: self.backward(
        rule_params, carry, self.problem.to_device(segment)
      ),
      cotangents,
      trajectory,
      reverse=True,
    )

  def backward(
    self,
    rule_params: types.Params,
    cotangents: Cotangents,
    segment: inner_loop_lib.Trajectory,
  ) -> tuple[Cotangents, types.Logs]:
    """Implements `HostEstimator.backward`."""
    is_plain = self.settings.mode == 'plain'
    back = self._whole_segment if is_plain else self._segment
    return back(rule_params, cotangents, segment)

  def _whole_segment(
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
      state, loss, logs = self.problem.update(rule_params, state, batch, None)
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
      # The gradient is a mere value here: by `mixed_mode.known_gradient` its
      # derivative is one product in forward mode, so the activations of the
      # agent's backward pass are neither kept nor visited.
      return _backpropagate(
        lambda rule_params, state: self.problem.update(
          rule_params, state, batch, gradient
        ),
        rule_params,
        state,
        cotangents,
      )

    # A scan, so that memory holds the activations of one update at a time.
    return jax.lax.scan(
      back, cotangents, (states, segment.batches, gradients), reverse=True
    )

  def _states(
    self, rule_params: types.Params, segment: inner_loop_lib.Trajectory
  ) -> tuple[learner.LearnerState, types.Params]:
    """Returns the states before each update and its gradients.

    They are computed again if only the first state has been kept.
    """
    if segment.gradients is not None:
      states = jax.tree.map(lambda x: x[None], segment.states)
      return states, segment.gradients

    def update_again(
      state: learner.LearnerState, batch: types.Rollout
    ) -> tuple[learner.LearnerState, tuple[learner.LearnerState, types.PyTree]]:
      after, gradient = self.problem.learn(rule_params, state, batch)
      return after, (state, gradient)

    _, kept = jax.lax.scan(update_again, segment.states, segment.batches)
    return kept


def initial_cotangents(
  rule_params: types.Params,
  last: learner.LearnerState,
  params_gradient: types.Params,
) -> Cotangents:
  """Makes the initial cotangents of the sweep, zero except for parameters.

  Args:
    rule_params: eta.
    last: The learner state after the last update.
    params_gradient: The gradient of the outer loss by its parameters.
  """
  state_cotangent = jax.tree.map(jnp.zeros_like, _partition(last)[0])
  state_cotangent = dataclasses.replace(state_cotangent, params=params_gradient)
  return state_cotangent, jax.tree.map(jnp.zeros_like, rule_params)


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
  after_cotangent, rule_cotangent = cotangents
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
  new_rule_cotangent, before_cotangent = shared_batch.mean(
    pullback((after_cotangent, jnp.ones_like(loss)))
  )
  return (
    before_cotangent,
    jax.tree.map(jnp.add, rule_cotangent, new_rule_cotangent),
  ), logs


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
