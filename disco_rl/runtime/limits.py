"""Whether programs fit into the memory at hand, before they are compiled.

A bound is read from the traced program, which costs next to nothing; see
`costs`. Only where that does not fit, XLA is asked: it compiles the program for
a CPU, without optimising the machine code.
"""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
from typing import Any
from typing import TypeVar

import jax
import numpy as np

from disco_rl.runtime import compilation
from disco_rl.runtime import costs
from disco_rl.runtime import distributed
from disco_rl.runtime import memory
from disco_rl.runtime import reports
from disco_rl.runtime import sharding

_Choice = TypeVar('_Choice')
_Checked = TypeVar('_Checked')
_Owner = TypeVar('_Owner')


class DoesNotFitError(ValueError):
  """A program needs more memory than a device has."""


class MachineTooSmallError(ValueError):
  """The run needs more memory than the machine has next to its devices."""


@dataclasses.dataclass(frozen=True)
class Usage:
  """Bytes that a program holds on a device while it runs.

  Attributes:
    arguments: given to it.
    results: Results, except those that take over the buffers of arguments.
    temporaries: all others.
  """

  arguments: int
  results: int
  temporaries: int

  @property
  def total(self) -> int:
    """All of them."""
    return self.arguments + self.results + self.temporaries


def usage_at_most(call: compilation.Call) -> Usage:
  """A bound, from the traced program; results count as temporaries."""
  program, arguments = call
  jaxpr = program.trace(*arguments).jaxpr
  values = costs.of_program(jaxpr, while_turns=1).memory
  return Usage(memory.device_bytes(arguments), 0, values)


def usage(call: compilation.Call) -> Usage:
  """What XLA reports of the compiled program."""
  program, arguments = call
  reported: Any = program.compile_quickly(*arguments).memory_analysis()
  return Usage(
    reported.argument_size_in_bytes,
    reported.output_size_in_bytes - reported.alias_size_in_bytes,
    reported.temp_size_in_bytes,
  )


@dataclasses.dataclass(frozen=True)
class OffDevice:
  """Bytes that a run takes in addition to those of the devices.

  Attributes:
    host: Bytes of this machine's memory: offloaded agents, their replay, and
      offloaded updates.
    disk: Bytes of the run's folder: checkpoints, one more than are kept, and
      the replay of environments on the host, of all machines.
  """

  host: int
  disk: int


@dataclasses.dataclass(frozen=True)
class Running:
  """A program, and what else a device holds while it runs.

  Attributes:
    name: The name of the program.
    call: the program and the shapes of its arguments.
    additional: bytes that are neither the program's nor its arguments.
    alone: makes the same program for one row of devices, see `row_of`.
  """

  name: str
  call: compilation.Call
  additional: int
  alone: Callable[[], compilation.Call]

  def held(self, enough: float = 0) -> 'Held':
    """What a device holds.

    Args:
      enough: bytes; a bound that is not above it stands for what XLA reports.

    Returns:
      The bytes.
    """
    most = usage_at_most(self.call)
    if most.total + self.additional <= enough:
      return Held(self.name, most, self.additional)
    return Held(self.name, usage(self.alone()), self.additional)


@dataclasses.dataclass(frozen=True)
class Held:
  """Bytes on a device while a program runs; see `Running`."""

  name: str
  usage: Usage
  additional: int

  @property
  def total(self) -> int:
    """All of them."""
    return self.usage.total + self.additional

  def __str__(self) -> str:
    usage = self.usage
    states = usage.arguments + usage.results
    return (
      f'{memory.gib(usage.temporaries)} of temporaries, '
      f'{memory.gib(states)} of states and batches, and '
      f'{memory.gib(self.additional)} for other resident data'
    )


def first_that_fits(
  choices: Iterable[_Choice], check: Callable[[_Choice], _Checked]
) -> _Checked:
  """The first choice that fits into the memory of all processes.

  Args:
    choices: at least one.
    check: raises DoesNotFitError for those that do not fit.

  Returns:
    What `check` returned.

  Raises:
    DoesNotFitError: Not even the last choice fits.
  """
  for choice in choices:
    error: DoesNotFitError | None = None
    try:
      checked = check(choice)
    except DoesNotFitError as raised:
      error = raised
    if not distributed.largest(int(error is not None)):
      return checked
  raise error or DoesNotFitError('Another process has too little memory.')


