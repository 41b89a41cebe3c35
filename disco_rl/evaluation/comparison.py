"""Compares rules over benchmarks, from the metrics of their runs.

Reports on sweeps and protocols use it; `disco-rl compare` uses `contrasts`.
From metrics to a report:
  metrics.csv of a run to a curve          `learning_curves.read_curve`
  runs to results                          `planned_runs.read`; of discoveries
                                           `held_out_results.read_all`
  results to a comparison                  `compare`
  comparisons to a page                    `report.write`
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import types
from typing import TypeVar

import numpy as np

from disco_rl.environments import scores as scores_lib
from disco_rl.evaluation import normalization
from disco_rl.maths import statistics
from disco_rl.runtime import files
from disco_rl.training import achievements
from disco_rl.training import learning_curves

_CURVE_POINTS = 50
_PROFILE_POINTS = 101
_Key = TypeVar('_Key')

# Environment -> its scale; scores in others are not normalized.
Scales = Mapping[str, scores_lib.Scale]


@dataclasses.dataclass(frozen=True)
class Result:
  """Results of one run: S agents of one rule in one environment.

  Attributes:
    environment: The name of the environment.
    rule: The name of the rule in figures and tables.
    learning_rate: The learning rate of the agents.
    curve: Steps [points] and scores [S, points]: mean returns, or the metric
      that the environment is scored by; NaN before an agent's first episode has
      ended.
    failure: The reason why the run failed and has no curve, or None.
    crafter_scores: [S], by `achievements.crafter_scores`; None in environments
      without achievements.
    mean_returns: [S], at the end of training, if the score is another metric;
      None if it is the mean return.
  """

  environment: str
  rule: str
  learning_rate: float
  curve: learning_curves.Curve = (np.zeros(0), np.zeros((0, 0)))
  failure: str | None = None
  crafter_scores: np.ndarray | None = None
  mean_returns: np.ndarray | None = None

  @property
  def returns(self) -> np.ndarray:
    """Scores of the agents at the end of training, [S]."""
    return self.curve[1][:, -1]

  @property
  def problem(self) -> str | None:
    """The reason why an agent has no score; None if all have one."""
    if self.failure is None and not np.all(np.isfinite(self.returns)):
      return 'no episode of some agent has ended'
    return self.failure


@dataclasses.dataclass(frozen=True)
class RuleScores:
  """Scores of one rule over a benchmark, at one learning rate.

  Attributes:
    rule: The name of the rule in figures and tables.
    learning_rate: The learning rate of the agents.
    aggregates: Name of a statistic -> its estimate; agents are resampled.
    iqm_over_levels: The IQM; the environments are resampled, too.
    returns: Environment -> `statistics.summarize` of its returns.
    scores: The normalized scores, [S, E].
    curve_steps: The environment steps, [points].
    curve: The IQM of the normalized scores at these steps.
    profile: The fraction of agents above each threshold of the comparison.
    curves: Environment -> steps [points] and returns [S, points].
    crafter_scores: Environment -> `statistics.summarize` of its agents'
      Crafter scores, for environments with achievements.
    mean_returns: Environment -> `statistics.summarize` of its agents' mean
      returns, for environments that are scored by another metric.
  """

  rule: str
  learning_rate: float
  aggregates: Mapping[str, statistics.Estimate]
  iqm_over_levels: statistics.Estimate
  returns: Mapping[str, statistics.Summary]
  scores: np.ndarray
  curve_steps: np.ndarray
  curve: statistics.Estimate
  profile: statistics.Estimate
  curves: Mapping[str, learning_curves.Curve]
  crafter_scores: Mapping[str, statistics.Summary]
  mean_returns: Mapping[str, statistics.Summary]


@dataclasses.dataclass(frozen=True)
class Improvement:
  """The comparison of a rule with another.

  Attributes:
    rule: The name of the rule.
    other: The name of the other rule.
    probability: The probability that an agent of the rule scores above one of
      the other, in the same environment; agents are resampled.
    difference: The mean over environments of the difference of their mean
      scores; environments are resampled, the same for both.
    better_levels: The number of environments in which the rule's mean is
      higher.
  """

  rule: str
  other: str
  probability: statistics.Estimate
  difference: statistics.Estimate
  better_levels: int


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The scores of several discoveries of one recipe, which differ in seeds.

  Attributes:
    name: The name of the recipe.
    rules: The names of the rules that it discovered.
    iqms: The IQM of each, [D].
    iqm: Their mean; discoveries are resampled.
    differences: The name of each rule outside of the recipe -> the mean over
      discoveries of `statistics.difference`; discoveries are resampled.
  """

  name: str
  rules: Sequence[str]
  iqms: np.ndarray
  iqm: statistics.Estimate
  differences: Mapping[str, statistics.Estimate]


