"""Tests of disco_rl/environments: craftax_adapter.py and trees.py."""

import dataclasses
from typing import Any

import conformance
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments.jax_native import trees

STEP_LIMIT = 5


def _make_number(key: Any, scale: Any) -> dict[str, Any]:
  return {'x': scale * jax.random.key_data(key)[0], 'n': jnp.int32(7)}


def _replace(is_replaced: Any, old: Any, key: Any, scale: Any) -> Any:
  return trees.replace_where(_make_number, is_replaced, old, key, scale)


def _want(is_replaced: Any, old: Any, key: Any, scale: Any) -> Any:
  made = _make_number(key, scale)
  return jax.tree.map(lambda x, y: jnp.where(is_replaced, x, y), made, old)


def _arguments(*axes: int) -> tuple[Any, ...]:
  """Arguments of `_replace` with leading axes, some of which replace."""
  size = int(np.prod(axes))
  old = {
    'x': -jnp.arange(1.0, size + 1).reshape(axes),
    'n': jnp.arange(size).reshape(axes),
  }
  is_replaced = jnp.arange(size).reshape(axes) % 3 == 1
  return is_replaced, old, jax.random.split(jax.random.key(0), axes)


class TestReplaceWhere:
  @pytest.mark.parametrize('axes', [(), (200,), (2, 3, 2)])
  def test_it_is_where_under_any_number_of_axes(
    self, axes: tuple[int, ...]
  ) -> None:
    got, want = _replace, _want
    for i in reversed(range(len(axes))):
      # The scale has the outermost axis alone.
      in_axes = (0, 0, 0, 0 if i == 0 else None)
      got, want = jax.vmap(got, in_axes), jax.vmap(want, in_axes)
    scale = jnp.arange(1.0, axes[0] + 1) if axes else jnp.float32(2)
    arguments = (*_arguments(*axes), scale)
    jax.tree.map(
      np.testing.assert_array_equal,
      jax.jit(got)(*arguments),
      jax.jit(want)(*arguments),
    )

  def test_no_more_is_made_than_is_replaced(self) -> None:
    made = []

    def make(x: Any) -> Any:
      jax.debug.callback(lambda x: made.append(int(x)), x)
      return x + 100

    is_replaced = jnp.array([[False, True, False], [True, False, False]])
    x = jnp.arange(6).reshape(2, 3)
    replace = lambda *args: trees.replace_where(make, *args)
    new = jax.jit(jax.vmap(jax.vmap(replace)))(is_replaced, x, x)
    jax.effects_barrier()
    np.testing.assert_array_equal(new, [[0, 101, 2], [103, 4, 5]])
    assert sorted(made) == [1, 3]

  def test_a_gradient_passes_by_what_depends_on_no_parameter(self) -> None:
    def loss(weight: Any) -> Any:
      choice = jnp.argmax(jnp.array([1.0, weight]))
      arguments = _arguments(4)
      new = jax.vmap(_replace, (0, 0, 0, None))(*arguments, jnp.float32(2))
      return weight * choice * jnp.sum(new['x'])

    gradient = jax.jit(jax.grad(loss))(2.0)
    np.testing.assert_allclose(gradient, loss(2.0) / 2, rtol=1e-6)

  def test_few_are_made_at_once(self) -> None:
    keys = jax.random.split(jax.random.key(0), 20)
    make = lambda key: trees.make_few_at_once(_make_number, key, jnp.float32(3))
    want = jax.vmap(_make_number, (0, None))(keys, jnp.float32(3))
    jax.tree.map(
      np.testing.assert_array_equal, jax.jit(jax.vmap(make))(keys), want
    )


@pytest.mark.slow
@pytest.mark.needs('craftax/classic_symbolic')
class TestCraftaxClassic:
  def test_conformance(self) -> None:
    environment = registry.make('craftax/classic_symbolic', 1, seed=0)
    params = environment.params.replace(max_timesteps=jnp.int32(STEP_LIMIT))
    environment = dataclasses.replace(environment, params=params)
    # More than `device` makes at once.
    played = conformance.check(
      lambda _: environment, STEP_LIMIT + 1, num_environments=16
    )
    observation, timestep = played.observation, played.timestep
    assert observation.shape[2:] == (1345,)
    lasts = [[i == STEP_LIMIT - 1] * 16 for i in range(STEP_LIMIT + 1)]
    np.testing.assert_array_equal(timestep.is_last, lasts)
    # Each episode of each environment has a world of its own.
    starts = observation[[0, STEP_LIMIT]].reshape(2 * 16, -1)
    assert len(np.unique(starts, axis=0)) == 2 * 16
    # An episode begins with 9 of 10 of everything that the player needs.
    np.testing.assert_allclose(starts[:, -10:-6], 0.9, atol=1e-3)
