"""What discovery takes on a number of devices, and settings that fit there."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math

import jax
import numpy as np

from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import footprint
from disco_rl.meta_training import population
from disco_rl.planning import cluster as cluster_lib
from disco_rl.planning import plan
from disco_rl.planning import work
from disco_rl.runtime import limits
from disco_rl.runtime import sharding

Config = config_lib.MetaTrainingConfig


def make(config: Config, cluster: cluster_lib.Cluster) -> plan.Plan:
  """Plans a run; compiles for CPUs what might not fit, and runs nothing.

  Args:
    config: of the run. Settings that do not fit are replaced.
    cluster: devices.

  Returns:
    The plan.

  Raises:
    ValueError: batches cannot be divided among `batch_devices`.
    limits.DoesNotFitError: no settings fit into their memory.
  """
  rule, rule_params = build.make_rule(config)
  first = next(_candidates(config))
  groups = build.make_groups(first, rule, _row(1))
  sizes = [group.config.num_members for group in groups]
  steps = sum(group.config.num_agents * group.steps.in_all for group in groups)
  batch_devices = choose_batch_devices(config, sizes, cluster)
  rows = cluster.devices // batch_devices
  if any(size % rows for size in sizes):
    config = dataclasses.replace(config, group_multiple=rows)

  def attempt(config: Config) -> plan.Plan:
    row = _row(batch_devices)
    rule_shapes = sharding.shapes(rule_params, row, sharding.REPLICATED)
    groups = build.make_groups(config, rule, row)
    groups = [
      group.alone_on(row, group.config.num_members // rows) for group in groups
    ]
    return _plan(config, cluster, groups, rule_shapes, batch_devices, steps)

  return limits.first_that_fits(_candidates(config), attempt)


def choose_batch_devices(
  config: Config,
  sizes: Sequence[int],
  cluster: cluster_lib.Cluster,
) -> int:
  """The devices that share batches, so that a meta-step takes the least time.

  Of each group every row of devices computes as many agents as the row with the
  most. Where several numbers take equally long, the smallest is chosen.

  Args:
    config: of the run; they are no fewer than it says.
    sizes: members of each group.
    cluster: devices.

  Returns:
    Their number.

  Raises:
    ValueError: there is none.
  """
  batches = math.gcd(
    config.agent.batch_size, config.inner_loop.validation_trajectories
  )
  # Devices that share batches are in one machine.
  shares = [
    n
    for n in range(config.batch_devices, cluster.per_machine + 1)
    if math.gcd(batches, cluster.per_machine) % n == 0
  ]
  if not shares:
    raise ValueError(
      f'No number of devices from batch_devices={config.batch_devices} to the '
      f'{cluster.per_machine} of a machine divides these, batch_size and '
      'validation_trajectories: lower batch_devices.'
    )

  def time(share: int) -> float:
    rows = cluster.devices // share
    return sum(-(-size // rows) for size in sizes) / share

  return min(shares, key=lambda share: (time(share), share))


def _row(batch_devices: int) -> jax.sharding.Mesh:
  """A row of CPUs, to trace and compile programs for."""
  cpus = jax.local_devices(backend='cpu')
  if len(cpus) < batch_devices:
    raise ValueError(
      f'Planning for batch_devices={batch_devices} requires as many devices '
      f'here: set JAX_NUM_CPU_DEVICES={batch_devices}.'
    )
  row = np.array(cpus[:batch_devices]).reshape(1, batch_devices)
  return jax.sharding.Mesh(row, (sharding.AGENTS, sharding.BATCH))


def _candidates(config: Config) -> Iterator[Config]:
  """Yields settings that take less and less memory, and more time."""
  inner_loop = config.inner_loop
  for agent in config.agent.chunkings():
    yield (config := dataclasses.replace(config, agent=agent))
  while config.chunk_size > 1:
    yield (
      config := dataclasses.replace(config, chunk_size=config.chunk_size // 2)
    )
  for k in range(1, inner_loop.inner_updates + 1):
    if inner_loop.inner_updates % k == 0 and k > inner_loop.save_every:
      fewer = dataclasses.replace(inner_loop, save_every=k)
      yield (config := dataclasses.replace(config, inner_loop=fewer))
  if not inner_loop.offload:
    offload = dataclasses.replace(config.inner_loop, offload=True)
    yield dataclasses.replace(config, inner_loop=offload)


def _plan(
  config: Config,
  cluster: cluster_lib.Cluster,
  groups: Sequence[population.Group],
  rule_params: types.Params,
  batch_devices: int,
  environment_steps: int,
) -> plan.Plan:
  """The plan of these groups, those of one row; raises if they do not fit."""
  rows = cluster.devices // batch_devices
  host, disk = _off_device(config, cluster, groups, rule_params, rows)
  memory = max(
    plan.checked(program, cluster)
    for _, programs in footprint.on_device(groups, rule_params)
    for program in programs
  )
  timed = [
    _time(config, cluster, group, rule_params, batch_devices)
    for group in groups
  ]
  seconds = sum((one for one, _ in timed), work.Seconds())
  torso = config.agent.network.torso
  return plan.Plan(
    settings={
      'batch_devices': batch_devices,
      'group_multiple': config.group_multiple,
      'torso_chunk_size': torso.chunk_size,
      'chunk_size': config.chunk_size,
      'save_every': config.inner_loop.save_every,
      'offload': config.inner_loop.offload,
    },
    step='meta-step',
    steps=config.meta_steps,
    device_bytes=memory,
    host_bytes=host,
    disk_bytes=disk,
    flop=cluster.devices * sum(flop for _, flop in timed),
    environment_steps=environment_steps,
    seconds=seconds,
  )


def _off_device(
  config: Config,
  cluster: cluster_lib.Cluster,
  groups: Sequence[population.Group],
  rule_params: types.Params,
  rows: int,
) -> tuple[int, int]:
  """Bytes of a machine's own memory, and of the folder; see `limits`."""
  one = footprint.off_device(groups, rule_params, config.keep_checkpoints)
  host = one.host * rows // cluster.machines
  cluster.check_host(host)
  return host, rows * one.disk


def _time(
  config: Config,
  cluster: cluster_lib.Cluster,
  group: population.Group,
  rule_params: types.Params,
  batch_devices: int,
) -> tuple[work.Seconds, float]:
  """Of the members of a row in a meta-step, and the arithmetic of a device."""
  dtype = config.agent.network.compute_dtype
  calls = group.named_calls(rule_params)
  costs = {
    name: work.cost(calls[name])
    for name in ('step', 'learn', 'begin', 'back')
    if name in calls
  }
  times = {
    name: work.seconds(cost, cluster, dtype) for name, cost in costs.items()
  }
  if not group.is_on_host:
    return times['step'], costs['step'].flop
  inner_loop = group.config.inner_loop
  updates = inner_loop.config.inner_updates
  sweeps = updates // inner_loop.config.save_every
  turns = group.config.num_members // group.config.chunk
  # A row has its part of the machine's processors.
  rate = cluster.steps_per_second * batch_devices / cluster.per_machine
  steps = group.config.chunk * inner_loop.agent.config.steps_per_update
  acting = steps / rate
  # The first rollout and those of validation are acted while nothing learns.
  turn = (
    times['learn'].beside(acting).times(updates)
    + times['begin']
    + times['back'].times(sweeps)
    + work.Seconds(acting=(1 + inner_loop.validation_rollouts) * acting)
  )
  flop = updates * costs['learn'].flop + costs['begin'].flop
  flop += sweeps * costs['back'].flop
  return turn.times(turns), turns * flop
