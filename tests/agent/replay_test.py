"""Replay is a ring of whole trajectories, drawn from uniformly."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import replay

LENGTH = 3
SIZE = 4096
ADD = jax.jit(replay.add)


@functools.partial(jax.jit, static_argnums=2)
def sample(
  state: replay.ReplayState, key: types.Array, size: int
) -> types.Rollout:
  """A batch without a share of the newest."""
  capacity = state.rollouts.reward.shape[1]
  (slots,) = replay.sample_slots(key, state.added, capacity, size, (0,), 2)
  return replay.gather_slots(state, slots)


def rollout(*names: int) -> types.Rollout:
  """One trajectory per name; each entry encodes the name and the time."""
  name = np.asarray(names)
  after = 100 * name + np.arange(LENGTH + 1)[:, None]
  step = after[:LENGTH]
  return types.Rollout(
    observation={'x': np.stack([after, -after], -1).astype(np.float32)},
    action=after.astype(np.int32),
    logits=np.stack([after, after + 0.5], -1).astype(np.float32),
    reward=step.astype(np.float32),
    is_terminal=step % 2 == 0,
    mask=step % 3 == 0,
  )


def names(memory: types.Rollout) -> list[int]:
  """The names of trajectories."""
  return (np.asarray(memory.reward[0]) // 100).astype(int).tolist()


def filled(capacity: int, *additions: types.Rollout) -> replay.ReplayState:
  state = replay.init(additions[0], capacity)
  for addition in additions:
    state = ADD(state, addition)
  return state


def test_the_oldest_are_overwritten() -> None:
  state = filled(8, rollout(1, 2), rollout(3, 4))
  assert names(state.rollouts)[:4] == [1, 2, 3, 4]
  state = ADD(ADD(state, rollout(5, 6)), rollout(7, 8))
  assert names(state.rollouts) == [1, 2, 3, 4, 5, 6, 7, 8]
  state = ADD(ADD(state, rollout(9, 10)), rollout(11, 12))
  assert names(state.rollouts) == [9, 10, 11, 12, 5, 6, 7, 8]
  assert state.added == 12


def test_empty_slots_are_never_sampled() -> None:
  state = filled(8, rollout(1, 2), rollout(3, 4))
  batch = sample(state, jax.random.key(0), SIZE)
  assert set(names(batch)) == {1, 2, 3, 4}


def test_trajectories_are_counted_beyond_32_bits() -> None:
  state = filled(8, *(rollout(2 * i + 1, 2 * i + 2) for i in range(4)))
  many = dataclasses.replace(state, added=jnp.int32(10**9))
  for i in range(4, 9):
    state, many = (ADD(x, rollout(2 * i + 1, 2 * i + 2)) for x in (state, many))
    got, want = (names(sample(x, jax.random.key(0), 64)) for x in (many, state))
    assert got == want
  assert many.added == 10


@pytest.mark.parametrize('additions', [2, 4, 7])
def test_sampling_is_uniform(additions: int) -> None:
  state = filled(8, *(rollout(2 * i + 1, 2 * i + 2) for i in range(additions)))
  held = range(max(1, 2 * additions - 7), 2 * additions + 1)
  drawn = names(sample(state, jax.random.key(1), SIZE))
  counts = np.array([drawn.count(name) for name in held])
  assert counts.sum() == SIZE, 'something else was drawn'
  expected = SIZE / len(held)
  # Five standard deviations of a count.
  np.testing.assert_allclose(counts, expected, atol=5 * np.sqrt(expected))


def test_trajectories_stay_whole() -> None:
  state = filled(8, *(rollout(i, i + 1) for i in range(1, 13, 2)))
  batch = sample(state, jax.random.key(2), SIZE)
  want = rollout(*names(batch))
  jax.tree.map(np.testing.assert_array_equal, batch, want)
  assert jax.tree.map(lambda x: x.dtype, batch) == jax.tree.map(
    lambda x: x.dtype, want
  )


def test_samples_depend_on_the_key() -> None:
  state = filled(8, rollout(1, 2), rollout(3, 4))
  draw = lambda seed: names(sample(state, jax.random.key(seed), SIZE))
  assert draw(3) == draw(3)
  assert draw(3) != draw(4)


def test_mapped_over_agents_equals_one_by_one() -> None:
  # The agents' buffers are not equally full.
  states = [
    filled(8, rollout(1, 2)),
    filled(8, rollout(3, 4), rollout(5, 6), rollout(7, 8)),
  ]
  additions = [rollout(11, 12), rollout(13, 14)]
  keys = jax.random.split(jax.random.key(5), 2)

  def add_and_sample(
    state: replay.ReplayState, addition: types.Rollout, key: types.Array
  ) -> tuple[replay.ReplayState, types.Rollout]:
    state = replay.add(state, addition)
    return state, sample(state, key, SIZE)

  stack = lambda *x: jnp.stack(x)
  together = jax.jit(jax.vmap(add_and_sample))(
    jax.tree.map(stack, *states), jax.tree.map(stack, *additions), keys
  )
  alone = jax.tree.map(
    stack, *map(jax.jit(add_and_sample), states, additions, keys)
  )
  jax.tree.map(np.testing.assert_array_equal, together, alone)


def test_several_epochs_take_each_new_trajectory_equally_often() -> None:
  draw = jax.jit(lambda key: replay.sample_slots(key, 20, 8, 2, 6 * (2,), 4))
  orders = set()
  for seed in range(3):
    slots = np.asarray(draw(jax.random.key(seed)))
    for epoch in slots.reshape(3, 4):
      assert sorted(epoch) == [0, 1, 2, 3]  # 16 to 19 of a ring of 8.
      orders.add(tuple(epoch))
  assert len(orders) > 4
