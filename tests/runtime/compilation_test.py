"""Programs: compiled once, in parallel, for arrays or for their shapes."""

import os
import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.runtime import backend
from disco_rl.runtime import compilation

SHAPE = jax.ShapeDtypeStruct((3,), np.float32)


@pytest.mark.skipif(os.cpu_count() == 1, reason='one core compiles by turns')
def test_programs_are_compiled_in_parallel() -> None:
  """Each is traced only once the other has begun, or the test fails."""
  both = threading.Barrier(2, timeout=60)

  def program() -> compilation.Program:

    def function(x: Any) -> Any:
      both.wait()
      time.sleep(0.1)  # Counted once, for both.
      return x + 1

    return compilation.Program(function)

  calls = [(program(), (SHAPE,)), (program(), (SHAPE,))]
  start, before = time.perf_counter(), compilation.seconds()
  compilation.compile_all(calls)
  elapsed = time.perf_counter() - start
  assert 0.1 <= compilation.seconds() - before <= elapsed
  for compiled, _ in calls:
    np.testing.assert_array_equal(compiled(np.zeros(3, np.float32)), 1.0)


def test_a_program_is_traced_once() -> None:
  traces = []

  def function(x: Any) -> Any:
    traces.append(x.shape)
    return 2 * x

  program = compilation.Program(function)
  assert program.shapes(SHAPE).shape == (3,)
  before = compilation.seconds()
  compilation.compile_all([(program, (SHAPE,))])
  seconds = compilation.seconds()
  assert seconds > before
  for x in (np.ones(3, np.float32), jnp.ones(3)):
    np.testing.assert_array_equal(program(x), 2.0)
  assert traces == [(3,)]
  assert compilation.seconds() == seconds


def test_what_fails_to_compile_is_an_error() -> None:
  def function(x: Any) -> Any:
    raise ValueError('no such layer')

  good = compilation.Program(jnp.sin)
  calls = [(compilation.Program(function), (SHAPE,)), (good, (SHAPE,))]
  with pytest.raises(ValueError, match='no such layer'):
    compilation.compile_all(calls)


def test_programs_are_traced_for_the_platform_of_the_context() -> None:
  program = compilation.Program(
    lambda x: jnp.sin(x) if backend.is_cpu() else jnp.cos(x)
  )
  for platform, operation in (('tpu', 'cos'), ('cpu', 'sin')):
    with backend.making_programs_for(platform):
      assert f' {operation} ' in str(program.trace(SHAPE).jaxpr)


def test_reductions_are_not_made_trees_of_windows() -> None:
  """XLA's pass costs more code and time than it saves."""
  # From JAX 0.11 on, sums and maxima are none anyway.
  function = lambda x: jnp.all(x > 0, axis=-1)
  shape = jax.ShapeDtypeStruct((64, 600), np.float32)
  plain = jax.jit(function).lower(shape).compile().as_text()
  ours = compilation.Program(function).compile(shape).as_text()
  assert plain is not None and 'reduce-window' in plain, 'no longer needed'
  assert ours is not None and 'reduce-window' not in ours


def test_an_option_that_xla_does_not_know_is_left_out(
  monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
  usual = compilation.options()
  monkeypatch.setattr(
    compilation, 'options', lambda _: {'xla_no_such_option': True, **usual}
  )
  program = compilation.Program(lambda x: jnp.sum(x) + 1)
  assert program(np.ones(600, np.float32)) == 601.0
  (record,) = caplog.records
  assert 'xla_no_such_option' in record.getMessage()


def test_programs_that_run_seldom_are_not_optimized(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  level = 'xla_backend_optimization_level'
  usual = compilation.options()
  assert level not in usual
  assert compilation.options(runs_often=False) == {**usual, level: '0'}
  chosen = []
  monkeypatch.setattr(
    compilation, '_compile', lambda _, options: chosen.append(options)
  )
  for runs_often in (True, False):
    program = compilation.Program(jnp.sin, runs_often=runs_often)
    program.compile(np.float32(1))
  program.inspection(np.float32(1))()
  assert [x.get(level) for x in chosen] == [None, '0', '0']


def test_a_wrong_value_of_an_option_is_an_error(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  wrong = {'xla_backend_optimization_level': 'much'}
  monkeypatch.setattr(compilation, 'options', lambda _: wrong)
  with pytest.raises(jax.errors.JaxRuntimeError, match='much'):
    compilation.Program(jnp.sin)(np.ones(3, np.float32))
