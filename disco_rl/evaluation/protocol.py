"""A protocol for judging rules: its declarations, its runs and its choices.

The settings of a rule are chosen on validation tasks, and then kept for all
tests, on which nothing is chosen. A family or suite of tests with its own
settings may have its own validation tasks. Baselines are treated like rules.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import itertools
import pathlib
import random
from typing import Annotated
from typing import Any

from disco_rl import config as config_lib
from disco_rl.environments import families
from disco_rl.environments import registry as environment_registry
from disco_rl.environments import suites
from disco_rl.evaluation import comparison
from disco_rl.evaluation import normalization
from disco_rl.evaluation import runs as runs_lib
from disco_rl.evaluation import statistics

# The contenders whose returns score 1, if the best return is unknown, and 0.
REFERENCE = 'actor_critic'
UNIFORM = 'uniform'
GIVEN = 'given'

# Setting -> value.
Point = Mapping[str, object]
_Ascending = Annotated[
  tuple[int, ...],
  config_lib.Requirement(
    'rising numbers of updates',
    lambda xs: bool(xs) and [*xs] == sorted({*xs}) and xs[0] > 0,
  ),
]
# What a family or suite may declare besides settings of runs -> types.
_OWN: Mapping[str, object] = {
  'score_after': _Ascending,
  'validation_tasks': tuple[str, ...],
  'validation_updates': config_lib.Count,
}


class NoScoresError(ValueError):
  """Raised if no run has scores by which settings could be chosen."""


def family(task: str) -> str:
  """Returns the first part of a task's name."""
  return task.partition('/')[0]


