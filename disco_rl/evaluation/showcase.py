"""A page about the result of a discovery, in words, numbers and films."""

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import re

import numpy as np

from disco_rl.environments import suites
from disco_rl.environments.jax_native import random_catch
from disco_rl.evaluation import pages
from disco_rl.maths import statistics
from disco_rl.runtime import files
from disco_rl.runtime import plotting
from disco_rl.runtime import reports
from disco_rl.training import learning_curves

BEFORE = 'before discovery'
DISCOVERED = 'discovered'
HAND_MADE = 'actor-critic'
# Their names in sentences.
_NAMES = {
  BEFORE: 'the rule as it was before discovery',
  DISCOVERED: 'the discovered rule',
  HAND_MADE: 'actor-critic (designed by hand)',
}
# Names of environments -> what they are, in sentences.
_PLACES = {'random_catch': 'Catch, on small boards of random sizes'}


@dataclasses.dataclass(frozen=True)
class Trained:
  """New agents that one rule has trained.

  Attributes:
    label: The rule's name on the page.
    curve: Steps [points] and mean returns [S, points].
    film: A GIF file of one of the agents, and the mean return of its episodes;
      None if there is no film.
  """

  label: str
  curve: learning_curves.Curve
  film: tuple[pathlib.Path, float] | None = None


@dataclasses.dataclass(frozen=True)
class Showcase:
  """The content of the page.

  Attributes:
    discovery: Facts about the run, such as its agents and seconds, by name.
    on: The environments and suites of the population, separated by commas.
    meta_curves: The PNG file of the run's curves.
    held_out: Meta-steps [N], and by held-out environment the mean returns [N]
      of new agents trained with the rule at these meta-steps.
    rule_meta_step: The meta-step of the rule, which they have chosen.
    environment: The environment that the new agents learn.
    trained: The new agents of each rule, in the order of the table.
    no_film: The reason why there are no films; None if there are some.
    commands: Suggested next commands, as (purpose, command).
  """

  discovery: Mapping[str, str]
  on: str
  meta_curves: pathlib.Path
  held_out: tuple[np.ndarray, Mapping[str, np.ndarray]]
  rule_meta_step: int
  environment: str
  trained: Sequence[Trained]
  no_film: str | None
  commands: Sequence[tuple[str, str]]


def write(path: files.PathLike, showcase: Showcase) -> None:
  """Writes the page as one self-contained file, atomically.

  Args:
    path: The HTML file; the learning curves are written next to it as PNG.
    showcase: The content of the page.
  """
  curves = pathlib.Path(path).with_name('showcase.png')
  curves.unlink(missing_ok=True)
  with reports.surviving(curves.name):
    plotting.save(
      learning_curves.draw(
        {one.label: one.curve for one in showcase.trained},
        showcase.environment,
      ),
      curves,
    )
  blocks = [*_found(showcase, curves), *_how(showcase)]
  pages.write_html(path, 'A discovered rule', blocks)


def _found(showcase: Showcase, curves: pathlib.Path) -> Iterator[pages.Block]:
  """Yields the blocks about the quality of the rule."""
  run, environment = showcase.discovery, showcase.environment
  on = showcase.on.split(',')
  elsewhere = ', in which the rule was not discovered'
  if environment in showcase.held_out[1]:
    elsewhere += ', but by which it was chosen'
  is_used = _is_used(environment, suites.listed(showcase.on))
  places = ', '.join(_PLACES.get(name, name) for name in on)
  yield pages.Heading('A rule was discovered', level=1)
  yield pages.Paragraph(
    'A rule tells an agent what to learn from what it has experienced. This '
    f'one is a neural network. It began as {run["began as"]}, and was changed '
    f'in {run["meta-steps"]} steps so that the agents that learn by it earn '
    f'high returns in {places}. Below, new agents learn {environment}'
    f'{"" if is_used else elsewhere}.'
  )
  if found := board(environment):
    yield pages.Paragraph(
      'In Catch a ball (orange) falls from the top of a board, here of '
      f'{found["rows"]} rows and {found["columns"]} columns, and a paddle '
      '(blue) in the bottom row must be under it when it lands: +1 for a '
      f'catch, -1 for a miss. Random play earns {found["random"]:.2f} on '
      'average, and the best possible is 1.'
    )
  sentences = verdict(showcase.trained, found is not None)
  yield pages.Paragraph(' '.join(['Result.', *sentences]), is_result=True)
  if showcase.no_film is None:
    yield pages.Paragraph(
      'The first agent of each rule at the end of training:'
    )
  else:
    yield pages.Paragraph(f'No films: {showcase.no_film}')
  for one in showcase.trained:
    if one.film is not None:
      film, mean_return = one.film
      caption = f'{one.label}: mean return {mean_return:.2f} in these episodes'
      yield pages.Figure(film, caption)
  yield pages.Heading('In numbers')
  yield pages.Table(_scores(showcase.trained))
  yield pages.Paragraph(
    f'Returns of {len(showcase.trained[0].curve[1])} new agents with each '
    f"rule, after {_steps(showcase.trained)}: means of an agent's last 100 "
    'episodes. The interval is a bootstrap over agents. Actor-critic has the '
    'data and networks that suit it, and equally many environment steps.'
  )
  yield pages.Figure(
    curves, 'Their learning curves. Thin: one agent; thick: the mean.'
  )