def fitting(agent: Any, check: Callable[[Any], _Checked]) -> _Checked:
  """The first of an agent's settings that fit into the memory at hand.

  Args:
    agent: settings with `chunkings` and `replay_on_disk`.
    check: raises DoesNotFitError for settings that do not fit into a device,
      and MachineTooSmallError for those whose replay has to be on disk.

  Returns:
    What `check` returned.

  Raises:
    DoesNotFitError: The smallest chunks do not fit.
    MachineTooSmallError: Nor does it with replay on disk.
  """
  on_disk = agent.replay_on_disk

  def attempt(agent: Any) -> _Checked:
    nonlocal on_disk
    if not on_disk:
      error: ValueError | None = None
      try:
        checked = check(agent)
      except (DoesNotFitError, MachineTooSmallError) as raised:
        error = raised
      # All processes ask, whatever they have found.
      on_disk = bool(
        distributed.largest(int(isinstance(error, MachineTooSmallError)))
      )
      if not on_disk:
        if error is not None:
          raise error
        return checked
    return check(dataclasses.replace(agent, replay_on_disk=True))

  return first_that_fits(agent.chunkings(), attempt)


def chosen(given: Any, fits: Any) -> dict[str, int]:
  """What was chosen of an agent's settings; says so.

  Args:
    given: the settings as the user gave them.
    fits: those that fit; others only where the user left them to the memory.

  Returns:
    Those that differ, by name.
  """
  settings = {
    'torso_chunk_size': lambda agent: agent.network.torso.chunk_size,
    'replay_on_disk': lambda agent: agent.replay_on_disk,
  }
  changed = {
    name: get(fits) for name, get in settings.items() if get(fits) != get(given)
  }
  if changed and distributed.is_first():
    shown = ', '.join(f'{name}={value}' for name, value in changed.items())
    reports.note(f'{shown} fits into memory')
  return changed


def row_of(mesh: jax.sharding.Mesh) -> jax.sharding.Mesh:
  """One row of a mesh; of CPUs if it can be: XLA compiles fastest for them."""
  count = mesh.shape[sharding.BATCH]
  row = list(mesh.devices[0])
  try:
    cpus = jax.local_devices(backend='cpu')
  except RuntimeError:  # JAX_PLATFORMS leaves them out.
    cpus = []
  if len(cpus) >= count:
    row = cpus[:count]
  return jax.sharding.Mesh(np.array(row).reshape(1, -1), mesh.axis_names)


def device_bytes(host_needed: int = 0) -> int:
  """Bytes that a program may hold on a device.

  Args:
    host_needed: bytes of the host's memory that are taken. CPUs share it.

  Returns:
    Those of an accelerator, or of the part of the memory that a CPU has.
  """
  if jax.local_devices()[0].platform != 'cpu':
    return memory.total_bytes()
  return memory.total_bytes() - host_needed // jax.local_device_count()


def check(
  host: int,
  remedy: str,
  programs: Iterable[tuple[_Owner, Iterable[Running]]],
  describe: Callable[[_Owner, Held, int], str],
) -> None:
  """Checks the memory of this machine, then that of a device.

  Args:
    host: Bytes that are needed in addition to those of devices.
    remedy: what to change where the machine has less.
    programs: in groups, each with whose they are.
    describe: (whose, what is held, bytes at hand) -> the message where a
      program does not fit.

  Raises:
    MachineTooSmallError: the machine's memory is too small.
    DoesNotFitError: a device's is.
  """
  check_host(host, remedy)
  available = device_bytes(host)
  for owner, own in programs:
    for running in own:
      held = running.held(available)
      if held.total > available:
        raise DoesNotFitError(describe(owner, held, available))


def check_host(needed: int, remedy: str) -> None:
  """Raises MachineTooSmallError if the machine's memory is too small.

  Args:
    needed: Bytes, in addition to those of devices.
    remedy: what to change.
  """
  available = memory.host_bytes()
  if needed > available:
    raise MachineTooSmallError(
      f'The run needs {memory.gib(needed)} of the memory of this machine, '
      f'which has {memory.gib(available)}. {remedy}'
    )
