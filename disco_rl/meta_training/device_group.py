"""Members of a population in environments on the device."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import numpy as np

from disco_rl import actor
from disco_rl import sharding
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import births
from disco_rl.meta_training import living as living_lib
from disco_rl.meta_training import population
from disco_rl.meta_training import voting


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
    self._births = births.Births(
      config,
      config.program(
        jax.vmap(self._newborn), 2 * (sharding.SPLIT,), runs_often=False
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
    return self._step.compile_seconds + self._births.compile_seconds

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> living_lib.Member:
    """See `population.Group.init`."""
    return self._births.init(keys, rule_params, self._environments)

  def resume(self, members: living_lib.Member) -> living_lib.Member:
    """They hold all there is; see `population.Group.resume`."""
    return members

  def step(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> population.Votes:
    """See `population.Group.step`."""
    return self._step(rule_params, members, self._environments)

  def compile(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> jax.stages.Compiled:
    """The program of `step`, to be analysed."""
    return self._step.compile(rule_params, members, self._environments)

  def renew(
    self, keys: types.Array, members: living_lib.Member, over: np.ndarray
  ) -> living_lib.Member:
    """See `population.Group.renew`."""
    return self._births.renew(keys, members, over, self._environments)

  def _newborn(
    self, key: types.Array, environment: base.JaxEnvironment
  ) -> living_lib.Member:
    life_key, actor_key = jax.random.split(key)
    actors = actor.init(
      actor_key,
      self.config.living.agent.network,
      environment,
      self.config.living.agent.config.num_environments,
    )
    return dataclasses.replace(
      births.newborn(self.config.living, life_key), actor=actors
    )

  def _step_all(
    self, rule_params: types.Params, members: Any, environments: Any
  ) -> population.Votes:
    def one(
      member: living_lib.Member, environment: base.JaxEnvironment
    ) -> population.Votes:
      gradient, member, logs = self.config.estimator(
        rule_params, member, environment
      )
      return voting.vote(self.config, rule_params, member, gradient, logs)

    return voting.collect_votes(
      self.config, rule_params, one, members, environments
    )
