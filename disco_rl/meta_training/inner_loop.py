"""The inner loop: N updates of an agent between two meta-updates.

Agents act, store, sample and learn as they would with a fixed rule; the loop
keeps the trajectory of updates from which the meta-gradient is computed.
Nothing is differentiated here.
"""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Any
from typing import Generic
from typing import TypeVar

import jax
from jax import memory
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.agent import replay
from disco_rl.environments import base
from disco_rl.maths import shared_batch
from disco_rl.meta_training import meta_value as meta_value_lib


@dataclasses.dataclass(frozen=True)
class InnerLoopConfig(config_lib.Settings):
  """Lengths of the inner loop, and which learner states are kept.

  Attributes:
    inner_updates: N, updates of each agent in a meta-step; the meta-gradient is
      computed through all of them.
    validation_trajectories: number of fresh trajectories on which the outer
      loss is evaluated. The agent acts for the required number of rollouts.
    save_every: k, updates between two learner states that are kept; a divisor
      of N. States in between are recomputed.
    offload: whether kept states are moved to host memory.
  """

  inner_updates: config_lib.Count = 20
  validation_trajectories: config_lib.Count = 48
  save_every: config_lib.Count = 1
  offload: bool = False

  def conflicts(self) -> Iterator[str]:
    """Yields an error if the inner updates do not form equal segments."""
    updates = self.inner_updates
    if updates % self.save_every:
      divisors = [k for k in range(1, updates + 1) if updates % k == 0]
      yield (
        f'save_every={self.save_every} must divide inner_updates={updates}; '
        f'choose one of {divisors}.'
      )


_Acting = TypeVar('_Acting', bound=actor.Acting)
_Replay = TypeVar('_Replay')


@types.record
class Learning:
  """The part of a member that learns, through which estimators differentiate.

  Attributes:
    learner: The parameters, optimizer state and rule state of the agent.
    meta_value: The state of the agent's meta-value function.
  """

  learner: learner.LearnerState
  meta_value: meta_value_lib.MetaValueState


@types.record
class Newborn(Learning, Generic[_Acting]):
  """The part of a member that is new when its agent is reset.

  Attributes:
    acting: The random numbers, statistics and environments of the agent.
  """

  acting: _Acting


@types.record
class Member(Newborn[_Acting], Generic[_Acting, _Replay]):
  """One agent of the population, and the state of its meta-training.

  Attributes:
    replay: The past trajectories of the agent.
    meta_opt_state: The state of the agent's own Adam over eta, which is kept
      when the agent is reset.
  """

  replay: _Replay
  meta_opt_state: types.PyTree

  def restart(self: 'DeviceMember', initial: Newborn) -> 'DeviceMember':
    """Returns initial members [n, ...] with what outlives a reset.

    That is eta's optimizer, and the storage of replay: it is emptied by its
    counts, because it is most of a member's memory.
    """
    added = jnp.zeros_like(self.replay.added)
    return dataclasses.replace(
      self,
      **vars(initial),
      replay=dataclasses.replace(self.replay, added=added),
    )


# With JAX-native environments; on the host see `host_group.HostMember`.
DeviceMember = Member[actor.DeviceActing, replay.ReplayState]
_Learning = TypeVar('_Learning', bound=Learning)


@types.record
class Trajectory:
  """An agent's last N updates, in N/k segments of k.

  Attributes:
    states: The learner states before the first update of each segment, [N/k].
    batches: The batches of the updates, [N/k, k]; a device's shard, if devices
      share batches.
    gradients: The gradients of the agent's loss, [N/k, k]; None if k > 1, where
      they are recomputed with the states, and if the estimator does not need
      them.
  """

  states: learner.LearnerState
  batches: types.Rollout
  gradients: types.Params | None


