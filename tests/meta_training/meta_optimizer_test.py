"""Tests of disco_rl/meta_training/meta_optimizer.py."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl.meta_training import meta_optimizer

LEARNING_RATE = 0.1
MAX_NORM = 1.0
# Of one agent gradients are a thousand times those of the other, and longer
# than MAX_NORM; each has two tensors, [steps, agents, ...].
NUM_STEPS, NUM_AGENTS = 4, 2


def random_gradients() -> dict[str, np.ndarray]:
  rng = np.random.default_rng(0)
  scale = np.array([1e-3, 10.0])
  return {
    'w': rng.normal(size=(NUM_STEPS, NUM_AGENTS, 3)) * scale[:, None],
    'b': rng.normal(size=(NUM_STEPS, NUM_AGENTS)) * 2.0 * scale,
  }


def updates(
  gradients: Any, max_norm: float = MAX_NORM, decay_steps: int = 0
) -> Any:
  """What the optimiser makes of one agent's gradients, [steps, ...]."""
  optimizer = meta_optimizer.meta_optimizer(
    LEARNING_RATE, max_norm, decay_steps
  )
  gradients = jax.tree.map(jnp.float32, gradients)
  state = optimizer.init(jax.tree.map(lambda x: x[0], gradients))

  def one(state: Any, gradient: Any) -> Any:
    updates, state = optimizer.update(gradient, state)
    return state, updates

  return jax.lax.scan(one, state, gradients)[1]


def adam(gradients: np.ndarray) -> np.ndarray:
  """Kingma & Ba (2015), algorithm 1, on [steps, ...]."""
  m = v = np.zeros_like(gradients[0])
  updates = []
  for step, g in enumerate(gradients, start=1):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g**2
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.999**step)
    updates.append(-LEARNING_RATE * m_hat / (np.sqrt(v_hat) + 1e-8))
  return np.stack(updates)


def clipped(gradients: Any, max_norm: float = MAX_NORM) -> Any:
  """One agent's gradients [steps, ...], each at most max_norm long."""
  square = sum(
    np.sum(np.square(g).reshape(NUM_STEPS, -1), axis=1)
    for g in gradients.values()
  )
  factor = np.minimum(1.0, max_norm / np.sqrt(square))
  return {
    name: g * factor.reshape(-1, *[1] * (g.ndim - 1))
    for name, g in gradients.items()
  }


def agent(gradients: Any, index: int) -> Any:
  return {name: g[:, index] for name, g in gradients.items()}


def test_the_mean_of_the_agents_own_adams() -> None:
  gradients = random_gradients()
  mean = jax.tree.map(
    lambda x: jnp.mean(x, axis=1),
    jax.jit(jax.vmap(updates, in_axes=1, out_axes=1))(gradients),
  )
  for name in gradients:
    expected = np.mean(
      [adam(clipped(agent(gradients, i))[name]) for i in range(NUM_AGENTS)],
      axis=0,
    )
    np.testing.assert_allclose(mean[name], expected, rtol=1e-4, atol=1e-6)
    # One Adam for all would follow the agent with the larger gradients.
    together = adam(
      clipped(jax.tree.map(lambda x: x.mean(axis=1), gradients))[name]
    )
    assert np.max(np.abs(together - expected)) > 0.1 * LEARNING_RATE


def test_agents_whose_gradients_are_small_have_an_equal_vote() -> None:
  gradients = agent(random_gradients(), 0)
  larger = jax.tree.map(lambda x: 100.0 * x, gradients)
  own, same = updates(gradients), updates(larger)
  # 1e-8 in Adam's denominator is little beside gradients of 1e-3.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3), own, same
  )


def test_gradients_are_clipped_before_adam_by_their_global_norm() -> None:
  gradients = agent(random_gradients(), 1)
  # One that is not clipped: else the common factor would cancel in Adam.
  gradients = {name: g.copy() for name, g in gradients.items()}
  for g in gradients.values():
    g[1] *= 0.01
  actual = updates(gradients)
  for name, g in gradients.items():
    np.testing.assert_allclose(
      actual[name], adam(clipped(gradients)[name]), rtol=1e-4, atol=1e-6
    )
    # Not at all, or each tensor by its own norm, are something else.
    for other in (adam(g), adam(clipped({name: g})[name])):
      assert np.max(np.abs(actual[name] - other)) > 1e-2 * LEARNING_RATE


def test_steps_are_bounded_by_the_learning_rate_and_not_by_the_norm() -> None:
  """Adam after clipping: a norm of 1 does not make the update so short."""
  many = {'w': np.ones((1, 10_000), np.float32)}
  update = updates(many)
  np.testing.assert_allclose(update['w'], -LEARNING_RATE, rtol=1e-4)
  assert optax.tree.norm(update) == pytest.approx(100 * LEARNING_RATE, rel=1e-4)


def test_the_learning_rate_decays_by_a_cosine() -> None:
  gradients = agent(random_gradients(), 0)
  level, decayed = updates(gradients), updates(gradients, decay_steps=3)
  factors = np.array([1.0, 0.75, 0.25, 0.0])  # (1 + cos(pi i / 3)) / 2.
  for name in gradients:
    expected = level[name] * factors.reshape(-1, *[1] * (level[name].ndim - 1))
    np.testing.assert_allclose(decayed[name], expected, rtol=1e-4, atol=1e-9)
