"""Members of a population in environments on the host."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import host_actor
from disco_rl.environments import base
from disco_rl.environments.host import joined
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import sharding

# A rollout [n, ...], and which of its steps ended an episode.
_Acted = tuple[types.Rollout, types.Array]


class HostGroup(population.Group):
  """Members in environments on the host: these step between small programs."""

  def __init__(
    self,
    config: population.GroupConfig,
    environments: Sequence[base.HostEnvironment],
    estimator: meta_gradient.MetaGradient,
  ):
    """Begins an episode in every environment.

    Args:
      config: common to the members.
      environments: E environments for each of this process's members.
      estimator: of the meta-gradient, from the trajectory of updates.
    """
    super().__init__(config)
    self._estimator = estimator
    self._environment = joined.JoinedEnvironment(environments)
    self._actor = host_actor.HostActor(
      config.inner_loop.agent.network, self._environment, len(environments)
    )
    rule, members = sharding.REPLICATED, sharding.SPLIT
    specs: Any = (members, sharding.SPLIT_BATCH, members)
    trajectory = inner_loop_lib.Trajectory(*specs)
    self._learn = self.programs.make(
      self._learn_all,
      (rule, members, members, members),
      donate_argnums=1,
      out_specs=(members, (trajectory, members)),
    )
    updates = config.inner_loop.config.inner_updates * (trajectory,)
    self._differentiate = self.programs.make(
      self._differentiate_all,
      (rule, members, updates, members, members),
      donate_argnums=1,
    )

  def resume(self, members: inner_loop_lib.Member) -> inner_loop_lib.Member:
    """See `host_actor.restart_episodes`."""
    return dataclasses.replace(
      members, agent=host_actor.restart_episodes(members.agent)
    )

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> meta_update.MetaUpdates:
    """See `population.Group.step`."""
    inner_loop = self.config.inner_loop
    members, learnt = host_actor.overlap(
      members,
      inner_loop.config.inner_updates,
      prepare_acting,
      self._act,
      lambda members, acted: self._learn(rule_params, members, *acted),
    )
    validation = []
    for _ in range(inner_loop.validation_rollouts):
      members, actor_params = prepare_acting(members)
      validation.append(self._act(actor_params))
    updates, logs = zip(*learnt)
    return self._differentiate(rule_params, members, updates, validation, logs)

  def step_calls(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> list[compilation.Call]:
    """See `population.Group.step_calls`."""
    inner_loop, shapes = self.config.inner_loop, self.config.shapes
    n = self.config.num_members
    acted = shapes(
      jax.eval_shape(lambda: host_actor.empty_acted(inner_loop.agent, n))
    )
    learn = (rule_params, members, *acted)
    members, (update, logs) = self._learn.shapes(*learn)
    update = dataclasses.replace(
      shapes(update),
      batches=sharding.shapes(
        update.batches, self.config.mesh, sharding.SPLIT_BATCH
      ),
    )
    updates = inner_loop.config.inner_updates
    differentiate = (
      rule_params,
      shapes(members),
      updates * (update,),
      inner_loop.validation_rollouts * [acted],
      updates * (shapes(logs),),
    )
    return [(self._differentiate, differentiate), (self._learn, learn)]

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, expired: np.ndarray
  ) -> inner_loop_lib.Member:
    """See `population.Group.reset_expired`."""
    own = self.config.own_members
    for index in np.flatnonzero(expired[own.start : own.stop]).tolist():
      self._actor.replace_observation(index, self._environment.reset_one(index))
    return super().reset_expired(keys, members, expired)

  def _act(self, actor_params: host_actor.ActorParams) -> _Acted:
    acted = self._actor.unroll(
      self.config.own_part(actor_params),
      self.config.inner_loop.agent.config.unroll_length,
    )
    return self.config.join_parts(acted)

  def _learn_all(
    self,
    rule_params: types.Params,
    members: inner_loop_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> tuple[
    inner_loop_lib.Member, tuple[inner_loop_lib.Trajectory, types.Logs]
  ]:
    """One update of each member."""
    inner_loop = self.config.inner_loop
    agents, batches = inner_loop.agent.receive(members.agent, rollout, is_last)
    members, updates, logs = chunks.map_chunks(
      self.config.chunk,
      lambda member, batch: inner_loop.learn(rule_params, member, batch),
      _without_replay(dataclasses.replace(members, agent=agents)),
      batches,
    )
    return members.replace_agent(replay=agents.replay), (updates, logs)

  def _differentiate_all(
    self,
    rule_params: types.Params,
    members: inner_loop_lib.Member,
    updates: Sequence[inner_loop_lib.Trajectory],
    validation: Sequence[_Acted],
    logs: Sequence[types.Logs],
  ) -> meta_update.MetaUpdates:
    """Meta-gradients from N updates and the rollouts after them."""
    inner_loop = self.config.inner_loop

    def step(
      member: inner_loop_lib.Member,
      updates: Sequence[inner_loop_lib.Trajectory],
      validation: Sequence[_Acted],
      logs: Sequence[types.Logs],
    ) -> meta_update.MetaUpdates:
      agent = member.agent
      for acted in validation:
        agent = inner_loop.agent.count_episodes(agent, *acted)
      gradient, member, outer_logs = self._estimator.differentiate(
        rule_params,
        dataclasses.replace(member, agent=agent),
        inner_loop.segments(population.stack(updates)),
        inner_loop_lib.join(population.stack([x for x, _ in validation])),
      )
      means = jax.tree.map(jnp.mean, population.stack(logs))
      return meta_update.member_update(
        self.config.optimizer,
        rule_params,
        member,
        gradient,
        {**means, **outer_logs},
      )

    replay = members.agent.replay
    total, members, all_logs = meta_update.sum_over_members(
      self.config.chunk,
      rule_params,
      step,
      _without_replay(members),
      updates,
      validation,
      logs,
    )
    return total, members.replace_agent(replay=replay), all_logs


def prepare_acting(
  members: inner_loop_lib.Member,
) -> tuple[inner_loop_lib.Member, host_actor.ActorParams]:
  """Prepares members for acting; see `host_actor.prepare_acting`."""
  agents, actor_params = host_actor.prepare_acting(members.agent)
  return dataclasses.replace(members, agent=agents), actor_params


def _without_replay(members: inner_loop_lib.Member) -> inner_loop_lib.Member:
  """For loops, which would copy replay, most of the memory, at every turn."""
  return members.replace_agent(replay=None)
