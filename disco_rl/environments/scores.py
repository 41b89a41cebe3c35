"""Scales of returns: 0 is a low reference score, 1 a high one."""

from collections.abc import Mapping
import dataclasses

import numpy as np
from numpy import typing as npt


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """Environments whose scores may be averaged.

  Attributes:
    name: A short name, for folders and keys.
    title: The name in headings.
    meaning: What scores of 0 and 1 mean, with the source.
    is_low_random: Whether 0 is the exact mean return of random play.
    is_high_best: Whether 1 is the best possible return, or the one of a
      reference policy.
  """

  name: str
  title: str
  meaning: str
  is_low_random: bool = False
  is_high_best: bool = False


@dataclasses.dataclass(frozen=True)
class Scale:
  """The scale on which an environment's returns are normalized.

  Attributes:
    benchmark: The benchmark that the environment belongs to.
    low: The return that is normalized to 0.
    high: The return that is normalized to 1.
  """

  benchmark: Benchmark
  low: float
  high: float

  def normalize(self, returns: npt.ArrayLike) -> np.ndarray:
    """Normalizes returns of any shape; scores outside [0, 1] remain."""
    return (np.asarray(returns, float) - self.low) / (self.high - self.low)


def scales(
  benchmark: Benchmark, bounds: Mapping[str, tuple[float, float]], prefix: str
) -> dict[str, Scale]:
  """Makes scales of prefix + name from the bounds by name."""
  return {prefix + name: Scale(benchmark, *x) for name, x in bounds.items()}
