"""Bootstrapped meta-gradients (Flennerhag et al., ICLR 2022).

The target is the agent itself, L updates after the window; the rule is changed
so that the agent's policy after the window is nearer to the target's. So the
gradient flows through the window's N updates only, but carries what the next L
achieve. By the rule alone, a target could be reached by a rule that changes
nothing; so the last of the L updates follows the gradient of the outer loss.
"""

from collections.abc import Iterator
import dataclasses

import jax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import outer_loss


@dataclasses.dataclass(frozen=True)
class Bootstrapping(meta_gradient.SweepConfig, prefix='bootstrapping_'):
  """Settings of bootstrapped meta-gradients, `bootstrapping`.

  Attributes:
    updates: L, updates between the window's last parameters and the target.
    is_grounded: whether the last of them follows the gradient of the outer
      loss, by the agent's optimizer, and not the rule.
  """

  updates: config_lib.Count = 5
  is_grounded: bool = True

  def conflicts_with(
    self,
    inner_loop: inner_loop_lib.InnerLoopConfig,
    loss: outer_loss.OuterLossConfig,
  ) -> Iterator[str]:
    """Yields an error if nothing would reward the policy's entropy."""
    yield from super().conflicts_with(inner_loop, loss)
    if loss.policy_entropy_cost and not self.is_grounded:
      yield (
        'with bootstrapping_is_grounded=False would ignore policy_entropy_cost='
        f'{loss.policy_entropy_cost}, which is part of the outer loss that a '
        'grounded target follows. Set policy_entropy_cost=0.'
      )

  def on_device(
    self, problem: inner_problem.AgentProblem
  ) -> 'BootstrappedGradient':
    """Implements `EstimatorConfig.on_device`."""
    return BootstrappedGradient(problem, self)


@dataclasses.dataclass(frozen=True)
class BootstrappedGradient(estimator_lib.DeviceEstimator):
  """Differentiates the distance of the last policy from a later one.

  Attributes:
    problem: The inner problem.
    settings: The target, and the mode of differentiation.
  """

  problem: inner_problem.InnerProblem
  settings: Bootstrapping = Bootstrapping()

  @property
  def _later_updates(self) -> int:
    """The updates after the window that follow the rule."""
    return self.settings.updates - self.settings.is_grounded

  @property
  def steps(self) -> estimator_lib.Steps:
    """The steps of window, later updates and validation, by the member."""
    updates = self.problem.num_updates + self._later_updates
    steps = self.problem.steps(updates, validations=1)
    return estimator_lib.Steps(steps, steps)

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Runs the window and the later updates, and sweeps through the window.

    Implements `DeviceEstimator.__call__`. The member goes on from the later
    updates, so that no environment step is lost; the last update of a grounded
    target is not part of its life.
    """
    problem = self.problem
    member, trajectory, logs = problem.run(
      environment, rule_params, member, problem.num_updates
    )
    last = problem.learner(member)
    member = problem.advance(
      environment, rule_params, member, self._later_updates
    )
    member, validation = problem.validate(environment, member)
    outer_gradient, member, outer_logs = problem.outer_gradient(
      member, validation
    )
    target = problem.learner(member).params
    if self.settings.is_grounded:
      target = problem.outer_step(member, outer_gradient)
    params_gradient, matching_logs = problem.divergence_gradient(
      last.params, jax.lax.stop_gradient(target), validation
    )
    sweep = meta_gradient.MetaGradient(
      problem, meta_gradient.Differentiation(self.settings.mode)
    ).sweep
    gradient, target_logs = sweep(
      rule_params,
      trajectory,
      meta_gradient.initial_cotangents(rule_params, last, params_gradient),
    )
    return (
      gradient,
      member,
      {**logs, **outer_logs, **matching_logs, **target_logs},
    )
