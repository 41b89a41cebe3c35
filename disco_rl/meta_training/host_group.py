"""Members of a population in environments on the host."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import episodes
from disco_rl import host_actor
from disco_rl import replay as replay_lib
from disco_rl import sharding
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import joined
from disco_rl.meta_training import births
from disco_rl.meta_training import chunks
from disco_rl.meta_training import living as living_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import population
from disco_rl.meta_training import voting


class HostGroup:
  """Members in environments on the host: these step between small programs."""

  def __init__(
    self,
    config: population.GroupConfig,
    environments: Sequence[base.HostEnvironment],
    estimator: meta_gradient.MetaGradient,
  ):
    """Begins an episode in every environment.

    Args:
      config: what the members share.
      environments: E environments for each of this process's members.
      estimator: of the meta-gradient, from what was lived.
    """
    self.config = config
    self._estimator = estimator
    self._environment = joined.JoinedEnvironment(environments)
    self._actor = host_actor.HostActor(
      config.living.agent.network, self._environment, len(environments)
    )
    self._count = jax.jit(jax.vmap(episodes.update))
    self._births = births.Births(
      config,
      config.program(
        jax.vmap(functools.partial(births.newborn, config.living)),
        (sharding.SPLIT,),
        runs_often=False,
      ),
    )
    rule, members = sharding.REPLICATED, sharding.SPLIT
    specs: Any = (members, sharding.SPLIT_BATCH, members)
    lived = living_lib.Trajectory(*specs)
    self._learn = config.program(
      self._learn_all,
      (rule, members, members),
      donate_argnums=1,
      out_specs=(members, lived, members),
    )
    all_lived = config.living.config.inner_updates * (lived,)
    self._vote = config.program(
      self._vote_all,
      (rule, members, all_lived, members, members),
      donate_argnums=1,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    programs = (self._births, self._learn, self._vote)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> living_lib.Member:
    """See `population.Group.init`."""
    return self._births.init(keys, rule_params)

  def resume(self, members: living_lib.Member) -> living_lib.Member:
    """See `host_actor.begin_anew`."""
    return dataclasses.replace(
      members, agent=host_actor.begin_anew(members.agent)
    )

  def step(
    self, rule_params: types.Params, members: living_lib.Member
  ) -> population.Votes:
    """See `population.Group.step`."""
    living = self.config.living
    members, learnt = host_actor.overlap(
      members,
      living.config.inner_updates,
      give_orders,
      self._act,
      lambda members, acted: self._learn_from(rule_params, members, *acted),
    )
    rollouts = []
    for _ in range(living.validation_rollouts):
      members, orders = give_orders(members)
      rollout, is_last = self._act(orders)
      members = self._count_episodes(members, rollout, is_last)
      rollouts.append(rollout)
    lived, logs = zip(*learnt)
    return self._vote(rule_params, members, lived, rollouts, logs)

  def renew(
    self, keys: types.Array, members: living_lib.Member, over: np.ndarray
  ) -> living_lib.Member:
    """See `population.Group.renew`."""
    own = self.config.own_members
    for index in np.flatnonzero(over[own.start : own.stop]).tolist():
      self._actor.replace_observation(index, self._environment.reset_one(index))
    return self._births.renew(keys, members, over)

  def _act(
    self, orders: host_actor.Orders
  ) -> tuple[types.Rollout, types.Array]:
    acted = self._actor.unroll(
      self.config.own_part(orders),
      self.config.living.agent.config.unroll_length,
    )
    return self.config.join_parts(acted)

  def _learn_from(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> tuple[living_lib.Member, tuple[living_lib.Trajectory, types.Logs]]:
    members = self._count_episodes(members, rollout, is_last)
    members, lived, logs = self._learn(rule_params, members, rollout)
    return members, (lived, logs)

  def _count_episodes(
    self,
    members: living_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> living_lib.Member:
    statistics = self._count(members.agent.episodes, rollout.reward, is_last)
    agents = dataclasses.replace(members.agent, episodes=statistics)
    return dataclasses.replace(members, agent=agents)

  def _learn_all(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    rollout: types.Rollout,
  ) -> tuple[living_lib.Member, living_lib.Trajectory, types.Logs]:
    living = self.config.living
    agents, batches = jax.vmap(living.agent.remember)(members.agent, rollout)
    members, replay = without_replay(dataclasses.replace(members, agent=agents))
    members, lived, logs = chunks.map_chunks(
      self.config.chunk,
      lambda member, batch: living.learn(rule_params, member, batch),
      members,
      batches,
    )
    return with_replay(members, replay), lived, logs

  def _vote_all(
    self,
    rule_params: types.Params,
    members: living_lib.Member,
    lived: Sequence[living_lib.Trajectory],
    rollouts: Sequence[types.Rollout],
    logs: Sequence[types.Logs],
  ) -> population.Votes:
    def one(
      member: living_lib.Member,
      lived: Sequence[living_lib.Trajectory],
      rollouts: Sequence[types.Rollout],
      logs: Sequence[types.Logs],
    ) -> population.Votes:
      gradient, member, outer_logs = self._estimator.differentiate(
        rule_params,
        member,
        self.config.living.segments(population.stack(lived)),
        living_lib.join(population.stack(rollouts)),
      )
      means = jax.tree.map(jnp.mean, population.stack(logs))
      return voting.vote(
        self.config, rule_params, member, gradient, {**means, **outer_logs}
      )

    members, replay = without_replay(members)
    updates, members, all_logs = voting.collect_votes(
      self.config, rule_params, one, members, lived, rollouts, logs
    )
    return updates, with_replay(members, replay), all_logs


def give_orders(
  members: living_lib.Member,
) -> tuple[living_lib.Member, host_actor.Orders]:
  """Prepares members for acting; see `host_actor.give_orders`."""
  agents, orders = host_actor.give_orders(members.agent)
  return dataclasses.replace(members, agent=agents), orders


def without_replay(
  members: living_lib.Member,
) -> tuple[living_lib.Member, replay_lib.ReplayState]:
  """Members for a loop that does not need what they remember.

  It would copy that, most of a member's memory, at every turn.
  """
  missing: Any = None
  agents = dataclasses.replace(members.agent, replay=missing)
  return dataclasses.replace(members, agent=agents), members.agent.replay


def with_replay(
  members: living_lib.Member, replay: replay_lib.ReplayState
) -> living_lib.Member:
  """Undoes `without_replay`."""
  agents = dataclasses.replace(members.agent, replay=replay)
  return dataclasses.replace(members, agent=agents)
