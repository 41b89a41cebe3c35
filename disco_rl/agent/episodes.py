"""Statistics of undiscounted episode returns."""

import jax
import jax.numpy as jnp

from disco_rl import types

# Scores are means over this many finished episodes, as is usual for Catch.
NUM_RECENT = 100


@types.record
class EpisodeStatistics:
  """Statistics of the episode returns of an agent.

  Attributes:
    running: The return so far in each environment's current episode, [E].
    recent: The returns of the last finished episodes, a ring [NUM_RECENT].
    finished: The number of episodes ever finished, [] int32.
  """

  running: types.Array
  recent: types.Array
  finished: types.Array


def init(num_environments: int) -> EpisodeStatistics:
  """Makes the statistics before the first step."""
  return EpisodeStatistics(
    running=jnp.zeros((num_environments,)),
    recent=jnp.zeros((NUM_RECENT,)),
    finished=jnp.zeros((), jnp.int32),
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
    running: types.Array, x: tuple[types.Array, types.Array]
  ) -> tuple[types.Array, types.Array]:
    reward_t, is_last_t = x
    total = running + reward_t
    return jnp.where(is_last_t, 0.0, total), total

  running, totals = jax.lax.scan(step, statistics.running, (reward, is_last))
  ended = is_last.reshape(-1)
  order = jnp.cumsum(ended)
  # Skip episodes that later ones in this rollout would overwrite.
  kept = ended & (order > order[-1] - NUM_RECENT)
  slot = (statistics.finished + order - 1) % NUM_RECENT
  recent = statistics.recent.at[jnp.where(kept, slot, NUM_RECENT)].set(
    totals.reshape(-1), mode='drop'
  )
  return EpisodeStatistics(
    running=running,
    recent=recent,
    finished=statistics.finished + order[-1].astype(jnp.int32),
  )


def mean_return(statistics: EpisodeStatistics) -> types.Array:
  """Returns the mean return of recent episodes, []; NaN before the first."""
  return _recent_mean(statistics, statistics.recent)


def fraction_above(
  statistics: EpisodeStatistics, threshold: float
) -> types.Array:
  """Returns the fraction of recent returns above a threshold, or NaN."""
  return _recent_mean(statistics, statistics.recent > threshold)


def _recent_mean(
  statistics: EpisodeStatistics, values: types.Array
) -> types.Array:
  """Averages values [NUM_RECENT] of finished episodes."""
  count = jnp.minimum(statistics.finished, NUM_RECENT)
  valid = jnp.arange(NUM_RECENT) < count
  return jnp.sum(values * valid) / jnp.where(count > 0, count, jnp.nan)
