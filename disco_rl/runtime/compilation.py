"""Compiling programs once, ahead of their first run."""

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
      runs_often: otherwise it is compiled in less than half the time, and runs
        slower.
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
  # YNN is to do convolutions alone: it multiplies large matrices faster than
  # XLA itself, but takes half as long again for those of a hundred rows.
  kind = 'LIBRARY_FUSION_TYPE_INDIVIDUAL_CONVOLUTION'
  return {'xla_cpu_experimental_ynn_fusion_type': kind}


def _options(runs_often: bool) -> dict[str, str | bool]:
  """What the compiler is told; see `Program`."""
  options: dict[str, str | bool] = {}
  if not runs_often:
    options['xla_backend_optimization_level'] = '0'
  if _is_old_cpu_compiler():
    # With the new emitters, which JAX 0.11 alone has, compiling takes up to
    # twice the memory, and programs are not faster.
    options['xla_cpu_use_fusion_emitters'] = False
  return options


def _is_old_cpu_compiler() -> bool:
  """Whether the XLA of JAX 0.10 compiles for CPUs."""
  return jax.default_backend() == 'cpu' and jax.__version_info__ < (0, 11)


def trim_memory() -> None:
  """Returns freed memory to the system.

  Compiling frees some 400 MiB that the C library would keep for itself.
  """
  if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
    trim(0)
