"""The report of a sweep: report.md, report.html, summary.json, figures/."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import re
from typing import Any
from typing import Protocol

import numpy as np

from disco_rl.evaluation import comparison
from disco_rl.evaluation import pages
from disco_rl.evaluation import reference_scores
from disco_rl.evaluation import report_figures
from disco_rl.evaluation import statistics
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting
from disco_rl.runtime import reports

# The header, then the rows.
_Table = list[list[str]]


@dataclasses.dataclass(frozen=True)
class Setup:
  """Settings that all runs of a report share.

  Attributes:
    agents: number of agents of each run.
    updates: of each agent.
    environment_steps: of each agent.
  """

  agents: int
  updates: int
  environment_steps: int

  @property
  def extent(self) -> str:
    """How much was run, in the report's words."""
    return (
      f'Agents of each rule in each environment: {self.agents}. Updates of '
      f'each agent: {self.updates:,}, in {self.environment_steps:,} '
      'environment steps.'
    )

  @property
  def score(self) -> str:
    """What a score is, in the report's words."""
    return (
      "An agent's score is the mean undiscounted return of its last 100 "
      'episodes at the end of training: the column "return" ("success" in '
      'Sokoban) of the last rows of metrics.csv in the folder of its run.'
    )


@dataclasses.dataclass(frozen=True)
class Note:
  """A table that a report begins with.

  Attributes:
    title: for the heading.
    text: what the table shows.
    table: the header, then the rows; a header alone: there is nothing to show.
  """

  title: str
  text: str
  table: Sequence[Sequence[str]]


class Described(Protocol):
  """What a report says of its runs; a dataclass, whose fields it stores."""

  @property
  def extent(self) -> str:
    """How much was run."""
    ...

  @property
  def score(self) -> str:
    """What a score is."""
    ...


def write(
  results: Sequence[comparison.Result], setup: Described, workdir: pathlib.Path
) -> None:
  """Writes the report of a sweep into its folder.

  Args:
    results: one for each environment, rule and learning rate.
    setup: settings that they share, a `Setup` or another `Described`.
    workdir: the folder.
  """
  write_comparisons(comparison.compare(results), setup, workdir)


def write_comparisons(
  compared: Sequence[comparison.Comparison],
  setup: Described,
  workdir: pathlib.Path,
  notes: Sequence[Note] = (),
  details: Mapping[str, Any] | None = None,
) -> None:
  """As `write`, of comparisons that have been made.

  Args:
    compared: one for each section.
    setup: settings that the runs share.
    workdir: the folder.
    notes: what stands before the sections.
    details: further entries of summary.json.
  """
  (workdir / 'figures').mkdir(exist_ok=True)
  summary = {**_summary(compared, setup), **(details or {})}
  metrics.write_json(workdir / 'summary.json', summary)
  problems = [[text] for c in compared for text in c.problems]
  content = {
    'setup': setup,
    'rules': list(dict.fromkeys(rule for c in compared for rule in c.iqms)),
    'num_environments': len({e for c in compared for e in c.environments}),
    'resamples': statistics.RESAMPLES,
    'problems': [['run'], *problems] if problems else None,
    'notes': notes,
    'sections': [_section(c, workdir) for c in compared],
  }
  for name in ('report.md', 'report.html'):
    pages.write(workdir / name, name, content)


def _section(
  compared: comparison.Comparison, workdir: pathlib.Path
) -> dict[str, Any]:
  """One benchmark, as templates/sections.jinja takes it."""
  rates = sorted(set().union(*compared.iqms.values()))
  return {
    'compared': compared,
    'num_rates': max(map(len, compared.iqms.values())),
    'has_one_rate': len(rates) == 1,
    'missing': sorted(compared.iqms.keys() - {s.rule for s in compared.best}),
    'figures': _figures(compared, workdir),
    'scores': _scores_table(compared),
    'improvements': [
      ['rule', 'than', 'P(higher score in the same environment)'],
      *(
        [i.rule, i.other, format_estimate(i.probability)]
        for i in compared.improvements
      ),
    ],
    'learning_rates': [
      ['IQM of rule', *(f'{rate:g}' for rate in rates)],
      *(
        [
          rule,
          *(format_estimate(by_rate[r]) if r in by_rate else '' for r in rates),
        ]
        for rule, by_rate in compared.iqms.items()
      ),
    ],
    'environments': _environments_table(compared),
    'achievements': _achievements_table(compared),
    'published': _published_table(compared),
    'differences': _differences(compared),
  }


def _figures(
  compared: comparison.Comparison, workdir: pathlib.Path
) -> dict[str, dict[str, Any]]:
  """Writes the figures; returns, by name, their path and their content."""
  benchmark = re.sub('[^A-Za-z0-9_.]+', '-', compared.benchmark.name)
  figures = {}
  for name in report_figures.applicable(compared):
    source = f'figures/{benchmark}_{name}.png'
    with reports.surviving(source):
      fig = report_figures.FIGURES[name](compared)
      plotting.save(fig, workdir / source)
      figures[name] = {
        'name': f'{benchmark}_{name}',
        'source': source,
        **pages.png(workdir / source),
      }
  return figures


def _scores_table(compared: comparison.Comparison) -> _Table:
  names = report_figures.aggregate_names(compared)
  titles = (report_figures.TITLES[name] for name in names)
  return [
    ['rule', 'learning rate', *titles],
    *(
      [
        scores.rule,
        f'{scores.learning_rate:g}',
        *(format_estimate(scores.aggregates[name]) for name in names),
      ]
      for scores in compared.best
    ),
  ]


