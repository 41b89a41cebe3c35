"""What agents' episodes unlocked: Crafter is scored by it.

Rows of metrics.csv hold counts since the row before, so that a run that was
resumed adds up like any other.
"""

from typing import Any

import numpy as np

from disco_rl.evaluation import normalisation
from disco_rl.runtime import files
from disco_rl.runtime import metrics

_EPISODES = 'achievements/episodes'
_UNLOCKED = 'achievements/unlocked/'


class Counter:
  """Counts episodes, and those that unlocked an achievement, for each agent."""

  def __init__(self, environment: Any, num_agents: int):
    """Begins to count.

    Args:
      environment: the agents'; what has no achievements is not asked for any.
      num_agents: S, whose environments lie next to one another.
    """
    self._ask = getattr(environment, 'achievements', None)
    self._num_agents = num_agents
    self._before = self._counts()

  def advance(self) -> list[dict[str, int]]:
    """Columns for a row of each agent, [S]: what was new since the last call.

    No episode may be under way in another thread meanwhile.
    """
    before, self._before = self._before, self._counts()
    new = {name: now - before[name] for name, now in self._before.items()}
    return [
      {name: int(counts[i]) for name, counts in new.items()}
      for i in range(self._num_agents)
    ]

  def _counts(self) -> dict[str, np.ndarray]:
    """By column, [S]."""
    if self._ask is None:
      return {}
    counted = self._ask()
    columns = {
      _EPISODES: counted.num_episodes,
      **{_UNLOCKED + name: x for name, x in counted.unlocked.items()},
    }
    return {
      name: np.reshape(counts, (self._num_agents, -1)).sum(axis=-1)
      for name, counts in columns.items()
    }


def crafter_scores(
  csv_path: files.PathLike, environment_steps: float = np.inf
) -> np.ndarray | None:
  """Crafter's score of each agent over all of its episodes.

  Args:
    csv_path: metrics.csv of a run.
    environment_steps: of one agent; what the run did beyond is left out.

  Returns:
    [S] from 0 to 100, NaN where no episode has ended; see
    `normalisation.crafter_score`. None where nothing was counted.
  """
  columns = metrics.read(csv_path)
  unlocked = [x for name, x in columns.items() if name.startswith(_UNLOCKED)]
  if not unlocked:
    return None
  kept = columns['environment_steps'] <= environment_steps
  seeds, agent = np.unique(columns['seed'], return_inverse=True)
  total = lambda counts: np.bincount(
    agent[kept], weights=counts[kept], minlength=len(seeds)
  )
  episodes = total(columns[_EPISODES])
  with np.errstate(invalid='ignore'):
    rates = np.stack([total(x) for x in unlocked], axis=-1) / episodes[:, None]
  ended = episodes > 0
  scores = np.full(len(seeds), np.nan)
  scores[ended] = normalisation.crafter_score(rates[ended])
  return scores
