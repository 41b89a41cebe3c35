"""A protocol for judging rules: its declarations, its runs, what is chosen.

Settings of a rule are chosen by validation tasks, and then kept for all tests,
which nothing is chosen by. Baselines go through the same.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import itertools
import math
import pathlib
from typing import Annotated
from typing import Any

import numpy as np

from disco_rl.environments import families
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import comparison
from disco_rl.evaluation import normalisation
from disco_rl.evaluation import runner
from disco_rl.evaluation import statistics
from disco_rl.evaluation import sweep
from disco_rl.runtime import config_checks

# Contenders that scores refer to: return 1 where the best is not known, and 0.
REFERENCE = 'actor_critic'
RANDOM = 'random'
GIVEN = 'given'

# Setting -> value.
Point = Mapping[str, Any]
_ASCENDING = config_checks.Requirement(
  'rising numbers of updates',
  lambda xs: bool(xs) and [*xs] == sorted({*xs}) and xs[0] > 0,
)


def family(task: str) -> str:
  """The first part of a task's name."""
  return task.partition('/')[0]


@dataclasses.dataclass(frozen=True)
class Protocol(config_checks.Settings):
  """What is declared before anything is run.

  Attributes:
    training_tasks: of discovery.
    validation_tasks: by which settings are chosen; their returns have a scale.
    validation_updates: after which they are.
    test_tasks: that nothing is chosen by.
    score_after: numbers of updates after which agents are scored.
    by_family: family of tasks -> settings of its runs, also score_after.
    grids: contender -> setting -> values; 'given' holds for all given rules,
      'rule' names another contender's rule.
  """

  training_tasks: tuple[str, ...]
  validation_tasks: tuple[str, ...]
  validation_updates: config_checks.Count
  test_tasks: tuple[str, ...]
  score_after: Annotated[tuple[int, ...], _ASCENDING]
  by_family: Mapping[str, Mapping[str, Any]]
  grids: Mapping[str, Mapping[str, Sequence[Any]]]

  def conflicts(self) -> Iterator[str]:
    """Sets are disjoint and not empty, and the contenders known."""
    sets = ('training_tasks', 'validation_tasks', 'test_tasks')
    for name in sets:
      if not getattr(self, name):
        yield f'{name} is empty: name at least one task.'
    for x, y in itertools.combinations(sets, 2):
      if shared := {*getattr(self, x)} & {*getattr(self, y)}:
        yield (
          f'{x} and {y} share {", ".join(sorted(shared))}, and must be '
          'disjoint: leave it out of one.'
        )
    for task in self.validation_tasks:
      if normalisation.find_scale(task) is None:
        yield (
          f'validation_tasks has {task}, whose best return is not known: '
          'choose one of gridworld, random_grid, random_chain, lpg or catch.'
        )
    for name in {GIVEN, REFERENCE, RANDOM} - {*self.grids}:
      yield f'grids lacks {name!r}: add it, {{}} for the settings as given.'

  def scored_after(self, task: str) -> tuple[int, ...]:
    """Updates after which agents are scored in a task."""
    own = self.by_family.get(family(task), {})
    return tuple(own.get('score_after', self.score_after))

  def updates(self, task: str) -> int:
    """Updates of an agent in a task."""
    if task in self.validation_tasks:
      return self.validation_updates
    return self.scored_after(task)[-1]

  def select(self, names: Sequence[str]) -> tuple[str, ...]:
    """The tests among which are these tasks and families; of none all.

    Raises:
      ValueError: a name is that of no test.
    """
    kinds = {family(task) for task in self.test_tasks}
    known = [*kinds, *self.test_tasks]
    for name in names:
      if name not in known:
        nearest = difflib.get_close_matches(name, known)
        raise ValueError(
          f'--tasks has {name!r}, which is no test of the protocol. Nearest: '
          f'{", ".join(nearest or sorted(kinds))}.'
        )
    return tuple(
      task
      for task in self.test_tasks
      if not names or {task, family(task)} & {*names}
    )


