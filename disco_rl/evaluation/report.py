"""The report of a sweep: report.md, report.html, summary.json, figures/."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import re
from typing import Any

from disco_rl.evaluation import comparison
from disco_rl.evaluation import document
from disco_rl.evaluation import normalisation
from disco_rl.evaluation import reference_scores
from disco_rl.evaluation import report_figures
from disco_rl.evaluation import statistics
from disco_rl.runtime import metrics

_METHOD = (
  "An agent's score is the mean undiscounted return of its last 100 episodes "
  'at the end of training, as in the column "return" of the last rows of '
  'metrics.csv in the folder of its run ("success" in Sokoban). Brackets hold '
  f'95% percentile bootstrap intervals from {statistics.RESAMPLES:,} resamples '
  'of the agents of each environment (Agarwal et al., 2021). With few agents '
  'they are too narrow: in one environment, of normally distributed scores, '
  'they hold the true mean in 75% of cases with 3 agents, 84% with 5, 90% with '
  '10.'
)
_AGGREGATES = (
  "IQM: mean over the middle half of all agents' scores in all environments. "
  'Median and mean: over environments, of the mean over agents. '
)
_OPTIMALITY_GAP = 'Optimality gap: mean shortfall from 1, so less is better. '
_PUBLISHED = (
  "What is published is the DiscoRL paper's (Oh et al., 2025): agents that may "
  'be larger, and lived for as long as stated. Ours are those of the tables '
  'above. A comparison of unequal numbers of environment steps says little.'
)
_CRAFTER_SCORE = (
  'exp(mean(log(1 + s))) - 1 over the 22 achievements, where s is the '
  'percentage of all episodes of an agent in which one was unlocked (Hafner, '
  '2022); mean over agents. There, random play has 1.6 and human experts 50.5.'
)


@dataclasses.dataclass(frozen=True)
class Setup:
  """What all runs of a report share.

  Attributes:
    agents: of each run.
    updates: of each agent.
    environment_steps: of each agent.
  """

  agents: int
  updates: int
  environment_steps: int


def write(
  results: Sequence[comparison.Result], setup: Setup, workdir: pathlib.Path
) -> None:
  """Writes the report of a sweep into its folder.

  Args:
    results: one of each environment, rule and learning rate.
    setup: what they share.
    workdir: the folder.
  """
  compared = comparison.compare(results)
  (workdir / 'figures').mkdir(exist_ok=True)
  blocks = [
    *_opening(results, setup, compared),
    *(
      block
      for benchmark in compared
      for block in _section(benchmark, workdir / 'figures')
    ),
  ]
  metrics.write_json(workdir / 'summary.json', _summary(compared, setup))
  document.write_markdown(blocks, workdir / 'report.md')
  document.write_html(blocks, workdir / 'report.html')


def _opening(
  results: Sequence[comparison.Result],
  setup: Setup,
  compared: Sequence[comparison.Comparison],
) -> Iterator[document.Block]:
  rules = list(dict.fromkeys(result.rule for result in results))
  environments = {result.environment for result in results}
  yield document.Heading('Evaluation of update rules', 1)
  yield document.Paragraph(
    f'Rules: {", ".join(rules)}. Environments: {len(environments)}. Agents of '
    f'each rule in each environment: {setup.agents}. Updates of each agent: '
    f'{setup.updates:,}, in {setup.environment_steps:,} environment steps.'
  )
  yield document.Paragraph(_METHOD)
  problems = [text for benchmark in compared for text in benchmark.problems]
  if problems:
    yield document.Paragraph(
      'Runs without scores. A rule is not compared at a learning rate at which '
      'one of its runs in the benchmark is among these.'
    )
    yield document.Table(['run'], [[text] for text in problems])


def _section(
  compared: comparison.Comparison, folder: pathlib.Path
) -> Iterator[document.Block]:
  """One benchmark."""
  yield document.Heading(compared.benchmark.title, 2)
  yield document.Paragraph(compared.benchmark.meaning)
  yield document.Paragraph(_choice(compared))
  if compared.best:
    yield from _scores(compared, folder)
  if _num_rates(compared) > 1:
    yield from _learning_rates(compared, folder)
  if compared.best:
    yield from _environments(compared, folder)
    yield from _achievements(compared)
  if _published(compared):
    yield document.Heading('Published figures beside ours', 3)
    yield document.Paragraph(_PUBLISHED)
    yield _published_table(compared)


def _choice(compared: comparison.Comparison) -> str:
  """How learning rates were chosen, and what could not be."""
  missing = [*compared.iqms.keys() - {s.rule for s in compared.best}]
  text = 'All rules have the same learning rate. '
  if _num_rates(compared) > 1:
    text = (
      f'Each rule is shown at the one of {_num_rates(compared)} learning rates '
      'with its highest IQM over this benchmark: the same choice for every '
      'rule. As it is made by the scores that are then shown, it flatters all '
      'of them. '
    )
  if missing:
    text += f'No learning rate has all scores: {", ".join(sorted(missing))}.'
  return text.strip()


def _scores(
  compared: comparison.Comparison, folder: pathlib.Path
) -> Iterator[document.Block]:
  names = report_figures.aggregate_names(compared)
  yield document.Table(
    ['rule', 'learning rate', *(report_figures.TITLES[name] for name in names)],
    [
      [
        scores.rule,
        f'{scores.learning_rate:g}',
        *(_estimate(scores.aggregates[name]) for name in names),
      ]
      for scores in compared.best
    ],
  )
  path = _figure_path(folder, compared, 'aggregates')
  report_figures.aggregates(compared, path)
  caption = _AGGREGATES + (_OPTIMALITY_GAP if compared.is_normalised else '')
  yield document.Figure(path, f'{caption}Bars: 95% intervals.')
  path = _figure_path(folder, compared, 'sample_efficiency')
  report_figures.sample_efficiency(compared, path)
  yield document.Figure(
    path, 'IQM while agents learn, from where all have a score on.'
  )
  if compared.is_normalised:
    path = _figure_path(folder, compared, 'profiles')
    report_figures.profiles(compared, path)
    yield document.Figure(
      path, 'Performance profiles: higher everywhere is better.'
    )
  if compared.improvements:
    yield document.Heading('Probability of improvement', 3)
    yield document.Table(
      ['rule', 'than', 'P(higher score in the same environment)'],
      [
        [i.rule, i.other, _estimate(i.probability)]
        for i in compared.improvements
      ],
    )


def _learning_rates(
  compared: comparison.Comparison, folder: pathlib.Path
) -> Iterator[document.Block]:
  rates = sorted(
    {rate for by_rate in compared.iqms.values() for rate in by_rate}
  )
  yield document.Heading('All learning rates', 3)
  yield document.Table(
    ['IQM of rule', *(f'{rate:g}' for rate in rates)],
    [
      [rule, *(_estimate(by_rate[rate]) for rate in rates)]
      for rule, by_rate in compared.iqms.items()
    ],
  )
  path = _figure_path(folder, compared, 'learning_rates')
  report_figures.learning_rates(compared, path)
  yield document.Figure(path, 'IQM at each learning rate; bars: 95% intervals.')


def _environments(
  compared: comparison.Comparison, folder: pathlib.Path
) -> Iterator[document.Block]:
  yield document.Heading('Every environment', 3)
  header = ['mean', *(scores.rule for scores in compared.best)]
  if compared.is_normalised:
    header += ['that is 0', 'that is 1']
  yield document.Table(
    header,
    [_environment_row(compared, name) for name in compared.environments],
  )
  path = _figure_path(folder, compared, 'environments')
  report_figures.environments(compared, path)
  yield document.Figure(
    path, 'Mean over agents; bands: from the lowest to the highest.'
  )


def _achievements(
  compared: comparison.Comparison,
) -> Iterator[document.Block]:
  """Crafter's score, where episodes unlock achievements."""
  rows = [
    [scores.rule, _mean(summary)]
    for scores in compared.best
    for summary in scores.crafter_scores.values()
  ]
  if rows:
    yield document.Heading('Achievements', 3)
    yield document.Paragraph(_CRAFTER_SCORE)
    yield document.Table(['rule', "Crafter's score, percent"], rows)


