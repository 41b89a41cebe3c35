r"""Runs a launcher with many settings and seeds, and reports on all runs.

  disco-rl sweep --config=quickstart \
    --grid=meta_learning_rate=1e-3,2e-3 --grid=inner_updates=5,10 \
    --seeds=3 --processes=2 --workdir=runs/sweep

Each --grid names a setting and its values; there is a run for each combination,
or for as many random ones as --sample says, with each of the seeds. --variants
are names after the colon of --config, as of configs/ablations.py; `disco-rl
ablate` is this program. Other settings, --config.meta_steps=100, hold for all
runs. With --launcher=evaluate agents are trained with a fixed rule; one run
then trains its seeds side by side.

Runs are commands of their own, in the folders VARIANT/SETTINGS/seed_I, and
print to a file beside the folder. The same command again goes on with what is
left; more variants, values or seeds add runs. report.md, report.html and
summary.json compare what has finished; with --launcher=evaluate,
figures/settings.png shows how much each rule's scores depend on the settings.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import math
import pathlib
import random
import re
import sys
from typing import Any

from absl import flags
from ml_collections import config_flags

from configs import evaluate
from configs import meta_training
from launch import common
from launch import modules
from launch import processes
from launch import to_records
from launch.at_once import AT_ONCE
from launch.errors import fail
from launch.errors import in_one_line

_LAUNCHER = flags.DEFINE_enum(
  'launcher', 'meta_train', ['meta_train', 'evaluate'], 'What is run.'
)
_VARIANTS = flags.DEFINE_list(
  'variants', [], 'Names after the colon of --config, with commas between.'
)
_SEEDS = flags.DEFINE_integer(
  'seeds', 1, 'Runs of each variant, of meta_train.', lower_bound=1
)
_GRID = flags.DEFINE_multi_string(
  'grid', [], 'A setting and its values, NAME=VALUE,VALUE; several times.'
)
_SAMPLE = flags.DEFINE_integer(
  'sample', None, 'Random combinations, not all of them.', lower_bound=1
)

# Setting -> value, as text.
_Point = Mapping[str, str]
# Launcher -> the setting and the summary's entry that count its steps, and the
# settings that a report has a place for.
_STEPS = {'meta_train': 'meta_steps', 'evaluate': 'updates'}
_REPORTED = {
  'meta_train': ('meta_learning_rate',),
  'evaluate': ('learning_rate', 'environment'),
}


@dataclasses.dataclass(frozen=True)
class Run(processes.Command):
  """One run of a sweep.

  Attributes:
    label: what the report calls its rule: the variant, and swept settings.
    point: variant and swept settings but the rule -> value.
    settings: all of them.
  """

  label: str
  point: _Point = dataclasses.field(hash=False)
  settings: Mapping[str, Any] = dataclasses.field(hash=False)


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Runs what is not over, then reports on all that has finished."""
  del settings  # Each run has its own.
  from disco_rl.runtime import workdirs

  with in_one_line(ValueError, ImportError):
    runs = plan(workdir)
    with workdirs.locked(workdir):
      failures = processes.run_all(runs, AT_ONCE.value)
      report(runs, failures, workdir)
  print(workdir / 'report.md')
  if failures:
    fail(
      f'{len(failures)} of {len(runs)} runs failed: '
      + '; '.join(f'{folder}: {text}' for folder, text in failures.items())
      + '. The same command tries them again.'
    )


