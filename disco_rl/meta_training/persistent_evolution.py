"""The meta-gradient by persistent evolution strategies (Vicol et al., 2021).

Evolution strategies within a window cannot see what a rule does to an agent's
later life. Here each antithetic pair of perturbed rules has its own two agents,
which begin alike and live on from meta-step to meta-step, and each window's
difference of rewards is weighed with the perturbations since the pair's reset:

  xi_t = eps_1 + ... + eps_t
  g_t = -mean over pairs of xi_t (r_t(eta + s eps) - r_t(eta - s eps)) / (2 s)

Summed over the windows of a lifetime, this is an unbiased estimate of the
gradient of minus the sum of rewards over the whole lifetime, with s the
standard deviation of the perturbations, if eta does not change meanwhile. Its
variance grows with the number of windows. In a lifetime of one window it is
evolution over whole lifetimes, as in TA-LPG (Jackson et al., 2024).
"""

from collections.abc import Callable
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
class Persistent(estimator_lib.EstimatorConfig, prefix='persistent_'):
  """Settings of evolution over lifetimes, `persistent_evolution`.

  Attributes:
    pairs: antithetic pairs of perturbed rules; each has two agents for every
      agent of the population, and a copy of the rule.
    std: standard deviation of the perturbation of each entry of the rule.
  """

  pairs: config_lib.Count = 4
  std: config_lib.Positive = 0.01

  has_outer_loss: ClassVar[bool] = False

  def on_device(
    self, problem: inner_problem.AgentProblem
  ) -> 'PersistentEvolution':
    """Implements `EstimatorConfig.on_device`."""
    return PersistentEvolution(problem, self)


@types.record
class Pairs(inner_loop_lib.DeviceMember):
  """The agents of P pairs, of which the two of a pair are neighbors.

  What learns, what acts and replay have a leading axis [2P]; eta's optimizer
  has not.

  Attributes:
    perturbations: xi, the sum of the standard normal perturbations of each pair
      since its reset, [P, ...].
  """

  perturbations: types.PyTree

  def restart(self, initial: inner_loop_lib.Newborn) -> 'Pairs':
    """Implements `Member.restart`: the perturbations so far are forgotten."""
    zeros = jax.tree.map(jnp.zeros_like, self.perturbations)
    members = vars(super().restart(initial))
    return Pairs(**{**members, 'perturbations': zeros})


@dataclasses.dataclass(frozen=True)
class PersistentEvolution(estimator_lib.DeviceEstimator):
  """Estimates the gradient of minus the rewards of whole lifetimes.

  The reward of a window is the mean reward per step in validation after its N
  updates.

  Attributes:
    problem: The inner problem.
    settings: The number and the size of perturbations.
  """

  problem: inner_problem.InnerProblem
  settings: Persistent = Persistent()

  @property
  def steps(self) -> estimator_lib.Steps:
    """The steps of N updates and validation, by each of 2P agents."""
    steps = self.problem.steps(self.problem.num_updates, validations=1)
    return estimator_lib.Steps(steps, 2 * self.settings.pairs * steps)

  @property
  def agents_per_member(self) -> int:
    """Implements `Estimator.agents_per_member`."""
    return 2 * self.settings.pairs

  def initial_member(
    self,
    make: Callable[[types.Array], inner_loop_lib.Newborn],
    key: types.Array,
  ) -> inner_loop_lib.Newborn:
    """Makes pairs of equal agents; pairs differ."""
    one_of_each = jax.vmap(make)(jax.random.split(key, self.settings.pairs))
    twins = jnp.repeat(jnp.arange(self.settings.pairs), 2)
    return jax.tree.map(lambda x: x[twins], one_of_each)

  def begin(
    self, members: inner_loop_lib.Member, rule_params: types.Params
  ) -> Pairs:
    """Implements `Estimator.begin`: pairs keep their perturbations."""
    shape = (len(members.acting.key), self.settings.pairs)
    zeros = jax.tree.map(
      lambda x: jnp.zeros((*shape, *x.shape), x.dtype), rule_params
    )
    return Pairs(**vars(members), perturbations=zeros)

  def for_each_agent(
    self,
    function: Callable[
      [inner_loop_lib.DeviceMember], inner_loop_lib.DeviceMember
    ],
    member: inner_loop_lib.DeviceMember,
  ) -> inner_loop_lib.DeviceMember:
    """Implements `DeviceEstimator.for_each_agent`."""
    assert isinstance(member, Pairs)
    return _with_agents(member, jax.lax.map(function, _agents_of(member)))

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: base.JaxEnvironment,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    """Runs a window of each pair's agents, from where the last one ended.

    Implements `DeviceEstimator.__call__`.
    """
    assert isinstance(member, Pairs)
    pairs, std = self.settings.pairs, self.settings.std
    agents = _agents_of(member)
    # The two of a pair have the same keys all their lives.
    keys = jax.vmap(lambda key: jax.random.split(key, 2))(
      jax.vmap(self.problem.key)(agents)
    )
    agents = jax.vmap(self.problem.with_key)(agents, keys[:, 0])
    noise = jax.vmap(optax.tree.random_like, (0, None))(
      keys[::2, 1], rule_params
    )

    def window(
      one: tuple[types.Array, inner_loop_lib.DeviceMember],
    ) -> tuple[inner_loop_lib.DeviceMember, types.Array, types.Logs]:
      index, agent = one
      own_noise = jax.tree.map(lambda x: x[index // 2], noise)
      sign = jnp.where(index % 2 == 0, std, -std)
      agent, _, logs = self.problem.run(
        environment,
        optax.tree.add_scale(rule_params, sign, own_noise),
        agent,
        self.problem.num_updates,
      )
      agent, validation = self.problem.validate(environment, agent)
      return agent, self.problem.reward(validation), logs

    # One after another: `chunk_size` is the number of agents at a time.
    agents, rewards, logs = jax.lax.map(window, (jnp.arange(2 * pairs), agents))
    differences = rewards[::2] - rewards[1::2]
    perturbations = optax.tree.add(member.perturbations, noise)
    slopes = -differences / (2.0 * std * pairs)
    gradient = jax.tree.map(
      lambda x: jnp.tensordot(slopes, x, axes=1), perturbations
    )
    member = dataclasses.replace(member, perturbations=perturbations)
    return (
      gradient,
      _with_agents(member, agents),
      {
        **jax.tree.map(jnp.mean, logs),
        'validation_reward': jnp.mean(rewards),
        'reward_difference': jnp.mean(jnp.abs(differences)),
      },
    )


def _agents_of(member: Pairs) -> inner_loop_lib.DeviceMember:
  """Returns the agents of a member, [2P], each like a member of its own."""
  return inner_loop_lib.Member(
    member.learner,
    member.meta_value,
    member.acting,
    member.replay,
    meta_opt_state=(),  # They share one.
  )


def _with_agents(member: Pairs, agents: inner_loop_lib.DeviceMember) -> Pairs:
  """Inverts `_agents_of`."""
  return dataclasses.replace(
    member,
    learner=agents.learner,
    meta_value=agents.meta_value,
    acting=agents.acting,
    replay=agents.replay,
  )
