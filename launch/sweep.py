r"""Makes a run for each of many settings and seeds, and reports on all of them.

  disco-rl sweep --config=evaluate:quickstart \
    --grid=environment=catch/4x4,catch/6x5 --grid=rule=general,actor_critic \
    --grid=learning_rate=1e-3,5e-3 --processes=2 --workdir=runs/sweep
  disco-rl sweep --config=ablations --variants=full,no_q,no_y_and_z --seeds=3 \
    --workdir=runs/ablations

Each --grid names a setting and its values. There is a run for each combination
of values, or for --sample random combinations. The name of a suite stands for
its environments. --variants are names after the colon of --config. Other
settings, such as --config.updates=100, apply to all runs. Depending on the
config, the runs are those of train or of meta-train, whose --help lists the
settings. There is a run of meta-train for each of --seeds; a run of train
trains its --config.seeds in parallel.

Each run has a folder, VARIANT/SETTING-VALUE/..., with a subfolder seed_N for
the discovery with --config.seed=N. With several --processes, a run prints to a
file next to its folder. Repeat the command to continue with the remaining runs;
more variants, values or seeds add runs. A run that fails does not end the
others. report.md, report.html and summary.json compare finished runs;
figures/settings.png shows how the scores of each rule depend on the settings of
agents.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import itertools
import pathlib
import re
from typing import TYPE_CHECKING
from typing import Any

from absl import flags
from ml_collections import config_flags
import numpy as np

from disco_rl import paths
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

if TYPE_CHECKING:
  from disco_rl.evaluation import comparison
  from disco_rl.evaluation import planned_runs

_VARIANTS = flags.DEFINE_list(
  'variants', [], 'Names after the colon of --config, separated by commas.'
)
_SEEDS = flags.DEFINE_integer(
  'seeds',
  1,
  'Number of discoveries with each combination, from --config.seed on.',
  lower_bound=1,
)
_GRID = flags.DEFINE_multi_string(
  'grid', [], 'A setting and its values, NAME=VALUE,VALUE; may be repeated.'
)
_SAMPLE = flags.DEFINE_integer(
  'sample', None, 'Number of random combinations to run.', lower_bound=1
)
_RECIPES = flags.DEFINE_multi_string(
  'recipe',
  [],
  'A recipe and the rules that it discovered, as the report calls them, '
  'NAME=RULE,RULE; may be repeated. The report resamples its discoveries.',
)
_PROCESSES = common.processes_flag()
_SLURM = common.slurm_flag()

# Setting -> value, as text.
_Point = Mapping[str, str]
# Settings that have separate roles in the reports of both kinds of runs.
_OF_DISCOVERY = ('meta_learning_rate',)
_OF_TRAINING = ('learning_rate', 'environment', 'rule')


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Makes the remaining runs, then reports on all finished runs."""
  del settings  # Each run has its own.
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.evaluation import planned_runs
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import workdirs
  from launch import scheduler

  with in_one_line(ValueError, ImportError):
    runs = plan(workdir)
    recipes = _recipes(runs)
    is_discovery = runs[0].is_discovery
    if is_discovery:
      planned_runs.check(runs, meta_trainer.FREE, meta_trainer.complete)
    else:
      planned_runs.check(runs)
    with workdirs.locked(workdir):
      failures = scheduler.run(runs, _PROCESSES.value, workdir, _SLURM.value)
      report(runs, failures, workdir, recipes)
  print(paths.shown(workdir / 'report.md'))
  if failures:
    fail(
      f'{len(failures)} of {len(runs)} runs failed: '
      + '; '.join(f'{folder}: {text}' for folder, text in failures.items())
      + '. The same command repeats them, except those with a loss that is not '
      'finite: delete the folder of such a run to repeat it.'
    )


def plan(workdir: pathlib.Path) -> 'list[planned_runs.Run]':
  """Returns the runs that the flags describe, starting with the first seed.

  Raises:
    ValueError: A setting is unknown or not valid.
  """
  if (workdir / 'metrics.csv').exists():
    raise ValueError(
      f'{workdir} contains a single run. Choose another --workdir for several.'
    )
  pairs = _variants_and_points()
  rules = list(dict.fromkeys(x['rule'] for _, x in pairs if 'rule' in x))
  return [
    _make_run(workdir, variant, point, seed, rules)
    for seed in range(_SEEDS.value)
    for variant, point in pairs
  ]


def _variants_and_points() -> list[tuple[str, _Point]]:
  """Returns the variants and points of the runs of a single seed."""
  points = list(_points(_GRID.value))
  if _SAMPLE.value is not None:
    # A larger sample contains a smaller one, and keeps most of it if the grid
    # gets more values.
    order = lambda point: hashlib.sha256(repr(point).encode()).digest()
    drawn = sorted(points, key=order)[: _SAMPLE.value]
    points = [point for point in points if point in drawn]
  return list(itertools.product(_VARIANTS.value or [''], points))


def _points(grids: Sequence[str]) -> Iterator[_Point]:
  """Yields all combinations of the values of the settings."""
  from disco_rl.environments import registry
  from disco_rl.environments import suites

  axes: dict[str, list[str]] = {}
  for grid in grids:
    name, _, values = grid.partition('=')
    # Split at commas outside of brackets.
    listed = [x.strip() for x in re.findall(r'(?:\([^)]*\)|[^,(])+', values)]
    if not all(listed) or not listed or name in axes:
      raise ValueError(
        f'--grid={grid} must be a setting that no other --grid names, and its '
        'values, as in --grid=learning_rate=1e-3,5e-3.'
      )
    if name == 'environment':
      listed = list(itertools.chain(*map(suites.expand, listed)))
      for environment in listed:  # Before the rule's weights are loaded.
        registry.validate(environment)
    axes[name] = listed
  for chosen in itertools.product(*axes.values()):
    yield dict(zip(axes, chosen))


