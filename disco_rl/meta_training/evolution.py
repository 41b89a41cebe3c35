"""The meta-gradient by evolution strategies, an alternative estimator.

An agent runs its inner loop with perturbed rules, from the same state and with
the same random numbers; the gradient estimate points from rules with more
reward to rules with less (Salimans et al., 2017; antithetic pairs). It requires
environments that can be copied, which are the JAX-native ones.
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.environments import base
from disco_rl.maths import masked
from disco_rl.meta_training import inner_loop as inner_loop_lib


@dataclasses.dataclass(frozen=True)
class EvolutionStrategies(config_lib.Settings):
  """Estimates the gradient of the reward after N updates.

  Attributes:
    inner_loop: the inner loop, with N updates and validation.
    num_pairs: number of perturbations of eta, each with both signs.
    std: standard deviation of the perturbation of each entry of eta.
  """

  inner_loop: inner_loop_lib.InnerLoop
  num_pairs: config_lib.Count = 8
  std: config_lib.Positive = 0.01

  @property
  def steps(self) -> inner_loop_lib.Steps:
    """The steps: N updates of the member; perturbed runs also validate."""
    of_member = self.inner_loop.update_steps
    runs = 2 * self.num_pairs
    return inner_loop_lib.Steps(
      of_member, of_member + runs * self.inner_loop.steps
    )

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.Member, types.Logs]:
    """Evaluates perturbed rules, then makes updates with the unperturbed one.

    This is an `inner_loop.Estimator` of minus the mean reward per step.
    """
    # Perturbed runs have a separate key: with the member's key they would use
    # the keys of its next perturbations.
    key, noise_key, run_key = jax.random.split(member.agent.key, 3)
    start = member.replace_agent(key=run_key)

    def reward(rule_params: types.Params) -> types.Array:
      after, _, _ = self.inner_loop.run(environment, rule_params, start)
      _, validation = self.inner_loop.validate(environment, after)
      return masked.mean(validation.reward, validation.mask)

    def pair(
      gradient: types.Params, key: types.Array
    ) -> tuple[types.Params, types.Array]:
      noise = optax.tree.random_like(key, rule_params)
      better, worse = (
        reward(optax.tree.add_scale(rule_params, sign * self.std, noise))
        for sign in (1.0, -1.0)
      )
      slope = (better - worse) / (2.0 * self.std * self.num_pairs)
      return optax.tree.add_scale(gradient, -slope, noise), better - worse

    gradient, differences = jax.lax.scan(
      pair,
      optax.tree.zeros_like(rule_params),
      jax.random.split(noise_key, self.num_pairs),
    )
    member, _, logs = self.inner_loop.run(
      environment, rule_params, member.replace_agent(key=key)
    )
    logs = {**logs, 'reward_difference': jnp.mean(jnp.abs(differences))}
    return gradient, member, logs
