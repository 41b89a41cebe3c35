"""Estimates the time of a run on devices, which need not be attached."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np

from disco_rl.planning import costs
from disco_rl.planning import fitting

# The parts of the time: arithmetic of programs whose arithmetic takes longer
# than their traffic, traffic of the other programs, the start of operations,
# and waiting for environments on the host.
LIMITS = ('arithmetic', 'bandwidth', 'launching', 'acting')


class Device(NamedTuple):
  """A kind of device, with data from its manufacturer.

  Attributes:
    platform: The platform that programs are made for.
    gib: The GiB of its memory.
    bfloat16: The TFLOP/s of products in bfloat16.
    float32: The TFLOP/s of products in float32.
    bandwidth: The GB/s between its memory and its processors.
  """

  platform: str
  gib: float
  bfloat16: float
  float32: float
  bandwidth: float

  def cluster(
    self, memory_fraction: float, efficiency: float, **others: Any
  ) -> 'Cluster':
    """Makes a cluster of machines with such devices.

    Args:
      memory_fraction: The fraction of the memory that programs can use.
      efficiency: The fraction of TFLOP/s and GB/s that programs reach.
      **others: The other attributes of the cluster.
    """
    return Cluster(
      self.platform,
      int(memory_fraction * self.gib * 2**30),
      {
        'bfloat16': 1e12 * efficiency * self.bfloat16,
        'float32': 1e12 * efficiency * self.float32,
      },
      1e9 * efficiency * self.bandwidth,
      **others,
    )


# From NVIDIA's data sheets of the A100 (80 GB), H100 and H200, all SXM, without
# sparsity, with float32 as TF32, JAX's default there; and from
# cloud.google.com/tpu/docs, with float32 as bfloat16, JAX's default there. A
# TPU v3 counts as two devices: its numbers are for one core.
DEVICES: Mapping[str, Device] = {
  'a100': Device('cuda', 80e9 / 2**30, 312, 156, 2_039),
  'h100': Device('cuda', 80e9 / 2**30, 989, 494, 3_350),
  'h200': Device('cuda', 141e9 / 2**30, 989, 494, 4_800),
  'tpu_v3': Device('tpu', 16, 61.5, 61.5, 450),
  'tpu_v4': Device('tpu', 32, 275, 275, 1_228),
  'tpu_v5e': Device('tpu', 16, 197, 197, 819),
  'tpu_v5p': Device('tpu', 95, 459, 459, 2_765),
  'tpu_v6e': Device('tpu', 32, 918, 918, 1_640),
}
# Names, values and units.
Table = list[tuple[str, str | float | bool, str]]


@dataclasses.dataclass(frozen=True)
class Cluster:
  """Machines with devices of one kind, which need not be attached.

  Attributes:
    platform: The platform that programs are made for.
    memory: The bytes that programs can use on a device.
    flops: The operations per second of products, by the type of operands.
    bandwidth: The bytes per second between a device's memory and processors.
    seconds_per_operation: The mean time to start an operation; several may run
      as one kernel.
    steps_per_second: The actions per second in environments on the host of one
      machine.
    host_memory: The bytes of a machine's own memory.
    devices: The number of devices.
    per_machine: The number of devices per machine.
  """

  platform: str
  memory: int
  flops: Mapping[str, float]
  bandwidth: float
  seconds_per_operation: float
  steps_per_second: float
  host_memory: float
  devices: int = 1
  per_machine: int = 1

  def __post_init__(self) -> None:
    if self.devices % self.per_machine:
      raise ValueError(
        f'devices={self.devices} must be a multiple of devices_per_machine='
        f'{self.per_machine}.'
      )

  @property
  def machines(self) -> int:
    """The number of machines."""
    return self.devices // self.per_machine

  def seconds(self, cost: costs.Cost, dtype: str) -> np.ndarray:
    """Estimates the time of a program on a device, by `LIMITS`.

    Arithmetic and traffic overlap; the start of operations does not.

    Args:
      cost: The cost of the program.
      dtype: The type in which the agents' networks compute.
    """
    arithmetic = cost.flop / self.flops[dtype]
    traffic = cost.traffic / self.bandwidth
    longer = (arithmetic, 0) if arithmetic >= traffic else (0, traffic)
    return np.array((*longer, cost.operations * self.seconds_per_operation, 0))

  def table(
    self,
    parts: Sequence[tuple[fitting.Needs, int]],
    dtype: str,
    actions_per_second: float,
    steps: tuple[str, int, int],
  ) -> Table:
    """Tabulates the memory and time of a run, if it fits.

    Args:
      parts: The parts of the cluster that compute different programs at the
        same time: the programs of a device, the bytes of a machine and the
        disk, and the number of devices.
      dtype: The type in which the agents' networks compute.
      actions_per_second: The actions per second on the host for the agents of a
        device.
      steps: The name and the number of the run's steps, and the environment
        steps of all agents in each.

    Raises:
      MachineTooSmallError: The machine's memory is too small.
      DoesNotFitError: The memory of a device is too small.
    """
    seconds, flop, device = np.zeros(len(LIMITS)), 0.0, 0
    for needs, devices in parts:
      needs.check_host(self.host_memory)
      device = max(device, needs.most_held(self.memory, enough=device))
      part_seconds = np.zeros(len(LIMITS))
      for load in needs.loads:
        if load.schedule.runs_per_step:
          one = costs.cost(load.call)
          program_seconds = self.seconds(one, dtype)
          # Simultaneous acting may take longer than the program.
          program_seconds[-1] = (
            load.schedule.actions_between / actions_per_second
            + max(
              0.0,
              load.schedule.actions_during / actions_per_second
              - program_seconds.sum(),
            )
          )
          part_seconds += load.schedule.runs_per_step * program_seconds
          flop += devices * load.schedule.runs_per_step * one.flop
      # All wait for the part that takes longest.
      seconds = max(seconds, part_seconds, key=np.sum)
    host = max(needs.host for needs, _ in parts)
    disk = sum(needs.disk for needs, _ in parts)
    (step, number, of_environments), total = steps, float(seconds.sum())
    return [
      ('device_memory', device / 2**30, 'GiB on each device'),
      ('host_memory', host / 2**30, 'GiB on each machine'),
      (
        'disk',
        disk / 2**30,
        'GiB in the workdir: checkpoints, and replay, which they need',
      ),
      (f'tflop_per_{step}', flop / 1e12, 'TFLOP on all devices'),
      (f'environment_steps_per_{step}', of_environments, 'of all agents'),
      (f'seconds_per_{step}', total, f'for {number:,} of them'),
      ('days', number * total / 86_400, 'for the run'),
      *(
        (f'fraction_{name}', part / total, 'of the time')
        for name, part in zip(LIMITS, seconds.tolist())
      ),
      ('bottleneck', LIMITS[int(seconds.argmax())], ''),
    ]
