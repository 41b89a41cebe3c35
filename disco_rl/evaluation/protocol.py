"""A protocol for judging rules: its declarations, its runs and its choices.

The settings of a rule are chosen on validation tasks, and then kept for all
tests, on which nothing is chosen. A family or suite of tests with its own
settings may have its own validation tasks. Baselines are treated like rules.

The candidates are those of a grid first. While a chosen number is the lowest or
highest that was tried, each contender adds neighbors of its best settings.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import itertools
import math
import pathlib
from typing import Annotated
from typing import Any

from disco_rl import config as config_lib
from disco_rl.environments import families
from disco_rl.environments import registry as environment_registry
from disco_rl.environments import suites
from disco_rl.evaluation import comparison
from disco_rl.evaluation import contenders as contenders_lib
from disco_rl.evaluation import normalization
from disco_rl.evaluation import planned_runs
from disco_rl.maths import statistics

# Validation is noisy, so that choices could wander on for long.
_MOST_ROUNDS = 3

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
    growth: number of further settings that each contender tries, if a chosen
      number is the lowest or highest that was tried; three times at most.
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
  growth: config_lib.CountOrZero
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
    for name in {
      contenders_lib.GIVEN,
      contenders_lib.REFERENCE,
      contenders_lib.UNIFORM,
    } - {*self.grids}:
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
class Choice:
  """The chosen settings of a contender, with the reasons.

  Attributes:
    contender: The contender that they were chosen for, with all settings that
      were tried.
    validation_tasks: The tasks that they were chosen by.
    point: The settings.
    iqms: The IQM of each point over the validation tasks, None if a run has no
      scores; empty for a single point.
    results: The results of each point in these tasks; empty for a single point.
    edges: The settings with the lowest or highest number that was tried. One
      beyond it might be better.
  """

  contender: contenders_lib.Contender
  validation_tasks: tuple[str, ...]
  point: contenders_lib.Point
  iqms: tuple[statistics.Estimate | None, ...] = ()
  results: tuple[Sequence[comparison.Result], ...] = ()
  edges: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Plan:
  """The runs of a protocol.

  Attributes:
    protocol: The declarations.
    settings: The settings that all runs share.
    contenders: The contenders, made by `contenders.make`.
    workdir: The folder, with a folder TASK/CONTENDER/SETTINGS for each run.
  """

  protocol: Protocol
  settings: Mapping[str, object]
  contenders: Sequence[contenders_lib.Contender]
  workdir: pathlib.Path
  # Each takes some 50 ms, most of them to read the rule.
  _runs: dict[tuple[str, ...], planned_runs.Run] = dataclasses.field(
    default_factory=dict, init=False, repr=False, compare=False
  )

  def run(
    self,
    task: str,
    contender: contenders_lib.Contender,
    point: contenders_lib.Point,
  ) -> planned_runs.Run:
    """Makes one run; raises ValueError for settings that are not valid."""
    key = task, contender.folder, contenders_lib.show(point)
    if key not in self._runs:
      self._runs[key] = self._make(task, contender, point)
    return self._runs[key]

  def _make(
    self,
    task: str,
    contender: contenders_lib.Contender,
    point: contenders_lib.Point,
  ) -> planned_runs.Run:
    folder = self.workdir.joinpath(
      planned_runs.slug(task),
      contender.folder,
      planned_runs.slug(contenders_lib.show(point)),
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
    name = ', '.join((task, contender.name, contenders_lib.show(point)))
    # Budgets count rollouts: agents may make several updates after each.
    rollouts = self.protocol.rollouts(task)
    run = planned_runs.training(
      name, folder, contender.name, settings, rollouts
    )
    config = run.config
    self._check_scored(task, config.agent.rollouts(config.log_every))
    return run

  def validation(self, tests: Sequence[str]) -> list[planned_runs.Run]:
    """Returns the runs on which settings for these tests are chosen.

    When they are over, there may be more of them, because grids grow.
    """
    needed = dict.fromkeys(map(self.protocol.validated_by, tests))
    return [
      job
      for tasks in needed
      for job in self._validation(
        [contender for contender, _ in self._grown(tasks)], tasks
      )
    ]

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
      with contextlib.suppress(*() if is_needed else (NoScoresError,)):
        grown = self._grown(tasks)
        jobs = self._validation([x for x, _ in grown], tasks)
        if is_needed or all(job.is_over for job in jobs):
          choices += [self._choose(x, tasks, before) for x, before in grown]
    return choices

  def tests(
    self, choices: Sequence[Choice], tasks: Sequence[str]
  ) -> list[planned_runs.Run]:
    """Returns the runs of all contenders in the tests with choices."""
    return [
      self.run(task, choice.contender, choice.point)
      for choice in choices
      for task in tasks
      if self.protocol.validated_by(task) == choice.validation_tasks
    ]

  def _validation(
    self, contenders: Sequence[contenders_lib.Contender], tasks: Sequence[str]
  ) -> Iterator[planned_runs.Run]:
    """Yields runs of all settings, if there are several, in tasks."""
    for contender in contenders:
      if len(contender.points) > 1:
        for task in tasks:
          for point in contender.points:
            yield self.run(task, contender, point)

  def _grown(
    self, tasks: tuple[str, ...]
  ) -> list[tuple[contenders_lib.Contender, Choice | None]]:
    """Returns contenders with all settings that finished runs ask to try.

    With each is the last choice, among some of these settings, if one was made.
    """
    grown: list[tuple[contenders_lib.Contender, Choice | None]]
    grown = [(contender, None) for contender in self.contenders]
    for _ in range(_MOST_ROUNDS if self.protocol.growth else 0):
      jobs = self._validation([x for x, _ in grown], tasks)
      if not all(job.is_over for job in jobs):
        break
      choices = [self._choose(x, tasks, before) for x, before in grown]
      if not any(choice.edges for choice in choices):
        return [(choice.contender, choice) for choice in choices]
      grown = [(self._grow(choice), choice) for choice in choices]
    return grown

  def _grow(self, choice: Choice) -> contenders_lib.Contender:
    """Adds neighbors of the best settings to those of a contender."""
    contender = choice.contender
    points = {contenders_lib.show(point): point for point in contender.points}
    wanted = len(points) + self.protocol.growth
    iqms = [-math.inf if x is None else x.value for x in choice.iqms]
    for i in sorted(range(len(iqms)), key=lambda i: -iqms[i]):
      best = contender.points[i]
      for new in (*contender.beyond(best).values(), *contender.between(best)):
        if len(points) < wanted and self._is_valid(choice, new):
          points.setdefault(contenders_lib.show(new), new)
    return dataclasses.replace(contender, points=tuple(points.values()))

  def _is_valid(self, choice: Choice, point: contenders_lib.Point) -> bool:
    """Says whether a setting, such as a share, can have a number beyond."""
    try:
      self.run(choice.validation_tasks[0], choice.contender, point)
    except ValueError:
      return False
    return True

  def _choose(
    self,
    contender: contenders_lib.Contender,
    tasks: tuple[str, ...],
    before: Choice | None = None,
  ) -> Choice:
    """Chooses by runs that are over.

    Args:
      contender: The contender, with all settings to choose among.
      tasks: The validation tasks.
      before: A choice among the first of these settings, whose runs are not
        read again.
    """
    points = contender.points
    if len(points) == 1:
      return Choice(contender, tasks, points[0])
    results, iqms = (before.results, before.iqms) if before else ((), ())
    added = tuple(
      [planned_runs.read(self.run(task, contender, point)) for task in tasks]
      for point in points[len(results) :]
    )
    results += added
    iqms += tuple(map(comparison.iqm, added))
    best = comparison.best(dict(enumerate(iqms)))
    if best is None:
      problems = (result.problem for result in results[0])
      raise NoScoresError(
        f'{contender.name} has no scores in a validation task with any of its '
        f'settings ({next(filter(None, problems))}): change them in grids.'
      )
    choice = Choice(contender, tasks, points[best], iqms, results)
    edges = [
      name
      for name, point in contender.beyond(choice.point).items()
      if self._is_valid(choice, point)
    ]
    return dataclasses.replace(choice, edges=tuple(edges))

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
  planned_runs.check([*dict.fromkeys(jobs)])
