"""Statistics of undiscounted episode returns.

Returns are sums of two floats, because a single float32 stands still at 2^24,
and drifts over long episodes: `recent + recent_error` is the sum to about 40
bits. The functions that end in `_on_host` add the two in float64.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types

# Scores are means over this many finished episodes, as is usual for Catch.
NUM_RECENT = 100
# Counters of 32 bits begin again at this number, a multiple of NUM_RECENT.
_BILLION = 10**9


@types.record
class EpisodeStatistics:
  """Statistics of the episode returns of an agent.

  Attributes:
    running: The return so far in each environment's current episode, [E].
    running_error: What `running` lacks, [E].
    recent: The returns of the last finished episodes, a ring [NUM_RECENT].
    recent_error: What `recent` lacks, [NUM_RECENT].
    finished: The number of episodes ever finished, less whole billions, []
      int32.
    billions: The whole billions of them, [] int32.
  """

  running: types.Array
  running_error: types.Array
  recent: types.Array
  recent_error: types.Array
  finished: types.Array
  billions: types.Array


def init(num_environments: int) -> EpisodeStatistics:
  """Makes the statistics before the first step."""
  return EpisodeStatistics(
    running=jnp.zeros((num_environments,)),
    running_error=jnp.zeros((num_environments,)),
    recent=jnp.zeros((NUM_RECENT,)),
    recent_error=jnp.zeros((NUM_RECENT,)),
    finished=jnp.zeros((), jnp.int32),
    billions=jnp.zeros((), jnp.int32),
  )


def update(
  statistics: EpisodeStatistics, reward: types.Array, is_last: types.Array
) -> EpisodeStatistics:
  """Adds T steps of E environments.

  Args:
    statistics: The statistics of all earlier steps.
    reward: The rewards, [T, E].
    is_last: [T, E] bool, whether the step ended an episode.
  """

  def step(
    running: tuple[types.Array, types.Array],
    x: tuple[types.Array, types.Array],
  ) -> tuple[tuple[types.Array, types.Array], tuple[types.Array, types.Array]]:
    reward_t, is_last_t = x
    total, error = running
    total, lost = _add_exactly(total, reward_t)
    total, error = _add_exactly(total, error + lost)
    going_on = jnp.where(is_last_t, 0.0, total)
    lacking = jnp.where(is_last_t, 0.0, error)
    return (going_on, lacking), (total, error)

  running, totals = jax.lax.scan(
    step,
    (statistics.running, statistics.running_error),
    (reward, is_last),
  )
  ended = is_last.reshape(-1)
  slot = ring_slots(statistics.finished, ended)
  recent, recent_error = (
    ring.at[slot].set(returns.reshape(-1), mode='drop')
    for ring, returns in zip(
      (statistics.recent, statistics.recent_error), totals
    )
  )
  finished = statistics.finished + jnp.sum(ended, dtype=jnp.int32)
  return EpisodeStatistics(
    *running,
    recent=recent,
    recent_error=recent_error,
    finished=finished % _BILLION,
    billions=statistics.billions + finished // _BILLION,
  )


def ring_slots(finished: types.Array, ended: types.Array) -> types.Array:
  """Returns where the ring keeps the return after each of N steps.

  No slot is written twice, because the order of writes is undefined.

  Args:
    finished: The number of episodes finished before, [] int32.
    ended: Whether each step ended an episode, [N] bool.

  Returns:
    [N] int32; NUM_RECENT if no episode ended, or later ones take the slot.
  """
  order = jnp.cumsum(ended)
  is_kept = ended & (order > order[-1] - NUM_RECENT)
  slot = (finished + order - 1) % NUM_RECENT
  return jnp.where(is_kept, slot, NUM_RECENT)


def restart(statistics: EpisodeStatistics) -> EpisodeStatistics:
  """Discards unfinished episodes; leading axes are allowed."""
  return dataclasses.replace(
    statistics,
    running=jnp.zeros_like(statistics.running),
    running_error=jnp.zeros_like(statistics.running_error),
  )


def mean_return(statistics: EpisodeStatistics) -> types.Array:
  """Returns the mean return of recent episodes, []; NaN before the first."""
  return _recent_mean(statistics, statistics.recent + statistics.recent_error)


def mean_return_on_host(statistics: EpisodeStatistics) -> np.ndarray:
  """Computes the mean return of recent episodes in float64.

  Args:
    statistics: Those of S agents, on a leading axis.

  Returns:
    [S]; NaN before the first episode of an agent has ended.
  """
  statistics = jax.device_get(statistics)
  returns = statistics.recent.astype(np.float64) + statistics.recent_error
  count = np.minimum(finished_on_host(statistics), NUM_RECENT)
  is_valid = np.arange(NUM_RECENT) < count[:, None]
  sums = np.sum(returns, axis=1, where=is_valid)
  return np.divide(
    sums, count, out=np.full(len(count), np.nan), where=count > 0
  )


def finished_on_host(statistics: EpisodeStatistics) -> np.ndarray:
  """Returns the number of episodes ever finished, int64, on the host."""
  finished, billions = jax.device_get(
    (statistics.finished, statistics.billions)
  )
  return _BILLION * np.asarray(billions, np.int64) + finished


def fraction_above(
  statistics: EpisodeStatistics, threshold: float
) -> types.Array:
  """Returns the fraction of recent returns above a threshold, or NaN."""
  return _recent_mean(statistics, statistics.recent > threshold)


def _add_exactly(
  a: types.Array, b: types.Array
) -> tuple[types.Array, types.Array]:
  """Returns the rounded sum of two floats, and what it lacks (Knuth, 1969)."""
  total = a + b
  of_b = total - a
  return total, (a - (total - of_b)) + (b - of_b)


def _recent_mean(
  statistics: EpisodeStatistics, values: types.Array
) -> types.Array:
  """Averages values [NUM_RECENT] of finished episodes."""
  count = jnp.where(
    statistics.billions > 0,
    NUM_RECENT,
    jnp.minimum(statistics.finished, NUM_RECENT),
  )
  valid = jnp.arange(NUM_RECENT) < count
  return jnp.sum(values * valid) / jnp.where(count > 0, count, jnp.nan)
