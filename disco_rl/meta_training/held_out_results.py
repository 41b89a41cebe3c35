"""Results of several discoveries on held-out environments, for a report.

Here, the rules of a report are variants of the method, and its agents are their
discoveries, with different seeds.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any
from typing import NamedTuple

import numpy as np

from disco_rl.environments import registry as environment_registry
from disco_rl.environments import suites
from disco_rl.evaluation import comparison
from disco_rl.evaluation import planned_runs
from disco_rl.evaluation import report
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics


def read_all(
  runs: Sequence[planned_runs.Run], failures: Mapping[pathlib.Path, str]
) -> tuple[list[comparison.Result], report.Setup]:
  """Reads the held-out returns of discoveries, for a report.

  Args:
    runs: The discoveries, several of each variant, which differ in their seeds.
    failures: The reasons why discoveries have failed, by folder.

  Returns:
    A result for each held-out environment of each variant, or the failure of
    one of the variant's discoveries; and the description for the report.
  """
  variants: dict[tuple[str, float], list[planned_runs.Run]] = {}
  for run in runs:
    rate = run.settings['meta_learning_rate']
    variants.setdefault((run.rule, rate), []).append(run)
  results = []
  for (variant, rate), own in variants.items():
    folders = [run.folder for run in own]
    failed = [failures[folder] for folder in folders if folder in failures]
    if not failed:
      results += read(variant, rate, folders)
      continue
    results += [
      comparison.Result(name, variant, rate, failure=failed[0])
      for name in suites.listed(own[0].settings['held_out_environments'])
    ]
  seeds = len(next(iter(variants.values())))
  return results, setup([run.settings for run in runs], seeds)


def setup(settings: Sequence[Mapping[str, Any]], seeds: int) -> report.Setup:
  """Describes discoveries with these settings, `seeds` of each variant."""
  names = ('meta_steps', 'agents', 'held_out_seeds', 'held_out_updates')
  values = {name: [x[name] for x in settings] for name in names}
  spans = {name: (min(x), max(x)) for name, x in values.items()}
  shown = {
    name: f'{low:,}' if low == high else f'{low:,} to {high:,}'
    for name, (low, high) in spans.items()
  }
  return report.Setup(
    'These are rules of variants of discovery. Discoveries of each variant, '
    f'which differ in their seeds: {seeds}. Meta-steps of each: '
    f'{shown["meta_steps"]}. Agents of its population: {shown["agents"]}. '
    'Steps are those of a single agent.',
    'A score is the mean return of new agents that learn from the rule of one '
    'discovery in an environment outside its population '
    f'({shown["held_out_seeds"]} agents, {shown["held_out_updates"]} updates '
    'each): the last rows of held_out/metrics.csv in the folder of the '
    'discovery. A discovery that ended early, by held_out_patience, keeps its '
    'last score.',
    {'seeds': seeds, **spans},
    unit='discoveries',
  )


def read(
  variant: str, learning_rate: float, workdirs: Sequence[pathlib.Path]
) -> list[comparison.Result]:
  """Reads the held-out returns of a variant's discoveries, by environment.

  Args:
    variant: The name of the variant in the report.
    learning_rate: The rule's learning rate.
    workdirs: Folders of discoveries that have ended and differ in their seeds.

  Raises:
    OSError: A file does not exist.
    files.WorkdirError: A file is damaged or has changed since its run ended, or
      runs were evaluated differently.
  """
  curves = [_read_one(workdir) for workdir in workdirs]
  results = []
  for environment in curves[0]:
    if environment_registry.success_threshold(environment) is not None:
      reason = 'it is scored by successes, but discovery only logs returns'
      results.append(
        comparison.Result(environment, variant, learning_rate, failure=reason)
      )
      continue
    own = [of_run[environment] for of_run in curves if environment in of_run]
    longest = max((curve.meta_steps for curve in own), key=len)
    if len(own) < len(curves) or not all(x.is_like(longest) for x in own):
      raise files.WorkdirError(
        f'The discoveries of {variant} were not evaluated in the same '
        'environments at the same meta-steps: '
        f'{", ".join(map(str, workdirs))}. Delete the folders of those '
        'that differ, and run them again.'
      )
    # Agents of different discoveries are reset at different times, after which
    # they may wait for replay; so their steps differ a little.
    steps = [x.steps for x in own if len(x.steps) == len(longest)]
    returns = [
      np.pad(x.returns, (0, len(longest) - len(x.returns)), 'edge') for x in own
    ]
    curve = np.mean(steps, axis=0), np.stack(returns)
    results.append(
      comparison.Result(environment, variant, learning_rate, curve)
    )
  return results


class _Curve(NamedTuple):
  """The evaluations of one discovery in one environment.

  Attributes:
    meta_steps: The meta-steps before each, [points].
    steps: The environment steps of an agent of the population, [points].
    returns: The mean returns, [points].
    has_ended_early: Whether the discovery has ended before its last meta-step.
  """

  meta_steps: np.ndarray
  steps: np.ndarray
  returns: np.ndarray
  has_ended_early: bool

  def is_like(self, longest: np.ndarray) -> bool:
    """Whether these are the first of some meta-steps, all but if it ended."""
    number = len(self.meta_steps)
    return np.array_equal(self.meta_steps, longest[:number]) and (
      self.has_ended_early or number == len(longest)
    )


def _read_one(workdir: pathlib.Path) -> dict[str, _Curve]:
  """Reads the evaluations of a discovery that has ended, by environment."""
  digests.check_summary(workdir)
  population = metrics.read(workdir / 'metrics.csv')
  held_out = metrics.read(workdir / 'held_out' / 'metrics.csv')
  if not population or not held_out:
    raise files.WorkdirError(
      f'{workdir} holds no held-out returns: set held_out_environments, or '
      'delete the folder if its files were lost.'
    )
  # Counts of a fork do not grow in proportion to its meta-steps.
  meta_steps, of_row = np.unique(population['meta_step'], return_inverse=True)
  steps, agents = (
    np.bincount(of_row, population[name])
    for name in ('environment_steps', 'agents')
  )
  last = json_files.read(workdir / 'config.json')['meta_steps']
  has_ended_early = bool(meta_steps[-1] < last)
  meta_steps, steps_per_agent = np.r_[0, meta_steps], np.r_[0, steps / agents]
  curves = {}
  for environment in dict.fromkeys(held_out['environment'].tolist()):
    own = held_out['environment'] == environment
    at = held_out['meta_step'][own]
    curves[environment] = _Curve(
      at,
      np.interp(at, meta_steps, steps_per_agent),
      held_out['return'][own].astype(float),
      has_ended_early,
    )
  return curves
