"""Writes the parts of the pages that are made from the code.

  python docs/generate.py
  python docs/generate.py --check
  python docs/generate.py --draw

The second command writes nothing, and fails if a page would change. The third
also draws the figures of the scores in docs/data. A part lies between two
comments, which a reader of the page does not see:

  <!-- made by docs/generate.py: NAME ARGUMENTS -->
  <!-- end -->

The names are those of `_PARTS`. Pages are therefore complete as files.
"""

import argparse
import ast
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import csv
import dataclasses
import difflib
import importlib
import inspect
import itertools
import math
import pathlib
import re
import statistics
import sys
import textwrap
import tomllib
from typing import Any
from typing import NamedTuple

import griffe
import numpy as np

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PART = re.compile(
  r'(?P<begin><!-- made by docs/generate\.py: (?P<name>\w+)(?P<arguments>[^>]*)'
  r' -->\n)(?P<text>.*?)(?P<end><!-- end -->)',
  re.DOTALL,
)
_DISCOVERIES = ('quickstart', 'scaling', 'general', 'disco57', 'disco103')
# Sections of docstrings -> their titles.
_SECTIONS = {
  'parameters': 'Arguments',
  'attributes': 'Attributes',
  'returns': 'Returns',
  'yields': 'Yields',
  'raises': 'Raises',
}


def pages() -> list[pathlib.Path]:
  """Returns the pages of the documentation, and the README."""
  return [_ROOT / 'README.md', *sorted((_ROOT / 'docs').glob('*.md'))]


def address() -> str:
  """Returns the address of the repository, from its one place."""
  text = (_ROOT / 'pyproject.toml').read_text(encoding='utf-8')
  return tomllib.loads(text)['project']['urls']['Repository']


def fill(markdown: str) -> str:
  """Returns a page with its parts as the code has them now."""

  def write(match: re.Match[str]) -> str:
    blocks = _PARTS[match['name']](*match['arguments'].split())
    text = '\n\n'.join(blocks)
    return f'{match["begin"]}\n{text}\n\n{match["end"]}'

  return _PART.sub(write, markdown)


def _import(name: str) -> Any:
  """Imports a module of the repository, which need not be installed."""
  if str(_ROOT) not in sys.path:
    sys.path.insert(0, str(_ROOT))
  return importlib.import_module(name)


def _install() -> Iterator[str]:
  """Shows how to fetch and install the package."""
  url = address()
  folder = url.rpartition('/')[2]
  yield f'```\ngit clone {url}\ncd {folder}\npip install -e .\n```'


def _colab(*named: str) -> Iterator[str]:
  """Links to notebooks in Colab, each given as TITLE=NAME."""
  start = address().replace(
    '//github.com/', '//colab.research.google.com/github/'
  )
  links = [
    f'[{title.replace("_", " ")}]({start}/blob/main/colabs/{name}.ipynb)'
    for title, name in (x.split('=') for x in named)
  ]
  yield f'In Colab: {", ".join(links)}.'


# Programs.


def _program(path: str, name: str) -> Iterator[str]:
  """Shows the lines of a program between the comments with a name."""
  lines = (_ROOT / path).read_text(encoding='utf-8').splitlines()
  bare = [line.strip() for line in lines]
  first = bare.index(f'# Shown as: {name}')
  last = bare.index(f'# End of: {name}')
  code = textwrap.dedent('\n'.join(lines[first + 1 : last])).strip()
  yield f'```python\n{code}\n```'


# Rules.


def _rules() -> Iterator[str]:
  """Shows the cards of the named rules, and links to their settings."""
  cards = _import('disco_rl.update_rules.cards')
  for name, card in _import('disco_rl').rules().items():
    yield cards.as_markdown(dataclasses.replace(card, settings={})).strip()
    if card.settings:
      path = f'../disco_rl/update_rules/shipped/{name}.json'
      yield f'[All settings of the discovery]({path}).'


def _learning_rates() -> Iterator[str]:
  """Tabulates the learning rates that suit rules, for two kinds of tasks."""
  lines = ['| rule | small tasks | with images |', '|---|---|---|']
  for name, card in _import('disco_rl').rules().items():
    rates = (
      card.recommended_for(is_image)['learning_rate']
      for is_image in (False, True)
    )
    lines.append(f'| `{name}` | ' + ' | '.join(f'{x:g}' for x in rates) + ' |')
  yield '\n'.join(lines)


