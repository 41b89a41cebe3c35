"""What a run takes on devices that need not be here, and settings that fit.

Memory is what XLA reports of the run's programs, compiled for CPUs. Arithmetic
and traffic are counted in the programs as they are traced for the device; see
`runtime.costs`. The time is a model.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import functools
import math
import os
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import footprint as training_footprint
from disco_rl.evaluation import runner
from disco_rl.evaluation import training
from disco_rl.meta_training import build
from disco_rl.meta_training import config as config_lib
from disco_rl.meta_training import footprint
from disco_rl.meta_training import population
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import costs
from disco_rl.runtime import limits
from disco_rl.runtime import memory
from disco_rl.runtime import reports
from disco_rl.runtime import sharding
from disco_rl.update_rules import registry as rule_registry

GIB = 2**30
# What limits the time: arithmetic of programs whose arithmetic takes longer
# than their traffic, the traffic of the others, starting operations however
# small they are, and waiting for environments on the host.
LIMITS = ('arithmetic', 'bandwidth', 'launching', 'acting')
# Seconds by what limits them, in this order.
Seconds = np.ndarray


@dataclasses.dataclass(frozen=True)
class Device:
  """What one device can do at most.

  Attributes:
    memory: bytes.
    flops: operations a second, of products, by the type of their operands.
    bandwidth: bytes a second between its memory and its processors.
    platform: that programs are made for.
  """

  memory: float
  flops: Mapping[str, float]
  bandwidth: float
  platform: str = 'cpu'


def _device(
  platform: str, memory_gib: float, bfloat16: float, float32: float, gbs: float
) -> Device:
  """From GiB, TFLOP/s and GB/s."""
  flops = {'bfloat16': bfloat16 * 1e12, 'float32': float32 * 1e12}
  return Device(memory_gib * GIB, flops, gbs * 1e9, platform)


# NVIDIA's data sheets of the A100 (80 GB), H100 and H200, all SXM, without
# sparsity; float32 in TF32, JAX's default there. cloud.google.com/tpu/docs of
# each TPU; JAX multiplies float32 in bfloat16 there, by default. A TPU v3 is
# two devices; these are one core's.
DEVICES: Mapping[str, Device] = {
  'a100': _device('cuda', 80e9 / GIB, 312, 156, 2_039),
  'h100': _device('cuda', 80e9 / GIB, 989, 494, 3_350),
  'h200': _device('cuda', 141e9 / GIB, 989, 494, 4_800),
  'tpu_v3': _device('tpu', 16, 61.5, 61.5, 450),
  'tpu_v4': _device('tpu', 32, 275, 275, 1_228),
  'tpu_v5e': _device('tpu', 16, 197, 197, 819),
  'tpu_v5p': _device('tpu', 95, 459, 459, 2_765),
  'tpu_v6e': _device('tpu', 32, 918, 918, 1_640),
}


@dataclasses.dataclass(frozen=True)
class Cluster:
  """Machines with devices of one kind.

  Attributes:
    device: one of them.
    devices: their number.
    per_machine: how many of them a machine has.
    host_memory: bytes of a machine's own memory.
    memory_fraction: part of a device's memory that programs can have; JAX takes
      three quarters of a GPU's.
    efficiency: part of the operations a second that programs reach; the same
      part of the bandwidth.
    seconds_per_operation: to start one, in the mean; several run as one kernel.
    steps_per_second: actions in environments on the host, on one machine.
  """

  device: Device
  devices: int
  per_machine: int
  host_memory: float
  memory_fraction: float
  efficiency: float
  seconds_per_operation: float
  steps_per_second: float

  def __post_init__(self) -> None:
    if self.devices % self.per_machine:
      raise ValueError(
        f'devices={self.devices} must be a multiple of devices_per_machine='
        f'{self.per_machine}.'
      )

  @property
  def machines(self) -> int:
    """Their number."""
    return self.devices // self.per_machine

  def seconds(self, cost: costs.Cost, dtype: str) -> Seconds:
    """The time of a program: arithmetic and traffic overlap, starting does not.

    Args:
      cost: The cost of the program.
      dtype: The type in which the agents' networks compute.

    Returns:
      The time on each device.
    """
    arithmetic = cost.flop / (self.efficiency * self.device.flops[dtype])
    traffic = cost.traffic / (self.efficiency * self.device.bandwidth)
    longer = (arithmetic, 0) if arithmetic >= traffic else (0, traffic)
    return np.array((*longer, cost.operations * self.seconds_per_operation, 0))

  def check_host(self, needed: float) -> None:
    """Raises MachineTooSmallError if a machine's own memory is."""
    if needed > self.host_memory:
      raise limits.MachineTooSmallError(
        f'Offloaded agents and their replay need {memory.gib(needed)} per '
        f'machine; only {memory.gib(self.host_memory)} are available: lower '
        'replay_capacity, or use more machines.'
      )

  def device_bytes(self, programs: Sequence[limits.Running]) -> int:
    """Most that a device holds while one of the programs runs.

    Args:
      programs: those that may take the most are compiled; CPUs stand for the
        devices.

    Raises:
      limits.DoesNotFitError: it is too much.
    """
    usable = int(self.memory_fraction * self.device.memory)
    bounds = [
      limits.usage_at_most(program.call).total + program.additional
      for program in programs
    ]
    left = np.argsort(bounds)[::-1].tolist()
    number, most = os.cpu_count() or 1, 0
    with futures.ThreadPoolExecutor(number) as pool:
      while left:
        largest, left = left[:number], left[number:]
        for held in pool.map(lambda i: self._held(programs[i]), largest):
          if held.total > usable:
            raise limits.DoesNotFitError(
              f'The program {held.name!r} needs {memory.gib(held.total)} of '
              f'the {memory.gib(usable)} that programs have on a device: '
              f'{held}. Lower batch_size or the sizes of the network, or raise '
              'batch_devices.'
            )
          most = max(most, held.total)
        left = [i for i in left if bounds[i] > most]
    return most

  def _held(self, program: limits.Running) -> limits.Held:
    """What a device holds, by XLA; may be called in any thread."""
    reports.note(f'compiling {program.name!r}')
    with backend.making_programs_for(self.device.platform):
      usage = limits.usage(program.call)
    return limits.Held(program.name, usage, program.additional)


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a run takes.

  Attributes:
    settings: that it was made for; they fit into the memory.
    step: what a run consists of: a meta-step, or an update.
    steps: their number.
    device_bytes: most that a device holds.
    off_device: bytes of a machine's own memory, and of the run's folder, where
      checkpoints keep replay whether or not it is also in memory.
    flop: operations of a step, on all devices.
    environment_steps: Environment steps of all agents in a step.
    seconds: The time of a step.
  """

  settings: Mapping[str, Any]
  step: str
  steps: int
  device_bytes: int
  off_device: limits.OffDevice
  flop: float
  environment_steps: int
  seconds: Seconds

  def rows(self) -> Iterator[tuple[str, Any, str]]:
    """Yields names, values and units."""
    step, seconds = self.step.replace('-', '_'), float(self.seconds.sum())
    yield 'device_memory', self.device_bytes / GIB, 'GiB on each device'
    yield 'host_memory', self.off_device.host / GIB, 'GiB on each machine'
    yield (
      'disk',
      self.off_device.disk / GIB,
      'GiB in the workdir: checkpoints, and replay, which they need',
    )
    yield f'tflop_per_{step}', self.flop / 1e12, 'TFLOP on all devices'
    yield (
      f'environment_steps_per_{step}',
      self.environment_steps,
      'of all agents',
    )
    yield f'seconds_per_{step}', seconds, f'for {self.steps:,} of them'
    yield 'days', self.steps * seconds / 86_400, 'for the run'
    for name, part in zip(LIMITS, self.seconds.tolist()):
      yield f'fraction_{name}', part / seconds, 'of the time'
    yield 'bottleneck', LIMITS[int(self.seconds.argmax())], ''
    for name, value in self.settings.items():
      yield name, value, ''


def of_discovery(
  config: config_lib.MetaTrainingConfig, cluster: Cluster
) -> Plan:
  """Plans a run of discovery; compiles its programs, and runs nothing.

  Args:
    config: The settings of the run. Those that do not fit are replaced.
    cluster: devices.

  Returns:
    The plan.

  Raises:
    ValueError: batches cannot be divided among `batch_devices`.
    limits.DoesNotFitError: no settings fit into their memory.
  """
  rule, rule_params = build.make_rule(config)
  agent = next(config.agent.chunkings())
  groups = build.make_groups(
    dataclasses.replace(config, agent=agent), rule, _row(1)
  )
  sizes = [group.config.num_members for group in groups]
  steps = sum(group.config.num_agents * group.steps.in_all for group in groups)
  batch_devices = choose_batch_devices(config, sizes, cluster)
  rows = cluster.devices // batch_devices
  if any(size % rows for size in sizes):
    config = dataclasses.replace(config, group_multiple=rows)
  row = _row(batch_devices)
  rule_shapes = sharding.shapes(rule_params, row, sharding.REPLICATED)

  def attempt(
    config: config_lib.MetaTrainingConfig, agent: agent_lib.AgentConfig
  ) -> Plan:
    config = dataclasses.replace(config, agent=agent)
    torso, inner_loop = config.agent.network.torso, config.inner_loop
    settings = {
      'batch_devices': batch_devices,
      'group_multiple': config.group_multiple,
      'torso_chunk_size': torso.chunk_size,
      'chunk_size': config.chunk_size,
      'save_every': inner_loop.save_every,
      'offload': inner_loop.offload,
      'replay_on_disk': config.agent.replay_on_disk,
    }
    reports.note(f'tracing with {settings}')
    # The first row's; all rows have equal parts.
    own = [
      group.alone_on(row, group.config.num_members // rows)
      for group in build.make_groups(config, rule, row)
    ]
    one = footprint.off_device(own, rule_shapes, config.keep_checkpoints)
    needed = limits.OffDevice(
      one.host * rows // cluster.machines, one.disk * rows
    )
    cluster.check_host(needed.host)
    programs = [list(x) for _, x in footprint.on_device(own, rule_shapes)]
    device_bytes = cluster.device_bytes(sum(programs, []))
    times, flops = zip(
      *(_meta_step(x, rule_shapes, cluster, batch_devices) for x in own)
    )
    return Plan(
      settings,
      'meta-step',
      config.meta_steps,
      device_bytes,
      needed,
      cluster.devices * sum(flops),
      steps,
      sum(times, np.zeros(len(LIMITS))),
    )

  with backend.making_programs_for(cluster.device.platform):
    return limits.first_that_fits(
      _smaller(config),
      lambda config: limits.fitting(
        config.agent, functools.partial(attempt, config)
      ),
    )


def _meta_step(
  group: population.Group,
  rule_params: types.Params,
  cluster: Cluster,
  batch_devices: int,
) -> tuple[Seconds, float]:
  """The time of the members of a row, and the arithmetic of a device."""
  dtype = group.config.inner_loop.agent.config.network.compute_dtype
  calls = group.named_calls(rule_params)
  cost: dict[str, costs.Cost] = {
    name: _cost(calls[name])
    for name in ('step', 'learn', 'outer_loss', 'backward')
    if name in calls
  }
  seconds = {name: cluster.seconds(cost[name], dtype) for name in cost}
  if not group.is_on_host:
    return seconds['step'], cost['step'].flop
  inner_loop = group.config.inner_loop
  agent = inner_loop.agent.config
  micro_batches = group.config.num_members // group.config.chunk
  # A row has its part of the machine's processors.
  rate = cluster.steps_per_second * batch_devices / cluster.per_machine
  acting = group.config.chunk * agent.actions_per_update / rate
  times: dict[str, int] = {
    'learn': inner_loop.config.inner_updates,
    'outer_loss': 1,
    'backward': inner_loop.config.inner_updates // inner_loop.config.save_every,
  }
  seconds['learn'] = _while(acting, seconds['learn'])
  # The first rollout and those of validation are acted while nothing learns.
  alone = _while((1 + inner_loop.validation_rollouts) * acting, np.zeros(4))
  each = sum((n * seconds[name] for name, n in times.items()), alone)
  flop = sum(n * cost[name].flop for name, n in times.items())
  return micro_batches * each, micro_batches * flop


def of_training(config: runner.EvaluationConfig, cluster: Cluster) -> Plan:
  """Plans training with a fixed rule; compiles its programs, runs nothing.

  Args:
    config: The settings of the run. Those that do not fit are replaced.
    cluster: devices of one machine, as many as divide the agents are used.

  Returns:
    The plan.

  Raises:
    ValueError: there are several machines.
    limits.DoesNotFitError: it does not fit into the memory.
  """
  if cluster.machines > 1:
    raise ValueError(
      f'disco-rl evaluate uses one machine, and not {cluster.machines}: lower '
      'devices, or raise devices_per_machine.'
    )
  rule, rule_params = rule_registry.load(config.rule, **config.rule_settings)
  environment = environment_registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  if isinstance(environment, base.HostEnvironment):
    environment.close()
  devices = max(
    n for n in range(1, cluster.devices + 1) if config.seeds % n == 0
  )
  seeds = config.seeds // devices

  def attempt(agent_config: agent_lib.AgentConfig) -> Plan:
    agent = agent_lib.make(agent_config, environment.spec, rule)
    agents = training.make(agent, environment, seeds, _row(1))
    one = training_footprint.off_device(agents, agent, seeds, rule_params)
    needed = limits.OffDevice(devices * one.host, devices * one.disk)
    cluster.check_host(needed.host)
    device_bytes = cluster.device_bytes(list(agents.running(rule_params)))
    cost = _cost(agents.calls(rule_params)[0])
    if isinstance(agents, training.DeviceTraining):
      # The program makes all updates that follow a rollout.
      cost = cost.repeated(1 / agent_config.updates_per_rollout)
    actions = config.seeds * agent_config.actions_per_update
    seconds = cluster.seconds(cost, agent_config.network.compute_dtype)
    if isinstance(agents, training.HostTraining):
      # All agents share the machine's processors.
      seconds = _while(actions / cluster.steps_per_second, seconds)
    return Plan(
      {
        'torso_chunk_size': agent_config.network.torso.chunk_size,
        'replay_on_disk': agent_config.replay_on_disk,
        'devices': devices,
      },
      'update',
      config.updates,
      device_bytes,
      needed,
      devices * cost.flop,
      config.seeds * agent.steps_per_update,
      seconds,
    )

  with backend.making_programs_for(cluster.device.platform):
    return limits.fitting(config.agent, attempt)


def choose_batch_devices(
  config: config_lib.MetaTrainingConfig, sizes: Sequence[int], cluster: Cluster
) -> int:
  """The devices that share batches, so that a meta-step takes the least time.

  Of each group every row of devices computes as many agents as the row with the
  most. Where several numbers take equally long, the smallest is chosen.

  Args:
    config: The settings of the run; there are no fewer than it says.
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


def _smaller(
  config: config_lib.MetaTrainingConfig,
) -> Iterator[config_lib.MetaTrainingConfig]:
  """Yields settings that take less and less memory, and more time."""
  inner_loop = config.inner_loop
  yield config
  *_, smallest = config.agent.chunkings()
  config = dataclasses.replace(config, agent=smallest)
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


def _cost(call: compilation.Call) -> costs.Cost:
  """The cost of a program; loops of environments count once."""
  program, arguments = call
  return costs.of_program(program.trace(*arguments).jaxpr, while_turns=1)


def _while(acting: float, learning: Seconds) -> Seconds:
  """Learning with acting at the same time, which may take longer."""
  waiting = max(0.0, acting - learning.sum())
  return learning + np.array((0, 0, 0, waiting))
