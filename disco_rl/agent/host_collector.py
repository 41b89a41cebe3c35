"""Collects batches from environments that step on the host.

`cohort` joins environments and collectors. From an environment to a batch:
  step the simulators                      environments.host.sequential, for
                                           images environments.host.image_vector
  check the data                           environments.host.adapters
  stack frames                             environments.host.frame_stack
  in a thread with a time limit            environments.host.timeouts
  as one batch of several agents,
  in discovery                             environments.host.joined
  act; record a rollout                    `host_actor.HostActor.unroll`
  pack it into rows of bytes; store them   `host_replay.HostReplay.add`
  draw slots of batches                    `Agent.sample_slots`
  read and unpack the batch                `HostReplay.gather`,
                                           `trajectory_rows.RowFormat.unpack`
  normalize rewards, in training           `Agent.normalize_rewards`
  hand it to the learner                   `parallel.HostTraining.attempt`; in
                                           discovery
                                           `host_group.HostGroup._make_updates`
"""

from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import copy
import dataclasses
import operator
import pathlib
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.agent import host_actor
from disco_rl.agent import host_replay
from disco_rl.agent import reward_moments
from disco_rl.agent import trajectory_rows
from disco_rl.environments import base

_Learning = TypeVar('_Learning')
_Acting = TypeVar('_Acting')
_Batch = TypeVar('_Batch')

# How many trajectories the replay of each agent has: 'start' and 'added', [S].
Counters = dict[str, types.PyTree]
# Those of an initial agent.
NO_TRAJECTORIES: Counters = {
  'start': np.zeros((), np.int32),
  'added': np.zeros((), np.int32),
}


@types.record
class HostActing(actor.Acting):
  """The state that acts in environments on the host, without these.

  Attributes:
    params: The parameters that act in the next rollout; see
      `collect_while_learning`.
  """

  params: types.Params


# With environments on the host, replay is there, too: only counters are left.
HostState = agent_lib.AgentState[HostActing, Counters]


def init(agent: agent_lib.Agent, key: types.Array) -> HostState:
  """Makes the initial state of an agent, with nothing in replay."""
  params_key, key = jax.random.split(key)
  learner = agent.init_learner(params_key)
  acting = HostActing(
    **vars(agent.init_acting(key)), params=copy_params(learner.params)
  )
  return agent_lib.AgentState(learner, acting, NO_TRAJECTORIES)


class Programs:
  """Compiled functions of one kind of agent, with a leading axis S."""

  def __init__(self, agent: agent_lib.Agent):
    """Compiles nothing yet."""
    self.row_format = row_format(agent)
    self.actor = host_actor.Programs(agent.network)
    self.split = jax.jit(jax.vmap(jax.random.split, out_axes=1))
    self.count = jax.jit(jax.vmap(agent.count))
    self.normalize_rewards = jax.jit(jax.vmap(agent.normalize_rewards))
    self.sample_slots = jax.jit(jax.vmap(agent.sample_slots))
    self.unpack = jax.jit(jax.vmap(self.row_format.unpack))


class HostCollector:
  """S agents of one kind that act on the host, with a replay for each.

  It is the counterpart of `Agent.act` and `Agent.add_and_sample`.

  Attributes:
    actor: The actor in the environments.
    replays: The replay of each agent.
  """

  def __init__(
    self,
    agent: agent_lib.Agent,
    environment: base.HostEnvironment,
    num_agents: int,
    programs: Programs | None = None,
  ):
    """Starts an episode in every environment; replay is in memory.

    Args:
      agent: The kind of agent.
      environment: The S * E environments, contiguous for each agent.
      num_agents: S.
      programs: The programs of the agent, if several collectors share them.
    """
    self._agent = agent
    self._programs = programs or Programs(agent)
    self.replays = self._make_replays(num_agents * [None])
    self.actor = host_actor.HostActor(
      agent.network, environment, num_agents, self._programs.actor
    )

  def open_replays(self, directories: Sequence[pathlib.Path]) -> None:
    """Makes empty replays that can be saved, each in its own directory."""
    self.replays = self._make_replays(directories)

  def act(self, acting: HostActing) -> tuple[HostActing, types.Rollout]:
    """Acts for a rollout, [S, T or T+1, E, ...], in new episodes if it must."""
    if self.actor.must_restart:
      self.actor.restart()
      acting = restart_episodes(acting)
    keys, act_keys = self._programs.split(acting.key)
    rollout, is_last = self.actor.unroll(
      acting.params, act_keys, self._agent.config.unroll_length
    )
    statistics, rewards = self._programs.count(
      acting.episodes, acting.rewards, rollout.reward, is_last
    )
    acting = dataclasses.replace(
      acting, key=keys, episodes=statistics, rewards=rewards
    )
    return acting, rollout

  def act_and_sample(
    self, acting: HostActing
  ) -> tuple[HostActing, list[types.Rollout]]:
    """Acts for one rollout, adds it to replay and samples the next batches.

    If all agents are new, they act for as many rollouts as their first update
    needs; `fill_replay` does so for one of them. There is a batch
    [S, T or T+1, B, ...] for each of the next K updates.
    """
    acting = self._act_and_add(acting)
    while all(x.filled < self._first_trajectories for x in self.replays):
      acting = self._act_and_add(acting)
    keys, sample_keys = self._programs.split(acting.key)
    added = np.asarray([x.added - x.start for x in self.replays], np.int32)
    slots = np.asarray(self._programs.sample_slots(sample_keys, added))
    batches = []
    for update in range(slots.shape[1]):
      rows = [x.gather(own[update]) for x, own in zip(self.replays, slots)]
      batch = self._programs.unpack(np.stack(rows))
      if acting.rewards is not None:
        batch = self._programs.normalize_rewards(acting.rewards, batch)
      batches.append(batch)
    return dataclasses.replace(acting, key=keys), batches

  def must_fill(self, index: int) -> bool:
    """Returns whether an agent's first update needs more than one rollout."""
    number = self._agent.config.num_environments
    return self.replays[index].filled + number < self._first_trajectories

  def fill_replay(
    self,
    index: int,
    environment: base.HostEnvironment,
    acting: HostActing,
  ) -> HostActing:
    """Acts with one agent until its first update needs one more rollout.

    Args:
      index: The index of the agent; without `must_fill` it does not act.
      environment: Its E environments alone.
      acting: What acts, [1].

    Returns:
      What acts afterwards.
    """
    alone = copy.copy(self)
    alone.replays = [self.replays[index]]
    alone.actor = self.actor.of_one(index, environment)
    while self.must_fill(index):
      acting = alone._act_and_add(acting)
    self.actor.continue_from(index, alone.actor)
    return acting

  @property
  def _first_trajectories(self) -> int:
    """The trajectories that replay holds before the first update."""
    config = self._agent.config
    return config.first_rollouts * config.num_environments

  def _act_and_add(self, acting: HostActing) -> HostActing:
    """Acts for one rollout, and adds it to replay."""
    acting, rollout = self.act(acting)
    rollout = jax.device_get(rollout)
    for i, replay in enumerate(self.replays):
      replay.add(jax.tree.map(operator.itemgetter(i), rollout))
    return acting

  def _make_replays(
    self, directories: Sequence[pathlib.Path | None]
  ) -> list[host_replay.HostReplay]:
    config = self._agent.config
    return [
      host_replay.HostReplay(
        self._programs.row_format,
        config.replay_capacity,
        directory,
        config.replay_on_disk and directory is not None,
      )
      for directory in directories
    ]

  def reset(self, index: int, observation: types.PyTree) -> None:
    """Resets an agent, whose environments show observations [E, ...]."""
    self.replays[index].reset()
    self.actor.replace_observation(index, observation)