def plan(workdir: pathlib.Path) -> list[Run]:
  """The runs that the flags describe, those of the first seed first.

  Args:
    workdir: of the sweep.

  Returns:
    The runs.

  Raises:
    ValueError: a setting is unknown or not valid, or two runs would share a
      folder.
  """
  if (workdir / 'metrics.csv').exists():
    raise ValueError(
      f'{workdir} contains a single run. Choose another --workdir for several.'
    )
  points = _points(_GRID.value)
  if _SAMPLE.value is not None and _SAMPLE.value < len(points):
    points = random.Random(0).sample(points, _SAMPLE.value)
  if _LAUNCHER.value == 'evaluate' and _SEEDS.value > 1:
    raise ValueError(
      '--seeds is for meta_train: evaluate trains the agents of one run side '
      f'by side. Set --config.seeds={_SEEDS.value}.'
    )
  runs = [
    _make_run(workdir, variant, point, seed)
    for seed in range(_SEEDS.value)
    for variant in _VARIANTS.value or ['']
    for point in points
  ]
  folders = [run.folder for run in runs]
  twice = [run for run in runs if folders.count(run.folder) > 1]
  if twice:
    raise ValueError(
      f'Several runs would share the folder {twice[0].folder}: leave out a '
      'variant or a value that is named twice.'
    )
  return runs


def report(
  runs: Sequence[Run],
  failures: Mapping[pathlib.Path, str],
  workdir: pathlib.Path,
) -> None:
  """Writes the report on the runs.

  Args:
    runs: of `plan`, none of which is going on.
    failures: of `processes.run_all`.
    workdir: of the sweep.
  """
  from disco_rl.evaluation import report as report_lib
  from disco_rl.runtime import reports

  groups: dict[Any, list[Run]] = {}
  for run in runs:
    reported = (run.settings[x] for x in _REPORTED[_LAUNCHER.value])
    groups.setdefault((run.label, *reported), []).append(run)
  read = {'meta_train': _of_discoveries, 'evaluate': _of_training}
  results, setup = read[_LAUNCHER.value](list(groups.values()), failures)
  report_lib.write(results, setup, workdir)
  if _LAUNCHER.value == 'evaluate':
    with reports.surviving('figures/settings.png'):
      _draw_settings(runs, results, workdir)


def _draw_settings(
  runs: Sequence[Run], results: Sequence[Any], workdir: pathlib.Path
) -> None:
  """Draws each rule's scores over the settings of agents in an environment."""
  from disco_rl.evaluation import settings_figure
  from disco_rl.runtime import plotting

  names = tuple(runs[0].point)
  environments = {run.settings['environment'] for run in runs}
  if not names or len(environments) > 1:
    return
  scores: dict[str, dict[str, Any]] = {}
  for run, result in zip(runs, results):
    setting = ', '.join(run.point.values())
    nothing = [math.nan] * run.settings['seeds']
    of_rule = scores.setdefault(run.settings['rule'], {})
    of_rule[setting] = nothing if result.problem else result.returns
  fig = settings_figure.draw(scores, names[0] if len(names) == 1 else None)
  plotting.save(fig, workdir / 'figures' / 'settings.png')


def _points(grids: Sequence[str]) -> list[_Point]:
  """All combinations of the values of the settings."""
  axes = {}
  for grid in grids:
    name, equals, values = grid.partition('=')
    listed = _split(values)
    if not equals or not listed or name in axes:
      raise ValueError(
        f'--grid={grid} must be a setting that no other --grid names, and its '
        'values, as in --grid=learning_rate=1e-3,5e-3.'
      )
    axes[name] = listed
  return [
    dict(zip(axes, values)) for values in itertools.product(*axes.values())
  ]


def _split(text: str) -> list[str]:
  """Splits at commas, but not at those within brackets."""
  parts = re.findall(r'(?:\([^)]*\)|[^,(])+', text)
  return [part.strip() for part in parts if part.strip()]


