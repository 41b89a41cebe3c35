"""Costs of traced programs, against counts by hand and XLA's memory."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from disco_rl.planning import costs
from disco_rl.planning import fitting
from disco_rl.runtime import compilation

LEFT = jax.ShapeDtypeStruct((3, 4), jnp.float32)
RIGHT = jax.ShapeDtypeStruct((4, 5), jnp.float32)


def cost(function: Any, *arguments: Any) -> costs.Cost:
  return costs.cost((compilation.Program(function), arguments))


def test_products() -> None:
  one = cost(jnp.dot, LEFT, RIGHT)
  # 15 results of 4 multiplications and additions; 12 + 20 + 15 numbers.
  assert (one.flop, one.traffic, one.memory) == (120, 4 * 47, 60)
  many = cost(
    jax.vmap(jnp.dot),
    jax.ShapeDtypeStruct((7, 3, 4), jnp.bfloat16),
    jax.ShapeDtypeStruct((7, 4, 5), jnp.bfloat16),
  )
  assert (many.flop, many.traffic) == (7 * 120, 7 * 2 * 47)


def convolve(stride: int) -> Any:
  return lambda image, filters: jax.lax.conv_general_dilated(
    image,
    filters,
    (stride, stride),
    'SAME',
    dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
  )


IMAGE = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)
FILTERS = jax.ShapeDtypeStruct((3, 3, 3, 5), jnp.float32)


@pytest.mark.parametrize('stride', [1, 2])
def test_convolutions_and_their_derivatives(stride: int) -> None:
  forward = 2 * (2 * (8 // stride) ** 2 * 5) * (3 * 3 * 3)
  function = convolve(stride)
  assert cost(function, IMAGE, FILTERS).flop == forward
  for argument in (0, 1):

    def pull_back(image: Any, filters: Any, cotangent: Any) -> Any:
      _, pullback = jax.vjp(function, image, filters)
      return pullback(cotangent)[argument]  # noqa: B023

    result = jax.eval_shape(function, IMAGE, FILTERS)
    # Each multiplication of the forward pass has one in either derivative; the
    # forward pass itself is not used.
    backward = cost(pull_back, IMAGE, FILTERS, result).flop
    assert backward == pytest.approx(forward)


def test_elementwise_operations_reductions_and_moves() -> None:
  assert cost(lambda x: jnp.exp(x) + x, LEFT).flop == 24
  assert cost(jnp.sum, LEFT).flop == 12
  moved = cost(lambda x: jnp.concatenate([x.T.reshape(-1), x[0]]), LEFT)
  assert moved.flop == moved.traffic == moved.operations == 0
  # However large, or many at once.
  several = cost(jax.vmap(lambda x: jnp.sum(jnp.exp(x)) + 1), LEFT)
  assert several.operations == 3
  assert moved.memory >= 4 * (12 + 4 + 16)


def repeated(turns: int) -> Any:
  return lambda x: jax.lax.scan(
    lambda x, _: (jnp.tanh(x @ x), x), x, length=turns
  )


SQUARE = jax.ShapeDtypeStruct((4, 4), jnp.float32)
OF_BODY = 2 * 4**3 + 16


def test_loops_are_multiplied_out_and_nested_ones_twice() -> None:
  for turns in (1, 6):
    one = cost(repeated(turns), SQUARE)
    assert one.flop == turns * OF_BODY
    assert one.traffic == turns * 4 * 48
    assert one.operations == turns * 2
    # What is stacked, and the last state; in a turn a product, tanh, and x.
    assert one.memory == 4 * 16 * (turns + 1 + 3)

  def nested(x: Any) -> Any:
    return jax.lax.fori_loop(0, 5, lambda _, x: repeated(3)(x)[0], x)

  counters = 2 * 5  # Of fori_loop, at most.
  assert 15 * OF_BODY <= cost(nested, SQUARE).flop <= 15 * OF_BODY + counters


def test_calls_branches_and_checkpoints() -> None:
  product = lambda x: x @ x
  assert cost(jax.jit(product), SQUARE).flop == 128
  gradient = jax.grad(lambda x: jnp.sum(jax.checkpoint(product)(x)))
  assert cost(gradient, SQUARE).flop >= 2 * 128
  branches = lambda x: jax.lax.cond(x[0, 0] > 0, product, lambda x: x, x)
  one = cost(branches, SQUARE)
  assert 128 <= one.flop <= 128 + 3
  # What either branch returns may be copied to what the call returns.
  assert one.memory >= 2 * 64


def test_loops_of_unknown_length_count_once() -> None:
  def until_large(x: Any) -> Any:
    return jax.lax.while_loop(lambda x: x[0, 0] < 9, lambda x: x @ x, x)

  assert 128 <= cost(until_large, SQUARE).flop <= 128 + 2


def attend(x: Any) -> Any:
  return jax.nn.softmax(x @ x.T) @ x


def of_rows(x: Any) -> Any:
  return jnp.sum(jax.lax.map(attend, x.reshape(4, -1, 8)) ** 2)


def thrice(x: Any) -> Any:
  y = jnp.tanh(x) + 1
  return x, x, x, y, y, y


@pytest.mark.parametrize(
  'function',
  [
    attend,
    jax.grad(of_rows),
    lambda x: (x, jnp.cumsum(x, 0)),
    jnp.sort,
    thrice,
  ],
)
def test_the_bound_of_memory_is_one(function: Any) -> None:
  call = (
    compilation.Program(function),
    (jax.ShapeDtypeStruct((512, 8), jnp.float32),),
  )
  load = fitting.Load('one', call, lambda: call)
  assert load.bound().total >= load.measurement()().total > 0
  assert load.bound().states == 512 * 8 * 4