def _environment_row(compared: comparison.Comparison, name: str) -> list[str]:
  row = [name]
  for scores in compared.best:
    row.append(_mean(scores.returns[name]))
  scale = normalisation.find_scale(name)
  return (
    row if scale is None else [*row, _number(scale.low), _number(scale.high)]
  )


def _published(
  compared: comparison.Comparison,
) -> list[reference_scores.Published]:
  subjects = (compared.benchmark.name, *compared.environments)
  return [p for p in reference_scores.PAPER if p.subject in subjects]


def _published_table(compared: comparison.Comparison) -> document.Table:
  """Theirs, and ours of the same at the end of training."""
  return document.Table(
    [
      'of',
      'method',
      'published',
      'environment steps',
      *(f'{scores.rule}, ours' for scores in compared.best),
    ],
    [
      [
        p.subject,
        p.method,
        f'{p.value:,.6g}',
        f'{p.environment_steps:,.0f}' if p.environment_steps else 'not stated',
        *(_number(_ours(scores, p)) for scores in compared.best),
      ]
      for p in _published(compared)
    ],
  )


def _ours(
  scores: comparison.RuleScores, published: reference_scores.Published
) -> float:
  """Our mean return in the environment, or our IQM over the benchmark."""
  if published.subject in scores.returns:
    return scores.returns[published.subject]['mean']
  return scores.aggregates['iqm'].value


