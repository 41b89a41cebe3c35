"""Work of programs on a device, and the time that it takes."""

import dataclasses

from disco_rl.planning import cluster as cluster_lib
from disco_rl.runtime import compilation
from disco_rl.runtime import costs


@dataclasses.dataclass(frozen=True)
class Seconds:
  """Time by what limits it.

  Attributes:
    arithmetic: of programs whose arithmetic takes longer than their traffic.
    bandwidth: of the others.
    launching: to start operations, however small they are.
    acting: while a device waits for environments on the host.
  """

  arithmetic: float = 0.0
  bandwidth: float = 0.0
  launching: float = 0.0
  acting: float = 0.0

  @property
  def total(self) -> float:
    """All of it."""
    return self.arithmetic + self.bandwidth + self.launching + self.acting

  @property
  def bottleneck(self) -> str:
    """What takes most of it."""
    fields = dataclasses.asdict(self)
    return max(fields, key=lambda name: fields[name])

  def __add__(self, other: 'Seconds') -> 'Seconds':
    return Seconds(
      self.arithmetic + other.arithmetic,
      self.bandwidth + other.bandwidth,
      self.launching + other.launching,
      self.acting + other.acting,
    )

  def times(self, number: float) -> 'Seconds':
    """Of so many, one after the other."""
    return Seconds(
      number * self.arithmetic,
      number * self.bandwidth,
      number * self.launching,
      number * self.acting,
    )

  def beside(self, acting: float) -> 'Seconds':
    """With acting at the same time, which may take longer."""
    return dataclasses.replace(self, acting=max(0.0, acting - self.total))


def cost(call: compilation.Call) -> costs.Cost:
  """Of a program; of environments' own loops, one turn."""
  program, arguments = call
  return costs.of_program(program.trace(*arguments).jaxpr, while_turns=1)


def seconds(
  one: costs.Cost, cluster: cluster_lib.Cluster, dtype: str
) -> Seconds:
  """The longer of arithmetic and traffic, which overlap; and launching.

  Args:
    one: of a program.
    cluster: devices.
    dtype: of the agents' networks.

  Returns:
    The time on each device.
  """
  device = cluster.device
  arithmetic = one.flop / (cluster.efficiency * device.flops[dtype])
  bandwidth = one.traffic / (cluster.efficiency * device.bandwidth)
  launching = one.operations * cluster.seconds_per_operation
  if arithmetic >= bandwidth:
    return Seconds(arithmetic=arithmetic, launching=launching)
  return Seconds(bandwidth=bandwidth, launching=launching)
