"""A replay buffer of whole trajectories, as pure functions.

Trajectories are stored in the layout of the learner's batches: time first, then
one slot per trajectory. Of the outputs of the behavior policy, only logits are
stored.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from disco_rl import types

_BILLION = 10**9


@types.record
class ReplayState:
  """The contents of the buffer.

  Attributes:
    rollouts: The trajectories, one slot each on the batch axis.
    added: The number of trajectories ever added, [] int32; after a billion,
      less a multiple of the capacity.
  """

  rollouts: types.Rollout
  added: types.Array


def init(rollout: types.Rollout, capacity: int) -> ReplayState:
  """Makes an empty buffer.

  Args:
    rollout: An example of the rollouts that will be added, [time, num_added,
      ...].
    capacity: The number of slots, a multiple of num_added.

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
  added = state.added + rollout.reward.shape[1]
  # Before 32 bits are too few. Slots and the number of full ones are the same.
  multiple = _BILLION // capacity * capacity
  added = jnp.where(added >= multiple + capacity, added - multiple, added)
  return ReplayState(
    rollouts=jax.tree.map(
      lambda kept, new: jax.lax.dynamic_update_slice_in_dim(
        kept, new, slot, axis=1
      ),
      state.rollouts,
      rollout,
    ),
    added=added,
  )


def gather_slots(state: ReplayState, slots: types.Array) -> types.Rollout:
  """Copies the trajectories in slots [B] to a batch, [time, B, ...]."""
  return jax.tree.map(
    lambda kept: jnp.take(kept, slots, axis=1), state.rollouts
  )


def sample_slots(
  key: types.Array,
  added: types.Array,
  capacity: int,
  batch_size: int,
  num_newest: Sequence[int],
  num_added: int,
) -> types.Array:
  """Draws the slots of K batches.

  Args:
    key: A PRNG key.
    added: The number of trajectories added so far, [] int32, at least one.
    capacity: The number of slots of the buffer.
    batch_size: B, the number of trajectories in a batch.
    num_newest: The number of trajectories from the newest rollout in each of K
      batches. If the sum is at most num_added, none is taken twice; if it is
      more, they are taken in epochs, each in a random order.
    num_added: The number of trajectories in the newest rollout.

  Returns:
    [K, B] int32. Slots of the newest rollout come first; the others are drawn
    uniformly with replacement.
  """
  fewest = min(num_newest)
  drawn = jax.random.randint(
    key,
    (len(num_newest), batch_size - fewest),
    0,
    jnp.minimum(added, capacity),
  )
  order = jnp.arange(num_added)
  epochs = -(-sum(num_newest) // num_added)
  if epochs > 1:
    keys = jax.random.split(jax.random.fold_in(key, epochs), epochs)
    order = jax.vmap(jax.random.permutation, (0, None))(keys, order).ravel()
  newest = (added - num_added + order) % capacity
  first, batches = 0, []
  for number, others in zip(num_newest, drawn):
    own = newest[first : first + number]
    batches.append(jnp.concatenate([own, others[number - fewest :]]))
    first += number
  return jnp.stack(batches)
