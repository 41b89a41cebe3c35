"""The report of a protocol: a page, and its numbers as JSON and CSV."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import dataclasses
import functools
import itertools
import pathlib
from typing import Any

import numpy as np

from disco_rl.evaluation import comparison
from disco_rl.evaluation import normalisation
from disco_rl.evaluation import pages
from disco_rl.evaluation import protocol as protocol_lib
from disco_rl.evaluation import report
from disco_rl.evaluation import runs as runs_lib
from disco_rl.evaluation import statistics
from disco_rl.runtime import files

# Families whose scale is that of `normalisation`: from random play, which is
# exact there, to the best possible return.
_EXACT = ('gridworld', 'random_grid', 'random_chain', 'lpg')
_BEST_CATCH = 1.0
_MEANING = (
  '0 is random play. 1 is the best possible return in grid worlds and on Catch '
  '(in grid worlds where objects begin in random places, the return of a '
  'reference policy); elsewhere it is the mean return of the tuned '
  "actor-critic after the longest training. Random play's return is exact in "
  'grid worlds, and that of the contender "uniform" elsewhere.'
)
_TESTS = normalisation.Benchmark('tests', 'All tests', _MEANING)


def setup(
  agents: int,
  validations: Sequence[Sequence[str]],
  test_tasks: Sequence[str],
  declared: int,
) -> report.Setup:
  """Returns what the report says of the runs.

  Args:
    agents: The number of agents of each run.
    validations: The sets of tasks by which settings were chosen.
    test_tasks: The tests in which all contenders have finished.
    declared: The number of the tests that the protocol declares.
  """
  named = '; '.join(', '.join(tasks) for tasks in validations)
  return report.Setup(
    f'Tests in which all contenders have finished: {len(test_tasks)} of '
    f'{declared}. Agents of each rule in each test: {agents}. Settings were '
    f'chosen by validation tasks alone ({named}), for each rule.',
    "An agent's score is the mean undiscounted return of its last 100 "
    'episodes after a number of updates; the smaller numbers are read off the '
    'same runs.',
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
    plan: of the runs.
    choices: of each contender, for each set of validation tasks.

  Raises:
    ValueError: there is no such test.
  """
  protocol = plan.protocol
  jobs: dict[str, list[runs_lib.Run]] = {}
  for task in protocol.test_tasks:
    of_task = plan.tests(choices, [task])
    if of_task and all(job.is_over for job in of_task):
      jobs[task] = of_task
  if not jobs:
    raise ValueError('No test has finished with all contenders.')
  agents = next(iter(jobs.values()))[0].config.seeds
  results = {
    task: {
      updates: [runs_lib.read(job, updates) for job in of_task]
      for updates in protocol.scored_after(task)
    }
    for task, of_task in jobs.items()
  }
  write_results(
    results,
    choices,
    setup(
      agents,
      tuple(dict.fromkeys(map(protocol.validated_by, jobs))),
      tuple(jobs),
      len(protocol.test_tasks),
    ),
    {task: protocol.entry(task) for task in jobs},
    plan.workdir,
  )


# Task -> where its returns are scored 0 and 1; None if random play is no worse.
Scales = Mapping[str, normalisation.Scale | None]
# Task -> updates after which agents are scored -> a result of each contender.
Results = Mapping[str, Mapping[int, Sequence[comparison.Result]]]
# Updates, and a family or _ALL -> contender -> IQM of its scores.
_ByFamily = Mapping[tuple[int, str], Mapping[str, statistics.Estimate]]
_ALL = 'all'