@dataclasses.dataclass(frozen=True)
class InnerLoop:
  """Pure functions over `Member` for one kind of agent.

  Attributes:
    config: The lengths, and which states are kept.
    agent: The agent that is trained.
    meta_value: The agent's meta-value function.
    keep_gradients: Whether trajectories contain the gradients of updates, for
      estimators that need them.
  """

  config: InnerLoopConfig
  agent: agent_lib.Agent
  meta_value: meta_value_lib.MetaValue
  keep_gradients: bool = True

  @property
  def validation_rollouts(self) -> int:
    """The number of rollouts for validation, rounded up."""
    each = self.agent.config.num_environments
    return -(-self.config.validation_trajectories // each)

  def steps(self, updates: int, validations: int) -> int:
    """Counts the environment steps of one agent.

    Args:
      updates: The number of updates, each of which follows a rollout.
      validations: The number of times that it acts for validation.
    """
    rollouts = updates + validations * self.validation_rollouts
    return rollouts * self.agent.steps_per_update

  @property
  def fill_steps(self) -> int:
    """The environment steps by which a new agent fills its replay."""
    agent = self.agent
    return agent.environment_steps(1) - agent.steps_per_update

  def fill_replay(
    self, environment: base.JaxEnvironment, member: DeviceMember
  ) -> DeviceMember:
    """Acts before the first updates of a new agent, `Agent.fill_replay`."""
    acting, memory = self.agent.fill_replay(
      environment, member.learner.params, member.acting, member.replay
    )
    return dataclasses.replace(member, acting=acting, replay=memory)

  def learn(
    self, rule_params: types.Params, learning: _Learning, batch: types.Rollout
  ) -> tuple[_Learning, Trajectory, types.Logs]:
    """Makes one update of the agent.

    Args:
      rule_params: eta.
      learning: The member, or what learns of it, before the update.
      batch: T transitions of B trajectories.

    Returns:
      The same after the update, the update's entry of the trajectory (without
      leading axes), and scalars to log.
    """
    batch = shared_batch.local_shard(batch)
    before = learning.learner
    after, update = self.agent.learn(rule_params, before, batch)
    meta_value, logs = learning.meta_value, update.logs
    if self.meta_value.config.on_inner_batches:
      meta_value, _, value_logs = self.meta_value.estimate_and_update(
        meta_value,
        batch,
        self.agent.network.policy(before.params, batch),
      )
      logs = {**logs, **{f'inner_{k}': v for k, v in value_logs.items()}}
    learning = dataclasses.replace(
      learning, learner=after, meta_value=meta_value
    )
    gradient = update.gradient if self.keep_gradients else None
    return learning, Trajectory(before, batch, gradient), logs

  def run(
    self,
    environment: base.JaxEnvironment,
    rule_params: types.Params,
    member: DeviceMember,
    updates: int,
  ) -> tuple[DeviceMember, Trajectory, types.Logs]:
    """Makes updates in JAX-native environments.

    Args:
      environment: The environment of the member.
      rule_params: eta.
      member: The member before the updates.
      updates: The number of updates, a multiple of k.

    Returns:
      The member after the updates, the trajectory, and means to log.
    """
    update = functools.partial(self._update, environment, rule_params)

    def segment(
      member: DeviceMember, _: None
    ) -> tuple[DeviceMember, tuple[Trajectory, types.Logs]]:
      # The compiler keeps only the first state: the others are not used.
      member, (trajectory, logs) = jax.lax.scan(
        update, member, length=self.config.save_every
      )
      kept = jax.tree.map(lambda x: x[0], self.split_into_segments(trajectory))
      return member, (self.to_host(kept), logs)

    member, (trajectory, logs) = jax.lax.scan(
      segment,
      member,
      length=updates // self.config.save_every,
    )
    return member, trajectory, jax.tree.map(jnp.mean, logs)

  def advance(
    self,
    environment: base.JaxEnvironment,
    rule_params: types.Params,
    member: DeviceMember,
    updates: int,
  ) -> DeviceMember:
    """Makes any number of updates, of which only the last state is kept."""
    update = functools.partial(self._update, environment, rule_params)
    # The compiler removes what the scan would return.
    return jax.lax.scan(update, member, length=updates)[0]

  def _update(
    self,
    environment: base.JaxEnvironment,
    rule_params: types.Params,
    member: DeviceMember,
    _: None,
  ) -> tuple[DeviceMember, tuple[Trajectory, types.Logs]]:
    """Acts for one rollout, and learns once; the body of a scan."""
    member, rollout = self._act(environment, member)
    acting, memory, (slots,) = self.agent.add_and_sample(
      member.acting, member.replay, rollout
    )
    batch = replay.gather_slots(memory, slots)
    member = dataclasses.replace(member, acting=acting, replay=memory)
    member, trajectory, logs = self.learn(rule_params, member, batch)
    return member, (trajectory, logs)

  def _act(
    self, environment: base.JaxEnvironment, member: DeviceMember
  ) -> tuple[DeviceMember, types.Rollout]:
    """Acts for one rollout."""
    acting, rollout = self.agent.act(
      environment, member.learner.params, member.acting
    )
    return dataclasses.replace(member, acting=acting), rollout

  def split_into_segments(self, updates: Trajectory) -> Trajectory:
    """Groups updates [N, ...] into segments, without recomputable data."""
    k = self.config.save_every
    split = lambda x: x.reshape(-1, k, *x.shape[1:])
    return Trajectory(
      states=jax.tree.map(lambda x: x[::k], updates.states),
      batches=jax.tree.map(split, updates.batches),
      gradients=jax.tree.map(split, updates.gradients) if k == 1 else None,
    )

  def to_host(self, tree: types.PyTree) -> types.PyTree:
    """Moves a tree to host memory, if `offload` is set."""
    return self._move(tree, memory.Space.Host)

  def to_device(self, tree: types.PyTree) -> types.PyTree:
    """Moves a tree back to the device."""
    return self._move(tree, memory.Space.Device)

  def _move(self, tree: types.PyTree, space: Any) -> types.PyTree:
    return jax.device_put(tree, space) if self.config.offload else tree

  def validate(
    self, environment: base.JaxEnvironment, member: DeviceMember
  ) -> tuple[DeviceMember, types.Rollout]:
    """Acts without learning, to make trajectories for the outer loss.

    Returns:
      The member with the next state of its environments, and a rollout of all
      validation trajectories.
    """
    member, rollouts = jax.lax.scan(
      lambda member, _: self._act(environment, member),
      member,
      length=self.validation_rollouts,
    )
    return member, self.concatenate_rollouts(rollouts)

  def concatenate_rollouts(self, rollouts: types.Rollout) -> types.Rollout:
    """Joins rollouts [V, T, E, ...] into one, [T, at most V * E, ...].

    Trajectories beyond `validation_trajectories` are dropped.
    """
    number = self.config.validation_trajectories
    return jax.tree.map(
      lambda x: jnp.moveaxis(x, 0, 1).reshape(
        x.shape[1], x.shape[0] * x.shape[2], *x.shape[3:]
      )[:, :number],
      rollouts,
    )
