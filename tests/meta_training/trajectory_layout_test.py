"""Where each entry of a trajectory goes: distinct numbers, moved by loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import chunks
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_value as meta_value_lib
from disco_rl.update_rules import actor_critic

SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((2,), jnp.float32), num_actions=3
)
# Rollouts V, transitions T, environments E: all different.
V, T, E = 2, 4, 3
USED = 5


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
  nothing: Any = None
  config = inner_loop_lib.InnerLoopConfig(validation_trajectories=USED)
  joined = inner_loop_lib.InnerLoop(config, nothing, nothing).join(rollouts)
  pairs = [
    (joined.observation['frame'], rollouts.observation['frame']),
    (joined.action, rollouts.action),
    (joined.logits, rollouts.logits),
    (joined.reward, rollouts.reward),
    (joined.is_terminal, rollouts.is_terminal),
    (joined.mask, rollouts.mask),
    (joined.core_state[0], rollouts.core_state[0]),
    (joined.core_state[1], rollouts.core_state[1]),
  ]
  for actual, parts in pairs:
    length = parts.shape[1]
    assert actual.shape == (length, USED, *parts.shape[3:])
    for i in range(USED):
      for t in range(length):
        expected = parts[i // E, t, i % E]
        np.testing.assert_array_equal(actual[t, i], expected)


def make_inner_loop(save_every: int) -> inner_loop_lib.InnerLoop:
  settings = {
    **quickstart.get_config().to_dict(),
    'environments': 'catch/4x3',
    'inner_updates': 6,
    'save_every': save_every,
  }
  config = meta_trainer.config_of(settings)
  return inner_loop_lib.InnerLoop(
    config.inner_loop,
    agent_lib.make(config.agent, SPEC, actor_critic.ActorCritic()),
    meta_value_lib.MetaValue(config.meta_value, SPEC),
  )


@pytest.mark.parametrize('k', [1, 2, 3, 6])
def test_segments_keep_the_state_before_their_first_update(k: int) -> None:
  """Update i is number i % k of segment i // k."""
  updates: Any = inner_loop_lib.Trajectory(
    states={'params': numbered(6, 5)},
    batches={'reward': numbered(6, T, E)},
    gradients={'params': 1000 + numbered(6, 5)},
  )
  segments: Any = make_inner_loop(k).segments(updates)
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
  np.testing.assert_array_equal(chunks.join(size, split), members)


@pytest.mark.parametrize('size', [1, 3])
def test_a_function_of_a_chunk_is_that_of_its_members(size: int) -> None:
  members, others = numbered(6, 2)[:size], 100 * numbered(6)[:size]
  of_chunk = chunks.mapped(size, lambda x, other: jnp.sum(x) + other)
  if size == 1:
    members, others = members[0], others[0]
  expected = members.sum(axis=-1) + others
  np.testing.assert_array_equal(of_chunk(members, others), expected)
