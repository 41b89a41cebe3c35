"""The page of a discovery: what it found, beside others, in words and films."""

import base64
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import re
from typing import Any

import numpy as np

from disco_rl.evaluation import learning_curves
from disco_rl.evaluation import pages
from disco_rl.evaluation import statistics
from disco_rl.runtime import files
from disco_rl.runtime import plotting
from disco_rl.runtime import reports

BEFORE = 'before discovery'
DISCOVERED = 'discovered'
HAND_MADE = 'actor-critic'
# As a sentence names them.
_NAMES = {
  BEFORE: 'the rule as it was before discovery',
  DISCOVERED: 'the discovered rule',
  HAND_MADE: 'actor-critic (designed by hand)',
}


@dataclasses.dataclass(frozen=True)
class Film:
  """Episodes of one agent that no longer learns.

  Attributes:
    path: of the GIF file.
    mean_return: of the episodes in it.
    episodes: their number.
  """

  path: pathlib.Path
  mean_return: float
  episodes: int


@dataclasses.dataclass(frozen=True)
class Trained:
  """New agents that one rule has trained.

  Attributes:
    label: of the rule, on the page.
    curve: steps [points] and mean returns [S, points].
    film: of one of the agents; None where there is none.
  """

  label: str
  curve: learning_curves.Curve
  film: Film | None = None


@dataclasses.dataclass(frozen=True)
class Showcase:
  """What the page shows.

  Attributes:
    discovery: what the run was, such as its agents and seconds: name -> value.
    on: environments of the population.
    meta_curves: PNG file of the run's curves.
    held_out: meta-steps [N], and the mean returns [N] of new agents that were
      trained after them by the rule as it then was.
    environment: that the new agents learn.
    updates: of each of them.
    trained: by rule, the order of the table.
    no_film: why there are no films; None if there are.
    commands: (purpose, command) to try next.
  """

  discovery: Mapping[str, str]
  on: str
  meta_curves: pathlib.Path
  held_out: tuple[np.ndarray, np.ndarray]
  environment: str
  updates: int
  trained: Sequence[Trained]
  no_film: str | None
  commands: Sequence[tuple[str, str]]


def write(path: files.PathLike, showcase: Showcase) -> None:
  """Writes the page, one file that needs no other, atomically.

  Args:
    path: of the HTML file; beside it the learning curves are written as PNG.
    showcase: what it shows.
  """
  path = pathlib.Path(path)
  curves = path.with_name('showcase.png')
  is_catch = board(showcase.environment) is not None
  with reports.surviving(curves.name):
    plotting.save(
      learning_curves.draw(
        {one.label: one.curve for one in showcase.trained},
        f'{showcase.environment}, {showcase.updates} updates',
      ),
      curves,
    )
  pages.write(
    path,
    'showcase.html',
    {
      'showcase': showcase,
      'board': board(showcase.environment),
      'verdict': verdict(showcase.trained, showcase.updates, is_catch),
      'progress': [
        (f'{step:,.0f}', f'{value:.2f}')
        for step, value in zip(*showcase.held_out)
      ],
      'scores': _scores(showcase.trained),
      'meta_curves': _picture(showcase.meta_curves),
      'curves': _picture(curves),
      'films': [
        {
          'label': one.label,
          'film': one.film,
          'data': base64.b64encode(one.film.path.read_bytes()).decode(),
        }
        for one in showcase.trained
        if one.film is not None
      ],
    },
  )


def _picture(path: pathlib.Path) -> dict[str, Any] | None:
  """See `pages.png`; None where it could not be drawn."""
  return pages.png(path) if path.exists() else None


def board(environment: str) -> dict[str, Any] | None:
  """Of Catch: rows, columns and what random play earns; None of others.

  Where the paddle ends up does not depend on the column of the ball, so it is
  caught with a probability of 1 / columns.
  """
  match = re.fullmatch(r'catch(?:/(\d+)x(\d+))?', environment)
  if match is None:
    return None
  rows, columns = (int(size or 8) for size in match.groups())
  return {'rows': rows, 'columns': columns, 'random': 2 / columns - 1}


def verdict(
  trained: Sequence[Trained], updates: int, is_catch: bool
) -> list[str]:
  """What the numbers say, in sentences.

  Args:
    trained: the agents of each rule.
    updates: of each of them.
    is_catch: whether a return is the balls caught less those missed.

  Returns:
    The sentences.
  """
  final = {one.label: float(np.mean(one.curve[1][:, -1])) for one in trained}
  tell = lambda x: f'{50 + 50 * x:.0f}%' if is_catch else f'{x:.3g}'
  what = 'catch this share of the balls' if is_catch else 'return'
  found = [f'{tell(x)} with {_NAMES[label]}' for label, x in final.items()]
  sentences = [f'After {updates:,} updates agents {what}: {", ".join(found)}.']
  start, best = min(final.values()), max(final.values())
  level = start + 0.9 * (best - start)
  times = {one.label: _reached(one.curve, level, updates) for one in trained}
  reached = [
    f'{count:,} updates with {_NAMES[label]}'
    for label, count in times.items()
    if count is not None
  ]
  if best > start and reached:
    sentences.append(
      f'Their mean return is above {level:.2g} after {" and ".join(reached)}.'
    )
  return sentences


def _reached(
  curve: learning_curves.Curve, level: float, updates: int
) -> int | None:
  """The update at which the mean over agents is above a level; None: never."""
  steps, returns = curve
  above = np.flatnonzero(np.mean(returns, axis=0) > level)
  return round(updates * steps[above[0]] / steps[-1]) if len(above) else None


def _scores(trained: Sequence[Trained]) -> list[list[str]]:
  """The table: the mean over agents, its interval, and the worst agent."""
  rows = [['rule', 'mean return', '95% interval', 'worst agent']]
  for one in trained:
    returns = one.curve[1][:, -1]
    summary: dict[str, Any] = statistics.summarise(returns)
    interval = '{:.2f} to {:.2f}'.format(*summary['ci95'] or 2 * [np.nan])
    mean, worst = f'{summary["mean"]:.2f}', f'{np.min(returns):.2f}'
    rows.append([one.label, mean, interval if summary['ci95'] else '', worst])
  return rows
