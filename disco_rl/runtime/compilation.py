"""Programs that are compiled once, ahead of their first run."""

from collections.abc import Callable
from collections.abc import Sequence
from concurrent import futures
import ctypes
import os
import time
from typing import Any

import jax

from disco_rl.runtime import backend


class Program:
  """A jitted function for arguments of one shape, compiled at its first call.

  Attributes:
    compile_seconds: spent on tracing and compiling so far.
  """

  def __init__(
    self,
    function: Callable[..., Any],
    donate_argnums: int | tuple[int, ...] = (),
    runs_often: bool = True,
  ):
    """Compiles nothing yet.

    Args:
      function: pure.
      donate_argnums: arguments whose buffers the results may take over.
      runs_often: False halves the time of compilation, at the cost of a slower
        program.
    """
    self._runs_often = runs_often
    self._jitted = jax.jit(function, donate_argnums=donate_argnums)
    self._compiled: jax.stages.Compiled | None = None
    self.compile_seconds = 0.0

  def __call__(self, *arguments: Any) -> Any:
    """Runs the program; returns before it has ended, as JAX does."""
    return self.compile(*arguments)(*arguments)

  def compile(self, *arguments: Any) -> jax.stages.Compiled:
    """The program for such arguments.

    Args:
      *arguments: arrays, which are not used up, or their shapes; see
        `sharding.shapes`.

    Returns:
      The program, the same in every call.
    """
    if self._compiled is None:
      start = time.perf_counter()
      self._compiled = (
        self.trace(*arguments).lower().compile(_options(self._runs_often))
      )
      self.compile_seconds += time.perf_counter() - start
      trim_memory()
    return self._compiled

  def trace(self, *arguments: Any) -> jax.stages.Traced:
    """The program as equations; compiling traces it no second time."""
    return self._jitted.trace(*arguments)

  def compile_quickly(self, *arguments: Any) -> jax.stages.Compiled:
    """The program to be looked at, not run: its machine code is not optimised.

    That takes a fraction of the time, and the buffers are the same.

    Args:
      *arguments: as of `compile`.

    Returns:
      The program.
    """
    lowered = self.trace(*arguments).lower()
    compiled = lowered.compile(_options(runs_often=False))
    trim_memory()
    return compiled

  def lower(self, platform: str, *arguments: Any) -> jax.stages.Lowered:
    """The program before XLA compiles it, for any platform.

    Args:
      platform: see `backend.making_programs_for`; needs no such device.
      *arguments: as of `compile`.

    Returns:
      The program in StableHLO.
    """
    with backend.making_programs_for(platform):
      traced = self._jitted.trace(*arguments)
      return traced.lower(lowering_platforms=(platform,))

  def shapes(self, *arguments: Any) -> Any:
    """Shapes of the results for such arguments; compiles nothing."""
    return self._jitted.eval_shape(*arguments)


# A program and its arguments, or their shapes.
Call = tuple[Program, Sequence[Any]]


def compile_all(calls: Sequence[Call]) -> None:
  """Compiles programs in parallel.

  Tracing takes turns, but XLA compiles one program mostly on one core.

  Args:
    calls: see `Program.compile`; those of programs that take long first, so
      that no core waits at the end.
  """
  with futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    compiling = [
      pool.submit(program.compile, *arguments) for program, arguments in calls
    ]
    for future in compiling:
      future.result()


def few_rows_options() -> dict[str, str | bool]:
  """Compiler options for products of matrices of few rows, such as acting's."""
  if not backend.is_old_cpu():
    return {}
  # YNN for convolutions only: its matrix products are faster than XLA's for
  # large matrices, but take 1.5 times as long for a hundred rows.
  kind = 'LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION'
  return {'xla_cpu_experimental_ynn_fusion_type': kind}


def _options(runs_often: bool) -> dict[str, str | bool]:
  """Compiler options; see `Program`."""
  options: dict[str, str | bool] = {}
  if not runs_often:
    options['xla_backend_optimization_level'] = '0'
  if backend.is_old_cpu():
    # The new emitters, the only ones from JAX 0.11 on, take up to twice the
    # memory to compile, and the programs are not faster.
    options['xla_cpu_use_fusion_emitters'] = False
  return options


def trim_memory() -> None:
  """Returns freed memory to the system.

  After a compilation the C library would keep some 400 MiB of freed memory.
  """
  if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
    trim(0)
