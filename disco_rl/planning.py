"""Estimates the memory and time of a run before its programs are compiled.

Arithmetic, traffic and an upper bound of the memory are counted in the traced
programs, which costs almost nothing. (XLA's own `cost_analysis` counts the body
of a loop once.) If the bound exceeds the memory, XLA reports the exact number
by compiling the program for a CPU, without optimizing the machine code. The
time is estimated with a model of devices, which need not be attached.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import math
import os
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax
from jax.extend import core
from jax.interpreters import partial_eval
import numpy as np

from disco_rl.runtime import compilation
from disco_rl.runtime import distributed
from disco_rl.runtime import memory
from disco_rl.runtime import reports

# Operations that move, choose or name values, which compilers merge into
# others.
_MOVES = (
  *('broadcast_in_dim', 'concatenate', 'convert_element_type', 'copy'),
  *('dynamic_slice', 'dynamic_update_slice', 'expand_dims', 'gather', 'iota'),
  *('pad', 'reshape', 'rev', 'select_n', 'slice', 'split', 'squeeze'),
  *('stop_gradient', 'transpose'),
)
# The memory of a cumulative sum, as a multiple of its result: compilers compute
# it in log n steps, each on half as many entries.
_STEPS_OF_SUMS = 4


class DoesNotFitError(ValueError):
  """Raised if a program needs more memory than a device has."""


class MachineTooSmallError(ValueError):
  """Raised if a run needs more memory than the machine has for the host."""


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of a program on each device, or of a part of it.

  Attributes:
    flop: The floating-point operations: two for each multiplication in a
      product; for other operations, including exponentials, one for each entry
      of the largest operand or result.
    traffic: The bytes of operands and results of products and convolutions.
      Other operations are ignored, because they can be merged into these.
    operations: The number of operations that compute something. Compilers merge
      some.
    memory: The bytes of all intermediate values, as if all existed at once; for
      a loop, those of one iteration and the stacked results.
  """

  flop: float = 0.0
  traffic: float = 0.0
  operations: float = 0.0
  memory: int = 0

  def __add__(self, other: 'Cost') -> 'Cost':
    return Cost(*map(sum, zip(vars(self).values(), vars(other).values())))

  def repeated(self, number: float) -> 'Cost':
    """Returns the cost of a loop with this body; iterations share memory."""
    return Cost(
      number * self.flop,
      number * self.traffic,
      number * self.operations,
      self.memory,
    )


def cost(call: compilation.Call) -> Cost:
  """Computes the cost of a traced program; a while loop counts once."""
  program, arguments = call
  jaxpr = program.trace(*arguments).jaxpr.jaxpr
  # Derivatives leave equations whose results are not used.
  used, _ = partial_eval.dce_jaxpr(jaxpr, len(jaxpr.outvars) * [True])
  return _of_equations(used)


def _of_equations(jaxpr: core.Jaxpr) -> Cost:
  # Results may be copied if they are arguments, or returned twice.
  held, copies = set(map(id, jaxpr.invars)), 0
  for result in jaxpr.outvars:
    if id(result) in held:
      copies += _bytes(result)
    held.add(id(result))
  return sum(map(_of_equation, jaxpr.eqns), Cost(memory=copies))


def _of_equation(equation: core.JaxprEqn) -> Cost:
  name, params = equation.primitive.name, equation.params
  inner = [_of_equations(part) for part in _parts(params)]
  results = sum(map(_bytes, equation.outvars))
  if name == 'cond':
    branches = zip(*(vars(branch).values() for branch in inner))
    return Cost(*map(max, branches)) + Cost(memory=results)
  if inner:
    called = sum(inner, Cost())
    if name not in ('scan', 'while'):
      return called  # Its results are those of the equations inside.
    return called.repeated(params.get('length', 1)) + Cost(memory=results)
  if name.startswith('cum'):
    results *= _STEPS_OF_SUMS
  if name in _MOVES:
    return Cost(memory=results)
  is_product = name in ('dot_general', 'conv_general_dilated')
  traffic = sum(map(_bytes, equation.invars)) + results if is_product else 0.0
  return Cost(_flop(equation), traffic, 1.0, results)


def _flop(equation: core.JaxprEqn) -> float:
  """Counts the operations of an equation without inner equations."""
  name, params = equation.primitive.name, equation.params
  size = max(map(_size, equation.outvars), default=0)
  if name == 'dot_general':
    (contracted, _), _ = params['dimension_numbers']
    shape = _shape(equation.invars[0])
    return 2.0 * size * math.prod(shape[axis] for axis in contracted)
  if name == 'conv_general_dilated':
    shape = _shape(equation.invars[1])
    features = shape[params['dimension_numbers'].rhs_spec[0]]
    # Products with the zeros of dilation do not count.
    zeros = math.prod(params['lhs_dilation'])
    return 2.0 * size * math.prod(shape) / features / zeros
  if name.startswith('reduce_window'):
    return float(size * math.prod(params['window_dimensions']))
  return float(max((size, *map(_size, equation.invars))))


def _parts(params: Mapping[str, object]) -> Iterator[core.Jaxpr]:
  """Yields the jaxprs among the parameters of an equation."""
  for value in params.values():
    for part in value if isinstance(value, tuple) else (value,):
      if isinstance(part, core.ClosedJaxpr):
        yield part.jaxpr
      elif isinstance(part, core.Jaxpr):
        yield part


def _shape(variable: core.Var | core.Literal) -> tuple[int, ...]:
  return getattr(variable.aval, 'shape', ())


def _size(variable: core.Var | core.Literal) -> int:
  return math.prod(_shape(variable))


def _bytes(variable: core.Var | core.Literal) -> int:
  # Keys of random numbers, of an extended type, are small.
  dtype = getattr(variable.aval, 'dtype', None)
  return _size(variable) * getattr(dtype, 'itemsize', 0)


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
    return Footprint(cost(self.call).memory, states, self.other_bytes)

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

  def seconds(self, cost: Cost, dtype: str) -> np.ndarray:
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
    parts: Sequence[tuple[Needs, int]],
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
          one = cost(load.call)
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
