"""The agents' optimizer: its step sizes and weight decay."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl.maths import optimizers

pytestmark = pytest.mark.usefixtures('usual_compilation')

PARAMS = {'w': jnp.array([1.0, -2.0])}


def changes(num_updates: int, **settings: Any) -> np.ndarray:
  """Changes of the parameters at each update with a constant gradient, [n, 2].

  Adam then moves each of them by one times the step size.
  """
  optimizer = optimizers.agent_optimizer(0.1, **settings)
  state = optimizer.init(PARAMS)
  gradient = {'w': jnp.array([3.0, -0.2])}
  moved = []
  for _ in range(num_updates):
    updates, state = optimizer.update(gradient, state, PARAMS)
    moved.append(updates['w'])
  return np.stack(moved)


def test_step_sizes_rise_and_fall() -> None:
  sizes = -changes(11, warm_up_updates=4, decay_updates=10)[:, 0]
  rising = [0, 0.025, 0.05, 0.075, 0.1]
  np.testing.assert_allclose(sizes[:5], rising, atol=1e-6)
  cosine = 0.05 * (1 + np.cos(np.pi * np.arange(7) / 6))
  np.testing.assert_allclose(sizes[4:], cosine, atol=1e-6)
  only_up = -changes(6, warm_up_updates=4)[:, 0]
  np.testing.assert_allclose(only_up, [*rising, 0.1], atol=1e-5)
  only_down = -changes(5, decay_updates=4)[:, 0]
  np.testing.assert_allclose(only_down[[0, 2, 4]], [0.1, 0.05, 0], atol=1e-6)


def test_weights_decay_apart_from_the_gradient() -> None:
  moved = changes(1, weight_decay=0.5)[0]
  expected = changes(1)[0] - 0.1 * 0.5 * np.asarray(PARAMS['w'])
  np.testing.assert_allclose(moved, expected, rtol=1e-4)


def test_updates_are_bounded_before_the_step_size() -> None:
  moved = changes(1, max_abs_update=0.3)
  np.testing.assert_allclose(moved, [[-0.03, 0.03]], rtol=1e-4)


def test_gradients_are_scaled_down_to_the_bound_of_their_norm() -> None:
  """Adam shows it where a second gradient is larger than the first."""
  optimizer = optimizers.agent_optimizer(0.1, max_gradient_norm=0.5)
  plain = optimizers.agent_optimizer(0.1)
  state, want_state = optimizer.init(PARAMS), plain.init(PARAMS)
  for gradient in ([0.3, -0.2], [30.0, 40.0]):
    got, state = optimizer.update({'w': jnp.array(gradient)}, state, PARAMS)
    bounded = np.array(gradient) * min(1.0, 0.5 / np.linalg.norm(gradient))
    want, want_state = plain.update(
      {'w': jnp.float32(bounded)}, want_state, PARAMS
    )
    np.testing.assert_allclose(got['w'], want['w'], rtol=1e-5)


def test_rmsprop_is_that_of_numpy() -> None:
  gradients = np.array([[3.0, -0.2], [-1.0, 0.5], [0.25, 0.0]])
  mean_square, expected = np.zeros(2), []
  for gradient in gradients:
    mean_square = 0.99 * mean_square + 0.01 * gradient**2
    update = gradient / (np.sqrt(mean_square) + 1e-8)
    decayed = np.clip(update, -4, 4) + 0.5 * np.asarray(PARAMS['w'])
    expected.append(-0.1 * decayed)
  optimizer = optimizers.agent_optimizer(
    0.1, max_abs_update=4.0, weight_decay=0.5, optimizer='rmsprop'
  )
  state, moved = optimizer.init(PARAMS), []
  for gradient in gradients:
    updates, state = optimizer.update({'w': jnp.array(gradient)}, state, PARAMS)
    moved.append(updates['w'])
  np.testing.assert_allclose(moved, expected, rtol=1e-4)


def test_meta_gradients_do_not_pass_through_denominators() -> None:
  """The second update depends on the first gradient only by its moment."""

  def second_update(scale: jax.Array) -> jax.Array:
    optimizer = optimizers.agent_optimizer(
      0.1, max_abs_update=100.0, optimizer='rmsprop'
    )
    state = optimizer.init(PARAMS)
    _, state = optimizer.update({'w': scale * jnp.ones(2)}, state, PARAMS)
    updates, _ = optimizer.update({'w': jnp.ones(2)}, state, PARAMS)
    return updates['w'].sum()

  assert jax.grad(second_update)(jnp.array(1.0)) == 0.0


def test_defaults_keep_no_state_but_adams() -> None:
  state = optimizers.agent_optimizer(0.1).init(PARAMS)
  assert len(optax.tree.get_all_with_path(state, 'count')) == 1


def test_a_step_size_cannot_fall_before_it_has_risen() -> None:
  with pytest.raises(ValueError, match='decay_updates=4 must be above .*=4'):
    optimizers.agent_optimizer(0.1, warm_up_updates=4, decay_updates=4)
