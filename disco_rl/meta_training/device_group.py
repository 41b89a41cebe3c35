"""Members of a population in environments on the device."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.environments import base
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.meta_training import resets
from disco_rl.runtime import sharding


class DeviceGroup:
  """Members in JAX-native environments: a step is one program."""

  def __init__(
    self,
    config: population.GroupConfig,
    environments: Sequence[base.JaxEnvironment],
  ):
    """Stacks the environments, one for each member."""
    self.config = config
    self._environments = config.split(population.stack(environments))
    self._resets = resets.Resets(
      config,
      config.program(
        jax.vmap(self._initial_member), 2 * (sharding.SPLIT,), runs_often=False
      ),
    )
    self._step = config.program(
      self._step_all,
      (sharding.REPLICATED, sharding.SPLIT, sharding.SPLIT),
      donate_argnums=1,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self._step.compile_seconds + self._resets.compile_seconds

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """See `population.Group.init`."""
    return self._resets.init(keys, rule_params, self._environments)

  def resume(self, members: inner_loop_lib.Member) -> inner_loop_lib.Member:
    """They hold all there is; see `population.Group.resume`."""
    return members

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> population.MetaUpdates:
    """See `population.Group.step`."""
    return self._step(rule_params, members, self._environments)

  def compile(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> jax.stages.Compiled:
    """The program of `step`, to be analysed."""
    return self._step.compile(rule_params, members, self._environments)

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, over: np.ndarray
  ) -> inner_loop_lib.Member:
    """See `population.Group.reset_expired`."""
    return self._resets.reset_expired(keys, members, over, self._environments)

  def _initial_member(
    self, key: types.Array, environment: base.JaxEnvironment
  ) -> inner_loop_lib.Member:
    life_key, actor_key = jax.random.split(key)
    actors = actor.init(
      actor_key,
      self.config.inner_loop.agent.network,
      environment,
      self.config.inner_loop.agent.config.num_environments,
    )
    return dataclasses.replace(
      resets.initial_member(self.config.inner_loop, life_key), actor=actors
    )

  def _step_all(
    self, rule_params: types.Params, members: Any, environments: Any
  ) -> population.MetaUpdates:
    def one(
      member: inner_loop_lib.Member, environment: base.JaxEnvironment
    ) -> population.MetaUpdates:
      gradient, member, logs = self.config.estimator(
        rule_params, member, environment
      )
      return meta_update.member_update(
        self.config, rule_params, member, gradient, logs
      )

    return meta_update.sum_updates(
      self.config, rule_params, one, members, environments
    )