@dataclasses.dataclass(frozen=True)
class Protocol(config_lib.Settings):
  """The declarations of a protocol, made before anything is run.

  Attributes:
    training_tasks: tasks of discovery, separated by commas.
    validation_tasks: tasks on which settings are chosen; if there are several,
      their returns need scales, so that they can be averaged.
    validation_seeds: number of agents of each setting in a validation task.
    validation_updates: number of updates after which settings are chosen. In
      all budgets an update stands for a rollout: agents that make K updates of
      each rollout make K times as many, from equally many environment steps.
    test_tasks: tasks on which nothing is chosen; suites stand for their
      environments.
    score_after: numbers of updates after which agents are scored, all in one
      run.
    by_family: family or suite of tests -> settings of its runs, and of runs in
      its own validation tasks. It may also have validation_tasks,
      validation_updates and score_after. A suite takes precedence.
    candidates: number of settings among which a contender chooses. Of a grid
      with more, as many are drawn at random, with each value equally often.
    grids: contender -> setting -> values; 'given' applies to all given rules,
      'rule' names the rule of another contender.
    recipes: recipe -> the contenders that are its discoveries, with different
      seeds; the report resamples them.
  """

  training_tasks: suites.Names
  validation_tasks: suites.Names
  validation_seeds: config_lib.Count
  validation_updates: config_lib.Count
  test_tasks: suites.Names
  score_after: _Ascending
  by_family: Mapping[str, Mapping[str, Any]]
  candidates: config_lib.Count
  grids: Mapping[str, Mapping[str, Sequence[object]]]
  recipes: Mapping[str, Sequence[str]]

  def conflicts(self) -> Iterator[str]:
    """Yields errors about empty or overlapping sets, and unknown contenders."""
    for name, own in self.by_family.items():
      yield from _family_conflicts(name, own)
    validations = self.validations()
    of_families = [
      x.get('validation_tasks', ()) for x in self.by_family.values()
    ]
    sets = {
      'training_tasks': self.training_tasks,
      'validation_tasks': (
        *self.validation_tasks,
        *itertools.chain(*of_families),
      ),
      'test_tasks': self.test_tasks,
    }
    empty = {name for name, tasks in sets.items() if not tasks}
    if () in validations:
      empty.add('validation_tasks')
    for name in sorted(empty):
      yield f'{name} is empty: name at least one task.'
    for x, y in itertools.combinations(sets, 2):
      if shared := {*sets[x]} & {*sets[y]}:
        yield (
          f'{x} and {y} share {", ".join(sorted(shared))}, but must be '
          'disjoint: leave it out of one.'
        )
    for task in dict.fromkeys(sets['validation_tasks']):
      if sets['validation_tasks'].count(task) > 1:
        yield f'validation_tasks has {task} twice: leave it out once.'
    for name, tasks in zip(self.by_family, of_families):
      for task in tasks:
        if self.entry(task) != name:
          yield (
            f'by_family.{name}.validation_tasks has {task}, which is run with '
            f'the settings of {self.entry(task)}: name another.'
          )
    for tasks in validations:
      unknown = [x for x in tasks if normalization.find_scale(x) is None]
      if len(tasks) > 1 and unknown:
        yield (
          f'validation_tasks has {unknown[0]}, whose best return is not known, '
          'and others: name it alone, or choose among '
          f'{", ".join(normalization.families())}.'
        )
    for name in {GIVEN, REFERENCE, UNIFORM} - {*self.grids}:
      yield f'grids lacks {name!r}: add it, as {{}} to keep the settings.'

  def scored_after(self, task: str) -> tuple[int, ...]:
    """Returns the numbers of updates after which a task is scored."""
    return tuple(self._own(task, 'score_after'))

  def rollouts(self, task: str) -> int:
    """Returns the rollouts of an agent in a test or a validation task."""
    if task in self.test_tasks:
      return self.scored_after(task)[-1]
    return self._own(task, 'validation_updates')

  def validated_by(self, test: str) -> tuple[str, ...]:
    """Returns the tasks on which settings for a test are chosen."""
    return tuple(self._own(test, 'validation_tasks'))

  def validations(self) -> list[tuple[str, ...]]:
    """Returns the sets of validation tasks of all tests."""
    return list(dict.fromkeys(map(self.validated_by, self.test_tasks)))

  def entry(self, task: str) -> str | None:
    """Returns the name in `by_family` that applies to a task, or None."""
    for name, own in self.by_family.items():
      if task in (*suites.expand(name), *own.get('validation_tasks', ())):
        return name
    return family(task) if family(task) in self.by_family else None

  def own(self, task: str) -> Mapping[str, Any]:
    """Returns the entry of `by_family` for a test or a validation task."""
    name = self.entry(task)
    return {} if name is None else self.by_family[name]

  def _own(self, task: str, name: str) -> Any:
    """Returns a declaration for a task, or else the one for all tasks."""
    return self.own(task).get(name, getattr(self, name))

  def select(self, names: Sequence[str]) -> tuple[str, ...]:
    """Selects tests by tasks, families and suites; all, if none are named.

    Raises:
      ValueError: A name matches no test.
    """
    called = {x: {x, family(x), self.entry(x) or x} for x in self.test_tasks}
    known = set().union(*called.values())
    for name in names:
      if name not in known:
        nearest = difflib.get_close_matches(name, sorted(known))
        raise ValueError(
          f'--tasks has {name!r}, which is not a test of the protocol. '
          'Nearest: '
          f'{", ".join(nearest or sorted(known - {*self.test_tasks}))}.'
        )
    return tuple(
      task for task in self.test_tasks if not names or called[task] & {*names}
    )


def _family_conflicts(name: str, own: Mapping[str, object]) -> Iterator[str]:
  """Yields errors in a family's declarations; raises for a wrong type."""
  here = f'by_family.{name}'
  for declared, kind in _OWN.items():
    if declared in own:
      config_lib.check(f'{here}.{declared}', own[declared], kind)
  if 'seeds' in own:
    yield f'{here} has seeds, but all tests must have the same number of them.'


@dataclasses.dataclass(frozen=True)
class Contender:
  """A rule, or a baseline.

  Attributes:
    name: The name in tables.
    folder: The folder of its runs in each task; it does not depend on the other
      rules.
    rule: The rule's name or path.
    points: The candidate settings.
  """

  name: str
  folder: str
  rule: str
  points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
  """The chosen settings of a contender, with the reasons.

  Attributes:
    contender: The contender that they were chosen for.
    validation_tasks: The tasks that they were chosen by.
    point: The settings.
    iqms: The IQM of each point over the validation tasks, None if a run has no
      scores; empty for a single point.
    results: The results of each point in these tasks; empty for a single point.
  """

  contender: Contender
  validation_tasks: tuple[str, ...]
  point: Point
  iqms: tuple[statistics.Estimate | None, ...] = ()
  results: tuple[Sequence[comparison.Result], ...] = ()

  @property
  def edges(self) -> tuple[str, ...]:
    """The settings with the lowest or highest of at least three numbers.

    A value beyond it, which was not tried, might be better.
    """
    edges = []
    for name, value in self.point.items():
      tried = {point[name] for point in self.contender.points}
      numbers = [x for x in tried if isinstance(x, int | float)]
      is_axis = len(tried) == len(numbers) > 2
      if is_axis and value in (min(numbers), max(numbers)):
        edges.append(name)
    return tuple(edges)


