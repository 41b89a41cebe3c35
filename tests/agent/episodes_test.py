"""Episode statistics, against a loop in plain Python."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.agent import episodes

UPDATE = jax.jit(episodes.update)


class Loop:
  """The same, one step of one environment at a time."""

  def __init__(self, num_environments: int):
    self.running = [0.0] * num_environments
    self.returns: list[float] = []

  def update(self, reward: np.ndarray, is_last: np.ndarray) -> None:
    for reward_t, is_last_t in zip(reward, is_last):
      for i in range(len(self.running)):
        self.running[i] += float(reward_t[i])
        if is_last_t[i]:
          self.returns.append(self.running[i])
          self.running[i] = 0.0


@pytest.mark.parametrize(
  'share',
  [
    pytest.param(0.02, id='few endings'),
    pytest.param(0.3, id='a ring in several calls'),
    pytest.param(0.95, id='more endings than the ring holds, in each call'),
    pytest.param(1.0, id='each step ends an episode'),
  ],
)
def test_equals_a_loop(share: float) -> None:
  rng = np.random.default_rng(0)
  statistics, loop = episodes.init(5), Loop(5)
  for _ in range(6):
    # Eighths, so that sums are exact in either order.
    reward = rng.integers(-8, 9, size=(30, 5)).astype(np.float32) / 8
    is_last = rng.random((30, 5)) < share
    statistics = UPDATE(statistics, reward, is_last)
    loop.update(reward, is_last)
    assert statistics.finished == len(loop.returns)
    np.testing.assert_array_equal(statistics.running, loop.running)
    recent = loop.returns[-episodes.NUM_RECENT :]
    if recent:
      np.testing.assert_allclose(
        episodes.mean_return(statistics), np.mean(recent), atol=1e-5
      )
      np.testing.assert_allclose(
        episodes.fraction_above(statistics, 0.25),
        np.mean(np.array(recent) > 0.25),
      )
    if len(recent) == episodes.NUM_RECENT:
      assert sorted(np.asarray(statistics.recent).tolist()) == sorted(recent)


def test_no_number_before_the_first_ending() -> None:
  statistics = episodes.init(2)
  assert np.isnan(episodes.mean_return(statistics))
  assert np.isnan(episodes.fraction_above(statistics, -1.0))
  one = np.ones((3, 2), np.float32)
  statistics = UPDATE(statistics, one, np.zeros((3, 2), bool))
  assert np.isnan(episodes.mean_return(statistics))
  assert statistics.finished == 0
  is_last = np.zeros((3, 2), bool)
  is_last[1, 0] = True
  statistics = UPDATE(statistics, one, is_last)
  assert episodes.mean_return(statistics) == 5
  np.testing.assert_array_equal(statistics.running, [1, 6])


@pytest.mark.parametrize(
  ('first', 'then', 'number', 'total'),
  [
    (2.0**24, 1.0, 39, 2**24 + 39),
    (0.01, 0.01, 99_999, 100_000 * float(np.float32(0.01))),
    (-1e8, 0.5, 999, -1e8 + 499.5),
    (3e7, -1e-3, 9_999, 3e7 - 9_999 * float(np.float32(1e-3))),
  ],
)
def test_long_returns_are_exact(
  first: float, then: float, number: int, total: float
) -> None:
  """A sum in float32 stands still at 2^24, and drifts before."""
  reward = np.full((number + 1, 1), then, np.float32)
  reward[0] = first
  is_last = np.zeros((number + 1, 1), bool)
  is_last[-1] = True
  half = number // 2
  statistics = episodes.init(1)
  for part in (slice(0, half), slice(half, None)):
    statistics = UPDATE(statistics, reward[part], is_last[part])
  one = jax.tree.map(lambda x: x[None], statistics)
  (mean,) = episodes.mean_return_on_host(one)
  np.testing.assert_allclose(mean, total, rtol=1e-10)
  np.testing.assert_allclose(episodes.mean_return(statistics), total, rtol=1e-7)


def test_what_a_return_lacks_is_not_added_to_the_next() -> None:
  """Neither in one call, nor in two, nor after a restart."""
  reward = np.array([2.0**24, 1.0, 0.5, 2.0**24, 1.0], np.float32)[:, None]
  is_last = np.array([0, 1, 1, 0, 0], bool)[:, None]
  whole = UPDATE(episodes.init(1), reward, is_last)
  parts = UPDATE(episodes.init(1), reward[:2], is_last[:2])
  parts = UPDATE(parts, reward[2:], is_last[2:])
  for statistics in (whole, parts):
    np.testing.assert_array_equal(statistics.recent[:2], [2.0**24, 0.5])
    np.testing.assert_array_equal(statistics.recent_error[:2], [1, 0])
    np.testing.assert_array_equal(statistics.running, [2.0**24])
    np.testing.assert_array_equal(statistics.running_error, [1])
  again = UPDATE(episodes.restart(whole), reward[2:3], is_last[2:3])
  np.testing.assert_array_equal(again.recent[:3], [2.0**24, 0.5, 0.5])
  np.testing.assert_array_equal(again.recent_error[:3], [1, 0, 0])


def test_episodes_are_counted_beyond_32_bits() -> None:
  statistics, loop = episodes.init(1), Loop(1)
  for start in (0, 2 * 10**9 + 999_999_900, 5 * 10**9 - 60):
    statistics = dataclasses.replace(
      statistics,
      finished=jnp.int32(start % 10**9),
      billions=jnp.int32(start // 10**9),
    )
    reward = np.arange(120, dtype=np.float32)[:, None] + start // 10**9
    loop.returns.clear()
    for part in np.split(reward, 3):
      statistics = UPDATE(statistics, part, np.ones_like(part, bool))
      loop.update(part, np.ones_like(part, bool))
    assert episodes.finished_on_host(statistics) == start + 120
    want = np.mean(loop.returns[-100:])
    np.testing.assert_allclose(episodes.mean_return(statistics), want)
    one = jax.tree.map(lambda x: x[None], statistics)
    np.testing.assert_allclose(episodes.mean_return_on_host(one), [want])


@pytest.mark.parametrize('number', [99, 100, 101, 250])
def test_no_slot_is_written_twice(number: int) -> None:
  """The order of two writes is undefined, but on CPUs the later one wins."""
  slots = np.asarray(episodes.ring_slots(jnp.int32(7), np.ones(number, bool)))
  written = slots[slots < episodes.NUM_RECENT].tolist()
  assert written == [i % 100 for i in range(7 + number)][-min(number, 100) :]
