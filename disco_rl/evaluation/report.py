"""Reports on the runs of disco-rl sweep and protocol: Markdown, HTML, JSON."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import pathlib

from matplotlib import figure
import numpy as np

from disco_rl.evaluation import comparison
from disco_rl.evaluation import pages
from disco_rl.evaluation import planned_runs
from disco_rl.evaluation import reference_scores
from disco_rl.evaluation import report_figures
from disco_rl.maths import statistics
from disco_rl.runtime import json_files
from disco_rl.runtime import plotting
from disco_rl.runtime import reports
from disco_rl.training import config as training_config

# The header, then the rows.
_Table = list[list[str]]
_TITLE = 'Evaluation of update rules'
_INTERVALS = (
  ' Brackets contain 95% percentile bootstrap intervals from '
  f'{statistics.RESAMPLES:,} resamples of the {{unit}} of each environment '
  '(Agarwal et al., 2021): they speak of these environments. With few {unit} '
  'they are too narrow: for normally distributed scores in one environment, '
  'they contain the true mean in 75% of cases with 3 {unit}, 84% with 5, 90% '
  'with 10. Where "levels resampled" is said, the environments are resampled, '
  'too, the same for all rules: these speak of all levels of which the '
  'environments are a sample, if they are one.'
)
_RECIPES = (
  "Mean over the discoveries of a recipe, with 95% intervals of Student's t "
  'over discoveries: these speak of the recipe, in these environments. '
  'Differences are means over environments.'
)
_CRAFTER = (
  'exp(mean(log(1 + s))) - 1 over the 22 achievements, where s is the '
  "percentage of an agent's episodes in which it was unlocked (Hafner, 2022); "
  'mean over agents. For comparison, random play scores 1.6 and human experts '
  '50.5.'
)
_PUBLISHED = (
  'Published results are from the DiscoRL paper (Oh et al., 2025), whose '
  'agents may be larger. Ours are means over agents, or the IQM of a '
  'benchmark, at the same number of environment steps; if another number is '
  'stated, the comparison says little.'
)


@dataclasses.dataclass(frozen=True)
class Setup:
  """The description of the runs of a report.

  Attributes:
    extent: A sentence about the size of the runs.
    score: A definition of the score.
    facts: The settings that the runs share, for summary.json.
    unit: What the scores of a rule in an environment are of, as a plural.
  """

  extent: str
  score: str
  facts: Mapping[str, object]
  unit: str = 'agents'


def of_training(configs: Sequence[training_config.TrainingConfig]) -> Setup:
  """Describes training runs, by the longest if their lengths differ."""
  sizes = [(x.seeds, x.updates, x.environment_steps) for x in configs]
  agents, updates, steps = map(max, zip(*sizes))
  repeats = any(x.action_repeat > 1 for x in configs)
  unit = (
    ' Where an action is repeated, each time is a step; in Atari and DMLab '
    'steps are frames.'
  )
  return Setup(
    f'Agents of each rule in each environment: {agents}. Updates of each '
    f'agent: {updates:,}, in {steps:,} environment steps.'
    f'{unit if repeats else ""}',
    "An agent's score is the mean undiscounted return of its last 100 episodes "
    'at the end of training: the column "return" ("success" in Sokoban) of the '
    'last rows of metrics.csv in the folder of its run.',
    {'agents': agents, 'updates': updates, 'environment_steps': steps},
  )


def write(
  compared: Sequence[comparison.Comparison],
  setup: Setup,
  workdir: pathlib.Path,
  notes: Sequence[pages.Block] = (),
  details: Mapping[str, object] | None = None,
) -> None:
  """Writes the report of several runs into their folder.

  Args:
    compared: The comparisons of their results, one for each section.
    setup: The description of the runs.
    workdir: The folder.
    notes: Tables shown before the sections of the benchmarks.
    details: Additional entries of summary.json.
  """
  (workdir / 'figures').mkdir(exist_ok=True)
  benchmarks = {c.benchmark.name: _benchmark_summary(c) for c in compared}
  json_files.write(
    workdir / 'summary.json',
    {**setup.facts, 'benchmarks': benchmarks, **(details or {})},
  )
  blocks = [*_beginning(compared, setup), *notes]
  for one in compared:
    blocks += _section(one, setup.unit, workdir)
  pages.write_markdown(workdir / 'report.md', blocks)
  pages.write_html(workdir / 'report.html', _TITLE, blocks)


def _beginning(
  compared: Sequence[comparison.Comparison], setup: Setup
) -> Iterator[pages.Block]:
  rules = dict.fromkeys(rule for c in compared for rule in c.iqms)
  number = len({name for c in compared for name in c.environments})
  yield pages.Heading(_TITLE, level=1)
  yield pages.Paragraph(
    f'Rules: {", ".join(rules)}. Environments: {number}. {setup.extent}'
  )
  yield pages.Paragraph(setup.score + _INTERVALS.format(unit=setup.unit))
  # A run may be compared several times, after different numbers of updates.
  problems = dict.fromkeys(text for c in compared for text in c.problems)
  if problems:
    yield pages.Paragraph(
      'Runs without scores. A rule is not compared at a learning rate at which '
      'one of its runs in the benchmark is in this list.'
    )
    yield pages.Table([['run'], *([text] for text in problems)])


def _section(
  compared: comparison.Comparison, unit: str, workdir: pathlib.Path
) -> Iterator[pages.Block]:
  """Yields the section of one benchmark; its scores are of `unit`."""
  draw = functools.partial(_figure, compared, workdir)
  yield pages.Heading(compared.benchmark.title)
  yield pages.Paragraph(compared.benchmark.meaning)
  yield pages.Paragraph(_about_rates(compared))
  if compared.best:
    yield pages.Table(_scores_table(compared, unit))
    gap = 'Optimality gap: mean shortfall from 1; lower is better. '
    yield draw(
      report_figures.aggregates,
      f'IQM: mean of the middle half of the scores of all {unit} in all '
      'environments. Median and mean: over environments, of the mean over '
      f'agents. {gap if compared.is_normalized else ""}'
      'Bars: 95% intervals, '
      f'{unit} resampled. Dots: single {unit}, over all environments.',
    )
    yield draw(
      report_figures.sample_efficiency,
      'IQM during training, beginning where all agents have a score.',
    )
    if compared.is_normalized:
      yield draw(
        report_figures.profiles,
        'Performance profiles: higher everywhere is better.',
      )
    if compared.improvements:
      yield pages.Heading('Rule against rule', level=3)
      yield pages.Table(_improvements_table(compared))
    if compared.recipes:
      yield pages.Heading('Recipes', level=3)
      yield pages.Paragraph(_RECIPES)
      yield pages.Table(_recipes_table(compared))
  if max(map(len, compared.iqms.values())) > 1:
    yield pages.Heading('All learning rates', level=3)
    yield pages.Table(_rates_table(compared))
    yield draw(
      report_figures.learning_rates,
      'IQM at each learning rate; bars: 95% intervals.',
    )
  if compared.best:
    yield pages.Heading('Every environment', level=3)
    yield pages.Table(_environments_table(compared))
    yield draw(
      report_figures.environments,
      'Mean over agents; bands: from the lowest to the highest.',
    )
  yield from _references(compared)


def _references(compared: comparison.Comparison) -> Iterator[pages.Block]:
  """Yields scores of achievements, and published results."""
  achieved = [
    [scores.rule, _mean(summary)]
    for scores in compared.best
    for summary in scores.crafter_scores.values()
  ]
  if achieved:
    yield pages.Heading('Achievements', level=3)
    yield pages.Paragraph(_CRAFTER)
    yield pages.Table([['rule', "Crafter's score, percent"], *achieved])
  if published := _published(compared):
    yield pages.Heading('Published results next to ours', level=3)
    yield pages.Paragraph(_PUBLISHED)
    families = dict.fromkeys(p.subject.partition('/')[0] for p in published)
    for name in families:
      if text := reference_scores.DIFFERENCES.get(name):
        yield pages.Paragraph(text)
    yield pages.Table(_published_table(compared))


def _about_rates(compared: comparison.Comparison) -> str:
  """Describes which learning rates are shown."""
  rates = set().union(*compared.iqms.values())
  most = max(map(len, compared.iqms.values()))
  if most > 1:
    text = (
      f'Each rule is shown at the one of {most} learning rates with its '
      'highest IQM over this benchmark. As the choice depends on the scores '
      'that are shown, it is optimistic, in the same way for every rule.'
    )
  elif len(rates) == 1:
    text = 'All rules have the same learning rate.'
  else:
    text = 'Each rule has the one learning rate at which it was run.'
  shown = {scores.rule for scores in compared.best}
  if missing := sorted(compared.iqms.keys() - shown):
    text += f' No learning rate has all scores: {", ".join(missing)}.'
  return text


def _figure(
  compared: comparison.Comparison,
  workdir: pathlib.Path,
  draw: Callable[[comparison.Comparison], figure.Figure],
  caption: str,
) -> pages.Figure:
  """Draws a figure and writes it to a file, named after the function."""
  benchmark = planned_runs.slug(compared.benchmark.name)
  path = workdir / 'figures' / f'{benchmark}_{draw.__name__}.png'
  path.unlink(missing_ok=True)
  with reports.surviving(f'figures/{path.name}'):
    plotting.save(draw(compared), path)
  return pages.Figure(path, caption)


def _scores_table(compared: comparison.Comparison, unit: str) -> _Table:
  names = report_figures.aggregate_names(compared)
  titles = (report_figures.TITLES[name] for name in names)
  has_levels = len(compared.environments) > 1
  is_recipe = unit == 'discoveries'
  more = ['IQM, levels resampled'] * has_levels
  more += ['mean of the IQMs of discoveries, t interval'] * is_recipe
  return [
    ['rule', 'learning rate', *titles, *more],
    *(
      [
        scores.rule,
        f'{scores.learning_rate:g}',
        *(format_estimate(scores.aggregates[name]) for name in names),
        *([format_estimate(scores.iqm_over_levels)] * has_levels),
        *([format_estimate(_across_rows(scores))] * is_recipe),
      ]
      for scores in compared.best
    ),
  ]


def _across_rows(scores: comparison.RuleScores) -> statistics.Estimate:
  """Returns the mean over discoveries, which are the rows of the scores."""
  iqms = statistics.iqm(scores.scores[:, None])
  return statistics.across_discoveries(iqms)


def _improvements_table(compared: comparison.Comparison) -> _Table:
  number = len(compared.environments)
  header = ['rule', 'than', 'P(higher) + P(equal) / 2, in the same environment']
  header += ['difference of means, levels resampled', 'better in']
  return [
    header,
    *(
      [
        *(i.rule, i.other),
        *map(format_estimate, (i.probability, i.difference)),
        f'{i.better_levels} of {number}',
      ]
      for i in compared.improvements
    ),
  ]


def _recipes_table(compared: comparison.Comparison) -> _Table:
  """Lists the recipes, and their differences to other rules."""
  rows = []
  for recipe in compared.recipes:
    each = ', '.join(map(_number, recipe.iqms))
    number = str(len(recipe.rules))
    rows.append([recipe.name, number, 'IQM', format_estimate(recipe.iqm), each])
    rows += [
      [recipe.name, number, f'minus {other}', format_estimate(difference), '']
      for other, difference in recipe.differences.items()
    ]
  return [['recipe', 'discoveries', 'of', 'mean', 'each'], *rows]


def _rates_table(compared: comparison.Comparison) -> _Table:
  rates = sorted(set().union(*compared.iqms.values()))
  return [
    ['IQM of rule', *(f'{rate:g}' for rate in rates)],
    *(
      [
        rule,
        *(format_estimate(by_rate[r]) if r in by_rate else '' for r in rates),
      ]
      for rule, by_rate in compared.iqms.items()
    ),
  ]


def _environments_table(compared: comparison.Comparison) -> _Table:
  header = ['mean', *(scores.rule for scores in compared.best)]
  if compared.is_normalized:
    metric = report_figures.metric(compared)
    header += [f'{metric} scored 0', f'{metric} scored 1']
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


def _published(
  compared: comparison.Comparison,
) -> list[reference_scores.Published]:
  subjects = (compared.benchmark.name, *compared.environments)
  return [p for p in reference_scores.PAPER if p.subject in subjects]


def _published_table(compared: comparison.Comparison) -> _Table:
  """Returns published results, with our mean return or IQM over a benchmark.

  Ours are read from the learning curves at the published numbers of steps, or
  at the end of shorter training.
  """
  ours = [f'{scores.rule}, ours' for scores in compared.best]
  table = [['result', 'method', 'published', 'environment steps', *ours]]
  for p in _published(compared):
    steps = p.environment_steps
    row = [p.subject, p.method, f'{p.value:,.6g}']
    row.append(f'{steps:,.0f}' if steps else 'not stated')
    row += [_ours(scores, p) for scores in compared.best]
    table.append(row)
  return table


def _ours(
  scores: comparison.RuleScores, published: reference_scores.Published
) -> str:
  """Returns our score at the number of steps of a published one."""
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


def _benchmark_summary(compared: comparison.Comparison) -> dict[str, object]:
  rules: dict[str, dict[str, object]] = {}
  for scores in compared.best:
    rules[scores.rule] = {
      'learning_rate': scores.learning_rate,
      **{
        name: as_json(scores.aggregates[name])
        for name in report_figures.aggregate_names(compared)
      },
      'iqm_over_levels': as_json(scores.iqm_over_levels),
      'returns': scores.returns,
    }
    if scores.crafter_scores:
      rules[scores.rule]['crafter_scores'] = scores.crafter_scores
    if scores.mean_returns:
      rules[scores.rule]['mean_returns'] = scores.mean_returns
  return {
    'is_normalized': compared.is_normalized,
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
    'difference_over_levels': [
      {
        'rule': i.rule,
        'than': i.other,
        'better_in': i.better_levels,
        **as_json(i.difference),
      }
      for i in compared.improvements
    ],
    'recipes': {
      recipe.name: {
        'rules': list(recipe.rules),
        'iqms': recipe.iqms.tolist(),
        'iqm': as_json(recipe.iqm),
        'differences': {k: as_json(x) for k, x in recipe.differences.items()},
      }
      for recipe in compared.recipes
    },
    'problems': list(compared.problems),
    'published': [dataclasses.asdict(p) for p in _published(compared)],
  }


def as_json(estimate: statistics.Estimate) -> dict[str, object]:
  """Converts an estimate with its interval to JSON."""
  return {'value': float(estimate.value), 'ci95': estimate.ci95}


def _mean(summary: statistics.Summary) -> str:
  """Formats the mean of a summary with its interval."""
  return _format(summary['mean'], summary['ci95'])


def format_estimate(estimate: statistics.Estimate | None) -> str:
  """Formats an estimate with its interval."""
  if estimate is None:
    return 'no scores'
  return _format(float(estimate.value), estimate.ci95)


def _format(value: float, ci95: Sequence[float] | None) -> str:
  if ci95 is None:
    return _number(value)
  return f'{_number(value)} [{", ".join(map(_number, ci95))}]'


def _number(value: float) -> str:
  if abs(value) >= 999.5:
    return f'{value:,.0f}'
  return f'{value:#.3g}'.rstrip('.')