def _make_run(
  workdir: pathlib.Path,
  variant: str,
  point: _Point,
  seed: int,
  rules: Sequence[str],
) -> 'planned_runs.Run':
  """Makes a run, and checks its settings."""
  from disco_rl.evaluation import planned_runs
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import workdirs

  flag = flags.FLAGS['config']
  config = config_flags.get_config_filename(flag)
  file = config.partition(':')[0]
  if variant:
    config = f'{file}:{variant}'
  changes = {**config_flags.get_override_values(flag), **point}
  settings = common.settings_of(
    config, [f'--config.{name}={value}' for name, value in changes.items()]
  )
  is_discovery = 'meta_steps' in settings
  parts = [variant, *(f'{name}={value}' for name, value in point.items())]
  parts = list(filter(None, parts)) or [pathlib.Path(file).stem]
  folder = workdir.joinpath(*map(planned_runs.slug, parts))
  reported = _OF_DISCOVERY if is_discovery else _OF_TRAINING
  shown = [f'{k}={x}' for k, x in point.items() if k not in reported]
  label = list(filter(None, [variant, *shown]))
  if is_discovery:
    settings['seed'] += seed
    digests = planned_runs.digests_of(settings['rule'])
    folder /= f'seed_{settings["seed"]}'
    settings = workdirs.with_choices(folder, settings, changes)
    config = meta_trainer.config_of(settings, changes)
    return planned_runs.Run(
      ', '.join((*parts, f'seed {settings["seed"]}')),
      folder,
      ', '.join(label) or pathlib.Path(file).stem,
      meta_trainer.filled(settings, config),
      digests,
    )
  if _SEEDS.value > 1:
    raise ValueError(
      '--seeds is for discovery: disco-rl train trains the agents of one '
      f'run in parallel. Set --config.seeds={_SEEDS.value}.'
    )
  names = planned_runs.labels(rules or [settings['rule']])
  label.insert(0, names[settings['rule']])
  return planned_runs.training(
    ', '.join(parts), folder, ', '.join(label), settings
  )


def _recipes(runs: 'Sequence[planned_runs.Run]') -> dict[str, list[str]]:
  """Returns the rules of each --recipe."""
  known = dict.fromkeys(run.rule for run in runs)
  recipes: dict[str, list[str]] = {}
  for given in _RECIPES.value:
    name, _, rules = given.partition('=')
    recipes[name] = rules.split(',')
    if unknown := [x for x in recipes[name] if x not in known]:
      raise ValueError(
        f'--recipe={given} has {unknown[0]!r}, which is not a rule of the '
        f'report. Those are {", ".join(known)}.'
      )
    if runs[0].is_discovery:
      raise ValueError(
        '--recipe is for rules that train agents: in a report on discoveries, '
        'each variant is a recipe.'
      )
  return recipes


def report(
  runs: 'Sequence[planned_runs.Run]',
  failures: Mapping[pathlib.Path, str],
  workdir: pathlib.Path,
  recipes: Mapping[str, Sequence[str]],
) -> None:
  """Writes the report on finished runs.

  Args:
    runs: The runs of `plan`.
    failures: The reasons why runs have failed, by folder.
    workdir: The folder of the sweep.
    recipes: Recipe -> the names of the rules that it discovered.
  """
  from disco_rl.evaluation import comparison
  from disco_rl.evaluation import planned_runs
  from disco_rl.evaluation import report as report_lib
  from disco_rl.meta_training import held_out_results

  if runs[0].is_discovery:
    results, setup = held_out_results.read_all(runs, failures)
    report_lib.write(comparison.compare(results), setup, workdir)
    return
  results = [
    planned_runs.read(run, failure=failures.get(run.folder)) for run in runs
  ]
  setup = report_lib.of_training([run.config for run in runs])
  compared = comparison.compare(results, recipes=recipes)
  report_lib.write(compared, setup, workdir)
  _draw_settings(runs, results, workdir)


def _draw_settings(
  runs: 'Sequence[planned_runs.Run]',
  results: 'Sequence[comparison.Result]',
  workdir: pathlib.Path,
) -> None:
  """Draws each rule's scores against the agents' settings in an environment."""
  from disco_rl.evaluation import report_figures
  from disco_rl.runtime import plotting
  from disco_rl.runtime import reports

  pairs = _variants_and_points()
  axes = [name for name in pairs[0][1] if name != 'rule']
  axes = ['variant'] * bool(_VARIANTS.value) + axes
  path = workdir / 'figures' / 'settings.png'
  path.unlink(missing_ok=True)  # It may be of other runs.
  if not axes or len({result.environment for result in results}) > 1:
    return

  def shown(variant: str, point: _Point) -> str:
    values = [variant, *(x for name, x in point.items() if name != 'rule')]
    return ', '.join(filter(None, values))

  # In the order of the grid; a sample of it may lack some for some rules.
  grid = itertools.product(_VARIANTS.value or [''], _points(_GRID.value))
  drawn = {shown(*pair) for pair in pairs}
  settings = [x for x in dict.fromkeys(shown(*x) for x in grid) if x in drawn]
  scores: dict[str, dict[str, np.ndarray]] = {}
  for run, result, pair in zip(runs, results, pairs, strict=True):
    nothing = np.full(run.config.seeds, np.nan)
    of_rule = scores.setdefault(
      run.settings['rule'], dict.fromkeys(settings, nothing)
    )
    if not result.problem:
      of_rule[shown(*pair)] = result.returns
  name = axes[0] if len(axes) == 1 else None
  with reports.surviving('figures/settings.png'):
    plotting.save(report_figures.over_settings(scores, name), path)


if __name__ == '__main__':
  common.run(main)
