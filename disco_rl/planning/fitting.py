"""Fits runs into the memory of machines and devices, before they compile.

An upper bound of the memory is counted in the traced programs; see `costs`. If
it exceeds the memory, XLA reports the exact number by compiling the program for
a CPU, without optimizing the machine code.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import os
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax
import numpy as np

from disco_rl.planning import costs
from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import memory
from disco_rl.runtime import reports


class DoesNotFitError(ValueError):
  """Raised if a program needs more memory than a device has."""


class MachineTooSmallError(ValueError):
  """Raised if a run needs more memory than the machine has for the host."""


class Footprint(NamedTuple):
  """Bytes on a device while a program runs.

  Attributes:
    temporaries: The bytes of intermediate values.
    states: The bytes of arguments, and of results that do not reuse them.
    other: The bytes that do not belong to the program or its arguments.
  """

  temporaries: int
  states: int
  other: int = 0

  @property
  def total(self) -> int:
    """The sum of all."""
    return sum(self)

  def __str__(self) -> str:
    temporaries, states, other = map(memory.gib, self)
    return (
      f'{temporaries} of temporaries, {states} of states and batches, and '
      f'{other} for other resident data'
    )


class Schedule(NamedTuple):
  """The runs of a program, and actions on the host around them.

  Attributes:
    runs_per_step: The number of times that it runs in a step of the run.
    actions_during: The actions on the host while it runs.
    actions_between: The actions on the host while nothing runs, for each time
      it runs.
  """

  runs_per_step: float = 0.0
  actions_during: int = 0
  actions_between: int = 0


@dataclasses.dataclass(frozen=True)
class Load:
  """A program of a run, and other data on a device while it runs.

  Attributes:
    name: The name of the program.
    call: The program and the shapes of its arguments.
    on_one_row: Makes the same program for one row of devices; see `row_of`.
    owner: The name of the program's agents in messages; may be empty.
    remedies: Suggestions if the program does not fit.
    other_bytes: The bytes that do not belong to the program or its arguments.
    schedule: When it runs.
  """

  name: str
  call: compilation.Call
  on_one_row: Callable[[], compilation.Call]
  owner: str = ''
  remedies: Sequence[str] = ()
  other_bytes: int = 0
  schedule: Schedule = Schedule()

  def bound(self) -> Footprint:
    """Returns an upper bound; results count as temporaries."""
    states = memory.device_bytes(self.call[1])
    return Footprint(costs.cost(self.call).memory, states, self.other_bytes)

  def measurement(self) -> Callable[[], Footprint]:
    """Returns a function that compiles the program, in any thread.

    It returns the exact numbers that XLA reports.
    """
    program, arguments = self.on_one_row()
    compiled = program.inspection(*arguments)

    def footprint() -> Footprint:
      found: Any = compiled().memory_analysis()
      results = found.output_size_in_bytes - found.alias_size_in_bytes
      states = found.argument_size_in_bytes + results
      return Footprint(found.temp_size_in_bytes, states, self.other_bytes)

    return footprint


@dataclasses.dataclass(frozen=True)
class Needs:
  """The needs of a run.

  Attributes:
    what: The name of the run in messages.
    loads: The programs of the run.
    host: The bytes of host memory on this machine: offloaded agents, their
      replay, and offloaded updates.
    disk: The bytes of the run's folder: checkpoints, one more than are kept,
      and the replay of environments on the host, of all machines.
    remedy: A suggestion if the machine's memory is too small.
  """

  what: str
  loads: Sequence[Load]
  host: int
  disk: int
  remedy: str

  def check(self) -> None:
    """Compares the needs with the memory of this machine and its devices.

    Raises:
      MachineTooSmallError: The machine's memory is too small.
      DoesNotFitError: The memory of a device is too small.
    """
    self.check_host(memory.host_bytes())
    available = device_bytes(self.host)
    self.most_held(available, enough=available)

  def check_host(self, available: float) -> None:
    """Raises MachineTooSmallError if a machine has too little memory."""
    if self.host > available:
      raise MachineTooSmallError(
        f'{self.what} needs {memory.gib(self.host)} of host memory, but the '
        f'machine has {memory.gib(available)}. {self.remedy}'
      )

  def most_held(self, available: int, enough: int = 0) -> int:
    """Returns the maximum that a device holds while a program runs.

    Args:
      available: The bytes that programs can use.
      enough: Programs with a bound up to this number are not compiled.

    Returns:
      The number of bytes, or `enough` if it is smaller.

    Raises:
      DoesNotFitError: The number is more than `available`.
    """
    bounds = [(load.bound(), load) for load in self.loads]
    bounds.sort(key=lambda x: x[0].total, reverse=True)
    # A program holds at least its states.
    least = max([enough, *(x.total - x.temporaries for x, _ in bounds)])
    number = sum(bound.total > least for bound, _ in bounds)
    cores = os.cpu_count() or 1
    compiling: list[tuple[Load, futures.Future[Footprint]]] = []
    with futures.ThreadPoolExecutor(cores) as pool:
      for i, (bound, load) in enumerate(bounds, 1):
        if len(compiling) == cores:
          enough = max(enough, self._fitting(available, *compiling.pop(0)))
        if bound.total <= enough:
          break
        name = ', '.join(filter(None, (load.name, load.owner)))
        reports.note(f'compiling {i}/{max(i, number)}: {name}')
        compiling.append((load, pool.submit(load.measurement())))
      held = [self._fitting(available, *started) for started in compiling]
    return max([enough, *held])

  def _fitting(
    self, available: int, load: Load, measured: futures.Future[Footprint]
  ) -> int:
    """Returns what is held, or raises DoesNotFitError; see `most_held`."""
    held = measured.result()
    if held.total > available:
      raise DoesNotFitError(
        f'{self.what} needs {memory.gib(held.total)} on each device, which has '
        f'{memory.gib(available)}: {load.owner or repr(load.name)} '
        f'take{"" if load.owner else "s"} {held}. One of these may help: '
        f'{", ".join(load.remedies)}.'
      )
    return held.total


_Config = TypeVar('_Config', bound=Any)
_Checked = TypeVar('_Checked')


def chunk_size_candidates(config: _Config) -> Iterator[_Config]:
  """Yields the settings of a run with each of the agent's candidates."""
  for agent in config.agent.chunk_size_candidates():
    yield dataclasses.replace(config, agent=agent)