# Results.


def _data(name: str) -> list[dict[str, str]]:
  """Reads the rows of a file of docs/data."""
  path = _ROOT / 'docs' / 'data' / name
  with path.open(newline='', encoding='utf-8') as file:
    return [*csv.DictReader(file)]


def _baselines() -> Iterator[str]:
  """Tabulates the returns in docs/data/baselines.csv."""
  rows = _data('baselines.csv')
  groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
  for row in rows:
    key = ('environment', 'library', 'rule', 'environment_steps')
    groups.setdefault(tuple(row[x] for x in key), []).append(row)
  lines = [
    '| environment | rule | steps | last 100 | each | greedy | each |',
    '|---|---|---|---|---|---|---|',
  ]
  for (task, library, rule, steps), group in sorted(
    groups.items(), key=lambda x: (x[0][0], x[0][2], int(x[0][3]))
  ):
    owner = '' if library == 'disco_rl' else ', Stable-Baselines3'
    cells = []
    for column in ('return', 'greedy'):
      values = [float(x[column]) for x in group if x[column]]
      mean = f'{sum(values) / len(values):.0f}' if values else ''
      cells += [mean, ', '.join(f'{x:.0f}' for x in values)]
    name = f'{task} | `{rule}`{owner} | {int(steps):,}'
    lines.append(f'| {name} | ' + ' | '.join(cells) + ' |')
  yield '\n'.join(lines)