def _how(showcase: Showcase) -> Iterator[pages.Block]:
  """Yields the blocks about the discovery, and what to try next."""
  yield pages.Heading('How it was discovered')
  steps, values = showcase.held_out
  if len(steps):
    kept = showcase.rule_meta_step
    yield pages.Paragraph(
      'Now and then the rule trained new agents in held-out environments. The '
      f'rule after {kept:,} of {steps[-1]:,.0f} steps is kept, since the mean '
      'return of its agents, averaged with those of the evaluations just '
      'before and after, was the highest. The mean returns after so many steps:'
    )
    yield pages.Table(
      [
        ['steps', *(f'{step:,.0f}' for step in steps)],
        *(
          [name, *(f'{value:.2f}' for value in numbers)]
          for name, numbers in values.items()
        ),
        ['', *('kept' if step == kept else '' for step in steps)],
      ]
    )
  yield pages.Table([['the run', ''], *map(list, showcase.discovery.items())])
  yield pages.Figure(
    showcase.meta_curves,
    "The population's agents are reset at the end of their lifetimes, so their "
    'returns rise and fall; those of new agents after a fixed number of '
    'updates show the rule itself.',
  )
  yield pages.Heading('What to try next')
  yield pages.Paragraph(
    'In the folder of the repository, after source .venv/bin/activate:'
  )
  for purpose, command in showcase.commands:
    yield pages.Paragraph(purpose)
    yield pages.Code(command)


def board(environment: str) -> dict[str, float] | None:
  """Returns rows, columns and random play's return of Catch; None elsewhere.

  Random play catches a ball with a probability of 1 / columns.
  """
  match = re.fullmatch(r'catch(?:/(\d+)x(\d+))?', environment)
  if match is None:
    return None
  rows, columns = (int(size or 8) for size in match.groups())
  return {'rows': rows, 'columns': columns, 'random': 2 / columns - 1}


def _is_used(environment: str, on: Collection[str]) -> bool:
  """Returns whether `on`, the population's environments, include one."""
  found = board(environment)
  return environment in on or (
    found is not None
    and 'random_catch' in on
    and random_catch.has(found['rows'], found['columns'])
  )


def _steps(trained: Sequence[Trained]) -> str:
  """Says how many environment steps each agent has made."""
  return f'{trained[0].curve[0][-1]:,.0f} environment steps'


def verdict(trained: Sequence[Trained], is_catch: bool) -> list[str]:
  """Summarizes the numbers in sentences.

  Args:
    trained: The agents of each rule.
    is_catch: Whether a return is the balls caught minus the balls missed.
  """
  final = {one.label: float(np.mean(one.curve[1][:, -1])) for one in trained}
  tell = lambda x: f'{50 + 50 * x:.0f}%' if is_catch else f'{x:.3g}'
  what = 'catch this share of the balls' if is_catch else 'earn'
  found = [f'{tell(x)} with {_NAMES[label]}' for label, x in final.items()]
  sentences = [f'After {_steps(trained)} agents {what}: {", ".join(found)}.']
  start, best = min(final.values()), max(final.values())
  level = start + 0.9 * (best - start)
  times = {one.label: _reached(one.curve, level) for one in trained}
  reached = [
    f'{count:,.0f} steps with {_NAMES[label]}'
    for label, count in times.items()
    if count is not None
  ]
  if best > start and reached:
    sentences.append(
      f'Their mean return is above {level:.2g} after {" and ".join(reached)}.'
    )
  return sentences


def _reached(curve: learning_curves.Curve, level: float) -> float | None:
  """Returns the first step with a mean return above a level, or None."""
  steps, returns = curve
  above = np.flatnonzero(np.mean(returns, axis=0) > level)
  return float(steps[above[0]]) if len(above) else None


def _scores(trained: Sequence[Trained]) -> list[list[str]]:
  """Tabulates the mean over agents, its interval, and the worst agent."""
  rows = [['rule', 'mean return', '95% interval', 'worst agent']]
  for one in trained:
    returns = one.curve[1][:, -1]
    summary = statistics.summarize(returns)
    interval = '{:.2f} to {:.2f}'.format(*summary['ci95'] or 2 * [np.nan])
    mean, worst = f'{summary["mean"]:.2f}', f'{np.min(returns):.2f}'
    rows.append([one.label, mean, interval if summary['ci95'] else '', worst])
  return rows
