"""Plots the learning curves of several runs of disco-rl train in one figure.

  disco-rl compare runs/mine runs/actor_critic --output=compare.png

Each folder becomes one curve, labeled with its rule or with --labels. Runs with
the same label are drawn as one curve, the mean of all their agents. The final
means and the differences of labels are printed, with intervals for what
--resampled names:

  agents       How far would a result move with other agents, in these
               environments?
  levels       With other levels like these? The runs of a label are in several
               environments, the same for all labels, and their returns are
               normalized.
  discoveries  With other discoveries by the same recipe? The runs of a label
               are of several rules, which the recipe has discovered with
               different seeds.

  disco-rl compare runs/*_general runs/*_ppo --resampled=levels \
    --output=levels.png
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any

from absl import flags
import numpy as np

from disco_rl import paths
from disco_rl.evaluation import contrasts
from disco_rl.runtime import files
from disco_rl.runtime import workdirs
from disco_rl.training import config as training_config
from disco_rl.training import learning_curves
from disco_rl.training import stored
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

# What may differ between runs of one label.
_FREE = {'seed', 'seeds', *training_config.FREE}
_ALSO_FREE = {
  'agents': set[str](),
  'levels': {'environment'},
  'discoveries': {'environment', 'rule'},
}
# (rule, environment) -> the curve of its agents.
_Curves = dict[tuple[str, str], learning_curves.Curve]
_OUTPUT = common.define_path('output', 'File, .png or .svg.')
_LABELS = flags.DEFINE_list(
  'labels',
  None,
  'Labels of the folders, in their order; by default their rules.',
)
_RESAMPLED = flags.DEFINE_enum(
  'resampled',
  'agents',
  [*contrasts.SENTENCES],
  'What the printed intervals resample.',
)


def main(argv: Sequence[str]) -> None:
  """Reads the runs and plots them."""
  common.begin(argv[:1], is_cached=None)
  runs = [pathlib.Path(paths.local(name)) for name in argv[1:]]
  if _OUTPUT.value is None:
    fail('Name the file of the figure: --output=FILE.')
  if pathlib.PurePath(_OUTPUT.value).suffix not in ('.png', '.svg'):
    fail(f'--output={_OUTPUT.value} must end in .png or .svg.')
  with in_one_line():
    files.check_writable(_OUTPUT.value)
  if not runs:
    fail('Name at least one folder of a run of disco-rl train.')
  labels = _LABELS.value or len(runs) * [None]
  if len(labels) != len(runs):
    fail(f'--labels has {len(labels)} for {len(runs)} folders.')
  folders = [workdir.resolve() for workdir in runs]
  if twice := [x for x in runs if folders.count(x.resolve()) > 1]:
    fail(f'{twice[0]} and {twice[-1]} are the same folder: name it once.')
  if _RESAMPLED.value == 'discoveries' and not _LABELS.value:
    fail('--resampled=discoveries needs --labels: the recipe of each folder.')
  curves: dict[str, _Curves] = {}
  configs: dict[str, list[dict[str, Any]]] = {}
  environments = []
  for workdir, label in zip(runs, labels):
    with in_one_line():
      workdirs.check_holds_run(workdir, 'disco-rl train')
      config = workdirs.read_settings(workdir, stored.setting_names())
    try:
      environment, rule = f'{config["environment"]}', f'{config["rule"]}'
    except KeyError as error:
      fail(
        f'{workdir} holds no run of disco-rl train: config.json lacks {error}.'
      )
    with in_one_line():
      curve = learning_curves.read_curve(workdir / 'metrics.csv')
    environments.append(environment)
    label = label or _label(rule, curves)
    for other in configs.setdefault(label, []):
      _check_alike(config, other, workdir, label)
    configs[label].append(config)
    of_label = curves.setdefault(label, {})
    key = rule, environment
    of_label[key] = _joined(of_label.get(key), curve, workdir)
  _write(curves, list(dict.fromkeys(environments)), _OUTPUT.value)


def _write(
  curves: Mapping[str, _Curves], environments: Sequence[str], output: str
) -> None:
  """Draws the figure, and prints the table."""
  resampled, is_score = _RESAMPLED.value, False
  with in_one_line(ValueError):
    if any(len({x for _, x in own}) > 1 for own in curves.values()):
      is_score = True
      curves = {
        label: {
          key: contrasts.normalize(key[1], curve) for key, curve in own.items()
        }
        for label, own in curves.items()
      }
    labels = [contrasts.Label(*item) for item in curves.items()]
    drawn = {x.name: contrasts.curve(x, resampled) for x in labels}
    lines = [*contrasts.table(labels, resampled)]
    title = ', '.join(environments)
    if len(environments) > 3:
      title = f'{len(environments)} environments'
    # Errors of Matplotlib are about formulas in names.
    pathlib.Path(output).parent.mkdir(parents=True, exist_ok=True)
    learning_curves.learning_curves(
      drawn, output, title, 'score' if is_score else 'return'
    )
  print('\n'.join(map(paths.shown, lines)))
  print(paths.shown(output))


def _check_alike(
  config: dict[str, Any],
  other: dict[str, Any],
  workdir: pathlib.Path,
  label: str,
) -> None:
  """Ends the program if the agents of two runs cannot have one label."""
  same = {name for name in config if config[name] == other.get(name)}
  free = _FREE | _ALSO_FREE[_RESAMPLED.value]
  differing = sorted({*config, *other} - same - free)
  if differing:
    changes = '; '.join(
      f'{name} is {config.get(name)!r}, was {other.get(name)!r}'
      for name in differing
    )
    fail(
      f'{workdir} has other settings than the run before with the label '
      f'{label!r}: {changes}. Give it another label.'
    )
  if any(config[name] != other[name] for name in ('environment', 'rule')):
    return
  seeds, taken = (
    {x.get('seed', 0) + i for i in range(x.get('seeds', 1))}
    for x in (config, other)
  )
  if seeds & taken:
    fail(
      f'{workdir} has an agent of seed {min(seeds & taken)}, like a run before '
      f'with the label {label!r}: it would count twice. Leave it out.'
    )


def _joined(
  before: learning_curves.Curve | None,
  curve: learning_curves.Curve,
  workdir: pathlib.Path,
) -> learning_curves.Curve:
  """Adds the agents of another run to the agents of a label."""
  if before is None:
    return curve
  if not np.array_equal(before[0], curve[0]):
    fail(
      f'{workdir} has metrics at other environment steps than the run before '
      'with this label: runs of one label need the same settings.'
    )
  return curve[0], np.concatenate([before[1], curve[1]])


def _label(rule: str, taken: Collection[str]) -> str:
  """Returns the name of the rule, with a number if it is already taken.

  If levels are resampled, runs of a rule have one label.
  """
  if _RESAMPLED.value == 'levels':
    return rule
  labels = (rule, *(f'{rule} ({i})' for i in range(2, len(taken) + 3)))
  return next(label for label in labels if label not in taken)


if __name__ == '__main__':
  common.start(main)