def rollout_shapes(
  agent: agent_lib.Agent, num_agents: int, batch_size: int
) -> types.Rollout:
  """Returns the shapes of rollouts or batches, [S, T or T+1, B, ...]."""

  def empty() -> types.Rollout:
    rollout = types.empty_rollout(
      agent.environment_spec,
      agent.network.initial_state(batch_size),
      agent.config.unroll_length,
      batch_size,
    )
    return jax.tree.map(
      lambda x: jnp.broadcast_to(x, (num_agents, *x.shape)), rollout
    )

  return jax.eval_shape(empty)


def row_format(agent: agent_lib.Agent) -> trajectory_rows.RowFormat:
  """Makes the format of an agent's trajectories in replay."""
  return trajectory_rows.make_format(
    agent.environment_spec,
    agent.network.initial_state(1),
    agent.config.unroll_length,
  )


def replay_footprint(agent: agent_lib.Agent) -> host_replay.Footprint:
  """Computes the footprint of the replay of one agent."""
  config = agent.config
  return host_replay.footprint(
    row_format(agent), config.replay_capacity, config.replay_on_disk
  )


def restart_episodes(acting: HostActing) -> HostActing:
  """Discards unfinished episodes of environments that cannot be saved."""
  return dataclasses.replace(
    acting,
    episodes=episodes.restart(acting.episodes),
    rewards=acting.rewards and reward_moments.restart(acting.rewards),
  )


@jax.jit
def copy_params(params: types.Params) -> types.Params:
  """Copies parameters to act with, because learning donates the buffers."""
  return jax.tree.map(jnp.copy, params)


def collect_while_learning(
  learning: _Learning,
  acting: _Acting,
  num_rollouts: int,
  hand_over: Callable[[_Learning, _Acting], _Acting],
  collect: Callable[[_Acting], tuple[_Acting, _Batch]],
  learn: Callable[[_Learning, _Batch], _Learning],
  should_stop: Callable[[], bool] = lambda: False,
) -> tuple[_Learning, _Acting]:
  """Alternates collecting and learning; environments step while agents learn.

  Every rollout is made with the parameters before learning from the previous
  rollout, and the first one with those that `acting` has. So results depend
  neither on timing nor on how rollouts are divided among calls.

  Args:
    learning: What `learn` updates.
    acting: What `collect` updates, with the parameters for the first rollout:
      the result of an earlier call, or copies of the initial parameters.
    num_rollouts: The number of rollouts, at least 1.
    hand_over: Gives copies of the parameters that learn to what acts, before
      each call of `learn`. They must not share buffers, which learning donates.
    collect: Acts for one rollout, and makes the batches of the next updates.
    learn: Makes the updates with these batches.
    should_stop: Called before each further rollout; True ends after the updates
      for which batches have been collected.

  Returns:
    Both afterwards; what acts has the parameters for the next rollout.
  """
  acting, batch = collect(acting)
  # Learns in another thread: devices run the programs of one thread in order.
  with futures.ThreadPoolExecutor(1) as learner:
    for _ in range(num_rollouts - 1):
      if should_stop():
        break
      acting = hand_over(learning, acting)
      learned = learner.submit(
        lambda *args: jax.block_until_ready(learn(*args)), learning, batch
      )
      acting, batch = collect(acting)
      learning = learned.result()
  acting = hand_over(learning, acting)
  return learn(learning, batch), acting
