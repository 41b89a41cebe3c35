"""What the benchmarks share: durations, the rate of the machine, files."""

from collections.abc import Callable
import json
import time
from typing import Any

import jax
import jax.numpy as jnp

_SIZE = 2048
_product = jax.jit(jnp.dot)


def seconds(function: Callable[[], Any], calls: int = 1) -> float:
  """Mean duration of a few calls in a row."""
  start = time.perf_counter()
  for _ in range(calls):
    result = function()
  jax.block_until_ready(result)
  return (time.perf_counter() - start) / calls


def product_gflops(calls: int = 1) -> float:
  """The rate of a product of matrices of 2048 x 2048, in GFLOP/s."""
  square = jnp.ones((_SIZE, _SIZE))
  multiply = lambda: _product(square, square)
  jax.block_until_ready(multiply())  # Compiles, and warms up.
  return 2 * _SIZE**3 / seconds(multiply, calls) / 1e9


def write(table: Any, path: str | None) -> None:
  """Writes a table as JSON; None or empty: nowhere."""
  if not path:
    return
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(table, file, indent=2)
