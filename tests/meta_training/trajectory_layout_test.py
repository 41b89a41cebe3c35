"""Where each entry of a trajectory goes: distinct numbers, moved by loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib

# Rollouts V, transitions T, environments E: all different.
V, T, E = 2, 4, 3
USED = 5
NOTHING: Any = None  # For agents and values, which do not move data.


def numbered(*shape: int) -> np.ndarray:
  return np.arange(np.prod(shape)).reshape(shape)


def test_rollouts_are_joined_side_by_side() -> None:
  """Column v * E + e is environment e of rollout v, from first to last step.

  The last rollout has more trajectories than are used.
  """
  rollouts = types.Rollout(
    observation={'frame': numbered(V, T + 1, E, 2)},
    action=numbered(V, T + 1, E),
    logits=numbered(V, T + 1, E, 3),
    reward=numbered(V, T, E),
    is_terminal=numbered(V, T, E),
    mask=numbered(V, T, E),
    core_state=(numbered(V, 1, E, 5), numbered(V, 1, E, 6)),
  )
  config = inner_loop_lib.InnerLoopConfig(validation_trajectories=USED)
  joined = inner_loop_lib.InnerLoop(
    config, NOTHING, NOTHING
  ).concatenate_rollouts(rollouts)
  assert jax.tree.structure(joined) == jax.tree.structure(rollouts)
  for actual, parts in zip(jax.tree.leaves(joined), jax.tree.leaves(rollouts)):
    length = parts.shape[1]
    assert actual.shape == (length, USED, *parts.shape[3:])
    for i in range(USED):
      for t in range(length):
        expected = parts[i // E, t, i % E]
        np.testing.assert_array_equal(actual[t, i], expected)


@pytest.mark.parametrize('k', [1, 2, 3, 6])
def test_segments_keep_the_state_before_their_first_update(k: int) -> None:
  """Update i is number i % k of segment i // k."""
  updates: Any = inner_loop_lib.Trajectory(
    states={'params': numbered(6, 5)},
    batches={'reward': numbered(6, T, E)},
    gradients={'params': 1000 + numbered(6, 5)},
  )
  config = inner_loop_lib.InnerLoopConfig(6, save_every=k)
  inner_loop = inner_loop_lib.InnerLoop(config, NOTHING, NOTHING)
  segments: Any = inner_loop.split_into_segments(updates)
  assert segments.states['params'].shape == (6 // k, 5)
  assert segments.batches['reward'].shape == (6 // k, k, T, E)
  for i in range(6):
    np.testing.assert_array_equal(
      segments.batches['reward'][i // k, i % k], updates.batches['reward'][i]
    )
    if i % k == 0:
      np.testing.assert_array_equal(
        segments.states['params'][i // k], updates.states['params'][i]
      )
  if k == 1:
    np.testing.assert_array_equal(
      segments.gradients['params'][:, 0], updates.gradients['params']
    )
  else:
    assert segments.gradients is None


@pytest.mark.parametrize('size', [1, 2, 3, 6])
def test_chunks_return_members_in_their_order(size: int) -> None:
  members = numbered(6, 2)
  split = chunks.split(size, {'members': members})['members']
  shape = (6, 2) if size == 1 else (6 // size, size, 2)
  np.testing.assert_array_equal(split, members.reshape(shape))
  np.testing.assert_array_equal(chunks.merge(size, split), members)


@pytest.mark.parametrize('size', [1, 3])
def test_a_function_of_a_chunk_is_that_of_its_members(size: int) -> None:
  members, others = numbered(6, 2)[:size], 100 * numbered(6)[:size]
  of_chunk = chunks.mapped(size, lambda x, other: jnp.sum(x) + other)
  if size == 1:
    members, others = members[0], others[0]
  expected = members.sum(axis=-1) + others
  np.testing.assert_array_equal(of_chunk(members, others), expected)
