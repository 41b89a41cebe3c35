"""Programs that are compiled once, ahead of their first run."""

from collections.abc import Callable
import ctypes
import time
from typing import Any

import jax


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
    """The program for such arguments, which are not used up."""
    if self._compiled is None:
      start = time.perf_counter()
      self._compiled = self._jitted.lower(*arguments).compile(
        _options(self._runs_often)
      )
      self.compile_seconds += time.perf_counter() - start
      trim_memory()
    return self._compiled


def few_rows_options() -> dict[str, str | bool]:
  """Compiler options for products of matrices of few rows, such as acting's."""
  if not _is_old_cpu_compiler():
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
  if _is_old_cpu_compiler():
    # The new emitters, the only ones from JAX 0.11 on, take up to twice the
    # memory to compile, and the programs are not faster.
    options['xla_cpu_use_fusion_emitters'] = False
  return options


def _is_old_cpu_compiler() -> bool:
  """Whether the XLA of JAX 0.10 compiles for CPUs."""
  return jax.default_backend() == 'cpu' and jax.__version_info__ < (0, 11)


def trim_memory() -> None:
  """Returns freed memory to the system.

  After a compilation the C library would keep some 400 MiB of freed memory.
  """
  if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
    trim(0)
