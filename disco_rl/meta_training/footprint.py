"""The memory and the disk that a population needs, before it is compiled."""

from collections.abc import Iterator
from collections.abc import Sequence
import functools

from disco_rl import types
from disco_rl.agent import host_collector
from disco_rl.meta_training import population
from disco_rl.runtime import compilation
from disco_rl.runtime import limits
from disco_rl.runtime import memory
from disco_rl.runtime import sharding

_Calls = dict[str, compilation.Call]


def check(
  groups: Sequence[population.Group],
  rule_params: types.Params,
  keep_checkpoints: int = 1,
) -> limits.OffDevice:
  """Checks that a population fits into the memory of this machine.

  Args:
    groups: the population.
    rule_params: eta.
    keep_checkpoints: how many of the newest remain.

  Returns:
    What it takes in addition to devices.

  Raises:
    limits.DoesNotFitError: a device is too small.
    ValueError: the host's memory is.
  """
  needed = off_device(groups, rule_params, keep_checkpoints)
  limits.check(
    needed.host,
    'Agents with host environments, and their replay, are kept in host memory: '
    'set replay_on_disk=True, or lower replay_capacity or agents.',
    on_device(groups, rule_params),
    _message,
  )
  return needed


def on_device(
  groups: Sequence[population.Group], rule_params: types.Params
) -> Iterator[tuple[population.Group, Iterator[limits.Running]]]:
  """Yields each group and its programs, those that are compiled fastest first.

  Args:
    groups: the population.
    rule_params: eta.

  Yields:
    A group, and its programs with what each device holds in addition.
  """
  calls = [group.named_calls(rule_params) for group in groups]
  states = [_state_bytes(group, own) for group, own in zip(groups, calls)]
  for group, own, state in zip(groups, calls, states):
    yield group, _running(group, own, rule_params, sum(states) - state)


def _running(
  group: population.Group,
  calls: _Calls,
  rule_params: types.Params,
  others: int,
) -> Iterator[limits.Running]:
  """Yields the programs of a group, the longest last."""

  @functools.cache
  def alone() -> _Calls:
    mesh = limits.row_of(group.config.mesh)
    rule = sharding.shapes(rule_params, mesh, sharding.REPLICATED)
    members = (
      group.config.num_members // group.config.mesh.shape[sharding.AGENTS]
    )
    return group.alone_on(mesh, members).named_calls(rule)

  additional = group.additional_bytes(calls)
  for name in reversed(calls):
    yield limits.Running(
      name,
      calls[name],
      others + additional.get(name, 0),
      lambda name=name: alone()[name],  # type: ignore[misc]
    )


def _state_bytes(group: population.Group, calls: _Calls) -> int:
  """Of the members that a device holds from one meta-step to the next."""
  if group.is_on_host:
    return 0
  _, (_, members, environments, _) = calls['step']
  return memory.device_bytes((members, environments))


def off_device(
  groups: Sequence[population.Group],
  rule_params: types.Params,
  keep_checkpoints: int,
) -> limits.OffDevice:
  """Computes it from the shapes of arrays.

  Args:
    groups: the population.
    rule_params: eta.
    keep_checkpoints: how many of the newest remain.

  Returns:
    The bytes.
  """
  host, disk = 0, 0
  for group in groups:
    config = group.config
    calls = group.named_calls(rule_params)
    state = member_bytes(group, calls)
    disk += (keep_checkpoints + 1) * config.num_members * state
    if group.is_on_host:
      replay = host_collector.replay_footprint(config.inner_loop.agent)
      host += len(config.own_members) * (state + replay.memory)
      host += _offloaded_bytes(group, calls)
      disk += config.num_members * replay.disk
  return limits.OffDevice(host, disk)


def member_bytes(group: population.Group, calls: _Calls) -> int:
  """Of the state of one member, as a checkpoint holds it."""
  _, (_, members, *_) = calls['meta_update' if group.is_on_host else 'step']
  size = memory.tree_bytes(members)
  if group.is_on_host:  # The parameters that act in the next rollout.
    size += memory.tree_bytes(members.agent.learner.params)
  return size // group.members_at_once


def _offloaded_bytes(group: population.Group, calls: _Calls) -> int:
  """Bytes of the updates of a micro-batch in the host's memory."""
  config = group.config.inner_loop.config
  if not config.offload:
    return 0
  _, (_, _, segment) = calls['backward']
  return config.inner_updates // config.save_every * memory.tree_bytes(segment)


def _message(group: population.Group, held: limits.Held, available: int) -> str:
  """Says what does not fit, and which settings would help."""
  config, inner_loop = group.config, group.config.inner_loop
  size = inner_loop.agent.config.network.torso.chunk_size
  remedies = {
    'lower chunk_size': config.chunk > 1,
    'lower agents or replay_capacity': not group.is_on_host,
    'set torso_chunk_size=-1': not 0 < size <= 32,
    'raise save_every': inner_loop.config.save_every == 1,
    'set offload=True': not inner_loop.config.offload,
    'lower batch_size': True,
    'start from a :tiny config': True,
  }
  return (
    f'The population needs {memory.gib(held.total)} on each device, of '
    f'{memory.gib(available)}: {config.chunk} at a time of the agents like '
    f'that on {config.names[0]} take {held}. One of these may help: '
    f'{", ".join(text for text, helps in remedies.items() if helps)}.'
  )
