"""Entries leave, return and join at their own places."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl.meta_training import parking


def numbered(numbers: list[int]) -> dict[str, Any]:
  return {
    'x': np.array([[i, 10 * i] for i in numbers]),
    'key': jax.vmap(jax.random.key)(jnp.array(numbers)),
  }


def assert_same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
  np.testing.assert_array_equal(actual['x'], expected['x'])
  assert (actual['key'] == expected['key']).all()


def test_some_entries_are_overwritten() -> None:
  tree = parking.park(numbered([0, 1, 2, 3]))
  taken = parking.take(tree, np.array([3, 1]))
  assert_same(taken, numbered([3, 1]))
  on_device = jax.device_put(numbered([7, 8]))
  tree = parking.put(tree, np.array([3, 1]), on_device)
  assert_same(tree, numbered([0, 8, 2, 7]))
  # What was taken is a copy.
  assert_same(taken, numbered([3, 1]))


def test_parts_join_in_the_order_of_their_indices() -> None:
  """As those of two turns on two devices."""
  parts = [numbered([0, 2]), numbered([1, 3])]
  joined = parking.collect(parts, [np.array([0, 2]), np.array([1, 3])])
  assert_same(joined, numbered([0, 1, 2, 3]))


def test_what_is_parked_can_be_overwritten() -> None:
  original = {'x': jnp.zeros(2)}
  parked = parking.park(original)
  parking.put(parked, np.array([0]), {'x': np.ones(1)})
  np.testing.assert_array_equal(parked['x'], [1, 0])
  np.testing.assert_array_equal(original['x'], [0, 0])