def _summary(
  compared: Sequence[comparison.Comparison], setup: Setup
) -> dict[str, Any]:
  """The report's numbers, for programs."""
  return {
    **dataclasses.asdict(setup),
    'benchmarks': {
      benchmark.benchmark.name: _benchmark_summary(benchmark)
      for benchmark in compared
    },
  }


def _benchmark_summary(compared: comparison.Comparison) -> dict[str, Any]:
  names = report_figures.aggregate_names(compared)
  return {
    'is_normalised': compared.is_normalised,
    'environments': list(compared.environments),
    'rules': {
      scores.rule: {
        'learning_rate': scores.learning_rate,
        **{name: _as_json(scores.aggregates[name]) for name in names},
        'returns': scores.returns,
        **(
          {'crafter_scores': scores.crafter_scores}
          if scores.crafter_scores
          else {}
        ),
      }
      for scores in compared.best
    },
    'iqm_by_learning_rate': {
      rule: {f'{rate:g}': _as_json(e) for rate, e in by_rate.items()}
      for rule, by_rate in compared.iqms.items()
    },
    'probability_of_improvement': [
      {'rule': i.rule, 'than': i.other, **(_as_json(i.probability) or {})}
      for i in compared.improvements
    ],
    'problems': list(compared.problems),
    'published': [dataclasses.asdict(p) for p in _published(compared)],
  }


def _as_json(estimate: statistics.Estimate | None) -> dict[str, Any] | None:
  if estimate is None:
    return None
  has_interval = estimate.low is not None
  ci95 = [float(estimate.low), float(estimate.high)] if has_interval else None
  return {'value': float(estimate.value), 'ci95': ci95}


def _mean(summary: Mapping[str, Any]) -> str:
  """Of `scores.summarise`, with its interval."""
  low, high = summary['ci95'] or (None, None)
  return _estimate(statistics.Estimate(summary['mean'], low, high))


def _num_rates(compared: comparison.Comparison) -> int:
  return len({rate for by_rate in compared.iqms.values() for rate in by_rate})


def _figure_path(
  folder: pathlib.Path, compared: comparison.Comparison, figure: str
) -> pathlib.Path:
  name = re.sub('[^A-Za-z0-9_.]+', '-', compared.benchmark.name)
  return folder / f'{name}_{figure}.png'


def _estimate(estimate: statistics.Estimate | None) -> str:
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
