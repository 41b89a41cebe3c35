"""Episode statistics, against a loop in plain Python."""

import jax
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