def _make_run(
  workdir: pathlib.Path, variant: str, point: _Point, seed: int
) -> Run:
  """One run, whose settings are checked."""
  from disco_rl.evaluation import sweep

  launcher, flag = _LAUNCHER.value, flags.FLAGS['config']
  config = config_flags.get_config_filename(flag)
  file = config.partition(':')[0]
  if variant:
    config = f'{file}:{variant}'
  changes = {**config_flags.get_override_values(flag), **point}
  settings = common.settings_of(config, _as_flags(changes))
  if launcher == 'meta_train':
    changes['seed'] = settings['seed'] + seed
    settings['seed'] = changes['seed']
  else:
    to_records.refuse_lists(settings, 'name them as --grid=environment=A,B')
  to_records.BY_LAUNCHER[launcher](settings)
  swept = [f'{name}={value}' for name, value in point.items()]
  name = variant or pathlib.Path(file).stem
  folder = workdir.joinpath(*map(sweep.slug, (name, *swept, f'seed_{seed}')))
  label = [
    part for part in swept if part.partition('=')[0] not in _REPORTED[launcher]
  ]
  return Run(
    name=', '.join((name, *swept, f'seed {seed}')),
    folder=folder,
    counter=_STEPS[launcher],
    goal=settings[_STEPS[launcher]],
    arguments=(
      *('-m', 'disco_rl', launcher.replace('_', '-'), f'--config={config}'),
      *(*_as_flags(changes), f'--workdir={folder}'),
      *(f'--import={name}' for name in modules.IMPORT.value),
    ),
    label=', '.join([variant, *label] if variant else label) or name,
    point={
      **({'variant': variant} if variant else {}),
      **{name: value for name, value in point.items() if name != 'rule'},
    },
    settings=settings,
  )


def _as_flags(changes: Mapping[str, Any]) -> list[str]:
  return [f'--config.{name}={value}' for name, value in changes.items()]


def _of_discoveries(
  groups: Sequence[Sequence[Run]], failures: Mapping[pathlib.Path, str]
) -> tuple[list[Any], Any]:
  """Results of the variants, whose discoveries differ in their seeds."""
  from disco_rl.environments import suites
  from disco_rl.evaluation import comparison
  from disco_rl.meta_training import held_out_results

  results = []
  for group in groups:
    first, rate = group[0], group[0].settings['meta_learning_rate']
    failed = [failures[run.folder] for run in group if run.folder in failures]
    if not failed:
      folders = [run.folder for run in group]
      results += held_out_results.read(first.label, rate, folders)
      continue
    results += [
      comparison.failed(name, first.label, rate, failed[0])
      for name in suites.listed(first.settings['held_out_environments'])
    ]
  span = lambda name: _span(groups, name)
  return results, held_out_results.Setup(
    seeds=len(groups[0]),
    meta_steps=span('meta_steps'),
    agents=span('agents'),
    held_out_seeds=span('held_out_seeds'),
    held_out_updates=span('held_out_updates'),
  )


def _of_training(
  groups: Sequence[Sequence[Run]], failures: Mapping[pathlib.Path, str]
) -> tuple[list[Any], Any]:
  """Results of runs of disco-rl evaluate, each of several agents."""
  from disco_rl.evaluation import comparison
  from disco_rl.evaluation import report as report_lib

  results, configs = [], []
  for (run,) in groups:
    config = to_records.evaluation(run.settings)
    configs.append(config)
    identity = config.environment, run.label, config.agent.learning_rate
    failure = failures.get(run.folder)
    results.append(
      comparison.failed(*identity, failure)
      if failure is not None
      else comparison.read_result(
        run.folder / 'metrics.csv', *identity, config.environment_steps
      )
    )
  sizes = [(x.seeds, x.updates, x.environment_steps) for x in configs]
  return results, report_lib.Setup(*map(max, zip(*sizes)))


def _span(groups: Sequence[Sequence[Run]], name: str) -> tuple[int, int]:
  """Least and most of a setting."""
  values = [group[0].settings[name] for group in groups]
  return min(values), max(values)


if __name__ == '__main__':
  # Names of configs are those that the launcher knows.
  is_evaluate = re.search(r'-launcher[= ]evaluate\b', ' '.join(sys.argv))
  common.run(main, base=evaluate if is_evaluate else meta_training)
