"""Plots the learning curves of several runs of disco-rl train in one figure.

  disco-rl compare runs/mine runs/actor_critic --output=compare.png

Each folder becomes one curve, labeled with its rule or with --labels. Runs with
the same label are drawn as one curve, the mean of all their agents.
"""

from collections.abc import Collection
from collections.abc import Sequence
import pathlib
from typing import Any

from absl import flags
import numpy as np

from disco_rl import config as config_lib
from disco_rl.evaluation import learning_curves
from disco_rl.evaluation import runner
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

# What may differ between runs of one label.
_FREE = {'seed', 'seeds', 'version', *runner.FREE}
_OUTPUT = common.define_path('output', 'File, .png or .svg.')
_LABELS = flags.DEFINE_list(
  'labels',
  None,
  'Labels of the folders, in their order; by default their rules.',
)


def main(argv: Sequence[str]) -> None:
  """Reads the runs and plots them."""
  common.begin(argv[:1], is_cached=None)
  workdirs = [pathlib.Path(config_lib.local(name)) for name in argv[1:]]
  if _OUTPUT.value is None:
    fail('Name the file of the figure: --output=FILE.')
  if pathlib.PurePath(_OUTPUT.value).suffix not in ('.png', '.svg'):
    fail(f'--output={_OUTPUT.value} must end in .png or .svg.')
  with in_one_line():
    files.check_writable(_OUTPUT.value)
  if not workdirs:
    fail('Name at least one folder of a run of disco-rl train.')
  labels = _LABELS.value or len(workdirs) * [None]
  if len(labels) != len(workdirs):
    fail(f'--labels has {len(labels)} for {len(workdirs)} folders.')
  folders = [workdir.resolve() for workdir in workdirs]
  if twice := [x for x in workdirs if folders.count(x.resolve()) > 1]:
    fail(f'{twice[0]} and {twice[-1]} are the same folder: name it once.')
  curves: dict[str, learning_curves.Curve] = {}
  configs: dict[str, list[dict[str, Any]]] = {}
  environments = []
  for workdir, label in zip(workdirs, labels):
    with in_one_line():
      digests.check_summary(workdir)
    try:
      config = metrics.read_json(workdir / 'config.json')
      environment, rule = f'{config["environment"]}', f'{config["rule"]}'
      curve = learning_curves.read_curve(workdir / 'metrics.csv')
    except (OSError, ValueError) as error:
      fail(f'{workdir} contains no run of disco-rl train: {error}')
    except KeyError as error:
      fail(
        f'{workdir} contains no run of disco-rl train: config.json lacks '
        f'{error}.'
      )
    environments.append(environment)
    label = label or _label(rule, curves)
    for other in configs.setdefault(label, []):
      _check_alike(config, other, workdir, label)
    configs[label].append(config)
    curves[label] = _joined(curves.get(label), curve, workdir)
  title = ', '.join(dict.fromkeys(environments))
  with in_one_line(ValueError):  # Of Matplotlib, about formulas in names.
    pathlib.Path(_OUTPUT.value).parent.mkdir(parents=True, exist_ok=True)
    learning_curves.learning_curves(curves, _OUTPUT.value, title)
  print(config_lib.shown(_OUTPUT.value))


def _check_alike(
  config: dict[str, Any],
  other: dict[str, Any],
  workdir: pathlib.Path,
  label: str,
) -> None:
  """Ends the program if the agents of two runs cannot have one label."""
  same = {name for name in config if config[name] == other.get(name)}
  differing = sorted({*config, *other} - same - _FREE)
  if differing:
    changes = '; '.join(
      f'{name} is {config.get(name)!r}, was {other.get(name)!r}'
      for name in differing
    )
    fail(
      f'{workdir} has other settings than the run before with the label '
      f'{label!r}: {changes}. Give it another label.'
    )
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
  """Returns the name of the rule, with a number if it is already taken."""
  labels = (rule, *(f'{rule} ({i})' for i in range(2, len(taken) + 3)))
  return next(label for label in labels if label not in taken)


if __name__ == '__main__':
  common.start(main)