def write_results(
  results: Results,
  choices: Sequence[protocol_lib.Choice],
  about: report.Setup,
  entries: Mapping[str, str | None],
  workdir: pathlib.Path,
) -> None:
  """As `write`, of results that have been read.

  Args:
    results: of the tests.
    choices: of each contender, for each set of validation tasks.
    about: What the report says of the runs.
    entries: test -> `Protocol.entry`; tests of one are compared together.
    workdir: for the report.
  """
  scales = {task: _scale(task, of_task) for task, of_task in results.items()}
  worse = list(_worse_than_random(results))
  by_family = _iqm_by_family(results, scales)
  report.write_comparisons(
    list(_comparisons(results, scales, entries)),
    about,
    workdir,
    notes=(*_choices(choices), *_families(by_family), *_worse(worse)),
    details={
      'chosen': [
        {
          'rule': c.contender.name,
          'validation_tasks': c.validation_tasks,
          'settings': dict(c.point),
        }
        for c in choices
      ],
      'iqm_by_family': [
        {
          'updates': updates,
          'family': family,
          'iqm': {rule: report.as_json(iqm) for rule, iqm in iqms.items()},
        }
        for (updates, family), iqms in by_family.items()
      ],
      'worse_than_random': [
        {
          'task': w.task,
          'rule': w.rule,
          'updates': w.updates,
          **report.as_json(w.difference),
        }
        for w in worse
      ],
    },
  )
  _write_csv(workdir / 'scores.csv', results, scales)


def _scale(
  task: str, of_task: Mapping[int, Sequence[comparison.Result]]
) -> normalisation.Scale | None:
  """See `Scales`; comparisons have benchmarks of their own."""
  if protocol_lib.family(task) in _EXACT:
    scale = normalisation.find_scale(task)
    if scale is not None:
      return scale
  means = {
    result.rule: float(np.mean(result.returns))
    for result in of_task[max(of_task)]
    if result.problem is None
  }
  low = means.get(protocol_lib.UNIFORM, np.nan)
  is_catch = protocol_lib.family(task) == 'catch'
  high = _BEST_CATCH if is_catch else means.get(protocol_lib.REFERENCE, np.nan)
  return normalisation.Scale(_TESTS, low, high) if high > low else None


def _comparisons(
  results: Results, scales: Scales, entries: Mapping[str, str | None]
) -> Iterator[comparison.Comparison]:
  """One for each number of updates and entry of `by_family`.

  A comparison takes one learning rate of each rule, and curves with points at
  the same environment steps. Tests without a scale are on their own.
  """
  groups: dict[str | None, list[str]] = {}
  for task in results:
    groups.setdefault(entries[task], []).append(task)
  for entry, tasks in groups.items():
    names = dict.fromkeys(entry or protocol_lib.family(x) for x in tasks)
    budgets = tuple(results[tasks[0]])
    for updates in budgets:
      benchmark = normalisation.Benchmark(
        f'{"_".join(names)}_after_{updates}',
        f'After {updates:,} updates: {", ".join(names)}',
        _MEANING,
      )
      shown = [
        result
        for task in tasks
        if scales[task] is not None or updates == budgets[-1]
        for result in results[task][updates]
      ]
      find = functools.partial(_find_scale, benchmark, scales)
      yield from comparison.compare(shown, find)


def _find_scale(
  benchmark: normalisation.Benchmark,
  scales: Scales,
  task: str,
) -> normalisation.Scale | None:
  scale = scales[task]
  return scale and dataclasses.replace(scale, benchmark=benchmark)


@dataclasses.dataclass(frozen=True)
class Worse:
  """A test in which a rule's mean return is below that of random play.

  Attributes:
    task: name.
    rule: name.
    updates: after which agents were scored.
    difference: mean return of the rule less that of random play.
  """

  task: str
  rule: str
  updates: int
  difference: statistics.Estimate


def _worse_than_random(results: Results) -> Iterator[Worse]:
  for task, of_task in results.items():
    for updates, contenders in of_task.items():
      known = {r.rule: r.returns for r in contenders if r.problem is None}
      random = known.pop(protocol_lib.UNIFORM, None)
      for rule, returns in known.items():
        if random is not None and np.mean(returns) < np.mean(random):
          difference = statistics.estimate(
            _difference, returns[:, None], random[:, None]
          )
          yield Worse(task, rule, updates, difference)


