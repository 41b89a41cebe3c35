"""What a run takes, as a record and as a table."""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from disco_rl.planning import cluster as cluster_lib
from disco_rl.planning import work
from disco_rl.runtime import limits


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a run takes.

  Attributes:
    settings: that it was made for; they fit into the memory.
    step: what a run consists of: a meta-step, or an update.
    steps: their number.
    device_bytes: most that a device holds.
    host_bytes: of a machine's own memory: waiting agents and their replay.
    disk_bytes: of the run's folder: checkpoints and replay.
    flop: operations of a step, on all devices.
    environment_steps: of all agents in a step.
    seconds: of a step.
  """

  settings: Mapping[str, Any]
  step: str
  steps: int
  device_bytes: int
  host_bytes: int
  disk_bytes: int
  flop: float
  environment_steps: int
  seconds: work.Seconds

  def rows(self) -> Iterator[tuple[str, Any, str]]:
    """Yields names, values and units."""
    gib, step = 2**30, self.step.replace('-', '_')
    seconds = self.seconds.total
    yield 'device_memory', self.device_bytes / gib, 'GiB on each device'
    yield 'host_memory', self.host_bytes / gib, 'GiB on each machine'
    yield 'disk', self.disk_bytes / gib, 'GiB, of all machines'
    yield f'tflop_per_{step}', self.flop / 1e12, 'TFLOP on all devices'
    yield (
      f'environment_steps_per_{step}',
      self.environment_steps,
      'of all agents',
    )
    yield f'seconds_per_{step}', seconds, f'for {self.steps:,} of them'
    yield 'days', self.steps * seconds / 86_400, 'for the run'
    for name, part in dataclasses.asdict(self.seconds).items():
      yield f'fraction_{name}', part / seconds, 'of the time'
    yield 'bottleneck', self.seconds.bottleneck, ''
    for name, value in self.settings.items():
      yield name, value, ''


def checked(program: limits.Running, cluster: cluster_lib.Cluster) -> int:
  """What a device holds while a program runs.

  Args:
    program: to be compiled; CPUs stand for the devices.
    cluster: devices.

  Returns:
    The bytes.

  Raises:
    limits.DoesNotFitError: they are too many.
  """
  held = program.held()
  if held.total > cluster.usable_memory:
    raise limits.DoesNotFitError(
      f'The program {held.name!r} needs {limits.gib(held.total)} of the '
      f'{limits.gib(cluster.usable_memory)} that programs have on a device: '
      f'{held}. Lower batch_size or the sizes of the network, or raise '
      'batch_devices.'
    )
  return held.total