def contenders(
  rules: Sequence[str],
  grids: Mapping[str, Mapping[str, Sequence[object]]],
  candidates: int,
) -> list[Contender]:
  """Returns the given rules, then the baselines.

  Args:
    rules: The names or paths of rules.
    grids: The value of `Protocol.grids`.
    candidates: The value of `Protocol.candidates`.

  Raises:
    ValueError: Two contenders have the same name, or a grid has no values.
  """
  baselines = [name for name in grids if name != GIVEN]
  found = [
    *(
      _contender(name, rule, rule, grids[GIVEN], candidates)
      for rule, name in runs_lib.labels(rules, taken=baselines).items()
    ),
    *(
      _contender(name, name, name, grids[name], candidates)
      for name in baselines
    ),
  ]
  for names in ([x.name for x in found], [x.folder for x in found]):
    if shared := [name for name in names if names.count(name) > 1]:
      raise ValueError(
        f'Two contenders are called {shared[0]}: baselines are '
        f'{", ".join(baselines)}. Give the file of the rule another name, or '
        'leave it out.'
      )
  return found


def _contender(
  name: str,
  folder: str,
  rule: str,
  grid: Mapping[str, Sequence[Any]],
  candidates: int,
) -> Contender:
  axes = {setting: tuple(values) for setting, values in grid.items()}
  rules = axes.pop('rule', (rule,))
  if len(rules) != 1:
    raise ValueError(f'The grid of {name} must have one rule, not {rules}.')
  points = [
    dict(zip(axes, values)) for values in itertools.product(*axes.values())
  ]
  if not points:
    raise ValueError(f'The grid of {name} has a setting without values.')
  if len({show(point) for point in points}) < len(points):
    raise ValueError(f'The grid of {name} has a value twice.')
  return Contender(
    name, runs_lib.slug(folder), rules[0], tuple(_spread(points, candidates))
  )


def _spread(points: Sequence[Point], number: int) -> list[Point]:
  """Draws points so that each value of a setting is drawn equally often.

  The draw depends on the points alone, so that a resumed protocol, and another
  contender with the same grid, have the same.
  """
  if len(points) <= number:
    return list(points)
  left = random.Random(0).sample(points, len(points))
  counts: collections.Counter[tuple[str, object]] = collections.Counter()
  drawn = []
  for _ in range(number):
    # Of equals the first, which is random.
    point = min(left, key=lambda x: sum(counts[item] for item in x.items()))
    left.remove(point)
    drawn.append(point)
    counts.update(point.items())
  return sorted(drawn, key=points.index)


def show(point: Point) -> str:
  """Formats settings as text."""
  shown = lambda x: f'{x:g}' if isinstance(x, float) else f'{x}'
  return ', '.join(f'{k}={shown(x)}' for k, x in point.items()) or 'no choice'


