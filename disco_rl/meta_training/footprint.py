"""What a population needs of devices, machines and the disk.

Runs compare it with what there is before they compile anything, and
`disco-rl plan` estimates their time from it. Meta-steps do not use it.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools

import jax

from disco_rl import types
from disco_rl.agent import host_collector
from disco_rl.meta_training import device_group
from disco_rl.meta_training import host_group
from disco_rl.meta_training import population
from disco_rl.networks import torsos
from disco_rl.planning import fitting
from disco_rl.runtime import memory
from disco_rl.runtime import sharding


@dataclasses.dataclass(frozen=True)
class Footprint:
  """What a group needs in addition to its programs and their arguments.

  Attributes:
    idle_device_bytes: The bytes on a device from one meta-step to the next.
    other_device_bytes: The other bytes of the group on a device, by the program
      that runs; programs that are missing have none.
    host_bytes: The bytes of this process's memory.
    disk_bytes: The bytes of the run's folder.
    schedule: When each program of a meta-step runs, by its name.
  """

  idle_device_bytes: int
  other_device_bytes: Mapping[str, int]
  host_bytes: int
  disk_bytes: int
  schedule: Mapping[str, fitting.Schedule]


def needs(
  groups: Sequence[population.Group],
  rule_params: types.Params,
  keep_checkpoints: int = 1,
) -> fitting.Needs:
  """Returns the memory and disk of a population, from array shapes."""
  calls = [
    group.named_calls(sharding.part_on(rule_params, group.config.mesh))
    for group in groups
  ]
  footprints = [
    of_group(group, own, keep_checkpoints + 1)
    for group, own in zip(groups, calls)
  ]
  loads: list[fitting.Load] = []
  for group, own, footprint in zip(groups, calls, footprints):
    others = sum(
      waiting.idle_device_bytes
      for other, waiting in zip(groups, footprints)
      if other is not group and other.config.mesh == group.config.mesh
    )
    loads += _loads(group, own, footprint, rule_params, others)
  kept, remedy = '', 'lower agents'
  if not groups[0].config.inner_loop.agent.config.replay_on_disk:
    kept = ', and their replay,'
    remedy = 'set replay_on_disk=True, or lower replay_capacity or agents'
  return fitting.Needs(
    'The population',
    loads,
    sum(footprint.host_bytes for footprint in footprints),
    sum(footprint.disk_bytes for footprint in footprints),
    f'Agents with host environments{kept} are kept in host memory: {remedy}.',
  )


def check_replay(groups: Sequence[population.Group], available: float) -> None:
  """Raises MachineTooSmallError, before tracing, if replay must be on disk."""
  host = sum(
    len(group.config.local_members)
    * host_collector.replay_footprint(group.config.inner_loop.agent).memory
    for group in groups
    if isinstance(group, host_group.HostGroup)
  )
  if host > available:
    raise fitting.MachineTooSmallError(
      f'Replay needs {memory.gib(host)} of host memory, but the machine has '
      f'{memory.gib(available)}: set replay_on_disk=True.'
    )


def of_group(
  group: population.Group, calls: population.Calls, checkpoints: int
) -> Footprint:
  """Returns the footprint of a group, given its programs.

  Args:
    group: The group.
    calls: Its `named_calls`.
    checkpoints: The number of checkpoints in the run's folder.
  """
  if isinstance(group, host_group.HostGroup):
    return _of_host_group(group, calls, checkpoints)
  return _of_device_group(group, calls, checkpoints)


def _of_device_group(
  group: population.Group, calls: population.Calls, checkpoints: int
) -> Footprint:
  _, (_, members, environments, _) = calls['step']
  size = memory.tree_bytes(members)
  return Footprint(
    idle_device_bytes=memory.device_bytes((members, environments)),
    # While new members are made for a reset.
    other_device_bytes={'initial': memory.device_bytes(members)},
    # See `Group.to_checkpoint`.
    host_bytes=0 if group.config.is_in_all_processes else size,
    disk_bytes=checkpoints * size,
    schedule={'step': fitting.Schedule(1)},
  )


def _of_host_group(
  group: host_group.HostGroup, calls: population.Calls, checkpoints: int
) -> Footprint:
  config, inner_loop = group.config, group.config.inner_loop
  _, (_, learning, validation) = calls['outer_loss']
  _, (_, _, segment) = calls['backward']
  _, (_, opt_state, _, _, statistics, _) = calls['meta_update']
  updates = inner_loop.config.inner_updates
  segments = updates // inner_loop.config.save_every

  size = memory.device_bytes
  kept = 0 if inner_loop.config.offload else segments * size(segment)
  other_device_bytes = {
    # A copy of the parameters acts for the next batch.
    'learn': kept * (updates - 1) // updates + size(learning.learner.params),
    'outer_loss': kept,
    'backward': max(0, kept - size(segment)) + size((learning, validation)),
    'meta_update': size((learning, validation)),
  }

  # With the parameters that act in the next rollout.
  members = (learning, learning.learner.params, opt_state, statistics)
  member = memory.tree_bytes(members) // group.micro_batch_size
  replay = host_collector.replay_footprint(inner_loop.agent)
  host = len(config.local_members) * (member + replay.memory)
  if not config.is_in_all_processes:
    host += config.num_members * member  # See `HostGroup.to_checkpoint`.
  if inner_loop.config.offload:
    host += segments * memory.tree_bytes(segment)

  # For one row of devices.
  number = config.num_members // group.micro_batch_size
  acting = config.chunk * inner_loop.agent.config.actions_per_update
  # Nothing learns during the first rollout and the validation rollouts.
  alone = (1 + inner_loop.validation_rollouts) * acting
  schedule = {
    'learn': fitting.Schedule(number * updates, actions_during=acting),
    'outer_loss': fitting.Schedule(number, actions_between=alone),
    'backward': fitting.Schedule(number * segments),
  }
  return Footprint(
    idle_device_bytes=0,  # Members are offloaded.
    other_device_bytes=other_device_bytes,
    host_bytes=host,
    disk_bytes=config.num_members * (checkpoints * member + replay.disk),
    schedule=schedule,
  )


def on_one_row(
  group: population.Group, mesh: jax.sharding.Mesh, num_members: int
) -> population.Group:
  """Returns some members on one row of devices, to be compiled, not run.

  The devices may be of any platform.
  """
  config = config_on_one_row(group.config, mesh, num_members)
  if isinstance(group, host_group.HostGroup):
    # Without environments.
    return host_group.HostGroup(config, lambda _: [], group.estimator)
  assert isinstance(group, device_group.DeviceGroup)
  return device_group.DeviceGroup(
    config, group.each_environment[:num_members], group.estimator
  )


def config_on_one_row(
  config: population.GroupConfig, mesh: jax.sharding.Mesh, num_members: int
) -> population.GroupConfig:
  """Returns the config for some of the members; see `on_one_row`."""
  return dataclasses.replace(
    config,
    names=config.names[:num_members],
    numbers=config.numbers[:num_members],
    mesh=mesh,
    num_padding=0,
  )


def _loads(
  group: population.Group,
  calls: population.Calls,
  footprint: Footprint,
  rule_params: types.Params,
  others: int,
) -> Iterator[fitting.Load]:
  """Yields the programs of a group; `others` are bytes of other groups."""
  config, inner_loop = group.config, group.config.inner_loop
  size = inner_loop.agent.config.network.torso.chunk_size
  remedies = {
    'lower chunk_size': config.chunk > 1,
    # Those of others are offloaded.
    'lower agents or replay_capacity': footprint.idle_device_bytes > 0,
    'set torso_chunk_size=-1': not 0 < size <= torsos.CHUNK_SIZES[-1],
    'raise save_every': inner_loop.config.save_every == 1,
    'set offload=True': not inner_loop.config.offload,
    'lower batch_size': True,
    'start from a :tiny config': True,
  }
  mesh = fitting.row_of(config.mesh)

  @functools.cache
  def alone() -> population.Calls:
    if mesh == config.mesh:
      return calls
    rule = sharding.shapes(rule_params, mesh, sharding.REPLICATED)
    members = config.num_members // config.mesh.shape[sharding.AGENTS]
    return on_one_row(group, mesh, members).named_calls(rule)

  for name, call in calls.items():
    yield fitting.Load(
      name,
      call,
      lambda name=name: alone()[name],  # type: ignore[misc]
      f'{config.chunk} at a time of the agents like that on {config.names[0]}',
      [text for text, helps in remedies.items() if helps],
      others + footprint.other_device_bytes.get(name, 0),
      footprint.schedule.get(name, fitting.Schedule()),
    )
