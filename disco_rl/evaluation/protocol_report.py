"""Reports on a protocol: a page, with its numbers as JSON and CSV."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import pathlib
import types

import numpy as np

from disco_rl.environments import scores as scores_lib
from disco_rl.evaluation import comparison
from disco_rl.evaluation import contenders as contenders_lib
from disco_rl.evaluation import normalization
from disco_rl.evaluation import pages
from disco_rl.evaluation import planned_runs
from disco_rl.evaluation import protocol as protocol_lib
from disco_rl.evaluation import report
from disco_rl.maths import statistics
from disco_rl.runtime import escaping
from disco_rl.runtime import metrics

_MEANING = (
  '0 is random play. 1 is the best possible return in grid worlds, in random '
  'chains and on Catch (in grid worlds where objects begin in random places, '
  'the return of a reference policy); elsewhere it is the mean return of the '
  "tuned actor-critic after the longest training. Random play's return is "
  'known in grid worlds and random chains, and that of the contender "uniform" '
  'elsewhere.'
)
_COLUMNS = (
  *('task', 'rule', 'updates', 'environment_steps'),
  *('agent', 'return', 'score'),
)
_OF_VALIDATION = ('task', 'rule', 'settings', 'agent', 'return')
_TESTS = scores_lib.Benchmark('tests', 'All tests', _MEANING)


def setup(
  agents: int,
  validations: Sequence[Sequence[str]],
  test_tasks: Sequence[str],
  declared: int,
) -> report.Setup:
  """Describes the runs; all contenders have finished in these tests."""
  named = '; '.join(', '.join(tasks) for tasks in validations)
  return report.Setup(
    f'Tests in which all contenders have finished: {len(test_tasks)} of '
    f'{declared}. Agents of each rule in each test: {agents}. Settings were '
    f'chosen on validation tasks alone ({named}), for each rule.',
    "An agent's score is the mean undiscounted return of its last 100 "
    'episodes after a number of updates; the smaller numbers are read from the '
    'same runs. Updates are counted for agents that make one per rollout; '
    'others make more from the same rollouts.',
    {
      'agents': agents,
      'validations': validations,
      'test_tasks': test_tasks,
      'declared': declared,
    },
  )


def write(
  plan: protocol_lib.Plan, choices: Sequence[protocol_lib.Choice]
) -> None:
  """Writes the report on the tests in which all contenders have finished.

  Args:
    plan: The runs.
    choices: The choice of each contender, for each set of validation tasks.

  Raises:
    ValueError: No test has finished for all contenders.
  """
  protocol = plan.protocol
  runs = {task: plan.tests(choices, [task]) for task in protocol.test_tasks}
  over = {
    task: own
    for task, own in runs.items()
    if own and all(run.is_over for run in own)
  }
  if not over:
    raise ValueError('No test has finished with all contenders.')
  results = {
    task: {
      updates: [
        planned_runs.read(run, run.config.agent.updates(updates)) for run in own
      ]
      for updates in protocol.scored_after(task)
    }
    for task, own in over.items()
  }
  about = setup(
    next(iter(over.values()))[0].config.seeds,
    tuple(dict.fromkeys(map(protocol.validated_by, over))),
    tuple(over),
    len(protocol.test_tasks),
  )
  entries = {task: protocol.entry(task) for task in over}
  write_results(
    results, choices, about, entries, plan.workdir, protocol.recipes
  )


# Task -> number of updates at scoring -> the results of all contenders.
Results = Mapping[str, Mapping[int, Sequence[comparison.Result]]]
_ALL = 'all'
# A table with a heading and an explanation, and entries of summary.json.
_Note = tuple[list[pages.Block], list[dict[str, object]]]


def write_results(
  results: Results,
  choices: Sequence[protocol_lib.Choice],
  about: report.Setup,
  entries: Mapping[str, str | None],
  workdir: pathlib.Path,
  recipes: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> None:
  """Writes the report on given results.

  Args:
    results: The results of the tests.
    choices: The choice of each contender, for each set of validation tasks.
    about: The description of the runs.
    entries: Test -> `Protocol.entry`; tests of one entry are compared together.
    workdir: The folder of the report.
    recipes: Recipe -> the contenders that it discovered.
  """
  found = {task: _scale(task, of_task) for task, of_task in results.items()}
  scales = {task: scale for task, scale in found.items() if scale is not None}
  notes = {
    'chosen': _choices(choices),
    'iqm_by_family': _families(results, scales),
    'worse_than_random': _worse_than_random(results),
  }
  report.write(
    list(_comparisons(results, scales, entries, recipes)),
    about,
    workdir,
    notes=[block for blocks, _ in notes.values() for block in blocks],
    details={name: rows for name, (_, rows) in notes.items()},
  )
  for name, columns, rows in (
    ('scores.csv', _COLUMNS, _rows(results, scales)),
    ('validation.csv', _OF_VALIDATION, _rows_of_validation(choices)),
  ):
    metrics.write_rows(
      workdir / name,
      ([escaping.cell(x) for x in row] for row in (columns, *rows)),
    )


def _scale(
  task: str, of_task: Mapping[int, Sequence[comparison.Result]]
) -> scores_lib.Scale | None:
  """Finds the scale of a task; None if random play is not worse."""
  known = normalization.find_scale(task)
  if known and known.benchmark.is_low_random and known.benchmark.is_high_best:
    return known
  means = {
    result.rule: float(np.mean(result.returns))
    for result in of_task[max(of_task)]
    if result.problem is None
  }
  low = means.get(contenders_lib.UNIFORM, np.nan)
  if known and known.benchmark.is_high_best:
    high = known.high
  else:
    high = means.get(contenders_lib.REFERENCE, np.nan)
  return scores_lib.Scale(_TESTS, low, high) if high > low else None


def _comparisons(
  results: Results,
  scales: comparison.Scales,
  entries: Mapping[str, str | None],
  recipes: Mapping[str, Sequence[str]],
) -> Iterator[comparison.Comparison]:
  """Compares rules for each number of updates and entry of `by_family`.

  A comparison needs one learning rate for each rule, and curves with points at
  the same environment steps. Tests without a scale are compared separately.
  """
  groups: dict[str | None, list[str]] = {}
  for task in results:
    groups.setdefault(entries[task], []).append(task)
  for entry, tasks in groups.items():
    names = dict.fromkeys(entry or protocol_lib.family(x) for x in tasks)
    budgets = tuple(results[tasks[0]])
    for updates in budgets:
      benchmark = scores_lib.Benchmark(
        f'{"_".join(names)}_after_{updates}',
        f'After {updates:,} updates ({_steps(results, tasks, updates)} '
        f'environment steps): {", ".join(names)}',
        _MEANING,
      )
      shown = [
        result
        for task in tasks
        if task in scales or updates == budgets[-1]
        for result in results[task][updates]
      ]
      own = {
        task: dataclasses.replace(scales[task], benchmark=benchmark)
        for task in tasks
        if task in scales
      }
      yield from comparison.compare(shown, own, recipes)


def _steps(results: Results, tasks: Iterable[str], updates: int) -> str:
  """Returns the environment steps of an agent after as many updates."""
  steps = {
    int(result.curve[0][-1])
    for task in tasks
    for result in results[task].get(updates, ())
    if result.problem is None
  }
  if not steps:
    return 'unknown'
  return ' to '.join(f'{x:,}' for x in sorted({min(steps), max(steps)}))


def _choices(choices: Sequence[protocol_lib.Choice]) -> _Note:
  """Lists the chosen settings."""
  rows = [
    [
      choice.contender.name,
      ', '.join(choice.validation_tasks),
      contenders_lib.show(point),
      report.format_estimate(iqm),
      _chosen(choice) if point == choice.point else '',
    ]
    for choice in choices
    for point, iqm in zip(choice.contender.points, choice.iqms)
  ]
  blocks: list[pages.Block] = [
    pages.Heading('The choice of settings'),
    pages.Paragraph(
      'IQM of each setting over the validation tasks; of raw returns for a '
      'single task whose best return is unknown. The setting with the highest '
      'IQM was kept for the tests, none of which was looked at. "At the edge": '
      'a value beyond the lowest or highest that was tried might be better.'
    ),
    pages.Table([['rule', 'validation', 'settings', 'IQM', ''], *rows]),
  ]
  return blocks, [
    {
      'rule': choice.contender.name,
      'validation_tasks': choice.validation_tasks,
      'settings': dict(choice.point),
      'edges': choice.edges,
    }
    for choice in choices
  ]


def _chosen(choice: protocol_lib.Choice) -> str:
  """Says in which settings a choice lies at the edge of its grid."""
  if not choice.edges:
    return 'chosen'
  return f'chosen, at the edge in {", ".join(choice.edges)}'


def _families(results: Results, scales: comparison.Scales) -> _Note:
  """Tabulates IQMs of the scores, by family and over all tests."""
  groups: dict[tuple[int, str], dict[str, list[comparison.Result]]] = {}
  tasks: dict[tuple[int, str], list[str]] = {}
  for task in scales:
    names = (protocol_lib.family(task), _ALL)
    for updates, name in itertools.product(results[task], names):
      tasks.setdefault((updates, name), []).append(task)
      by_rule = groups.setdefault((updates, name), {})
      for result in results[task][updates]:
        by_rule.setdefault(result.rule, []).append(result)
  iqms = {
    key: {
      rule: iqm
      for rule, own in by_rule.items()
      if (iqm := comparison.iqm(own, scales)) is not None
    }
    for key, by_rule in sorted(groups.items())
  }
  rules = list(dict.fromkeys(rule for x in iqms.values() for rule in x))
  rows = [
    [
      f'{updates:,}',
      _steps(results, tasks[updates, name], updates),
      name,
      *(report.format_estimate(x.get(rule)) for rule in rules),
    ]
    for (updates, name), x in iqms.items()
  ]
  blocks: list[pages.Block] = [
    pages.Heading('Families of tests'),
    pages.Paragraph(
      'IQM over the tests of each family, with its suites, and over all tests '
      'scored after as many updates; a rule with a failed run has none. Tests '
      'without a scale are left out.'
    ),
    pages.Table([['updates', 'environment steps', 'IQM', *rules], *rows]),
  ]
  return blocks, [
    {
      'updates': updates,
      'environment_steps': _steps(results, tasks[updates, name], updates),
      'family': name,
      'iqm': {rule: report.as_json(iqm) for rule, iqm in x.items()},
    }
    for (updates, name), x in iqms.items()
  ]


def _worse_than_random(results: Results) -> _Note:
  """Lists the tests in which a mean return is below that of random play."""
  rows, details = [], []
  for task, of_task in results.items():
    for updates, contenders in of_task.items():
      known = {r.rule: r.returns for r in contenders if r.problem is None}
      random = known.pop(contenders_lib.UNIFORM, None)
      for rule, returns in known.items():
        if random is None or np.mean(returns) >= np.mean(random):
          continue
        found = statistics.estimate(
          lambda x, y: statistics.mean(x) - statistics.mean(y),
          *(returns[:, None], random[:, None]),
        )
        is_sure = 'yes' if found.high is not None and found.high < 0 else ''
        text = report.format_estimate(found)
        rows.append([task, rule, f'{updates:,}', text, is_sure])
        what = {'task': task, 'rule': rule, 'updates': updates}
        details.append({**what, **report.as_json(found)})
  blocks: list[pages.Block] = [
    pages.Heading('Worse than random play'),
    pages.Paragraph(
      'Tests in which the mean return of a rule is below that of random play, '
      'with the interval of the difference.'
      if rows
      else 'No rule is worse than random play in any test.'
    ),
  ]
  header = ['test', 'rule', 'updates', 'difference', 'interval below 0']
  if rows:
    blocks.append(pages.Table([header, *rows]))
  return blocks, details


def _rows(
  results: Results, scales: comparison.Scales
) -> Iterator[tuple[object, ...]]:
  """Yields a row for each agent and number of updates in the tests."""
  for task, of_task in results.items():
    scale = scales.get(task)
    for updates, contenders in of_task.items():
      for result in contenders:
        returns = result.returns if result.problem is None else ()
        for agent, value in enumerate(returns):
          score = np.nan if scale is None else scale.normalize(value)
          steps = int(result.curve[0][-1])
          yield task, result.rule, updates, steps, agent, value, score


def _rows_of_validation(
  choices: Iterable[protocol_lib.Choice],
) -> Iterator[tuple[object, ...]]:
  """Yields a row for each agent that settings were chosen by."""
  for choice in choices:
    for point, results in zip(choice.contender.points, choice.results):
      for result in results:
        returns = result.returns if result.problem is None else ()
        for agent, value in enumerate(returns):
          settings = contenders_lib.show(point)
          yield result.environment, result.rule, settings, agent, value
