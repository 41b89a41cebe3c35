"""The contenders of a protocol, and the settings among which they choose."""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import random
from typing import Any

from disco_rl.evaluation import planned_runs

# The contenders whose returns score 1, if the best return is unknown, and 0.
REFERENCE = 'actor_critic'
UNIFORM = 'uniform'
GIVEN = 'given'

# Setting -> value.
Point = Mapping[str, object]


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

  def beyond(self, point: Point) -> dict[str, Point]:
    """Returns points with a number beyond all candidates.

    Args:
      point: A candidate.

    Returns:
      Setting -> the point, if the candidate has the lowest or highest of at
      least three numbers. The ratio of the new number to it is that of it to
      the one before. Whole numbers do not continue below 1.
    """
    points: dict[str, Point] = {}
    for name, numbers in self._numbers().items():
      if len(numbers) < 3 or point[name] not in (numbers[0], numbers[-1]):
        continue
      last = point[name]
      before = numbers[1] if last == numbers[0] else numbers[-2]
      further = _extrapolate(before, last)
      if further is not None:
        points[name] = {**point, name: further}
    return points

  def between(self, point: Point) -> list[Point]:
    """Returns points with another value of one setting, which was tried.

    Of numbers these are the next lower and the next higher.
    """
    points: list[Point] = []
    ordered = self._numbers()
    for name, value in point.items():
      if name in ordered:
        numbers = ordered[name]
        at = numbers.index(value)
        others = [*numbers[max(at - 1, 0) : at], *numbers[at + 1 : at + 2]]
      else:
        tried = dict.fromkeys(x[name] for x in self.points)
        others = [x for x in tried if x != value]
      points += [{**point, name: x} for x in others]
    return points

  def _numbers(self) -> dict[str, list[Any]]:
    """Returns the numbers that were tried of each setting, in their order."""
    tried = {name: {x[name] for x in self.points} for name in self.points[0]}
    return {
      name: sorted(values)
      for name, values in tried.items()
      if all(type(x) in (int, float) for x in values)
    }


def _extrapolate(before: Any, last: Any) -> int | float | None:
  """Continues two numbers by their ratio; None if this is not possible."""
  if before * last <= 0:
    return None
  further = last * last / before
  if isinstance(last, float):
    return float(f'{further:.3g}')
  return round(further) or None


def make(
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
      for rule, name in planned_runs.labels(rules, taken=baselines).items()
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
    name,
    planned_runs.slug(folder),
    rules[0],
    tuple(_spread(points, candidates)),
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
