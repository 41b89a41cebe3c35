"""Turns of the members of a group on the devices."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from disco_rl.agent import host_collector
from disco_rl.environments import base
from disco_rl.environments.host import joined
from disco_rl.meta_training import population
from disco_rl.runtime import sharding


@dataclasses.dataclass(frozen=True)
class Turn:
  """Members that are computed at the same time, `chunk` on each device.

  Attributes:
    members: their indices in the group.
    own: those in this process, as indices of its own members.
    environment: of this process's members.
    collector: acts and samples for this process's members.
  """

  members: np.ndarray
  own: np.ndarray
  environment: joined.JoinedEnvironment
  collector: host_collector.HostCollector


def divide(
  config: population.GroupConfig, environments: Sequence[base.HostEnvironment]
) -> list[Turn]:
  """Divides members among turns: equally many of each device.

  Args:
    config: of the group.
    environments: E environments for each of this process's members.

  Returns:
    The turns.
  """
  agent = config.inner_loop.agent
  by_device = np.arange(config.num_members).reshape(
    config.mesh.shape[sharding.AGENTS], -1, config.chunk
  )
  first, turns = config.own_members.start, []
  programs = host_collector.Programs(agent)
  for turn in range(by_device.shape[1]):
    members = by_device[:, turn].reshape(-1)
    is_own = np.isin(members, np.asarray(config.own_members))
    own = members[is_own] - first
    environment = joined.JoinedEnvironment([environments[i] for i in own])
    collector = host_collector.HostCollector(
      agent, environment, len(own), programs
    )
    turns.append(Turn(members, own, environment, collector))
  return turns
