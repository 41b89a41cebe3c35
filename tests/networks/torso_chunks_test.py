"""Torsos over chunks of rows: the same numbers in less memory."""

import dataclasses
from typing import Any

import haiku as hk
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import small

from disco_rl import types
from disco_rl.networks import agent_network
from disco_rl.networks import torsos

ROWS = 11
IMAGE = jax.ShapeDtypeStruct((8, 8, 1), np.float32)
OBSERVATION = {
  'image': np.random.default_rng(0).integers(0, 256, (ROWS, 6, 5, 2), np.uint8),
  'vector': np.random.default_rng(1).integers(0, 9, (ROWS, 3)),
}


def transform(
  kind: str | torsos.Torso, chunk_size: int, dtype: Any = jnp.float32
) -> Any:
  return small.torso(
    torsos.TorsoConfig(kind, (4,), (7,), chunk_size=chunk_size), dtype
  )


def derivatives(torso: Any, params: types.Params, observation: Any) -> Any:
  """The embedding, the gradient of a loss, and its derivative in two ways."""
  rng = np.random.default_rng(1)
  direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)
  weights = rng.normal(size=(ROWS, 7))

  def loss(params: types.Params) -> Any:
    embedding = torso.apply(params, observation)
    return jnp.sum(weights * jnp.sin(embedding)), embedding

  def slope(params: types.Params) -> Any:
    gradient, embedding = jax.grad(loss, has_aux=True)(params)
    products = jax.tree.map(jnp.vdot, gradient, direction)
    return sum(jax.tree.leaves(products)), (gradient, embedding)

  reverse, (gradient, embedding) = jax.grad(slope, has_aux=True)(params)
  _, forward = jax.jvp(
    lambda params: jax.grad(loss, has_aux=True)(params)[0],
    (params,),
    (direction,),
  )
  return embedding, gradient, reverse, forward


def assert_close(got: Any, want: Any, tolerance: float) -> None:
  """Relative to the largest entry of each array."""

  def compare(got: jax.Array, want: jax.Array) -> None:
    scale = np.abs(want).max()
    assert scale > 0
    np.testing.assert_allclose(got / scale, want / scale, atol=tolerance)

  jax.tree.map(compare, got, want)


def test_derivatives_are_those_of_all_rows_at_once() -> None:
  with jax.enable_x64(True):
    whole = transform('resnet', 0, jnp.float64)
    params = whole.init(jax.random.key(0), OBSERVATION)
    # Three chunks of four rows, of which the last is there twice.
    chunked = transform('resnet', 4, jnp.float64)
    got, want = (
      jax.jit(derivatives, static_argnums=0)(torso, params, OBSERVATION)
      for torso in (chunked, whole)
    )
    assert_close(got, want, 1e-13)


@pytest.mark.parametrize('chunk_size', [1, 4, 10, 12])
def test_chunks_of_any_size_and_agents_side_by_side(chunk_size: int) -> None:
  chunked, whole = (transform('resnet', size) for size in (chunk_size, 0))
  keys = jax.random.split(jax.random.key(0))
  of_both = lambda function: jax.jit(jax.vmap(function, (0, None)))
  params = of_both(chunked.init)(keys, OBSERVATION)
  jax.tree.map(
    np.testing.assert_array_equal,
    params,
    of_both(whole.init)(keys, OBSERVATION),
  )
  got = of_both(chunked.apply)(params, OBSERVATION)
  want = jax.lax.map(lambda one: whole.apply(one, OBSERVATION), params)
  assert_close(got, want, 1e-6)


def test_rows_that_fill_a_chunk_are_differentiable() -> None:
  def normalize(x: types.Array) -> types.Array:
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    return hk.Linear(7)(x)

  observation = np.random.default_rng(0).normal(size=(ROWS, 3))
  torso = transform(normalize, 4)
  params = torso.init(jax.random.key(0), observation)
  loss = lambda params: jnp.sum(torso.apply(params, observation))
  for leaf in jax.tree.leaves(jax.grad(loss)(params)):
    assert np.isfinite(leaf).all()


def make_network(chunk_size: int, dtype: str) -> agent_network.AgentNetwork:
  return agent_network.make(
    types.EnvironmentSpec(IMAGE, num_actions=3),
    types.OutputSpec(state={'v': 5}, action={'q': 4}),
    agent_network.AgentNetworkConfig(
      torsos.TorsoConfig('impala', (4,), (8,), chunk_size=chunk_size),
      core_lstm=6,
      action_model_lstm=8,
      action_model_head=8,
      compute_dtype=dtype,
    ),
  )


def test_a_chunk_is_enough_for_acting() -> None:
  chunked, whole = (make_network(size, 'float32') for size in (4, 0))
  params = jax.eval_shape(whole.init, jax.random.key(0))
  for rows, is_same in ((4, True), (5, False)):
    observation = np.zeros((rows, *IMAGE.shape), IMAGE.dtype)
    arguments = params, observation, whole.initial_state(rows)
    programs = [jax.jit(x.step).lower(*arguments) for x in (chunked, whole)]
    texts = [program.as_text() for program in programs]
    assert (texts[0] == texts[1]) == is_same


@pytest.mark.slow
def test_gradients_of_many_chunks_are_as_precise_in_bfloat16() -> None:
  length, batch_size = 15, 16
  rng = np.random.default_rng(0)
  exact = make_network(0, 'float32')
  params = jax.jit(exact.init)(jax.random.key(0))
  rollout = dataclasses.replace(
    types.empty_rollout(
      types.EnvironmentSpec(IMAGE, num_actions=3),
      exact.initial_state(batch_size),
      length,
      batch_size,
    ),
    observation=rng.random((length + 1, batch_size, *IMAGE.shape), np.float32),
  )

  def gradient(chunk_size: int, dtype: str) -> np.ndarray:
    """The gradient for the torso's parameters, as one vector."""
    network = make_network(chunk_size, dtype)
    loss = lambda params: jnp.mean(network.unroll(params, rollout)[1]['v'])
    of_modules = jax.jit(jax.grad(loss))(params)
    torso = {k: v for k, v in of_modules.items() if 'torso' in k}
    return np.asarray(flatten_util.ravel_pytree(torso)[0])

  want = gradient(0, 'float32')
  error = lambda chunk_size: np.linalg.norm(
    gradient(chunk_size, 'bfloat16') - want
  )
  # 256 chunks of one row.
  assert 0 < error(1) < 1.5 * error(0) < 0.1 * np.linalg.norm(want)
