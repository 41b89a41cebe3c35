"""Normalizes returns: 0 is a low reference score, 1 a high one.

Normalized scores are averaged over the environments of a benchmark. Returns of
an environment without references are neither normalized nor averaged. The
references belong to the families of environments, `family.Family.find_scale`.
"""

import numpy as np
from numpy import typing as npt

from disco_rl.environments import families as families_lib
from disco_rl.environments import family as family_lib
from disco_rl.environments import scores


def alone(environment: str) -> scores.Benchmark:
  """Makes a benchmark of one environment without references."""
  return scores.Benchmark(
    environment,
    f'{environment}, raw returns',
    'There are no reference scores for this environment, so its returns are '
    'neither normalized nor averaged with those of others.',
  )


def find_scale(environment: str) -> scores.Scale | None:
  """Finds the scale of an environment; None if it has no reference scores."""
  family = _family(environment)
  if family is None or family.find_scale is None:
    return None
  return family.find_scale(environment)


def families() -> list[str]:
  """Returns the families of environments that have scales."""
  known = families_lib.FAMILIES.items()
  return [name for name, family in known if family.find_scale]


def success_threshold(environment: str) -> float | None:
  """Returns the return above which an episode is a success; None if undefined.

  If it is defined, the environment is scored by its fraction of successes.
  """
  family = _family(environment)
  return None if family is None else family.success_threshold


def column(environment: str) -> str:
  """Returns the column of metrics.csv that scores an environment."""
  return 'return' if success_threshold(environment) is None else 'success'


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


def _family(environment: str) -> family_lib.Family | None:
  """Returns the family of an environment; None for other names."""
  return families_lib.FAMILIES.get(environment.partition('/')[0])
