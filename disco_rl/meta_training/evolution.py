"""The meta-gradient by evolution strategies, an alternative estimator.

An agent runs its inner loop with perturbed rules, from the same state and with
the same random numbers; the gradient estimate points from rules with more
reward to rules with less (Salimans et al., 2017; antithetic pairs). It requires
environments that can be copied, which are the JAX-native ones. It looks as far
ahead as the window; `persistent_evolution` looks further.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem


@dataclasses.dataclass(frozen=True)
class Evolution(estimator_lib.EstimatorConfig, prefix='evolution_'):
  """Settings of evolution strategies within the window, `evolution`.

  Attributes:
    pairs: antithetic pairs of perturbed rules, each tried by the same agent.
    std: standard deviation of the perturbation of each entry of the rule.
  """

  pairs: config_lib.Count = 8
  std: config_lib.Positive = 0.01

  has_outer_loss: ClassVar[bool] = False

  def on_device(
    self, problem: inner_problem.AgentProblem
  ) -> 'EvolutionStrategies':
    """Implements `EstimatorConfig.on_device`."""
    return EvolutionStrategies(problem, self)


@dataclasses.dataclass(frozen=True)
class EvolutionStrategies(estimator_lib.DeviceEstimator):
  """Estimates the gradient of minus the mean reward per step after N updates.

  Attributes:
    problem: The inner problem.
    settings: The number and the size of perturbations.
  """

  problem: inner_problem.InnerProblem
  settings: Evolution = Evolution()

  @property
  def steps(self) -> estimator_lib.Steps:
    """The steps: N updates of the member; perturbed runs also validate."""
    per_member = self.problem.steps(self.problem.num_updates, validations=0)
    per_run = self.problem.steps(self.problem.num_updates, validations=1)
    return estimator_lib.Steps(
      per_member, per_member + 2 * self.settings.pairs * per_run
    )

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Evaluates perturbed rules, then makes updates with the unperturbed one.

    Implements `DeviceEstimator.__call__`.
    """
    problem, updates = self.problem, self.problem.num_updates
    pairs, std = self.settings.pairs, self.settings.std
    # Perturbed runs have a separate key: with the member's key they would use
    # the keys of its next perturbations.
    key, noise_key, run_key = jax.random.split(problem.key(member), 3)
    start = problem.with_key(member, run_key)

    def reward(rule_params: types.Params) -> types.Array:
      after, _, _ = problem.run(environment, rule_params, start, updates)
      return problem.reward(problem.validate(environment, after)[1])

    def pair(
      gradient: types.Params, key: types.Array
    ) -> tuple[types.Params, types.Array]:
      noise = optax.tree.random_like(key, rule_params)
      better, worse = (
        reward(optax.tree.add_scale(rule_params, sign * std, noise))
        for sign in (1.0, -1.0)
      )
      slope = (better - worse) / (2.0 * std * pairs)
      return optax.tree.add_scale(gradient, -slope, noise), better - worse

    gradient, differences = jax.lax.scan(
      pair,
      optax.tree.zeros_like(rule_params),
      jax.random.split(noise_key, pairs),
    )
    member, _, logs = problem.run(
      environment, rule_params, problem.with_key(member, key), updates
    )
    logs = {**logs, 'reward_difference': jnp.mean(jnp.abs(differences))}
    return gradient, member, logs