def _environments_table(compared: comparison.Comparison) -> _Table:
  header = ['mean', *(scores.rule for scores in compared.best)]
  if compared.is_normalised:
    header += ['return scored 0', 'return scored 1']
  table = [header]
  for name in compared.environments:
    row = [name, *(_mean(scores.returns[name]) for scores in compared.best)]
    if scale := compared.scales.get(name):
      row += [_number(scale.low), _number(scale.high)]
    table.append(row)
    if any(name in scores.mean_returns for scores in compared.best):
      means = [_mean(scores.mean_returns[name]) for scores in compared.best]
      blank = [''] * (len(header) - 1 - len(means))
      table.append([f'{name}, mean return', *means, *blank])
  return table


def _achievements_table(compared: comparison.Comparison) -> _Table | None:
  rows = [
    [scores.rule, _mean(summary)]
    for scores in compared.best
    for summary in scores.crafter_scores.values()
  ]
  return [['rule', "Crafter's score, percent"], *rows] if rows else None


def _published(
  compared: comparison.Comparison,
) -> list[reference_scores.Published]:
  subjects = (compared.benchmark.name, *compared.environments)
  return [p for p in reference_scores.PAPER if p.subject in subjects]


def _published_table(compared: comparison.Comparison) -> _Table | None:
  """Published results beside our mean return, or our IQM over a benchmark.

  Ours are read from the learning curves at the steps of the published ones, or
  at the end of shorter training.
  """
  ours = [f'{scores.rule}, ours' for scores in compared.best]
  table = [['of', 'method', 'published', 'environment steps', *ours]]
  for p in _published(compared):
    steps = p.environment_steps
    row = [p.subject, p.method, f'{p.value:,.6g}']
    row.append(f'{steps:,.0f}' if steps else 'not stated')
    row += [_ours(scores, p) for scores in compared.best]
    table.append(row)
  return table if len(table) > 1 else None


def _ours(
  scores: comparison.RuleScores, published: reference_scores.Published
) -> str:
  """Our score at the steps of a published one."""
  steps, values = scores.curve_steps, scores.curve.value
  if published.subject in scores.curves:
    steps, returns = scores.curves[published.subject]
    values = returns.mean(axis=0)
  is_known = np.isfinite(values)
  steps, values = steps[is_known], values[is_known]
  at = min(published.environment_steps or np.inf, steps[-1])
  if at < steps[0]:
    return 'no episode of some agent had ended'
  value = _number(float(np.interp(at, steps, values)))
  return value if at == published.environment_steps else f'{value} at {at:,.0f}'


def _differences(compared: comparison.Comparison) -> list[str]:
  """What sets our numbers apart from the published ones."""
  families = dict.fromkeys(
    p.subject.partition('/')[0] for p in _published(compared)
  )
  differences = reference_scores.DIFFERENCES
  return [differences[name] for name in families if name in differences]


def _summary(
  compared: Sequence[comparison.Comparison], setup: Described
) -> dict[str, Any]:
  """The report's numbers, for programs."""
  return {
    **dataclasses.asdict(setup),  # type: ignore[call-overload]
    'benchmarks': {c.benchmark.name: _benchmark_summary(c) for c in compared},
  }


def _benchmark_summary(compared: comparison.Comparison) -> dict[str, Any]:
  rules: dict[str, Any] = {}
  for scores in compared.best:
    rules[scores.rule] = {
      'learning_rate': scores.learning_rate,
      **{
        name: as_json(scores.aggregates[name])
        for name in report_figures.aggregate_names(compared)
      },
      'returns': scores.returns,
    }
    if scores.crafter_scores:
      rules[scores.rule]['crafter_scores'] = scores.crafter_scores
    if scores.mean_returns:
      rules[scores.rule]['mean_returns'] = scores.mean_returns
  return {
    'is_normalised': compared.is_normalised,
    'environments': list(compared.environments),
    'rules': rules,
    'iqm_by_learning_rate': {
      rule: {f'{rate:g}': e and as_json(e) for rate, e in by_rate.items()}
      for rule, by_rate in compared.iqms.items()
    },
    'probability_of_improvement': [
      {'rule': i.rule, 'than': i.other, **as_json(i.probability)}
      for i in compared.improvements
    ],
    'problems': list(compared.problems),
    'published': [dataclasses.asdict(p) for p in _published(compared)],
  }


def as_json(estimate: statistics.Estimate) -> dict[str, Any]:
  """An estimate with its interval, for programs."""
  has_interval = estimate.low is not None
  ci95 = [float(estimate.low), float(estimate.high)] if has_interval else None
  return {'value': float(estimate.value), 'ci95': ci95}


def _mean(summary: Mapping[str, Any]) -> str:
  """The mean of `statistics.summarise` with its interval, as text."""
  low, high = summary['ci95'] or (None, None)
  return format_estimate(statistics.Estimate(summary['mean'], low, high))


def format_estimate(estimate: statistics.Estimate | None) -> str:
  """An estimate with its interval, as text."""
  if estimate is None:
    return 'no scores'
  if estimate.low is None:
    return _number(estimate.value)
  low, high = _number(estimate.low), _number(estimate.high)
  return f'{_number(estimate.value)} [{low}, {high}]'


def _number(value: float) -> str:
  if abs(value) >= 1000:
    return f'{value:,.0f}'
  return f'{value:#.3g}'.rstrip('.')
