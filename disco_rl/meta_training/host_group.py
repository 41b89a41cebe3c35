"""Members of a population in environments on the host."""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.agent import host_actor
from disco_rl.agent import replay as replay_lib
from disco_rl.environments import base
from disco_rl.environments.host import joined
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.meta_training import resets
from disco_rl.runtime import sharding


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
      config.inner_loop.agent.network, self._environment, len(environments)
    )
    self._count = jax.jit(jax.vmap(episodes.update))
    self._resets = resets.Resets(
      config,
      config.program(
        jax.vmap(functools.partial(resets.initial_member, config.inner_loop)),
        (sharding.SPLIT,),
        runs_often=False,
      ),
    )
    rule, members = sharding.REPLICATED, sharding.SPLIT
    specs: Any = (members, sharding.SPLIT_BATCH, members)
    lived = inner_loop_lib.Trajectory(*specs)
    self._learn = config.program(
      self._learn_all,
      (rule, members, members),
      donate_argnums=1,
      out_specs=(members, lived, members),
    )
    all_lived = config.inner_loop.config.inner_updates * (lived,)
    self._differentiate = config.program(
      self._differentiate_all,
      (rule, members, all_lived, members, members),
      donate_argnums=1,
    )

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    programs = (self._resets, self._learn, self._differentiate)
    return sum(program.compile_seconds for program in programs)

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """See `population.Group.init`."""
    return self._resets.init(keys, rule_params)

  def resume(self, members: inner_loop_lib.Member) -> inner_loop_lib.Member:
    """See `host_actor.restart_episodes`."""
    return dataclasses.replace(
      members, agent=host_actor.restart_episodes(members.agent)
    )

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> population.MetaUpdates:
    """See `population.Group.step`."""
    inner_loop = self.config.inner_loop
    members, learnt = host_actor.overlap(
      members,
      inner_loop.config.inner_updates,
      prepare_acting,
      self._act,
      lambda members, acted: self._learn_from(rule_params, members, *acted),
    )
    rollouts = []
    for _ in range(inner_loop.validation_rollouts):
      members, actor_params = prepare_acting(members)
      rollout, is_last = self._act(actor_params)
      members = self._count_episodes(members, rollout, is_last)
      rollouts.append(rollout)
    lived, logs = zip(*learnt)
    return self._differentiate(rule_params, members, lived, rollouts, logs)

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, over: np.ndarray
  ) -> inner_loop_lib.Member:
    """See `population.Group.reset_expired`."""
    own = self.config.own_members
    for index in np.flatnonzero(over[own.start : own.stop]).tolist():
      self._actor.replace_observation(index, self._environment.reset_one(index))
    return self._resets.reset_expired(keys, members, over)

  def _act(
    self, actor_params: host_actor.ActorParams
  ) -> tuple[types.Rollout, types.Array]:
    acted = self._actor.unroll(
      self.config.own_part(actor_params),
      self.config.inner_loop.agent.config.unroll_length,
    )
    return self.config.join_parts(acted)

  def _learn_from(
    self,
    rule_params: types.Params,
    members: inner_loop_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> tuple[
    inner_loop_lib.Member, tuple[inner_loop_lib.Trajectory, types.Logs]
  ]:
    members = self._count_episodes(members, rollout, is_last)
    members, lived, logs = self._learn(rule_params, members, rollout)
    return members, (lived, logs)

  def _count_episodes(
    self,
    members: inner_loop_lib.Member,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> inner_loop_lib.Member:
    statistics = self._count(members.agent.episodes, rollout.reward, is_last)
    agents = dataclasses.replace(members.agent, episodes=statistics)
    return dataclasses.replace(members, agent=agents)

  def _learn_all(
    self,
    rule_params: types.Params,
    members: inner_loop_lib.Member,
    rollout: types.Rollout,
  ) -> tuple[inner_loop_lib.Member, inner_loop_lib.Trajectory, types.Logs]:
    inner_loop = self.config.inner_loop
    agents, batches = jax.vmap(inner_loop.agent.add_and_sample)(
      members.agent, rollout
    )
    members, replay = without_replay(dataclasses.replace(members, agent=agents))
    members, lived, logs = chunks.map_chunks(
      self.config.chunk,
      lambda member, batch: inner_loop.learn(rule_params, member, batch),
      members,
      batches,
    )
    return with_replay(members, replay), lived, logs

  def _differentiate_all(
    self,
    rule_params: types.Params,
    members: inner_loop_lib.Member,
    lived: Sequence[inner_loop_lib.Trajectory],
    rollouts: Sequence[types.Rollout],
    logs: Sequence[types.Logs],
  ) -> population.MetaUpdates:
    def one(
      member: inner_loop_lib.Member,
      lived: Sequence[inner_loop_lib.Trajectory],
      rollouts: Sequence[types.Rollout],
      logs: Sequence[types.Logs],
    ) -> population.MetaUpdates:
      gradient, member, outer_logs = self._estimator.differentiate(
        rule_params,
        member,
        self.config.inner_loop.segments(population.stack(lived)),
        inner_loop_lib.join(population.stack(rollouts)),
      )
      means = jax.tree.map(jnp.mean, population.stack(logs))
      return meta_update.member_update(
        self.config, rule_params, member, gradient, {**means, **outer_logs}
      )

    members, replay = without_replay(members)
    updates, members, all_logs = meta_update.sum_updates(
      self.config, rule_params, one, members, lived, rollouts, logs
    )
    return updates, with_replay(members, replay), all_logs


def prepare_acting(
  members: inner_loop_lib.Member,
) -> tuple[inner_loop_lib.Member, host_actor.ActorParams]:
  """Prepares members for acting; see `host_actor.prepare_acting`."""
  agents, actor_params = host_actor.prepare_acting(members.agent)
  return dataclasses.replace(members, agent=agents), actor_params


def without_replay(
  members: inner_loop_lib.Member,
) -> tuple[inner_loop_lib.Member, replay_lib.ReplayState]:
  """Members for a loop that does not need what they remember.

  It would copy that, most of a member's memory, at every turn.
  """
  missing: Any = None
  agents = dataclasses.replace(members.agent, replay=missing)
  return dataclasses.replace(members, agent=agents), members.agent.replay


def with_replay(
  members: inner_loop_lib.Member, replay: replay_lib.ReplayState
) -> inner_loop_lib.Member:
  """Undoes `without_replay`."""
  agents = dataclasses.replace(members.agent, replay=replay)
  return dataclasses.replace(members, agent=agents)
