"""Softmax distributions, against distrax and jax.nn."""

from collections.abc import Callable

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.maths import categorical

# Fewer than the slices in which axes are reduced, a multiple, and a prime.
SIZES = (3, 40, 601)

Function = Callable[[types.Array], types.Array]


def draw(seed: int, *shape: int) -> types.Array:
  """Logits, or other numbers."""
  return 5.0 * jax.random.normal(jax.random.key(seed), shape)


def pairs(size: int) -> dict[str, tuple[Function, Function]]:
  """Maps names to functions of logits [..., size], and their references."""
  other, values = draw(1, 2, size), draw(2, size, 3)
  softmax = jax.nn.softmax
  distribution = distrax.Categorical
  return {
    'logsumexp': (
      categorical.logsumexp,
      lambda x: jax.nn.logsumexp(x, axis=-1),
    ),
    'entropy': (categorical.entropy, lambda x: distribution(x).entropy()),
    'kl of prediction': (
      lambda x: categorical.kl_divergence(other, x),
      lambda x: distribution(other).kl_divergence(distribution(x)),
    ),
    'kl of target': (
      lambda x: categorical.kl_divergence(x, other),
      lambda x: distribution(x).kl_divergence(distribution(other)),
    ),
    'cross entropy': (
      lambda x: categorical.cross_entropy(softmax(other), x),
      lambda x: distribution(other).cross_entropy(distribution(x)),
    ),
    'expectation': (
      lambda x: categorical.expectation(x, values),
      lambda x: softmax(x) @ values,
    ),
  }


@pytest.mark.parametrize('size', SIZES)
@pytest.mark.parametrize('name', pairs(3))
def test_values_and_derivatives(name: str, size: int) -> None:
  """The first, and the second in the order that meta-gradients use."""
  logits, direction = draw(3, 2, size), draw(4, 2, size)

  def derivatives(
    function: Function, logits: types.Array, direction: types.Array
  ) -> tuple[types.Array, ...]:
    gradient = jax.grad(lambda x: jnp.sum(jnp.sin(function(x))))
    along = jax.jvp(gradient, (logits,), (direction,))
    return function(logits), *along

  with jax.enable_x64(True):
    logits, direction = logits.astype(float), direction.astype(float)
    program = jax.jit(derivatives, static_argnums=0)
    own, expected = (
      program(function, logits, direction) for function in pairs(size)[name]
    )
    for x, y in zip(own, expected, strict=True):
      np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('size', SIZES)
def test_large_logits_stay_finite(size: int) -> None:
  logits = 1e4 * draw(0, 2, size)
  assert np.all(np.isfinite(categorical.entropy(logits)))
  np.testing.assert_allclose(
    categorical.logsumexp(logits), jnp.max(logits, axis=-1), rtol=1e-6
  )
