"""Programs that are compiled once, ahead of their first run."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import ctypes
import os
import re
import threading
import time

from absl import logging
import jax

from disco_rl import types
from disco_rl.runtime import backend


class _Stopwatch:
  """Measures the time during which at least one thread uses it.

  Attributes:
    seconds: The total time, updated when the last thread leaves.
  """

  def __init__(self) -> None:
    self.seconds = 0.0
    self._threads = 0
    self._start = 0.0
    self._lock = threading.Lock()

  @contextlib.contextmanager
  def running(self) -> Iterator[None]:
    """Counts the time of the block; other threads may count it too."""
    with self._lock:
      if self._threads == 0:
        self._start = time.perf_counter()
      self._threads += 1
    try:
      yield
    finally:
      with self._lock:
        self._threads -= 1
        if self._threads == 0:
          self.seconds += time.perf_counter() - self._start


_STOPWATCH = _Stopwatch()
_UNKNOWN = re.compile("No such compile option: '(.*)'")


class Program:
  """A jitted function for arguments of one shape, compiled once."""

  def __init__(
    self,
    function: Callable[..., types.PyTree],
    donate_argnums: int | tuple[int, ...] = (),
    runs_often: bool = True,
  ):
    """Compiles nothing yet.

    Args:
      function: A pure function.
      donate_argnums: The arguments whose buffers the results may reuse.
      runs_often: False halves the compilation time, at the cost of a slower
        program.
    """
    self._runs_often = runs_often
    self._jitted = jax.jit(function, donate_argnums=donate_argnums)
    self._compiled: jax.stages.Compiled | None = None

  def __call__(self, *arguments: types.PyTree) -> types.PyTree:
    """Runs the program; returns before it has finished, like JAX."""
    return self.compile(*arguments)(*arguments)

  def compile(self, *arguments: types.PyTree) -> jax.stages.Compiled:
    """Compiles the program, in the first call, for arguments of these shapes.

    They are arrays, which are not donated, or shapes from `sharding.shapes`;
    later calls must have the same shapes.
    """
    if self._compiled is None:
      with _STOPWATCH.running():
        lowered = self.trace(*arguments).lower()
        self._compiled = _compile(lowered, options(self._runs_often))
      trim_memory()
    return self._compiled

  def trace(self, *arguments: types.PyTree) -> jax.stages.Traced:
    """Traces the program to equations, which compiling reuses."""
    return self._jitted.trace(*arguments)

  def inspection(
    self, *arguments: types.PyTree
  ) -> Callable[[], jax.stages.Compiled]:
    """Lowers the program, to be compiled for inspection only.

    Args:
      *arguments: The shapes of its arguments, on CPUs if possible.

    Returns:
      A function that compiles it, in any thread, without optimizing the machine
      code: this takes a fraction of the time, and the buffers are the same.
    """
    lowered = self.trace(*arguments).lower()
    chosen = options(runs_often=False)
    if backend.has_old_cpu_compiler():
      # Halves the compilation time, also of programs for other platforms.
      chosen['xla_cpu_use_fusion_emitters'] = False

    def compiled() -> jax.stages.Compiled:
      result = _compile(lowered, chosen)
      trim_memory()
      return result

    return compiled

  def shapes(self, *arguments: types.PyTree) -> types.PyTree:
    """Returns the shapes of the results, without compiling."""
    return self._jitted.eval_shape(*arguments)


def seconds() -> float:
  """Returns how long this process has traced and compiled `Program`s so far.

  Time in which several of them are compiled counts once.
  """
  return _STOPWATCH.seconds


# A program and its arguments, or their shapes.
Call = tuple[Program, Sequence[types.PyTree]]


def compile_all(calls: Sequence[Call]) -> None:
  """Compiles programs in parallel.

  Tracing is sequential, but XLA compiles a program mostly on one core. List the
  slowest programs first, so that no core is idle at the end.
  """
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    compiling = [
      pool.submit(program.compile, *arguments) for program, arguments in calls
    ]
    for future in compiling:
      future.result()


def small_batch_options() -> dict[str, str | bool]:
  """Returns compiler options for matrices with few rows, as in acting."""
  if not backend.is_old_cpu():
    return {}
  # YNN for convolutions only: its matrix products are faster than XLA's for
  # large matrices, but take 1.5 times as long for a hundred rows.
  kind = 'LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION'
  return {'xla_cpu_experimental_ynn_fusion_type': kind}


def options(runs_often: bool = True) -> dict[str, str | bool]:
  """Returns compiler options for a `Program`."""
  chosen: dict[str, str | bool] = {}
  if not runs_often:
    chosen['xla_backend_optimization_level'] = '0'
  if backend.is_cpu():
    # This pass turns sums into trees of unrolled windows: more code to compile,
    # and sums along the last axis take up to three times as long.
    chosen['xla_disable_hlo_passes'] = 'tree_reduction_rewriter'
  if backend.is_old_cpu():
    # The new emitters, the only ones from JAX 0.11 on, take up to twice the
    # memory to compile, and the programs are not faster.
    chosen['xla_cpu_use_fusion_emitters'] = False
  return chosen


def _compile(
  lowered: jax.stages.Lowered, chosen: dict[str, str | bool]
) -> jax.stages.Compiled:
  """Compiles; ignores options that this version of XLA does not have."""
  try:
    return lowered.compile(chosen)
  except jax.errors.JaxRuntimeError as error:
    unknown = _UNKNOWN.search(str(error))
    if unknown is None or unknown[1] not in chosen:
      raise
    logging.warning(
      'XLA of JAX %s has no option %s: programs may be slower to compile and '
      'to run.',
      jax.__version__,
      unknown[1],
    )
  known = {name: x for name, x in chosen.items() if name != unknown[1]}
  return _compile(lowered, known)


def trim_memory() -> None:
  """Returns freed memory to the system.

  After a compilation the C library would keep about 400 MiB of freed memory.
  """
  if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
    trim(0)
