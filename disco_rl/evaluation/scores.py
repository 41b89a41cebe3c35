"""Statistics over the scores of independent runs."""

from typing import Any
from typing import Protocol

import numpy as np
from numpy import typing as npt
import scipy.stats

_RESAMPLES = 10_000


class Statistic(Protocol):
  """A number that describes a sample, as `mean` and `iqm`."""

  def __call__(self, values: npt.ArrayLike, axis: int | None = None) -> Any:
    """Reduces one axis, or all (None)."""


def mean(values: npt.ArrayLike, axis: int | None = None) -> Any:
  """Arithmetic mean."""
  return np.mean(np.asarray(values, float), axis=axis)


def iqm(values: npt.ArrayLike, axis: int | None = None) -> Any:
  """Interquartile mean: of what is left without the outer quarters.

  Of n values floor(n / 4) are left out at either end, as in Agarwal et al.,
  2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice".
  """
  return scipy.stats.trim_mean(np.asarray(values, float), 0.25, axis=axis)


def ci95(
  values: npt.ArrayLike, statistic: Statistic = mean, seed: int = 0
) -> tuple[float, float] | None:
  """95% percentile bootstrap interval of a statistic of independent runs.

  With few runs it is too narrow: of normally distributed scores it holds the
  true mean in 75% of cases with 3 runs, 84% with 5, 90% with 10, 93% with 20.

  Args:
    values: [n] one score per run.
    statistic: what the interval is of.
    seed: of the resampling; equal arguments give equal intervals.

  Returns:
    Lower and upper bound. None where there is no such interval: a single run
    says nothing of the spread, and neither do scores that aren't finite.

  Raises:
    ValueError: `values` is no vector.
  """
  values = np.asarray(values, float)
  if values.ndim != 1:
    raise ValueError(f'Expected one score per run, [n], got {values.shape}.')
  if len(values) < 2 or not np.all(np.isfinite(values)):
    return None
  rng = np.random.default_rng(seed)
  chosen = rng.integers(len(values), size=(_RESAMPLES, len(values)))
  resampled = statistic(values[chosen], axis=-1)
  low, high = np.percentile(resampled, [2.5, 97.5])
  return float(low), float(high)


def summarise(per_seed: npt.ArrayLike) -> dict[str, Any]:
  """Describes one score per seed [n], ready for JSON.

  Returns:
    `mean`; `iqm`; `ci95`: [low, high] of the mean, or None; `per_seed`.
  """
  interval = ci95(per_seed, mean)
  return {
    'mean': float(mean(per_seed)),
    'iqm': float(iqm(per_seed)),
    'ci95': None if interval is None else list(interval),
    'per_seed': np.asarray(per_seed, float).tolist(),
  }
