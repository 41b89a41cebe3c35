"""Statistics over a suite: the scores of several agents in several tasks.

Those of Agarwal et al., 2021, "Deep Reinforcement Learning at the Edge of the
Statistical Precipice". Scores are arrays [..., S, E] of S agents in each of E
environments; the statistics reduce the last two axes. An interval comes from
resampling the agents of each environment on their own: the environments are
the benchmark, not a sample of something larger.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

import numpy as np

from disco_rl.evaluation import scores as scores_lib

RESAMPLES = 10_000
# Of curves and profiles, where a rough bound of a band is invisible.
CURVE_RESAMPLES = 2_000
# Numbers that are resampled at once, to bound the memory.
_CHUNK = 4_000_000

Statistic = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A statistic, or one for each point of a curve.

  Attributes:
    value: [] or [points].
    low: lower bound of the 95% interval, of the same shape. None if there is no
      interval, because one agent says nothing of the spread.
    high: upper bound.
  """

  value: Any
  low: Any
  high: Any


def mean(scores: np.ndarray) -> Any:
  """Mean over agents and environments."""
  return np.mean(scores, axis=(-2, -1))


def median(scores: np.ndarray) -> Any:
  """Median over the environments of the mean over agents."""
  return np.median(np.mean(scores, axis=-2), axis=-1)


def iqm(scores: np.ndarray) -> Any:
  """Interquartile mean over agents and environments together."""
  return scores_lib.iqm(scores.reshape(*scores.shape[:-2], -1), axis=-1)


def optimality_gap(scores: np.ndarray) -> Any:
  """How far agents fall short of 1 on average; beyond 1 nothing is gained."""
  return np.mean(np.maximum(1 - scores, 0), axis=(-2, -1))


AGGREGATES: Mapping[str, Statistic] = {
  'iqm': iqm,
  'median': median,
  'mean': mean,
  'optimality_gap': optimality_gap,
}


def probability_of_improvement(x: np.ndarray, y: np.ndarray) -> Any:
  """How likely an agent of X scores higher than one of Y in the same task.

  The mean over environments of P(X > Y) + P(X = Y) / 2, which is the statistic
  of Mann and Whitney over the number of pairs.

  Args:
    x: [..., S, E] scores of X.
    y: [..., R, E] scores of Y.

  Returns:
    [...] probabilities.
  """
  difference = x[..., :, None, :] - y[..., None, :, :]
  return np.mean(0.5 + 0.5 * np.sign(difference), axis=(-3, -2, -1))


def performance_profile(scores: np.ndarray, thresholds: np.ndarray) -> Any:
  """Share of all agents' scores above each threshold.

  Args:
    scores: [..., S, E].
    thresholds: [points].

  Returns:
    [..., points].
  """
  shares = [np.mean(scores > t, axis=(-2, -1)) for t in thresholds]
  return np.stack(shares, axis=-1)


def estimate(
  statistic: Statistic,
  *samples: np.ndarray,
  resamples: int = RESAMPLES,
  seed: int = 0,
) -> Estimate:
  """A statistic with its 95% percentile bootstrap interval.

  Args:
    statistic: of one or several samples, as those of this module.
    *samples: [..., S, E] each. Axes before these are kept together: an agent
      that is drawn is drawn at all points of its curve.
    resamples: how many.
    seed: of the resampling; equal arguments give equal intervals.

  Returns:
    The estimate.

  Raises:
    ValueError: a sample is no [..., S, E] or holds what is not finite.
  """
  for sample in samples:
    if sample.ndim < 2 or not np.all(np.isfinite(sample)):
      raise ValueError(
        f'Expected finite scores [..., S, E], got shape {sample.shape} with '
        f'{np.count_nonzero(~np.isfinite(sample))} that are not finite. An '
        'agent has no score before its first episode has ended.'
      )
  value = statistic(*samples)
  if min(sample.shape[-2] for sample in samples) < 2:
    return Estimate(value=value, low=None, high=None)
  rng = np.random.default_rng(seed)
  chunk = max(1, _CHUNK // max(sample.size for sample in samples))
  sizes = [min(chunk, resamples - i) for i in range(0, resamples, chunk)]
  drawn = [
    statistic(*(_resample(sample, n, rng) for sample in samples)) for n in sizes
  ]
  low, high = np.percentile(np.concatenate(drawn), [2.5, 97.5], axis=0)
  return Estimate(value=value, low=low, high=high)


def _resample(
  sample: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws agents anew in each environment: [..., S, E] -> [n, ..., S, E]."""
  *leading, num_agents, num_environments = sample.shape
  chosen = rng.integers(
    num_agents, size=(n, *(1 for _ in leading), num_agents, num_environments)
  )
  return np.take_along_axis(sample[None], chosen, axis=-2)