@dataclasses.dataclass(frozen=True)
class Contender:
  """A rule, or a baseline.

  Attributes:
    name: in tables.
    rule: name or path.
    points: the settings that are chosen between.
  """

  name: str
  rule: str
  points: tuple[Point, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
  """The settings of a contender, and why.

  Attributes:
    contender: that they were chosen for.
    point: the settings.
    iqms: of each point, over the validation tasks; None where a run failed;
      empty where there was nothing to choose.
  """

  contender: Contender
  point: Point
  iqms: tuple[statistics.Estimate | None, ...] = ()


def contenders(
  rules: Sequence[str], grids: Mapping[str, Mapping[str, Sequence[Any]]]
) -> list[Contender]:
  """The given rules, then the baselines.

  Args:
    rules: names or paths.
    grids: see `Protocol`.

  Raises:
    ValueError: two contenders have one name, or a grid has no values.
  """
  found = [
    *((name, rule, GIVEN) for rule, name in sweep.labels(rules).items()),
    *((name, name, name) for name in grids if name != GIVEN),
  ]
  names = [sweep.slug(name) for name, _, _ in found]
  for name in names:
    if names.count(name) > 1:
      raise ValueError(
        f'Two contenders are called {name}: baselines are '
        f'{", ".join(name for name in grids if name != GIVEN)}. Give the file '
        'of the rule another name, or leave it out.'
      )
  return [_contender(name, rule, grids[grid]) for name, rule, grid in found]


def _contender(
  name: str, rule: str, grid: Mapping[str, Sequence[Any]]
) -> Contender:
  axes = {setting: tuple(values) for setting, values in grid.items()}
  rules = axes.pop('rule', (rule,))
  if len(rules) != 1:
    raise ValueError(f'The grid of {name} must have one rule, not {rules}.')
  points = tuple(
    dict(zip(axes, values)) for values in itertools.product(*axes.values())
  )
  if not points:
    raise ValueError(f'The grid of {name} has a setting without values.')
  return Contender(name, rules[0], points)


def show(point: Point) -> str:
  """Settings as text."""
  shown = lambda x: f'{x:g}' if isinstance(x, float) else f'{x}'
  return ', '.join(f'{k}={shown(x)}' for k, x in point.items()) or 'no choice'


@dataclasses.dataclass(frozen=True)
class Plan:
  """The runs of a protocol.

  Attributes:
    protocol: the declarations.
    settings: that all runs share.
    contenders: of `contenders`.
    to_config: converts the settings of one run to its config.
    workdir: has the run of each TASK/CONTENDER/SETTINGS in a folder.
  """

  protocol: Protocol
  settings: Mapping[str, Any]
  contenders: Sequence[Contender]
  to_config: Callable[[Mapping[str, Any]], runner.EvaluationConfig]
  workdir: pathlib.Path

  def job(self, task: str, contender: Contender, point: Point) -> sweep.Job:
    """One run; raises ValueError for settings that are not valid."""
    own = dict(self.protocol.by_family.get(family(task), {}))
    own.pop('score_after', None)
    description = {
      **self.settings,
      **own,
      **point,
      'environment': task,
      'rule': contender.rule,
      'updates': self.protocol.updates(task),
    }
    parts = (task, contender.name, show(point))
    config = self.to_config(description)
    if unread := [
      updates
      for updates in self.protocol.scored_after(task)[:-1]
      if updates % config.log_every
    ]:
      raise ValueError(
        f'score_after has {unread[0]} for {task}, which is no multiple of '
        f'log_every={config.log_every}: agents would be scored earlier.'
      )
    return sweep.Job(
      name=', '.join(parts),
      folder=self.workdir.joinpath(*map(sweep.slug, parts)),
      counter='updates',
      goal=config.updates,
      config=config,
      description=description,
      rule=contender.name,
    )

  def validation(self) -> list[sweep.Job]:
    """Runs by which settings are chosen, where there are several."""
    return [
      self.job(task, contender, point)
      for contender in self.contenders
      if len(contender.points) > 1
      for task in self.protocol.validation_tasks
      for point in contender.points
    ]

  def choose(self) -> list[Choice]:
    """Chooses settings by validation, which is over.

    Raises:
      ValueError: each point of a contender has a run that failed.
    """
    return [self._choose(contender) for contender in self.contenders]

  def tests(
    self, choices: Sequence[Choice], tasks: Sequence[str]
  ) -> list[sweep.Job]:
    """Runs of all contenders in some of the tests."""
    return [
      self.job(task, choice.contender, choice.point)
      for choice in choices
      for task in tasks
    ]

  def _choose(self, contender: Contender) -> Choice:
    points = contender.points
    if len(points) == 1:
      return Choice(contender, points[0])
    iqms = tuple(self._iqm(contender, point) for point in points)
    if not any(iqms):
      raise ValueError(
        f'{contender.name} failed in a validation task with all settings, as '
        f'failure.json in its folders under {self.workdir} says: choose others '
        'in grids.'
      )
    best = max(range(len(points)), key=lambda i: _value(iqms[i]))
    return Choice(contender, points[best], iqms)

  def _iqm(
    self, contender: Contender, point: Point
  ) -> statistics.Estimate | None:
    """IQM over the validation tasks; None if a run has no scores."""
    columns = []
    for task in self.protocol.validation_tasks:
      result = sweep.read(self.job(task, contender, point))
      if result.problem is not None:
        return None
      columns.append(_normalise(result))
    return statistics.estimate(statistics.iqm, np.stack(columns, axis=-1))


def validate(plan: Plan) -> None:
  """Checks all names and settings, before anything runs.

  Raises:
    ValueError: a name is unknown, or a setting is not valid.
    ImportError: a task needs a package that is not installed.
    FileNotFoundError: a file of a rule's weights does not exist.
  """
  protocol = plan.protocol
  for task in (
    *protocol.training_tasks,
    *protocol.validation_tasks,
    *protocol.test_tasks,
  ):
    environment_registry.validate(task)
  config_checks.check_names(protocol.by_family, families.FAMILIES, 'by_family')
  first = protocol.test_tasks[0]
  jobs = [
    plan.job(first, contender, point)
    for contender in plan.contenders
    for point in contender.points
  ]
  jobs += [
    plan.job(task, plan.contenders[0], plan.contenders[0].points[0])
    for task in protocol.test_tasks
  ]
  sweep.validate(jobs)


def _normalise(result: comparison.Result) -> np.ndarray:
  scale = normalisation.find_scale(result.environment)
  assert scale is not None  # By `Protocol.conflicts`.
  return scale.normalise(result.returns)


def _value(iqm: statistics.Estimate | None) -> float:
  return -math.inf if iqm is None else float(iqm.value)
