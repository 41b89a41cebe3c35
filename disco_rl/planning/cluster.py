"""Devices by name, and a number of them."""

from collections.abc import Mapping
import dataclasses

from disco_rl.runtime import limits

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Device:
  """What one device can do at most.

  Attributes:
    memory: bytes.
    flops: operations a second, of products, by the type of their operands.
    bandwidth: bytes a second between its memory and its processors.
  """

  memory: float
  flops: Mapping[str, float]
  bandwidth: float


def _device(
  memory_gib: float, bfloat16: float, float32: float, gbs: float
) -> Device:
  """From GiB, TFLOP/s and GB/s."""
  flops = {'bfloat16': bfloat16 * 1e12, 'float32': float32 * 1e12}
  return Device(memory_gib * GIB, flops, gbs * 1e9)


# NVIDIA's data sheets of the A100 (80 GB), H100 and H200, all SXM, without
# sparsity; float32 in TF32, JAX's default there. cloud.google.com/tpu/docs of
# each TPU; JAX multiplies float32 in bfloat16 there, by default. A TPU v3 is
# two devices; these are one core's.
DEVICES: Mapping[str, Device] = {
  'a100': _device(80e9 / GIB, 312, 156, 2_039),
  'h100': _device(80e9 / GIB, 989, 494, 3_350),
  'h200': _device(141e9 / GIB, 989, 494, 4_800),
  'tpu_v3': _device(16, 61.5, 61.5, 450),
  'tpu_v4': _device(32, 275, 275, 1_228),
  'tpu_v5e': _device(16, 197, 197, 819),
  'tpu_v5p': _device(95, 459, 459, 2_765),
  'tpu_v6e': _device(32, 918, 918, 1_640),
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
    steps_per_second: of environments on the host, on one machine.
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

  @property
  def usable_memory(self) -> int:
    """Bytes that programs can hold on a device."""
    return int(self.memory_fraction * self.device.memory)

  def check_host(self, needed: float) -> None:
    """Raises ValueError if a machine's own memory is too small."""
    if needed > self.host_memory:
      raise ValueError(
        f'Agents that wait and their replay need {limits.gib(needed)} of the '
        f'{limits.gib(self.host_memory)} of memory of each machine: set '
        'replay_on_disk=True, lower replay_capacity, or use more machines.'
      )
