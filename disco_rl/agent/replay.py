"""A replay buffer of whole trajectories, as pure functions.

Trajectories are stored in the layout of the learner's batches: time first, then
one slot per trajectory. Of the behaviour policy only logits are stored.
"""

import jax
import jax.numpy as jnp

from disco_rl import types


@types.record
class ReplayState:
  """Contents of the buffer.

  Attributes:
    rollouts: with one slot per trajectory on the batch axis.
    added: [] int32, number of trajectories ever added.
  """

  rollouts: types.Rollout
  added: types.Array


def init(rollout: types.Rollout, capacity: int) -> ReplayState:
  """An empty buffer.

  Args:
    rollout: an example of what is added, [time, num_added, ...].
    capacity: slots; a multiple of num_added.

  Returns:
    The empty buffer.
  """
  return ReplayState(
    rollouts=jax.tree.map(
      lambda x: jnp.zeros((x.shape[0], capacity, *x.shape[2:]), x.dtype),
      rollout,
    ),
    added=jnp.zeros((), jnp.int32),
  )


def add(state: ReplayState, rollout: types.Rollout) -> ReplayState:
  """Overwrites the oldest trajectories."""
  capacity = state.rollouts.reward.shape[1]
  slot = state.added % capacity
  return ReplayState(
    rollouts=jax.tree.map(
      lambda kept, new: jax.lax.dynamic_update_slice_in_dim(
        kept, new, slot, axis=1
      ),
      state.rollouts,
      rollout,
    ),
    added=state.added + rollout.reward.shape[1],
  )


def sample(
  state: ReplayState, key: types.Array, batch_size: int
) -> types.Rollout:
  """Samples trajectories uniformly, with replacement.

  Args:
    state: a buffer that holds at least one trajectory.
    key: PRNG key.
    batch_size: number of trajectories.

  Returns:
    [time, batch_size, ...].
  """
  capacity = state.rollouts.reward.shape[1]
  slots = draw_slots(key, jnp.minimum(state.added, capacity), batch_size)
  return jax.tree.map(
    lambda kept: jnp.take(kept, slots, axis=1), state.rollouts
  )


def draw_slots(
  key: types.Array, filled: int | types.Array, batch_size: int
) -> types.Array:
  """Draws the slots of a batch, uniformly and with replacement.

  Args:
    key: PRNG key.
    filled: number of slots that hold a trajectory, at least 1.
    batch_size: B.

  Returns:
    [B] int32.
  """
  return jax.random.randint(key, (batch_size,), 0, filled)
