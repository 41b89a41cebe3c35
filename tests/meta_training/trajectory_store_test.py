"""What is kept of N updates, in which memory, and in which order it returns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import trajectory_store

UPDATES = 6


def update(i: int) -> inner_loop_lib.Trajectory:
  """All entries tell the number of the update."""
  entry: Any = lambda value: {'x': jnp.full((3,), value)}
  return inner_loop_lib.Trajectory(
    states=entry(i), batches=entry(10 + i), gradients=entry(20 + i)
  )


def filled(save_every: int, offload: bool) -> trajectory_store.TrajectoryStore:
  store = trajectory_store.TrajectoryStore(
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
    assert len(segment) == k
    assert memory_kinds(segment) == {jax.devices()[0].default_memory().kind}
    np.testing.assert_array_equal(segment[0].states['x'], 3 * [first])
    for i, one in enumerate(segment):
      np.testing.assert_array_equal(one.batches['x'], 3 * [10 + first + i])
      if i:
        assert one.states is None
      if k == 1:
        np.testing.assert_array_equal(one.gradients['x'], 3 * [20 + first])
      else:
        assert one.gradients is None


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