def _terms() -> Iterator[str]:
  """Tabulates docs/data/terms.csv: rules as sums of hand-written terms.

  Numbers are means over agents, of coefficients medians over agents and ages.
  """
  rows = _data('terms.csv')
  ages = sorted({int(x['environment_steps']) for x in rows})
  shown = ages[0], ages[len(ages) // 2 - 1], ages[-1]
  alone = 'policy gradient, explained alone'
  titles = [f'after {x:,} steps' for x in shown]
  coefficients = [x for x in rows[0] if x.endswith(', coefficient')]
  names = [x.partition(',')[0] for x in coefficients]
  lines = [
    f'| rule | policy gradient alone, {" | ".join(titles)} | all terms, '
    f'mean | {" | ".join(f"coefficient: {x}" for x in names)} |',
    '|---' * (len(titles) + len(names) + 2) + '|',
  ]
  for rule in dict.fromkeys(x['rule'] for x in rows):
    own = [x for x in rows if x['rule'] == rule]
    cells = [
      statistics.fmean(
        float(x[alone]) for x in own if int(x['environment_steps']) == age
      )
      for age in shown
    ]
    cells.append(
      statistics.fmean(float(x['all terms, explained']) for x in own)
    )
    cells += [statistics.median(float(x[c]) for x in own) for c in coefficients]
    lines.append(f'| `{rule}` | {" | ".join(f"{x:.2f}" for x in cells)} |')
  yield '\n'.join(lines)


def _responses() -> Iterator[str]:
  """Tabulates docs/data/responses.csv: how targets respond to changes.

  Numbers are means over agents, by the distance to the change.
  """
  rows = _data('responses.csv')
  shown = [
    *(('reward', d) for d in (0, 4, 8, 16)),
    *(('another action', d) for d in (0, 4)),
    *(('end of the episode', d) for d in (0, 8)),
  ]
  titles = [f'{change}, {d}' for change, d in shown]
  lines = [
    f'| rule | target | {" | ".join(titles)} |',
    '|---' * (len(titles) + 2) + '|',
  ]
  for rule in dict.fromkeys(x['rule'] for x in rows):
    own = [x for x in rows if x['rule'] == rule]
    for target in ('policy', 'policy gradient', 'y', 'z'):
      cells = [
        [
          float(x[target])
          for x in own
          if (x['change'], int(x['distance'])) == one and x[target]
        ]
        for one in shown
      ]
      if all(cells):
        means = ' | '.join(f'{statistics.fmean(x):.2g}' for x in cells)
        lines.append(f'| `{rule}` | {target} | {means} |')
  yield '\n'.join(lines)


def _values() -> Iterator[str]:
  """Tabulates docs/data/values.csv: R^2 of exact values, means over agents."""
  rows = _data('values.csv')
  names = list(dict.fromkeys(x['prediction'] for x in rows))
  lines = [f'| rule | {" | ".join(names)} |', '|---' * (len(names) + 1) + '|']
  for rule in dict.fromkeys(x['rule'] for x in rows):
    cells = []
    for name in names:
      own = [x for x in rows if (x['rule'], x['prediction']) == (rule, name)]
      mean = statistics.fmean(float(x['r_squared']) for x in own) if own else ''
      cells.append(f'{mean:.2f}' if own else '')
    lines.append(f'| `{rule}` | {" | ".join(cells)} |')
  yield '\n'.join(lines)


def _meta_rnn_state() -> Iterator[str]:
  """Tabulates docs/data/meta_rnn_state.csv: R^2 from states, over agents.

  Means over agents; the mean difference has an interval by Student's t.
  """
  lib = _import('disco_rl.maths.statistics')
  scores: dict[tuple[str, str], dict[str, list[float]]] = {}
  for row in _data('meta_rnn_state.csv'):
    by_source = scores.setdefault((row['rule'], row['quantity']), {})
    by_source.setdefault(row['from'], []).append(float(row['r_squared']))
  sources = list(dict.fromkeys(x for one in scores.values() for x in one))
  lines = [
    f'| rule | quantity | {" | ".join(sources)} | state less untrained |',
    '|---' * (len(sources) + 3) + '|',
  ]
  for (rule, quantity), one in scores.items():
    cells = [
      f'{statistics.fmean(one[x]):.2f}' if x in one else '' for x in sources
    ]
    less = np.subtract(one['state'], one['untrained state'])
    cells.append(_interval(lib.across_discoveries(less), '+'))
    lines.append(f'| `{rule}` | {quantity} | {" | ".join(cells)} |')
  yield '\n'.join(lines)


def _meta_rnn_effect() -> Iterator[str]:
  """Tabulates docs/data/meta_rnn_effect.csv: how other states move targets.

  Numbers are medians over agents, with the least and the largest.
  """
  rows = _data('meta_rnn_effect.csv')
  ages = sorted({int(x['environment_steps']) for x in rows})
  shown = [
    (name, age)
    for name in dict.fromkeys(x['replacement'] for x in rows)
    for age in (ages[len(ages) // 2 - 1], ages[-1])
  ]
  titles = [f'{name}, after {age:,} steps' for name, age in shown]
  lines = [
    f'| rule | target | {" | ".join(titles)} |',
    '|---' * (len(titles) + 2) + '|',
  ]
  for rule in dict.fromkeys(x['rule'] for x in rows):
    for target in ('policy', 'y', 'z'):
      cells = []
      for name, age in shown:
        key = rule, name, str(age)
        moved = [
          float(x[target])
          for x in rows
          if (x['rule'], x['replacement'], x['environment_steps']) == key
          and x[target]
        ]
        if moved:
          ends = f'[{min(moved):.2g}, {max(moved):.2g}]'
          cells.append(f'{statistics.median(moved):.2g} {ends}')
      if cells:
        lines.append(f'| `{rule}` | {target} | {" | ".join(cells)} |')
  yield '\n'.join(lines)


class _Scores(NamedTuple):
  """The scores of one budget, of each rule in the same tests."""

  updates: int
  environment_steps: str
  by_rule: Mapping[str, np.ndarray]  # Rule -> [S, E].


def _protocol_scores(*families: str) -> list[_Scores]:
  """Reads the scores in docs/data/protocol.csv by budget, the smallest first.

  Tests in which the reference is not better than random play have none.

  Args:
    *families: Families of tests; none: all tests.
  """
  rows = [
    row
    for row in _data('protocol.csv')
    if (not families or row['task'].partition('/')[0] in families)
    and row['score'] != 'nan'
  ]
  budgets = []
  for updates in sorted({int(row['updates']) for row in rows}):
    own = [row for row in rows if int(row['updates']) == updates]
    steps = sorted({int(row['environment_steps']) for row in own})
    by_rule: dict[str, dict[str, list[float]]] = {}
    for row in own:
      by_task = by_rule.setdefault(row['rule'], {})
      by_task.setdefault(row['task'], []).append(float(row['score']))
    budgets.append(
      _Scores(
        updates,
        ' to '.join(f'{x:,}' for x in sorted({steps[0], steps[-1]})),
        {x: np.array([*tasks.values()]).T for x, tasks in by_rule.items()},
      )
    )
  return budgets


def _protocol(*families: str) -> Iterator[str]:
  """Tabulates IQMs of the protocol's scores, with levels resampled.

  Args:
    *families: Families of tests; none: all tests.
  """
  lib = _import('disco_rl.maths.statistics')
  budgets = _protocol_scores(*families)
  last = budgets[-1].by_rule
  rows = {
    rule: [
      lib.estimate(lib.iqm, x.by_rule[rule], resampled='levels')
      for x in budgets
    ]
    for rule in sorted(last, key=lambda x: -lib.iqm(last[x]))
  }
  yield _intervals('rule', budgets, rows)


def _differences(rule: str, *families: str) -> Iterator[str]:
  """Tabulates by how much the mean scores of a rule are above those of others.

  Args:
    rule: The rule.
    *families: Families of tests; none: all tests.
  """
  lib = _import('disco_rl.maths.statistics')
  budgets = _protocol_scores(*families)
  rows = {
    other: [
      lib.estimate(
        lib.difference, x.by_rule[rule], x.by_rule[other], resampled='levels'
      )
      for x in budgets
    ]
    for other in budgets[-1].by_rule
    if other not in (rule, 'uniform')
  }
  yield _intervals(f'`{rule}` minus', budgets, rows, '+')


def _choices() -> Iterator[str]:
  """Tabulates the settings with the highest IQM in protocol_validation.csv."""
  lib = _import('disco_rl.maths.statistics')
  normalization = _import('disco_rl.evaluation.normalization')
  scores: dict[str, dict[str, list[float]]] = {}
  for row in _data('protocol_validation.csv'):
    scale = normalization.find_scale(row['task'])
    of_rule = scores.setdefault(row['rule'], {})
    score = float(scale.normalize(float(row['return'])))
    of_rule.setdefault(row['settings'], []).append(score)
  lines = ['| rule | settings | IQM in validation |', '|---|---|---|']
  for rule, by_settings in scores.items():
    iqms = {x: lib.iqm(np.array([own])) for x, own in by_settings.items()}
    best = max(iqms, key=lambda x: iqms[x])
    lines.append(f'| `{rule}` | {best} | {iqms[best]:.2f} |')
  yield '\n'.join(lines)


def _chosen_scores(name: str) -> dict[str, tuple[str, dict[str, list[float]]]]:
  """Reads scores that rules have at learning rates that validation chose.

  Args:
    name: A file of docs/data, as by benchmarks.rule_scores.

  Returns:
    By rule the learning rate with the highest mean in the protocol's validation
    tasks, and its scores by task. A rule without them has one learning rate.
  """
  validation = {*_import('configs.protocol').VALIDATION}
  scores: dict[str, dict[str, dict[str, list[float]]]] = {}
  for row in _data(name):
    of_rule = scores.setdefault(row['rule'], {})
    by_task = of_rule.setdefault(row['learning_rate'], {})
    by_task.setdefault(row['environment'], []).append(float(row['score']))

  def in_validation(by_task: Mapping[str, list[float]]) -> float:
    own = [x for task, of in by_task.items() if task in validation for x in of]
    return statistics.fmean(own) if own else -math.inf

  chosen = {}
  for rule, by_rate in scores.items():
    rate = max(by_rate, key=lambda x: in_validation(by_rate[x]))
    chosen[rule] = rate, by_rate[rate]
  return chosen


def _windows() -> Iterator[str]:
  """Tabulates docs/data/windows.csv; validation chooses learning rates."""
  validation = {*_import('configs.protocol').VALIDATION}
  titles = ['validation', 'random_grid/200 to 9', 'random_grid/210 to 9']
  lines = [
    f'| rule | learning rate | {" | ".join(titles)} |',
    '|---|---' + '|---' * len(titles) + '|',
  ]
  for rule, (rate, by_task) in _chosen_scores('windows.csv').items():
    groups: dict[str, list[float]] = {}
    for task, own in by_task.items():  # Tests are taken by tens.
      group = titles[0] if task in validation else f'{task[:-1]}0 to 9'
      groups.setdefault(group, []).extend(own)
    means = (
      f'{statistics.fmean(groups[x]):.2f}' if x in groups else ''
      for x in titles
    )
    lines.append(f'| `{rule}` | {rate} | {" | ".join(means)} |')
  yield '\n'.join(lines)


class _Discoveries(NamedTuple):
  """The discoveries of one variant of configs/scaling.py."""

  grid_worlds: str  # A number, or 'all'.
  levels_met: float
  iqms: list[float]  # [D], of the new agents of each discovery.


def _levels_met(grid_worlds: str) -> float:
  """Simulates how many levels agents of configs/scaling.py meet, on average.

  Agents meet one level in each lifetime.
  """
  lib = _import('disco_rl.meta_training.lifetimes')
  config = _import('configs.scaling').get_config()
  settings = lib.LifetimeConfig(config.budgets, config.stagger)
  # The environments are grid worlds and a board of Catch, with equal groups.
  agents = config.agents // 2
  trajectories = config.inner_updates * config.num_environments
  trajectories += config.validation_trajectories
  steps = trajectories * config.unroll_length
  rng = np.random.default_rng(0)
  populations = [lib.init(rng, settings, agents) for _ in range(250)]
  lifetimes = lib.Lifetimes(
    *(np.concatenate(x) for x in zip(*map(dataclasses.astuple, populations)))
  )
  lives = np.ones(lifetimes.age.shape, int)
  for _ in range(config.meta_steps):
    lifetimes = lib.advance(lifetimes, steps, np.zeros(lives.shape, bool))
    lives += lifetimes.expired
    lifetimes = lib.reset_expired(rng, settings, lifetimes)
  of_population = lives.reshape(-1, agents).sum(axis=1)
  if grid_worlds == 'all':
    return float(np.mean(of_population))
  size = int(grid_worlds)
  return statistics.fmean(
    len({*rng.integers(size, size=n).tolist()}) for n in of_population
  )


def _scaling_scores() -> tuple[list[_Discoveries], dict[str, np.ndarray]]:
  """Reads docs/data/scaling.csv.

  Returns:
    The discoveries by increasing number of grid worlds, and the scores [S, E]
    of rules with names.
  """
  lib = _import('disco_rl.maths.statistics')
  config = _import('configs.scaling')
  arms: dict[str, list[float]] = {}
  named = {}
  for rule, (_, by_task) in _chosen_scores('scaling.csv').items():
    scores = np.array([by_task[x] for x in config.TESTS]).T
    if match := re.search(r'grids_(\w+)_\d', rule):
      arms.setdefault(match[1], []).append(float(lib.iqm(scores)))
    else:
      named[rule] = scores
  found = [_Discoveries(x, _levels_met(x), own) for x, own in arms.items()]
  return sorted(found, key=lambda x: x.levels_met), named


def _scaling() -> Iterator[str]:
  """Tabulates docs/data/scaling.csv, with intervals over discoveries.

  Intervals of rules with names resample levels.
  """
  lib = _import('disco_rl.maths.statistics')
  arms, named = _scaling_scores()
  lines = [
    '| rule | levels met | score | each discovery |',
    '|---|---|---|---|',
  ]
  for arm in arms:
    lines.append(
      f'| discovered on {arm.grid_worlds} | {arm.levels_met:.0f} | '
      f'{_interval(lib.across_discoveries(arm.iqms))} | '
      f'{", ".join(f"{x:.2f}" for x in arm.iqms)} |'
    )
  for x, y in itertools.combinations(reversed(arms), 2):
    difference = lib.between_recipes(x.iqms, y.iqms)
    lines.append(
      f'| {x.grid_worlds} minus {y.grid_worlds} | | '
      f'{_interval(difference, "+")} | |'
    )
  for rule, scores in sorted(named.items(), key=lambda x: -lib.iqm(x[1])):
    found = lib.estimate(lib.iqm, scores, resampled='levels')
    lines.append(f'| `{rule}` | | {_interval(found)} | |')
  yield '\n'.join(lines)


def _torsos() -> Iterator[str]:
  """Tabulates docs/data/torsos.csv, with levels resampled."""
  lib = _import('disco_rl.maths.statistics')
  scores: dict[str, dict[str, dict[str, list[float]]]] = {}
  for row in _data('torsos.csv'):
    by_level = scores.setdefault(row['rule'], {}).setdefault(row['torsos'], {})
    by_level.setdefault(row['environment'], []).append(float(row['score']))
  rules = {
    rule: {x: np.array([*own.values()]).T for x, own in by_torsos.items()}
    for rule, by_torsos in scores.items()
  }

  def cell(statistic: Any, *samples: np.ndarray | None, sign: str = '') -> str:
    if any(sample is None for sample in samples):
      return ''
    return _interval(
      lib.estimate(statistic, *samples, resampled='levels'), sign
    )

  lines = [
    '| rule | one torso | two | two minus one | two, minus two of `general` |',
    '|---|---|---|---|---|',
  ]
  for rule, found in rules.items():
    one, two = found.get('1'), found['2']
    general = None if rule == 'general' else rules['general']['2']
    cells = (
      cell(lib.mean, one),
      cell(lib.mean, two),
      cell(lib.difference, two, one, sign='+'),
      cell(lib.difference, two, general, sign='+'),
    )
    lines.append(f'| `{rule}` | {" | ".join(cells)} |')
  yield '\n'.join(lines)


def _intervals(
  title: str,
  budgets: Iterable[_Scores],
  rows: Mapping[str, Iterable[Any]],
  sign: str = '',
) -> str:
  """Tabulates an estimate for each rule and budget."""
  titles = [title, *(f'after {x.environment_steps} steps' for x in budgets)]
  lines = [f'| {" | ".join(titles)} |', '|---' * len(titles) + '|']
  for rule, estimates in rows.items():
    cells = [_interval(x, sign) for x in estimates]
    lines.append(f'| `{rule}` | {" | ".join(cells)} |')
  return '\n'.join(lines)


def _interval(estimate: Any, sign: str = '') -> str:
  """Formats an estimate with its interval."""
  low, high = estimate.ci95
  return f'{estimate.value:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]'


def _draw_protocol(path: pathlib.Path) -> None:
  """Draws the scores in unseen grid worlds, with levels resampled."""
  figure = importlib.import_module('matplotlib.figure')
  lib = _import('disco_rl.maths.statistics')
  plotting = _import('disco_rl.runtime.plotting')
  budgets = _protocol_scores('random_grid')
  last = budgets[-1].by_rule
  rules = sorted(last, key=lambda x: -lib.iqm(last[x]))
  styles = plotting.lines(rules)
  fig = figure.Figure(
    figsize=(5.6, 1.0 + 0.34 * len(rules)), layout='constrained'
  )
  panels = fig.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
  for ax, budget in zip(panels, budgets):
    for i, rule in enumerate(rules):
      found = lib.estimate(lib.iqm, budget.by_rule[rule], resampled='levels')
      color = styles[rule]['color']
      ax.plot(found.ci95, [i, i], color=color, linewidth=4, alpha=0.5)
      ax.plot(found.value, i, 'o', color=color)
    ax.set_title(
      f'after {budget.environment_steps} steps', color=plotting.INK, fontsize=11
    )
    ax.set_xlabel('score', color=plotting.INK, fontsize=11)
    ax.set_xlim(-0.05, 1.0)
    ax.set_xticks([0, 0.5, 1], ['0', '0.5', '1'])
    ax.tick_params(labelsize=10.5)
    plotting.tidy(ax)
    ax.grid(visible=False, axis='y')
  panels[0].set_yticks(range(len(rules)), rules)
  panels[0].set_ylim(len(rules) - 0.5, -0.5)
  plotting.save(fig, path)


def _draw_scaling(path: pathlib.Path) -> None:
  """Draws scores by the number of levels met, with rules for comparison."""
  lib = _import('disco_rl.maths.statistics')
  plotting = _import('disco_rl.runtime.plotting')
  arms, named = _scaling_scores()
  styles = plotting.lines(named)
  fig, ax = plotting.panel('grid worlds met', 'score')
  iqms = {rule: float(lib.iqm(scores)) for rule, scores in named.items()}
  for rule, iqm in iqms.items():
    ax.axhline(iqm, **styles[rule], linewidth=1.5)
  for arm in arms:
    found = lib.across_discoveries(arm.iqms)
    x = arm.levels_met
    ax.plot([x, x], found.ci95, color=plotting.INK, linewidth=4, alpha=0.3)
    ax.plot([x] * len(arm.iqms), arm.iqms, 'o', color=plotting.INK)
  ax.set_xscale('log')
  ax.set_xticks(
    [x.levels_met for x in arms],
    [f'{x.levels_met:.0f} (of {x.grid_worlds})' for x in arms],
  )
  ax.minorticks_off()
  ax.set_ylim(0, 1)
  plotting.label_ends(
    ax, {rule: (iqms[rule], styles[rule]['color']) for rule in iqms}
  )
  plotting.save(fig, path)


# Settings.


def _settings(name: str) -> Iterator[str]:
  """Tabulates settings with their meanings."""
  if name == 'preprocessing':
    families = _import('disco_rl.environments.families').FAMILIES
    records = [x.preprocessing for x in families.values() if x.preprocessing]
    return _tables(_import('disco_rl.config').sections(*records))
  module = _import(f'configs.{name}')
  sections = module.sections()
  if name == 'protocol':  # The others are those of training.
    title, settings = next(iter(sections.items()))
    values = module.get_config().to_dict()
    sections = {title: [x._replace(default=values[x.name]) for x in settings]}
  return _tables(sections)


def _changes(name: str) -> Iterator[str]:
  """Shows what configs change, folded."""
  module = _import(f'configs.{name}')
  if name == 'evaluate':
    for variant in module.VARIANTS:
      title = f'configs/evaluate.py:{variant}'
      yield _change(title, module.base(), module.get_config(variant))
    return
  # Those of an untrained rule, for settings that depend on the rule.
  defaults = _import('configs.records').defaults(module.sections())
  for config in _DISCOVERIES:
    changed = _import(f'configs.{config}').get_config()
    yield _change(f'configs/{config}.py', defaults, changed)
  ablations = _import('configs.ablations')
  full = ablations.get_config()
  full.update({k: defaults[k] for k, value in full.items() if value is None})
  for variant in ablations.VARIANTS:
    title = f'configs/ablations.py:{variant}'
    changed = ablations.get_config(variant)
    yield _change(title, full, changed)


def _tables(sections: Mapping[str, Iterable[Any]]) -> Iterator[str]:
  """Yields a heading and a table for each section."""
  for title, settings in sections.items():
    yield f'### {title}'
    yield _table(x for x in settings if x.name != 'preprocessing')


def _change(title: str, base: Any, config: Any) -> str:
  """Shows what a config changes, folded."""
  before, after = _flat(base), _flat(config)
  rows = [
    f'| `{name}` | `{_show(before.get(name))}` | `{_show(value)}` |'
    for name, value in after.items()
    if value is not None and value != before.get(name)
  ]
  table = [
    '| setting | default | here |',
    '|---|---|---|',
    *(rows or ['| none | | |']),
  ]
  return '\n'.join(
    [
      '<details markdown>',
      f'<summary><code>{title}</code></summary>',
      '',
      *table,
      '',
      '</details>',
    ]
  )


def _flat(config: Any) -> dict[str, Any]:
  """Returns settings by their names, those of rules and families last."""
  nested = ('by_rule', 'preprocessing')
  flat = {name: x for name, x in config.items() if name not in nested}
  for group in filter(config.get, nested):
    for owner, settings in config[group].items():
      flat |= {f'{group}.{owner}.{k}': x for k, x in settings.items()}
  return flat


def _table(settings: Iterable[Any]) -> str:
  lines = ['| setting | default | meaning |', '|---|---|---|']
  for name, _, default, meaning in settings:
    if not meaning:
      raise ValueError(f'The record of {name} does not say what it means.')
    text = _escape(meaning[0].upper() + meaning[1:])
    lines.append(f'| `{name}` | `{_show(default)}` | {text} |')
  return '\n'.join(lines)


def _escape(text: str) -> str:
  """Escapes what has a meaning in a table, but not within code."""
  return re.sub(r'(`[^`|]*`)|([|_*])', lambda x: x[1] or f'\\{x[2]}', text)


def _show(value: Any) -> str:
  return repr(value).replace('|', '\\|')


# The reference of the public names.


def _reference() -> Iterator[str]:
  """Shows the signature and the docstring of each public name."""
  package = _import('disco_rl')
  for name in package.__all__:
    yield from _described(name, getattr(package, name))


def _described(name: str, value: Any) -> Iterator[str]:
  """Describes a function, or a class with its methods, or a module."""
  yield f'## {name}'
  if inspect.ismodule(value):
    yield from _docstring(value)
    for own in _public(vars(value)):
      if getattr(vars(value)[own], '__module__', None) == value.__name__:
        yield from _member(f'{name}.{own}', vars(value)[own])
    return
  if not inspect.isclass(value):
    yield from _signature(name, value)
    yield from _docstring(value)
    return
  # The fields of a record are in its docstring.
  if '__init__' in vars(value) and not dataclasses.is_dataclass(value):
    yield from _signature(name, value)
  yield from _docstring(value)
  for own in _methods(value):
    member = inspect.getattr_static(value, own)
    if isinstance(member, classmethod | staticmethod):
      member = member.__func__
    yield from _member(f'{name}.{own}', member)


def _methods(cls: type) -> list[str]:
  """Lists the public methods and properties of a class and of its bases."""
  names: dict[str, None] = {}
  for base in cls.__mro__:
    if base.__module__.startswith('disco_rl'):
      names |= dict.fromkeys(_public(vars(base)))
  return [
    name
    for name in names
    if isinstance(
      inspect.getattr_static(cls, name), property | classmethod | staticmethod
    )
    or inspect.isfunction(inspect.getattr_static(cls, name))
  ]


def _public(names: Mapping[str, Any]) -> list[str]:
  return [name for name in names if not name.startswith('_')]


def _member(name: str, member: Any) -> Iterator[str]:
  yield f'### {name}'
  if not isinstance(member, property) and callable(member):
    yield from _signature(name, member)
  yield from _docstring(member)


def _signature(name: str, value: Any) -> Iterator[str]:
  """Shows the arguments of a function as its source has them."""
  function = value.__init__ if inspect.isclass(value) else value
  source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
  node = next(
    x for x in ast.walk(ast.parse(source)) if isinstance(x, ast.FunctionDef)
  )
  arguments = node.args
  for own in (arguments.posonlyargs, arguments.args):
    if own and own[0].arg in ('self', 'cls'):
      del own[0]
  returns = f' -> {ast.unparse(node.returns)}' if node.returns else ''
  if inspect.isclass(value):
    returns = ''
  line = f'{name}({ast.unparse(arguments)}){returns}'
  if len(line) > 88:
    parts = ast.unparse(arguments)
    split = re.split(r', (?=[*\w]+(?:[:=,]|$))', parts)
    line = '\n'.join([f'{name}(', *(f'  {x},' for x in split), f'){returns}'])
  yield f'```python\n{line}\n```'


def _docstring(value: Any) -> Iterator[str]:
  """Shows a docstring as Markdown."""
  text = inspect.getdoc(value)
  if not text:
    return
  parsed = griffe.Docstring(text, lineno=1, parser='google')
  for section in parsed.parse(warnings=False):
    if section.kind.value == 'text':
      yield section.value
    elif title := _SECTIONS.get(section.kind.value):
      yield f'{title}:'
      yield '\n'.join(map(_item, section.value))
    elif section.kind.value == 'admonition':
      yield f'{section.title}\n\n{section.value.description}'


def _item(item: Any) -> str:
  """Shows an argument, an attribute, a result or an error."""
  name = getattr(item, 'name', '') or ''
  if not name and type(item).__name__ == 'DocstringRaise':
    name = str(item.annotation)
  text = ' '.join(item.description.split())
  return f'- `{name}`: {text}' if name else f'- {text}'


# Figure of docs/images -> what draws it from docs/data.
_FIGURES = {
  'protocol_scores.png': _draw_protocol,
  'scaling.png': _draw_scaling,
}
_PARTS = {
  'install': _install,
  'colab': _colab,
  'program': _program,
  'rules': _rules,
  'learning_rates': _learning_rates,
  'baselines': _baselines,
  'terms': _terms,
  'responses': _responses,
  'values': _values,
  'meta_rnn_state': _meta_rnn_state,
  'meta_rnn_effect': _meta_rnn_effect,
  'protocol': _protocol,
  'differences': _differences,
  'choices': _choices,
  'windows': _windows,
  'scaling': _scaling,
  'torsos': _torsos,
  'settings': _settings,
  'changes': _changes,
  'reference': _reference,
}


def main() -> None:
  """Writes or checks all pages, and prints which change."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--check', action='store_true')
  parser.add_argument('--draw', action='store_true')
  arguments = parser.parse_args()
  is_check = arguments.check
  if arguments.draw:
    for name, draw in _FIGURES.items():
      draw(_ROOT / 'docs' / 'images' / name)
  has_changed = False
  for page in pages():
    before = page.read_text(encoding='utf-8')
    after = fill(before)
    if after == before:
      continue
    has_changed = True
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changed = sum(line[0] in '+-' for line in lines)
    print(f'{page.relative_to(_ROOT)}: {changed} lines')
    if not is_check:
      page.write_text(after, encoding='utf-8')
  if is_check and has_changed:
    sys.exit('Write these pages by python docs/generate.py.')


if __name__ == '__main__':
  main()
