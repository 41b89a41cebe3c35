"""Counts of unlocked achievements, by which Crafter is scored.

Rows of metrics.csv contain the counts since the previous row, so that the rows
of a resumed run also add up.
"""

import numpy as np
from numpy import typing as npt

from disco_rl.runtime import files
from disco_rl.runtime import metrics

_EPISODES = 'achievements/episodes'
_UNLOCKED = 'achievements/unlocked/'


class Counter:
  """Counts each agent's episodes, and how many unlocked each achievement."""

  def __init__(self, environment: object, num_agents: int):
    """Starts counting.

    Args:
      environment: The environments of all agents, contiguous for each agent;
        nothing is counted if it has no method `achievements`.
      num_agents: S.
    """
    self._achievements = getattr(environment, 'achievements', None)
    self._num_agents = num_agents
    self._before = self._counts()

  def advance(self) -> list[dict[str, int]]:
    """Returns the counts since the last call, one row per agent, [S].

    No other thread may step the environments during the call.
    """
    before, self._before = self._before, self._counts()
    new = {name: now - before[name] for name, now in self._before.items()}
    return [
      {name: int(counts[i]) for name, counts in new.items()}
      for i in range(self._num_agents)
    ]

  def _counts(self) -> dict[str, np.ndarray]:
    """Returns the counts so far, by column, [S]."""
    if self._achievements is None:
      return {}
    counted = self._achievements()
    columns = {
      _EPISODES: counted.num_episodes,
      **{_UNLOCKED + name: x for name, x in counted.unlocked.items()},
    }
    return {
      name: np.reshape(counts, (self._num_agents, -1)).sum(axis=-1)
      for name, counts in columns.items()
    }


def crafter_score(success_rates: npt.ArrayLike) -> np.ndarray:
  """Computes Crafter's score, exp(mean_i(log(1 + s_i))) - 1, in percent.

  In this geometric mean over achievements i, rare ones count more than common
  ones. 1 is added so that an achievement without success does not make it 0.

  Args:
    success_rates: The fraction of episodes that unlocked each achievement,
      [..., achievements], in [0, 1].

  Returns:
    [...], from 0 to 100.

  Raises:
    ValueError: A rate is outside [0, 1].
  """
  rates = np.asarray(success_rates, float)
  if not np.all((rates >= 0) & (rates <= 1)):
    raise ValueError(
      'Success rates must be fractions between 0 and 1; got values '
      f'from {rates.min():g} to {rates.max():g}. Divide percentages by 100.'
    )
  return np.expm1(np.mean(np.log1p(100 * rates), axis=-1))


def crafter_scores(
  csv_path: files.PathLike, updates: float = np.inf
) -> np.ndarray | None:
  """Computes Crafter's score of each agent over all of its episodes.

  Args:
    csv_path: The metrics.csv of a run.
    updates: The number of updates; later rows are ignored.

  Returns:
    [S] from 0 to 100, NaN where no episode has ended; see
    `crafter_score`. None without achievements.
  """
  columns = metrics.read(csv_path)
  unlocked = [x for name, x in columns.items() if name.startswith(_UNLOCKED)]
  if not unlocked:
    return None
  kept = columns['update'] <= updates
  seeds, agent = np.unique(columns['seed'], return_inverse=True)
  total = lambda counts: np.bincount(
    agent[kept], weights=counts[kept], minlength=len(seeds)
  )
  episodes = total(columns[_EPISODES])
  with np.errstate(invalid='ignore'):
    rates = np.stack([total(x) for x in unlocked], axis=-1) / episodes[:, None]
  ended = episodes > 0
  scores = np.full(len(seeds), np.nan)
  scores[ended] = crafter_score(rates[ended])
  return scores
