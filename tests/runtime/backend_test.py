"""What depends on the platform: both ways, on a CPU."""

from collections.abc import Callable

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.networks import convolutions
from disco_rl.runtime import backend
from disco_rl.training import parallel

Function = Callable[[types.Array], types.Array]


def convolution_gradient(x: types.Array) -> types.Array:
  """Gradient of a convolution's loss with respect to its filters."""
  layer = hk.without_apply_rng(
    hk.transform(lambda image: convolutions.Convolution(2)(image))
  )
  image = x.reshape(3, 4, 4, 1)
  params = jax.tree.map(jnp.ones_like, layer.init(jax.random.key(0), image))
  loss = lambda params: jnp.sum(jnp.sin(layer.apply(params, image)))
  return jax.grad(loss)(params)['convolution']['w']


def of_each_agent(x: types.Array) -> types.Array:
  return parallel._for_each_agent(lambda row: row @ row, x)


FUNCTIONS: dict[str, Function] = {
  'convolution': convolution_gradient,
  'agents': of_each_agent,
}
INPUT = np.random.default_rng(0).normal(size=(3, 16)).astype(np.float32)


@pytest.mark.parametrize('name', FUNCTIONS)
def test_accelerators_compute_the_same_in_another_way(name: str) -> None:
  function = jax.jit(FUNCTIONS[name])
  with backend.making_programs_for('cpu'):
    expected, jaxpr = function(INPUT), function.trace(INPUT).jaxpr
  with backend.making_programs_for('tpu'):
    actual, other = function(INPUT), function.trace(INPUT).jaxpr
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
  assert str(other) != str(jaxpr)


def test_the_platform_is_that_of_the_process_outside_a_context() -> None:
  default = jax.default_backend() == 'cpu'
  assert backend.is_cpu() == default
  with backend.making_programs_for('cuda'):
    assert not backend.is_cpu()
    with backend.making_programs_for('cpu'):
      assert backend.is_cpu()
    assert not backend.is_old_cpu()
  assert backend.is_cpu() == default