@dataclasses.dataclass(frozen=True)
class Plan:
  """The runs of a protocol.

  Attributes:
    protocol: The declarations.
    settings: The settings that all runs share.
    contenders: The contenders, made by `contenders`.
    workdir: The folder, with a folder TASK/CONTENDER/SETTINGS for each run.
  """

  protocol: Protocol
  settings: Mapping[str, object]
  contenders: Sequence[Contender]
  workdir: pathlib.Path

  def run(self, task: str, contender: Contender, point: Point) -> runs_lib.Run:
    """Makes one run; raises ValueError for settings that are not valid."""
    folder = self.workdir.joinpath(
      runs_lib.slug(task), contender.folder, runs_lib.slug(show(point))
    )
    own = self.protocol.own(task)
    settings = {
      **self.settings,
      **{name: value for name, value in own.items() if name not in _OWN},
      **point,
      'environment': task,
      'rule': contender.rule,
    }
    if task not in self.protocol.test_tasks:
      settings['seeds'] = self.protocol.validation_seeds
    name = ', '.join((task, contender.name, show(point)))
    # Budgets count rollouts: agents may make several updates after each.
    rollouts = self.protocol.rollouts(task)
    run = runs_lib.training(name, folder, contender.name, settings, rollouts)
    config = run.config
    self._check_scored(task, config.agent.rollouts(config.log_every))
    return run

  def validation(self, tests: Sequence[str]) -> list[runs_lib.Run]:
    """Returns the runs on which settings for these tests are chosen."""
    needed = dict.fromkeys(map(self.protocol.validated_by, tests))
    return [job for tasks in needed for job in self._validation(tasks)]

  def choose(self, tests: Sequence[str]) -> list[Choice]:
    """Chooses settings on the validation tasks whose runs are over.

    Args:
      tests: The tests for which all contenders must have settings.

    Returns:
      The choices for these and for other tests.

    Raises:
      NoScoresError: Each point of a contender has a run without scores.
      WorkdirError: Files of a run are damaged.
    """
    needed = {self.protocol.validated_by(test) for test in tests}
    choices = []
    for tasks in self.protocol.validations():
      is_needed = tasks in needed
      if not is_needed and not all(x.is_over for x in self._validation(tasks)):
        continue
      with contextlib.suppress(*() if is_needed else (NoScoresError,)):
        choices += [self._choose(x, tasks) for x in self.contenders]
    return choices

  def tests(
    self, choices: Sequence[Choice], tasks: Sequence[str]
  ) -> list[runs_lib.Run]:
    """Returns the runs of all contenders in the tests with choices."""
    return [
      self.run(task, choice.contender, choice.point)
      for choice in choices
      for task in tasks
      if self.protocol.validated_by(task) == choice.validation_tasks
    ]

  def _validation(self, tasks: Sequence[str]) -> list[runs_lib.Run]:
    """Returns runs of all settings, if there are several, in tasks."""
    return [
      self.run(task, contender, point)
      for contender in self.contenders
      if len(contender.points) > 1
      for task in tasks
      for point in contender.points
    ]

  def _choose(self, contender: Contender, tasks: tuple[str, ...]) -> Choice:
    points = contender.points
    if len(points) == 1:
      return Choice(contender, tasks, points[0])
    results = tuple(
      [runs_lib.read(self.run(task, contender, point)) for task in tasks]
      for point in points
    )
    iqms = tuple(map(comparison.iqm, results))
    best = comparison.best(dict(enumerate(iqms)))
    if best is None:
      problems = (result.problem for result in results[0])
      raise NoScoresError(
        f'{contender.name} has no scores in a validation task with any of its '
        f'settings ({next(filter(None, problems))}): change them in grids.'
      )
    return Choice(contender, tasks, points[best], iqms, results)

  def _check_scored(self, task: str, log_every: int) -> None:
    """Raises ValueError if agents are scored when no metrics are logged."""
    if task not in self.protocol.test_tasks:
      return
    for updates in self.protocol.scored_after(task)[:-1]:
      if updates % log_every:
        raise ValueError(
          f'score_after has {updates} for {task}, which is not a multiple of '
          f'log_every={log_every}: agents would be scored earlier.'
        )


def validate(plan: Plan) -> None:
  """Checks all names and settings, before anything runs.

  Raises:
    ValueError: A name is unknown, or a setting is not valid.
    ImportError: A task needs a package that is not installed.
    FileNotFoundError: A file of a rule's weights does not exist.
  """
  protocol = plan.protocol
  for tasks in (
    protocol.training_tasks,
    *protocol.validations(),
    protocol.test_tasks,
  ):
    for task in tasks:
      environment_registry.validate(task)
  known = {*families.FAMILIES, *suites.SUITES}
  config_lib.check_names(protocol.by_family, known, 'by_family')
  names = {contender.name for contender in plan.contenders}
  for recipe, rules in protocol.recipes.items():
    config_lib.check_names(rules, names, f'recipes.{recipe}')
  first = protocol.test_tasks[0]
  jobs = [
    plan.run(first, contender, point)
    for contender in plan.contenders
    for point in contender.points
  ]
  jobs += [
    plan.run(task, plan.contenders[0], plan.contenders[0].points[0])
    for task in (
      *protocol.test_tasks,
      *itertools.chain(*protocol.validations()),
    )
  ]
  runs_lib.check([*dict.fromkeys(jobs)])
