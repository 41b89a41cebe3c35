"""Groups of members in environments on the device."""

from collections.abc import Sequence
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import chunks
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.meta_training import resets
from disco_rl.runtime import sharding


class DeviceGroup(population.Group):
  """A group in JAX-native environments, whose step is one program.

  Attributes:
    each_environment: The environments, one for each member.
  """

  estimator: estimator_lib.DeviceEstimator

  def __init__(
    self,
    config: population.GroupConfig,
    environments: Sequence[base.JaxEnvironment],
    estimator: estimator_lib.DeviceEstimator,
  ):
    """Compiles nothing yet.

    Args:
      config: The settings of the group.
      environments: An environment for each member.
      estimator: Computes the meta-gradient.
    """
    super().__init__(
      config,
      estimator,
      config.inner_loop.agent.empty_replay,
      config.split(chunks.stack(environments)),
    )
    self.each_environment = environments
    self._counts = config.split(config.counts)
    self._step = self.programs.make(
      self._step_all,
      (sharding.REPLICATED, *(3 * (sharding.SPLIT,))),
      donate_argnums=1,
    )
    self._replace = self.programs.make(
      resets.replace_where,
      3 * (sharding.SPLIT,),
      donate_argnums=2,
      runs_often=False,
    )

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> meta_update.MetaUpdates:
    """Implements `population.Group.step`."""
    return self._step(*self._step_arguments(rule_params, members))

  def step_calls(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> population.Calls:
    """Implements `population.Group.step_calls`."""
    n = self.config.num_members
    expired = self.config.shapes(jax.ShapeDtypeStruct((n,), bool))
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), n))
    initial = self.config.shapes(
      self._initial.shapes(self.config.shapes(keys), self._environments)
    )
    return {
      'step': (self._step, self._step_arguments(rule_params, members)),
      'replace': (self._replace, (expired, initial, members)),
    }

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, expired: np.ndarray
  ) -> inner_loop_lib.Member:
    """Implements `population.Group.reset_expired`."""
    split = self.config.split
    initial = self._initial(split(keys), self._environments)
    return self._replace(split(jnp.asarray(expired)), initial, members)

  def _step_arguments(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> tuple[types.PyTree, ...]:
    return rule_params, members, self._environments, self._counts

  def _step_all(
    self,
    rule_params: types.Params,
    members: types.PyTree,
    environments: types.PyTree,
    counts: types.Array,
  ) -> meta_update.MetaUpdates:
    """Makes the meta-step of all members; the compiled program of `step`."""

    def step(
      member: inner_loop_lib.DeviceMember,
      environment: base.JaxEnvironment,
      counts: types.Array,
    ) -> meta_update.MetaUpdates:
      fill_replay = self.config.inner_loop.fill_replay
      member = self.estimator.for_each_agent(
        functools.partial(fill_replay, environment), member
      )
      gradient, member, logs = self.estimator(rule_params, member, environment)
      updates, opt_state, logs = meta_update.member_update(
        self.config.optimizer,
        rule_params,
        member.meta_opt_state,
        gradient,
        logs,
        member.acting.episodes,
        counts,
      )
      member = dataclasses.replace(member, meta_opt_state=opt_state)
      return updates, member, logs

    return meta_update.sum_over_members(
      self.config.chunk, rule_params, step, members, environments, counts
    )