@dataclasses.dataclass(frozen=True)
class Comparison:
  """The comparison of rules over one benchmark.

  Attributes:
    benchmark: The environments that are averaged.
    environments: The names of the E environments that were run.
    scales: Environment -> its scale; empty if scores are not normalized.
    best: The rules, each at the learning rate of its highest IQM.
    iqms: Rule -> learning rate -> IQM, None if a run has no scores.
    improvements: The comparison of each pair of rules.
    recipes: The recipes of which at least one rule is compared.
    thresholds: The scores [points] of the performance profiles.
    problems: The runs without scores, with the reasons.
  """

  benchmark: scores_lib.Benchmark
  environments: Sequence[str]
  scales: Scales
  best: Sequence[RuleScores]
  iqms: Mapping[str, Mapping[float, statistics.Estimate | None]]
  improvements: Sequence[Improvement]
  recipes: Sequence[Recipe]
  thresholds: np.ndarray
  problems: Sequence[str]

  @property
  def is_normalized(self) -> bool:
    """Whether scores are normalized; otherwise they are returns."""
    return bool(self.scales)


def read_result(
  csv_path: files.PathLike,
  environment: str,
  rule: str,
  learning_rate: float,
  updates: int,
) -> Result:
  """Reads the metrics of a run.

  Args:
    csv_path: The metrics.csv of the run.
    environment: The name of the environment.
    rule: The name of the rule in figures and tables.
    learning_rate: The learning rate of the agents.
    updates: The number of updates; later rows are left out.

  Raises:
    OSError: The file does not exist or cannot be read.
    files.WorkdirError: It is damaged, or has changed since the run ended.
  """
  column = normalization.column(environment)
  read_curve = functools.partial(
    learning_curves.read_curve, csv_path, updates=updates
  )
  mean_returns = read_curve()[1][:, -1] if column != 'return' else None
  return Result(
    environment,
    rule,
    learning_rate,
    curve=read_curve(column),
    crafter_scores=achievements.crafter_scores(csv_path, updates),
    mean_returns=mean_returns,
  )