def first_that_fits(
  configs: Iterable[_Config], check: Callable[[_Config], _Checked]
) -> _Checked:
  """Finds the first settings that fit into the memory of all processes.

  Args:
    configs: At least one config of a run. Replay is moved to disk if the
      machine's memory is too small for it.
    check: A function that raises DoesNotFitError for settings that do not fit
      into a device, and MachineTooSmallError for those that need replay on
      disk.

  Returns:
    The result of `check`.

  Raises:
    DoesNotFitError: The last settings do not fit.
    MachineTooSmallError: They do not fit even with replay on disk.
  """
  must_use_disk = False
  waiting = list(configs)[::-1]
  while True:
    config = waiting.pop()
    if must_use_disk:
      agent = dataclasses.replace(config.agent, replay_on_disk=True)
      config = dataclasses.replace(config, agent=agent)
    error: Exception | None = None
    try:
      checked = check(config)
    except (DoesNotFitError, MachineTooSmallError) as raised:
      error = raised
    is_small = isinstance(error, MachineTooSmallError)
    # All processes must take part, whatever their results.
    worst = distributed.largest(2 if is_small else int(error is not None))
    if worst == 0:
      return checked
    if worst == 2 and not config.agent.replay_on_disk:
      must_use_disk = True
      waiting.append(config)
    elif worst == 2 or not waiting:
      raise error or DoesNotFitError('Another process has too little memory.')


def report_choices(
  given: Mapping[str, int], fits: Mapping[str, int]
) -> dict[str, int]:
  """Returns and reports the settings of an agent that were chosen.

  Args:
    given: `AgentConfig.automatic_choices` as the user gave them.
    fits: The choices that fit, which may differ only where the user left them
      open.
  """
  changed = {name: x for name, x in fits.items() if x != given[name]}
  if changed and distributed.is_first():
    shown = ', '.join(f'{name}={value}' for name, value in changed.items())
    reports.note(f'{shown} fits into memory')
  return changed


def row_of(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
  """Returns one row of a mesh, on CPUs if possible: XLA compiles fastest."""
  row = list(mesh.devices[0])
  try:
    cpus = jax.local_devices(backend='cpu')
  except RuntimeError:  # JAX_PLATFORMS excludes them.
    cpus = []
  if len(cpus) >= len(row):
    row = cpus[: len(row)]
  return jax.sharding.Mesh(np.array(row).reshape(1, -1), mesh.axis_names)


def device_bytes(host_needed: int = 0) -> int:
  """Returns the bytes that a program may use on a device.

  Args:
    host_needed: The bytes of host memory in use, which CPUs share.
  """
  if jax.local_devices()[0].platform != 'cpu':
    return memory.total_bytes()
  return memory.total_bytes() - host_needed // jax.local_device_count()
