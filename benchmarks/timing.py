"""Durations, the rate of the machine and JSON files, for all benchmarks."""

from collections.abc import Callable
import json
import statistics
import time
from typing import Any

from absl import flags
import jax
import jax.numpy as jnp

_JSON = flags.DEFINE_string('json', None, 'File to write the table to.')

# Rate of the machine on which the published code was timed.
REFERENCE_GFLOPS = 470.0

_SIZE = 2048
_product = jax.jit(jnp.dot)


def seconds(function: Callable[[], Any], calls: int = 1) -> float:
  """Returns the mean duration of a few calls in a row."""
  start = time.perf_counter()
  for _ in range(calls):
    result = function()
  jax.block_until_ready(result)
  return (time.perf_counter() - start) / calls


def median_seconds(function: Callable[[], Any], repeats: int = 5) -> float:
  """Returns the median duration of a call, after one that compiles."""
  seconds(function)
  return statistics.median(seconds(function) for _ in range(repeats))


def product_gflops(calls: int = 1) -> float:
  """Returns the rate of a product of 2048 x 2048 matrices, in GFLOP/s."""
  square = jnp.ones((_SIZE, _SIZE))
  multiply = lambda: _product(square, square)
  jax.block_until_ready(multiply())  # Compiles, and warms up.
  return 2 * _SIZE**3 / seconds(multiply, calls) / 1e9


def write(table: Any) -> None:
  """Writes a table as JSON to --json; without the flag it does nothing."""
  if _JSON.value:
    with open(_JSON.value, 'w', encoding='utf-8') as file:
      json.dump(table, file, indent=2)