def _difference(x: np.ndarray, y: np.ndarray) -> Any:
  return statistics.mean(x) - statistics.mean(y)


def _iqm_by_family(results: Results, scales: Scales) -> _ByFamily:
  """IQM of the scores; a contender of which a run failed has none."""
  columns: dict[tuple[int, str], dict[str, list[np.ndarray]]] = {}
  for task, of_task in results.items():
    scale = scales[task]
    if scale is None:
      continue
    for updates, name in itertools.product(
      of_task, (protocol_lib.family(task), _ALL)
    ):
      of_family = columns.setdefault((updates, name), {})
      for result in of_task[updates]:
        scores = (
          np.array([np.nan])
          if result.problem is not None
          else scale.normalise(result.returns)
        )
        of_family.setdefault(result.rule, []).append(scores)
  return {
    key: {
      rule: statistics.estimate(statistics.iqm, np.stack(scores, axis=-1))
      for rule, scores in of_family.items()
      if np.all(np.isfinite(np.concatenate(scores)))
    }
    for key, of_family in sorted(columns.items())
  }


def _choices(choices: Sequence[protocol_lib.Choice]) -> list[pages.Block]:
  rows = [
    [
      choice.contender.name,
      ', '.join(choice.validation_tasks),
      protocol_lib.show(point),
      report.format_estimate(iqm),
      'chosen' if point == choice.point else '',
    ]
    for choice in choices
    for point, iqm in zip(choice.contender.points, choice.iqms)
  ]
  return [
    pages.Heading('The choice of settings'),
    pages.Paragraph(
      'IQM of each setting over the validation tasks; a task alone whose best '
      'return is not known has raw returns. The setting of the highest was '
      'kept for the tests, of which none was looked at.'
    ),
    pages.Table([['rule', 'validation', 'settings', 'IQM', ''], *rows]),
  ]


def _families(by_family: _ByFamily) -> list[pages.Block]:
  rules = list(dict.fromkeys(rule for x in by_family.values() for rule in x))
  rows = [
    [
      f'{updates:,}',
      family,
      *(report.format_estimate(iqms.get(rule)) for rule in rules),
    ]
    for (updates, family), iqms in by_family.items()
  ]
  return [
    pages.Heading('Families of tests'),
    pages.Paragraph(
      'IQM over the tests of each family, with its suites, and over all that '
      'are scored after as many updates; a rule of which a run failed has none.'
    ),
    pages.Table([['updates', 'IQM', *rules], *rows]),
  ]


def _worse(worse: Sequence[Worse]) -> list[pages.Block]:
  rows = [
    [
      w.task,
      w.rule,
      f'{w.updates:,}',
      report.format_estimate(w.difference),
      'yes' if w.difference.high is not None and w.difference.high < 0 else '',
    ]
    for w in worse
  ]
  heading = pages.Heading('Worse than random play')
  if not rows:
    return [
      heading,
      pages.Paragraph('No rule is worse than random play in any test.'),
    ]
  return [
    heading,
    pages.Paragraph(
      'Tests in which the mean return of a rule is below that of random play, '
      'with the interval of the difference.'
    ),
    pages.Table(
      [['test', 'rule', 'updates', 'difference', 'interval below 0'], *rows]
    ),
  ]


def _write_csv(
  path: pathlib.Path,
  results: Results,
  scales: Scales,
) -> None:
  """A row for each agent, and number of updates."""
  with (
    files.replacing(path) as temporary,
    temporary.open('w', newline='', encoding='utf-8') as file,
  ):
    writer = csv.writer(file)
    writer.writerow(('task', 'rule', 'updates', 'agent', 'return', 'score'))
    for task, of_task in results.items():
      scale = scales[task]
      for updates, contenders in of_task.items():
        for result in contenders:
          returns = result.returns if result.problem is None else ()
          for agent, value in enumerate(returns):
            score = np.nan if scale is None else scale.normalise(value)
            row = (task, result.rule, updates, agent, value, score)
            writer.writerow(row)