def compare(
  results: Sequence[Result],
  scales: Scales | None = None,
  recipes: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> list[Comparison]:
  """Compares rules over each benchmark that the environments belong to.

  Args:
    results: The results, one for each environment, rule and learning rate. A
      rule is not compared at a learning rate that lacks some of them.
    scales: The scales; None: those of `normalization`.
    recipes: Recipe -> the names of the rules that it discovered.

  Returns:
    One comparison for each benchmark, in the order of the environments.
  """
  by_benchmark: dict[scores_lib.Benchmark, list[Result]] = {}
  if scales is None:
    scales = _find_scales(results)
  for result in results:
    scale = scales.get(result.environment)
    benchmark = (
      normalization.alone(result.environment)
      if scale is None
      else scale.benchmark
    )
    by_benchmark.setdefault(benchmark, []).append(result)
  return [_compare(*item, scales, recipes) for item in by_benchmark.items()]


def iqm(
  group: Sequence[Result], scales: Scales | None = None
) -> statistics.Estimate | None:
  """Computes the IQM of one rule's scores; None if a run has no scores.

  Args:
    group: The results, one for each environment.
    scales: The scales; None: those of `normalization`.
  """
  if any(result.problem for result in group):
    return None
  scales = _find_scales(group) if scales is None else scales
  return statistics.estimate(statistics.iqm, _scores(group, scales))


def best(iqms: Mapping[_Key, statistics.Estimate | None]) -> _Key | None:
  """Returns the key of the highest IQM; None without any."""
  values = {key: x.value for key, x in iqms.items() if x is not None}
  return max(values, key=values.__getitem__) if values else None


def _find_scales(results: Sequence[Result]) -> Scales:
  names = {result.environment for result in results}
  found = {name: normalization.find_scale(name) for name in names}
  return {name: scale for name, scale in found.items() if scale is not None}


def _compare(
  benchmark: scores_lib.Benchmark,
  results: Sequence[Result],
  scales: Scales,
  recipes: Mapping[str, Sequence[str]],
) -> Comparison:
  groups: dict[str, dict[float, list[Result]]] = {}
  for result in results:
    rates_of_rule = groups.setdefault(result.rule, {})
    rates_of_rule.setdefault(result.learning_rate, []).append(result)
  environments = list(dict.fromkeys(r.environment for r in results))
  missing = [
    Result(name, rule, rate, failure='it is not among the runs')
    for rule, by_rate in groups.items()
    for rate, group in by_rate.items()
    for name in environments
    if name not in [r.environment for r in group]
  ]
  for result in missing:
    groups[result.rule][result.learning_rate].append(result)
  # A sample of a grid is in any order, but rules are compared by column.
  for by_rate in groups.values():
    for group in by_rate.values():
      group.sort(key=lambda result: environments.index(result.environment))
  iqms = {
    rule: {rate: iqm(group, scales) for rate, group in by_rate.items()}
    for rule, by_rate in groups.items()
  }
  chosen = {rule: best(by_rate) for rule, by_rate in iqms.items()}
  shown = [
    groups[rule][rate] for rule, rate in chosen.items() if rate is not None
  ]
  thresholds = _thresholds([_scores(group, scales) for group in shown])
  ranked = [_rule_scores(group, thresholds, scales) for group in shown]
  return Comparison(
    benchmark=benchmark,
    environments=environments,
    scales={name: scales[name] for name in environments if name in scales},
    best=ranked,
    iqms=iqms,
    improvements=[
      _improvement(x, y) for x, y in itertools.combinations(ranked, 2)
    ],
    recipes=list(_recipes(ranked, recipes)),
    thresholds=thresholds,
    problems=[
      f'{r.environment}, {r.rule}, learning rate {r.learning_rate:g}: '
      f'{r.problem}'
      for r in (*results, *missing)
      if r.problem
    ],
  )


def _improvement(x: RuleScores, y: RuleScores) -> Improvement:
  """Compares two rules."""
  scores = x.scores, y.scores
  return Improvement(
    x.rule,
    y.rule,
    statistics.estimate(statistics.probability_of_improvement, *scores),
    statistics.estimate(statistics.difference, *scores, resampled='levels'),
    int(np.sum(np.mean(x.scores, axis=0) > np.mean(y.scores, axis=0))),
  )


def _recipes(
  ranked: Sequence[RuleScores], recipes: Mapping[str, Sequence[str]]
) -> Iterator[Recipe]:
  """Compares recipes with the rules that they did not discover."""
  for name, rules in recipes.items():
    found = [x for x in ranked if x.rule in rules]
    if not found:
      continue
    iqms = np.array([x.aggregates['iqm'].value for x in found])
    yield Recipe(
      name,
      [x.rule for x in found],
      iqms,
      statistics.across_discoveries(iqms),
      {
        other.rule: statistics.across_discoveries(
          [statistics.difference(x.scores, other.scores) for x in found]
        )
        for other in ranked
        if other.rule not in rules
      },
    )


def _scores(group: Sequence[Result], scales: Scales) -> np.ndarray:
  """Returns normalized scores at the end of training, [S, E]."""
  columns = [_normalize(scales, r.environment, r.returns) for r in group]
  return np.stack(columns, axis=-1)


def _normalize(
  scales: Scales, environment: str, returns: np.ndarray
) -> np.ndarray:
  if environment not in scales:
    return returns
  return scales[environment].normalize(returns)


def _rule_scores(
  group: Sequence[Result],
  thresholds: np.ndarray,
  scales: Scales,
) -> RuleScores:
  final = _scores(group, scales)
  steps, curve = _common_curve(group, scales)
  return RuleScores(
    rule=group[0].rule,
    learning_rate=group[0].learning_rate,
    aggregates={
      name: statistics.estimate(statistic, final)
      for name, statistic in statistics.AGGREGATES.items()
    },
    iqm_over_levels=statistics.estimate(
      statistics.iqm, final, resampled='levels'
    ),
    returns={r.environment: statistics.summarize(r.returns) for r in group},
    scores=final,
    curve_steps=steps,
    curve=statistics.estimate(
      statistics.iqm, curve, resamples=statistics.CURVE_RESAMPLES
    ),
    profile=statistics.estimate(
      lambda sample: statistics.performance_profile(sample, thresholds),
      final,
      resamples=statistics.CURVE_RESAMPLES,
    ),
    curves={r.environment: r.curve for r in group},
    crafter_scores={
      r.environment: statistics.summarize(r.crafter_scores)
      for r in group
      if r.crafter_scores is not None
    },
    mean_returns={
      r.environment: statistics.summarize(r.mean_returns)
      for r in group
      if r.mean_returns is not None
    },
  )


def _common_curve(
  group: Sequence[Result], scales: Scales
) -> tuple[np.ndarray, np.ndarray]:
  """Interpolates normalized scores of all environments at the same steps.

  Returns:
    Steps [points], beginning where every agent has a score, and scores
    [points, S, E].
  """
  known = [
    (steps[valid], returns[:, valid])
    for steps, returns in (result.curve for result in group)
    for valid in [np.isfinite(returns).all(axis=0)]
  ]
  first = max(steps[0] for steps, _ in known)
  last = min(steps[-1] for steps, _ in known)
  points = np.unique(np.linspace(first, last, _CURVE_POINTS))
  columns = [
    _normalize(
      scales,
      result.environment,
      np.stack([np.interp(points, steps, agent) for agent in returns], -1),
    )
    for result, (steps, returns) in zip(group, known, strict=True)
  ]
  return points, np.stack(columns, axis=-1)


def _thresholds(all_scores: Sequence[np.ndarray]) -> np.ndarray:
  """Spaces thresholds from 0 or the lowest score to the highest."""
  pooled = np.concatenate([np.zeros(1), *(s.ravel() for s in all_scores)])
  return np.linspace(pooled.min(), pooled.max(), _PROFILE_POINTS)
