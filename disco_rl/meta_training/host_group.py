"""Groups of members in environments on the host."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from disco_rl import types
from disco_rl.agent import cohort as cohort_lib
from disco_rl.agent import episodes as episodes_lib
from disco_rl.agent import host_collector
from disco_rl.environments import base
from disco_rl.meta_training import chunks
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import offloading
from disco_rl.meta_training import population
from disco_rl.runtime import distributed
from disco_rl.runtime import reports
from disco_rl.runtime import sharding

_add = jax.jit(optax.tree.add)  # Sums of updates, [devices, ...].


HostMember = inner_loop_lib.Member[
  host_collector.HostActing, host_collector.Counters
]


class HostGroup(population.Group):
  """A group in environments on the host, computed one micro-batch at a time.

  A micro-batch has a chunk of members on each device. The others are offloaded
  to host memory, as NumPy arrays, so that the memory of devices does not depend
  on the number of members. Replay is also in host memory.
  """

  estimator: estimator_lib.HostEstimator

  def __init__(
    self,
    config: population.GroupConfig,
    make_environments: Callable[[int], Sequence[base.HostEnvironment]],
    estimator: estimator_lib.HostEstimator,
  ):
    """Compiles nothing yet, and makes no environment.

    Args:
      config: The settings of the group.
      make_environments: Makes E environments for each of this process's
        members, given the meta-step at which they begin; called when the group
        is first used, and when a run resumes without their states.
      estimator: Computes the meta-gradient from the trajectory of updates.
    """
    # The collectors have the replay itself.
    super().__init__(
      config, estimator, empty_replay=lambda: host_collector.NO_TRAJECTORIES
    )
    self._make_environments = make_environments
    self.cohort = cohort_lib.Cohort(
      config.inner_loop.agent,
      lambda: make_environments(0),
      config.micro_batches,
      config.local_members,
    )
    rule, members = sharding.REPLICATED, sharding.SPLIT
    specs: types.PyTree = (members, sharding.SPLIT_BATCH, members)
    update = inner_loop_lib.Trajectory(*specs)
    # As many batches as `offloading.TrajectoryStore` keeps for each state.
    batches = config.inner_loop.config.save_every * (sharding.SPLIT_BATCH,)
    specs = (members, batches, members)
    segment = offloading.Segment(*specs)
    self._learn = self.programs.make(
      self._learn_all,
      (rule, members, members),
      donate_argnums=1,
      out_specs=(members, update, members),
    )
    self._outer_loss = self.programs.make(
      self._outer_loss_all, (rule, members, members), donate_argnums=1
    )
    self._backward = self.programs.make(
      self._backward_all, (rule, members, segment), donate_argnums=1
    )
    self._meta_update = self.programs.make(
      self._meta_update_all, (rule, *(5 * (members,))), donate_argnums=1
    )

  @property
  def micro_batch_size(self) -> int:
    """The number of members of a micro-batch."""
    return self.config.chunk * self.config.mesh.shape[sharding.AGENTS]

  def restore_replays(self, members: inner_loop_lib.Member) -> None:
    """Implements `population.Group.restore_replays`."""
    self.cohort.restore_replays(self._from_checkpoint(members.replay))

  def init(
    self, keys: types.Array, rule_params: types.Params
  ) -> inner_loop_lib.Member:
    """Makes members, with a leading axis of this process's members."""
    micro_batches, parts = self.cohort.micro_batches, []
    if not micro_batches:
      return self.config.local_part(self._member_shapes(rule_params))
    for micro in micro_batches:
      initial = self._initial(self.config.split(keys[micro.agents]), None)
      parts.append(self._own(self._complete(rule_params, initial)))
    members = offloading.collect(parts, [micro.own for micro in micro_batches])
    return self.cohort.renew(members)

  def resume(
    self,
    members: inner_loop_lib.Member,
    meta_step: int,
    environments: types.PyTree | None = None,
  ) -> inner_loop_lib.Member:
    """Implements `population.Group.resume`."""

    def make() -> Sequence[base.HostEnvironment]:
      reports.note(
        f'Environments like {self.config.names[0]} cannot be saved: new '
        'episodes begin, with new seeds.'
      )
      return self._make_environments(meta_step)

    if environments is None and self.cohort.micro_batches:
      self.cohort.replace_environments(make)
    members = self.cohort.resume(self._from_checkpoint(members), environments)
    return offloading.offloaded(members)

  def _from_checkpoint(self, tree: types.PyTree) -> types.PyTree:
    """Returns this process's part; the inverse of `to_checkpoint`."""
    if self.config.is_in_all_processes:
      return self._own(tree)
    return offloading.select(tree, np.array(self.config.local_members, int))

  def _member_shapes(self, rule_params: types.Params) -> inner_loop_lib.Member:
    """Returns the shapes of the members, [n, ...]."""
    n = self.config.num_members
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), n))
    initial = self._initial.shapes(keys, None)
    return self._complete.shapes(rule_params, initial)

  def to_checkpoint(
    self, members: inner_loop_lib.Member
  ) -> inner_loop_lib.Member:
    """Implements `population.Group.to_checkpoint`."""
    if not distributed.is_distributed():
      return members
    if self.config.is_in_all_processes:
      return self.config.gather_parts(members)
    return self.fetch(members)

  def fetch(self, tree: types.PyTree) -> types.PyTree:
    """Implements `population.Group.fetch`, from a tree [own, ...]."""
    return self.config.gather(tree) if distributed.is_distributed() else tree

  def step(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> meta_update.MetaUpdates:
    """Implements `population.Group.step`; one micro-batch after another."""
    total: types.PyTree = None
    micro_batches, all_logs = self.cohort.micro_batches, []
    if not micro_batches:
      logs = self.config.local_part(self._log_shapes(rule_params))
      return total, members, logs
    for micro in micro_batches:
      updates, part, logs = self._step_of(
        micro, rule_params, offloading.select(members, micro.own)
      )
      members = offloading.overwrite(members, micro.own, part)
      total = updates if total is None else _add(total, updates)
      all_logs.append(self._own(logs))
    logs = offloading.collect(all_logs, [micro.own for micro in micro_batches])
    return total, self.cohort.with_counters(members), logs

  def _log_shapes(self, rule_params: types.Params) -> types.Logs:
    """Returns the shapes of the logs of `step`, [n]."""
    program, arguments = self.named_calls(rule_params)['meta_update']
    _, _, logs = program.shapes(*arguments)
    return logs

  def step_calls(
    self, rule_params: types.Params, members: inner_loop_lib.Member
  ) -> population.Calls:
    """Implements `population.Group.step_calls`."""
    inner_loop, shapes = self.config.inner_loop, self.config.shapes
    rollouts = lambda size: shapes(
      host_collector.rollout_shapes(
        inner_loop.agent, self.micro_batch_size, size
      )
    )
    learning = inner_loop_lib.Learning(members.learner, members.meta_value)
    batches = rollouts(inner_loop.agent.config.batch_size)
    learn = (rule_params, learning, batches)
    _, update, logs = self._learn.shapes(*learn)
    update = dataclasses.replace(
      shapes(update),
      batches=sharding.shapes(
        update.batches, self.config.mesh, sharding.SPLIT_BATCH
      ),
    )
    config = inner_loop.config
    rollout = rollouts(inner_loop.agent.config.num_environments)
    validation = inner_loop.validation_rollouts * (rollout,)
    outer_loss = (rule_params, learning, validation)
    cotangents, _, outer_logs = shapes(self._outer_loss.shapes(*outer_loss))
    segment = offloading.begin_segment(config, update)
    for _ in range(config.save_every - 1):
      segment = offloading.add_batch(segment, update.batches)
    backward = (rule_params, cotangents, segment)
    _, sweep_logs = shapes(self._backward.shapes(*backward))
    all_logs = (
      config.inner_updates * (shapes(logs),),
      outer_logs,
      config.inner_updates // config.save_every * (sweep_logs,),
    )
    update_rule = (
      rule_params,
      members.meta_opt_state,
      cotangents[1],
      all_logs,
      members.acting.episodes,
      shapes(jax.ShapeDtypeStruct((self.micro_batch_size,), bool)),
    )
    return {
      'backward': (self._backward, backward),
      'learn': (self._learn, learn),
      'outer_loss': (self._outer_loss, outer_loss),
      'meta_update': (self._meta_update, update_rule),
    }

  def reset_expired(
    self, keys: types.Array, members: inner_loop_lib.Member, expired: np.ndarray
  ) -> inner_loop_lib.Member:
    """Implements `population.Group.reset_expired`."""
    is_expired = expired[np.array(self.config.local_members, int)]
    for micro in self.cohort.micro_batches:
      if not expired[micro.agents].any():
        continue
      initial = self._initial(self.config.split(keys[micro.agents]), None)
      own = np.flatnonzero(is_expired[micro.own])
      for i in own.tolist():
        self.cohort.reset(micro, i)
      before = offloading.select(members, micro.own)
      fresh = dataclasses.replace(before, **vars(self._own(initial)))
      members = offloading.overwrite(
        members, micro.own[own], offloading.select(fresh, own)
      )
    return self.cohort.with_counters(members)

  def _step_of(
    self,
    micro: cohort_lib.MicroBatch,
    rule_params: types.Params,
    members: HostMember,
  ) -> tuple[types.Params, HostMember, types.Logs]:
    """Makes the meta-step of the members of a micro-batch."""
    inner_loop, config = self.config.inner_loop, self.config
    store = offloading.TrajectoryStore(inner_loop.config)
    learning, acting, inner_logs = self._make_updates(
      micro, rule_params, members, store
    )
    # Unlike rollouts to learn from, with the last parameters.
    params = config.local_part(learning.learner.params)
    validating, validation = dataclasses.replace(acting, params=params), []
    for _ in range(inner_loop.validation_rollouts):
      validating, rollout = micro.collector.act(validating)
      validation.append(config.gather_parts(rollout))
    # The life goes on with the parameters for the next rollout, which the last
    # update has not changed: it does not depend on the length of the window.
    acting = dataclasses.replace(validating, params=acting.params)
    learning, gradients, outer_logs = self._differentiate(
      rule_params, learning, store, validation
    )
    updates, opt_state, logs = self._meta_update(
      rule_params,
      config.gather_parts(members.meta_opt_state),
      gradients,
      (inner_logs, *outer_logs),
      config.gather_parts(acting.episodes),
      config.split(config.counts[micro.agents]),
    )
    members = inner_loop_lib.Member(
      **vars(self._own(learning)),
      acting=offloading.offloaded(acting),
      replay=members.replay,
      meta_opt_state=self._own(opt_state),
    )
    return updates, members, logs

  def _make_updates(
    self,
    micro: cohort_lib.MicroBatch,
    rule_params: types.Params,
    members: HostMember,
    store: offloading.TrajectoryStore,
  ) -> tuple[inner_loop_lib.Learning, host_collector.HostActing, types.PyTree]:
    """Makes the N updates; returns what learns, what acts, and logs."""
    config, acting = self.config, members.acting
    # Usually none, and the copies of states would take time in each meta-step.
    for i in filter(micro.collector.must_fill, range(len(micro.own))):
      one = np.array([i])
      acting = offloading.overwrite(
        acting,
        one,
        micro.collector.fill_replay(
          i,
          self.cohort.environments[micro.own[i]],
          offloading.select(acting, one),
        ),
      )
    all_logs: list[types.Logs] = []

    def hand_over(
      learning: inner_loop_lib.Learning, acting: host_collector.HostActing
    ) -> host_collector.HostActing:
      params = host_collector.copy_params(learning.learner.params)
      return dataclasses.replace(acting, params=config.local_part(params))

    def collect(
      acting: host_collector.HostActing,
    ) -> tuple[host_collector.HostActing, types.Rollout]:
      acting, (batch,) = micro.collector.act_and_sample(acting)
      return acting, config.gather_parts(batch)

    def learn(
      learning: inner_loop_lib.Learning, batch: types.Rollout
    ) -> inner_loop_lib.Learning:
      learning, update, logs = self._learn(rule_params, learning, batch)
      store.add(update)
      all_logs.append(logs)
      return learning

    learning = inner_loop_lib.Learning(members.learner, members.meta_value)
    params = config.local_part(config.gather_parts(acting.params))
    learning, acting = host_collector.collect_while_learning(
      config.gather_parts(learning),
      dataclasses.replace(acting, params=params),
      config.inner_loop.config.inner_updates,
      hand_over,
      collect,
      learn,
    )
    return learning, acting, tuple(all_logs)

  def _differentiate(
    self,
    rule_params: types.Params,
    learning: inner_loop_lib.Learning,
    store: offloading.TrajectoryStore,
    validation: Sequence[types.Rollout],
  ) -> tuple[inner_loop_lib.Learning, types.Params, types.PyTree]:
    """Computes meta-gradients of a micro-batch, and empties the store."""
    cotangents, learning, outer_logs = self._outer_loss(
      rule_params, learning, tuple(validation)
    )
    sweep_logs = []
    for segment in store.backwards():
      cotangents, logs = self._backward(rule_params, cotangents, segment)
      sweep_logs.append(logs)
    return learning, cotangents[1], (outer_logs, tuple(sweep_logs))

  def _learn_all(
    self,
    rule_params: types.Params,
    learning: inner_loop_lib.Learning,
    batches: types.Rollout,
  ) -> tuple[inner_loop_lib.Learning, inner_loop_lib.Trajectory, types.Logs]:
    """Makes one update of each member."""
    learn = functools.partial(self.config.inner_loop.learn, rule_params)
    return self._map_chunk(learn)(learning, batches)

  def _outer_loss_all(
    self,
    rule_params: types.Params,
    learning: inner_loop_lib.Learning,
    validation: Sequence[types.Rollout],
  ) -> tuple[estimator_lib.Cotangents, inner_loop_lib.Learning, types.Logs]:
    """Evaluates the outer loss of each member."""
    return self._map_chunk(
      lambda learning, rollouts: self.estimator.outer_gradient(
        rule_params,
        learning,
        self.config.inner_loop.concatenate_rollouts(chunks.stack(rollouts)),
      )
    )(learning, validation)

  def _backward_all(
    self,
    rule_params: types.Params,
    cotangents: estimator_lib.Cotangents,
    segment: offloading.Segment,
  ) -> tuple[estimator_lib.Cotangents, types.Logs]:
    """Sweeps back through k updates of each member."""

    def backward(
      cotangents: estimator_lib.Cotangents, segment: offloading.Segment
    ) -> tuple[estimator_lib.Cotangents, types.Logs]:
      cotangents, logs = self.estimator.backward(
        rule_params, cotangents, segment.stack()
      )
      return cotangents, jax.tree.map(jnp.mean, logs)

    return self._map_chunk(backward)(cotangents, segment)

  def _meta_update_all(
    self,
    rule_params: types.Params,
    opt_states: types.PyTree,
    gradients: types.Params,
    logs: types.PyTree,
    statistics: episodes_lib.EpisodeStatistics,
    counts: types.Array,
  ) -> tuple[types.Params, types.PyTree, types.Logs]:
    """Computes each member's update of eta, and joins its logs."""

    def update(
      opt_state: types.PyTree,
      gradient: types.Params,
      logs: types.PyTree,
      statistics: episodes_lib.EpisodeStatistics,
      counts: types.Array,
    ) -> tuple[types.Params, types.PyTree, types.Logs]:
      inner_logs, outer_logs, sweep_logs = logs
      mean = lambda logs: jax.tree.map(jnp.mean, chunks.stack(logs))
      return meta_update.member_update(
        self.config.optimizer,
        rule_params,
        opt_state,
        gradient,
        {**mean(inner_logs), **outer_logs, **mean(sweep_logs)},
        statistics,
        counts,
      )

    return meta_update.sum_over_members(
      self.config.chunk,
      rule_params,
      update,
      *(opt_states, gradients, logs, statistics, counts),
    )

  def _map_chunk(
    self, function: Callable[..., types.PyTree]
  ) -> Callable[..., types.PyTree]:
    """Maps a function over the members that a device computes at a time."""
    return chunks.map_chunk(self.config.chunk, function)

  def _own(self, tree: types.PyTree) -> types.PyTree:
    """Returns this process's part of a tree [n, ...], in host memory."""
    return offloading.offloaded(self.config.local_part(tree))
