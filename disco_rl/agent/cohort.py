"""The life of agents whose environments step on the host.

A record, such as `host_collector.HostState`, has what programs and checkpoints
need of an agent. The rest is in its *cohort*: environments, in the middle of
episodes, and replay, of which the record has only the counters. The two belong
together after each whole rollout. Where they do not, all episodes begin again,
and what unfinished ones have returned is forgotten:

  agents are new                           `Cohort.renew`
  what is resumed has no unfinished ones   `Cohort.resume`
  a rollout failed                         `Cohort.end_episodes`

The actor notes it (`HostActor.must_restart`), and the next rollout does it.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import operator
import pathlib

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_collector
from disco_rl.agent import host_replay
from disco_rl.environments import base
from disco_rl.environments.host import joined
from disco_rl.runtime import distributed

MakeEnvironments = Callable[[], Sequence[base.HostEnvironment]]


@dataclasses.dataclass(frozen=True)
class MicroBatch:
  """Agents that act together.

  Attributes:
    agents: Their numbers; in discovery among the members of all processes.
    own: Those of this process, as indices into the cohort.
    collector: Acts with the latter.
  """

  agents: np.ndarray
  own: np.ndarray
  collector: host_collector.HostCollector


class Cohort:
  """S agents with host environments of their own, which act in micro-batches.

  Without them, as with JAX-native environments, records have everything: they
  are returned as they are, and there is nothing to save.

  Attributes:
    environments: The environments of each agent, made at first use.
  """

  environments: Sequence[base.HostEnvironment] = ()

  def __init__(
    self,
    agent: agent_lib.Agent,
    make_environments: MakeEnvironments = tuple,
    micro_batches: Sequence[np.ndarray] = (),
    own: range = range(0),
  ):
    """Begins no episode yet.

    Args:
      agent: The kind of agent.
      make_environments: Makes `environments`.
      micro_batches: The numbers of the agents that act together, in each.
      own: The numbers of the S agents, if others are in other processes.
    """
    self._agent = agent
    self._make_environments = make_environments
    self._numbers, self._own = micro_batches, own
    # The counters of the checkpoints that are kept.
    self._saved: list[host_collector.Counters] = []

  @functools.cached_property
  def micro_batches(self) -> list[MicroBatch]:
    """The micro-batches, made at first use, which begins all episodes."""
    if not self._own:
      return []
    self.environments = self._make_environments()
    programs = host_collector.Programs(self._agent)
    micro_batches = []
    for agents in self._numbers:
      own = agents[np.isin(agents, np.asarray(self._own))] - self._own.start
      collector = host_collector.HostCollector(
        self._agent, self._joined(own), len(own), programs
      )
      micro_batches.append(MicroBatch(agents, own, collector))
    return micro_batches

  def _joined(self, own: np.ndarray) -> base.HostEnvironment:
    """Joins the environments of the agents of a micro-batch."""
    return joined.JoinedEnvironment([self.environments[i] for i in own])

  def begin_episodes(self) -> None:
    """Resets environments on the host, so that faults show before a run."""
    _ = self.micro_batches

  def end_episodes(self) -> None:
    """Lets all episodes begin again, where records are not of their time."""
    for micro in self.micro_batches:
      micro.collector.actor.end_episodes()

  def replace_environments(self, make: MakeEnvironments) -> None:
    """Closes the environments; begins episodes in others with equal specs."""
    if not self.micro_batches:
      return
    for environment in self.environments:
      environment.close()
    self.environments = make()
    for micro in self.micro_batches:
      micro.collector.actor.replace_environment(self._joined(micro.own))

  def renew(self, agents: types.PyTree) -> types.PyTree:
    """Takes records [S] of initial agents; returns them with empty replay.

    Random numbers of environments continue.
    """
    self.end_episodes()
    for replay in self._replays:
      replay.reset()
    return self.with_counters(agents)

  def reset(self, micro: MicroBatch, index: int) -> None:
    """Resets the environments and the replay of one agent of a micro-batch."""
    observation = self.environments[micro.own[index]].reset()
    micro.collector.reset(index, observation)

  def resume(
    self, agents: types.PyTree, episodes: types.PyTree | None = None
  ) -> types.PyTree:
    """Takes records [S] of agents that have acted before.

    Args:
      agents: The records, with `acting` and `replay`.
      episodes: The result of `save_episodes`; None: new ones begin.

    Returns:
      The records; their replay is that of the cohort.
    """
    if episodes is not None:
      self._restore_episodes(episodes)
    elif self.micro_batches:
      self.end_episodes()
      acting = host_collector.restart_episodes(agents.acting)
      agents = dataclasses.replace(agents, acting=acting)
    return self.with_counters(agents)

  def with_counters(self, agents: types.PyTree) -> types.PyTree:
    """Returns records [S] with the present counters of their replay."""
    if not self.micro_batches:
      return agents
    return dataclasses.replace(agents, replay=self.counters)

  def save_episodes(self) -> types.PyTree | None:
    """Returns the state of environments and actors, if it can be saved.

    It has an entry for the number of each agent: micro-batches depend on the
    devices, which may change when a run resumes.
    """
    if distributed.is_distributed():
      return None
    saved: dict[str, types.PyTree] = {}
    for micro in self.micro_batches:
      state = micro.collector.actor.save()
      if state is None:
        return None
      environments = state.pop('environment')
      for i, number in enumerate(micro.agents.tolist()):
        own = jax.tree.map(operator.itemgetter(i), state)
        saved[str(number)] = {'environment': environments[i], **own}
    return saved or None

  def _restore_episodes(self, saved: types.PyTree) -> None:
    """Continues what `save_episodes` returned."""
    for micro in self.micro_batches:
      own = [dict(saved[str(self._own[i])]) for i in micro.own]
      environments = [state.pop('environment') for state in own]
      state = jax.tree.map(lambda *x: np.stack(x), *own)
      micro.collector.actor.restore({'environment': environments, **state})

  @property
  def _replays(self) -> list[host_replay.HostReplay]:
    """The replay of each agent."""
    replays: dict[int, host_replay.HostReplay] = {}
    for micro in self.micro_batches:
      replays |= zip(micro.own.tolist(), micro.collector.replays)
    return [replays[i] for i in sorted(replays)]

  @property
  def counters(self) -> host_collector.Counters:
    """The counts by which checkpoints restore the replays, each [S]."""
    replays = self._replays
    return {
      'start': np.asarray([x.start for x in replays], np.int32),
      'added': np.asarray([x.added for x in replays], np.int32),
    }

  def _counted(
    self, counters: host_collector.Counters
  ) -> Iterator[tuple[host_replay.HostReplay, int, int]]:
    """Yields each replay with its entries of the counters, [S]."""
    for i, replay in enumerate(self._replays):
      yield replay, int(counters['start'][i]), int(counters['added'][i])

  def open_replays(self, directory: pathlib.Path) -> None:
    """Makes empty replays that can be saved, in a folder for each agent."""
    for micro in self.micro_batches:
      numbers = [self._own[i] for i in micro.own]
      micro.collector.open_replays([directory / str(i) for i in numbers])

  def save_replays(self, keep: int) -> None:
    """Saves replays, and deletes files that no checkpoint needs any longer.

    Args:
      keep: The number of checkpoints to keep, without the one being written.
    """
    for replay in self._replays:
      replay.save()
    self._saved = [*self._saved, self.counters][-keep - 1 :]
    if len(self._saved) > keep:
      for replay, start, added in self._counted(self._saved[0]):
        replay.delete_unneeded(start, added)

  def restore_replays(self, counters: types.PyTree) -> None:
    """Restores replays as they were when records had these `counters`, [S].

    Raises:
      row_log.RowLogError: A file is missing or damaged.
    """
    for replay, start, added in self._counted(counters):
      replay.restore(start, added)
    self._saved = [self.counters]

  def contents(self) -> types.PyTree:
    """Returns all replays for a file, [S, ...]; {} without micro-batches."""
    replays = self._replays
    return np.stack([x.contents() for x in replays]) if replays else {}

  def replace_contents(
    self, contents: types.PyTree, counters: types.PyTree
  ) -> None:
    """Takes the `contents` with which records had these `counters`."""
    for i, (replay, start, added) in enumerate(self._counted(counters)):
      replay.replace_contents(np.asarray(contents[i]), start, added)


class SharedCohort(Cohort):
  """S agents in one environment of S * E, which act together."""

  def __init__(
    self,
    agent: agent_lib.Agent,
    environment: base.HostEnvironment,
    num_agents: int,
  ):
    """Begins no episode yet."""
    everyone = range(num_agents)
    super().__init__(
      agent, lambda: [environment], [np.asarray(everyone)], everyone
    )

  def _joined(self, own: np.ndarray) -> base.HostEnvironment:
    del own
    (environment,) = self.environments
    return environment

  @property
  def collector(self) -> host_collector.HostCollector:
    """Acts with all agents."""
    (micro,) = self.micro_batches
    return micro.collector

  def save_episodes(self) -> types.PyTree | None:
    """Implements `Cohort.save_episodes`, by a single state."""
    return self.collector.actor.save()

  def _restore_episodes(self, saved: types.PyTree) -> None:
    self.collector.actor.restore(saved)
