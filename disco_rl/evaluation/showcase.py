"""The page of a discovery: its curves, its rule beside others, and films."""

import base64
from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

import numpy as np

from disco_rl.evaluation import learning_curves
from disco_rl.evaluation import pages
from disco_rl.evaluation import statistics
from disco_rl.runtime import files
from disco_rl.runtime import plotting


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
  """Fresh agents that one rule has trained.

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
    discovery: one sentence on the run that found the rule.
    meta_curves: PNG file of the run's curves.
    environment: that the fresh agents learn.
    updates: of each of them.
    trained: by rule, the order of the table.
    no_film: why there are no films; None if there are.
    commands: (purpose, command) to try next.
  """

  discovery: str
  meta_curves: pathlib.Path
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
      'scores': _scores(showcase.trained),
      'meta_curves': pages.png(showcase.meta_curves),
      'curves': pages.png(curves),
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
