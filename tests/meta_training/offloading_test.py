"""What is offloaded from devices: agents by index, and the last N updates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import offloading

UPDATES = 6


def numbered(numbers: list[int]) -> dict[str, Any]:
  return {
    'x': np.array([[i, 10 * i] for i in numbers]),
    'key': jax.vmap(jax.random.key)(jnp.array(numbers)),
  }


def assert_same(actual: dict[str, Any], expected: dict[str, Any]) -> None:
  np.testing.assert_array_equal(actual['x'], expected['x'])
  assert (actual['key'] == expected['key']).all()


def test_some_entries_are_overwritten() -> None:
  tree = offloading.offloaded(numbered([0, 1, 2, 3]))
  taken = offloading.select(tree, np.array([3, 1]))
  assert_same(taken, numbered([3, 1]))
  on_device = jax.device_put(numbered([7, 8]))
  tree = offloading.overwrite(tree, np.array([3, 1]), on_device)
  assert_same(tree, numbered([0, 8, 2, 7]))
  # What was taken is a copy.
  assert_same(taken, numbered([3, 1]))


def test_parts_join_in_the_order_of_their_indices() -> None:
  """Parts like those of two micro-batches on two devices."""
  parts = [numbered([0, 2]), numbered([1, 3])]
  joined = offloading.collect(parts, [np.array([0, 2]), np.array([1, 3])])
  assert_same(joined, numbered([0, 1, 2, 3]))


def test_what_is_offloaded_can_be_overwritten() -> None:
  original = {'x': jnp.zeros(2)}
  copies = offloading.offloaded(original)
  offloading.overwrite(copies, np.array([0]), {'x': np.ones(1)})
  np.testing.assert_array_equal(copies['x'], [1, 0])
  np.testing.assert_array_equal(original['x'], [0, 0])


def update(i: int) -> inner_loop_lib.Trajectory:
  """All entries tell the number of the update."""
  entry: Any = lambda value: {'x': jnp.full((3,), value)}
  return inner_loop_lib.Trajectory(
    states=entry(i), batches=entry(10 + i), gradients=entry(20 + i)
  )


def filled(save_every: int, offload: bool) -> offloading.TrajectoryStore:
  store = offloading.TrajectoryStore(
    inner_loop_lib.InnerLoopConfig(
      UPDATES, save_every=save_every, offload=offload
    )
  )
  for i in range(UPDATES):
    store.add(update(i))
  return store


def memory_kinds(tree: Any) -> set[str]:
  return {x.sharding.memory_kind for x in jax.tree.leaves(tree)}


@pytest.mark.parametrize('offload', [False, True])
@pytest.mark.parametrize('k', [1, 2, 3, 6])
def test_segments_return_from_last_to_first(k: int, offload: bool) -> None:
  segments = list(filled(k, offload).backwards())
  assert len(segments) == UPDATES // k
  for number, segment in enumerate(reversed(segments)):
    first = number * k
    assert len(segment.batches) == k
    assert memory_kinds(segment) == {jax.devices()[0].default_memory().kind}
    state, stacked = segment.state, segment.stack()
    np.testing.assert_array_equal(state['x'], 3 * [first])
    np.testing.assert_array_equal(stacked.states['x'], 3 * [first])
    for i, batch in enumerate(stacked.batches['x']):
      np.testing.assert_array_equal(batch, 3 * [10 + first + i])
    if k == 1:
      np.testing.assert_array_equal(stacked.gradients['x'], [3 * [20 + first]])
    else:
      assert stacked.gradients is None


@pytest.mark.parametrize('offload', [False, True])
def test_offloaded_updates_wait_in_the_memory_of_the_host(
  offload: bool,
) -> None:
  before = {id(x) for x in jax.live_arrays()}
  store = filled(2, offload)
  kept = [x for x in jax.live_arrays() if id(x) not in before]
  assert len(kept) == UPDATES + UPDATES // 2  # Batches, every second state.
  expected = 'pinned_host' if offload else 'device'
  assert memory_kinds(kept) == {expected}
  del store
