"""Tests of disco_rl/meta_training/lifetimes.py."""

import numpy as np
import pytest

from disco_rl.meta_training import lifetimes

CONFIG = lifetimes.LifetimeConfig(budgets=(200, 100, 50, 20))


def draw(seed: int, num_members: int) -> np.ndarray:
  rng = np.random.default_rng(seed)
  return lifetimes.draw(rng, CONFIG.budgets, num_members)


def test_every_category_gets_the_same_fraction_of_all_steps() -> None:
  num_members = 20_000
  budgets = draw(0, num_members)
  assert budgets.dtype == np.int32
  # 1/200 : 1/100 : 1/50 : 1/20 = 1 : 2 : 4 : 10
  expected = num_members * np.array([1, 2, 4, 10]) / 17
  counts = np.array([np.sum(budgets == b) for b in CONFIG.budgets])
  assert counts.sum() == num_members
  # Chi-square with 3 degrees of freedom: above 16.3 in one draw of a thousand.
  assert np.sum(np.square(counts - expected) / expected) < 16.3
  steps = counts * np.array(CONFIG.budgets)
  np.testing.assert_allclose(steps / steps.sum(), 0.25, atol=0.02)


def test_draws_are_decided_by_the_seed() -> None:
  np.testing.assert_array_equal(draw(1, 50), draw(1, 50))
  assert np.any(draw(1, 50) != draw(2, 50))
  for stagger in (False, True):
    config = lifetimes.LifetimeConfig(CONFIG.budgets, stagger)
    first, again = (
      lifetimes.init(np.random.default_rng(3), config, 50) for _ in range(2)
    )
    np.testing.assert_array_equal(first.age, again.age)
    np.testing.assert_array_equal(first.budget, again.budget)


def test_without_stagger_all_begin_together() -> None:
  agents = lifetimes.init(np.random.default_rng(4), CONFIG, 10)
  np.testing.assert_array_equal(agents.age, np.zeros(10, np.int32))


def test_stagger_spreads_ages_over_the_budgets() -> None:
  num_members = 100
  config = lifetimes.LifetimeConfig((1000,), stagger=True)
  agents = lifetimes.init(np.random.default_rng(5), config, num_members)
  # Every hundredth of the budget once, in no order.
  np.testing.assert_array_equal(np.sort(agents.age), np.arange(0, 1000, 10))
  assert np.any(np.diff(agents.age) < 0)

  config = lifetimes.LifetimeConfig(CONFIG.budgets, stagger=True)
  agents = lifetimes.init(np.random.default_rng(6), config, num_members)
  assert agents.age.dtype == agents.budget.dtype == np.int32
  assert not np.any(agents.expired)
  share = agents.age / agents.budget
  assert np.mean(share) == pytest.approx(0.5, abs=0.05)


def test_a_lifetime_expires_when_its_budget_is_consumed() -> None:
  agents = lifetimes.Lifetimes(
    age=np.array([0, 10, 15, 20], np.int32),
    budget=np.array([20, 20, 20, 20], np.int32),
    failures=np.zeros(4, np.int32),
  )
  older = lifetimes.advance(agents, 5, np.zeros(4, bool))
  np.testing.assert_array_equal(older.age, [5, 15, 20, 25])
  np.testing.assert_array_equal(older.expired, [False, False, True, True])
  np.testing.assert_array_equal(older.budget, agents.budget)
  # The caller's record is as it was.
  np.testing.assert_array_equal(agents.age, [0, 10, 15, 20])


def test_only_expired_agents_are_reset() -> None:
  num_members = 200
  rng = np.random.default_rng(7)
  # Not one of the categories, so that new budgets can be identified.
  before = lifetimes.Lifetimes(
    age=rng.integers(60, size=num_members, dtype=np.int32),
    budget=np.full(num_members, 30, np.int32),
    failures=np.zeros(num_members, np.int32),
  )
  expired = before.expired
  assert 0 < np.sum(expired) < num_members
  after = lifetimes.reset_expired(rng, CONFIG, before)
  np.testing.assert_array_equal(after.age[~expired], before.age[~expired])
  np.testing.assert_array_equal(after.budget[~expired], before.budget[~expired])
  assert not np.any(after.age[expired])
  assert set(after.budget[expired]) == set(CONFIG.budgets)
  assert not np.any(after.expired)
  assert after.age.dtype == after.budget.dtype == np.int32


def test_failed_agents_expire_and_failures_are_counted() -> None:
  agents = lifetimes.Lifetimes(
    age=np.zeros(3, np.int32),
    budget=np.full(3, 100, np.int32),
    failures=np.array([0, 1, 2], np.int32),
  )
  after = lifetimes.advance(agents, 5, np.array([True, True, False]))
  np.testing.assert_array_equal(after.failures, [1, 2, 0])
  np.testing.assert_array_equal(after.expired, [True, True, False])
  reset = lifetimes.reset_expired(np.random.default_rng(0), CONFIG, after)
  np.testing.assert_array_equal(reset.age, [0, 0, 5])
  np.testing.assert_array_equal(reset.failures, [1, 2, 0])


def test_budgets_of_more_than_32_bits_are_refused() -> None:
  with pytest.raises(ValueError, match='budgets.* at most 10'):
    lifetimes.LifetimeConfig((200, 2 * 10**9))
