"""Normalizes returns: 0 is a low reference score, 1 a high one.

Normalized scores are averaged over the environments of a benchmark. Returns of
an environment without references are neither normalized nor averaged. The
references belong to the families of environments, `family.Family.find_scale`.
"""

from disco_rl.environments import families as families_lib
from disco_rl.environments import registry
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
  family = families_lib.FAMILIES.get(environment.partition('/')[0])
  if family is None or family.find_scale is None:
    return None
  return family.find_scale(environment)


def find_scale_of_returns(environment: str) -> scores.Scale | None:
  """Finds the scale of returns; None also if successes are scored instead."""
  return find_scale(environment) if column(environment) == 'return' else None


def families() -> list[str]:
  """Returns the families of environments that have scales."""
  known = families_lib.FAMILIES.items()
  return [name for name, family in known if family.find_scale]


def column(environment: str) -> str:
  """Returns the column of metrics.csv that scores an environment."""
  threshold = registry.success_threshold(environment)
  return 'return' if threshold is None else 'success'
