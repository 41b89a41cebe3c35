"""Plots the learning curves of several runs of disco-rl evaluate in one figure.

  disco-rl compare runs/mine runs/actor_critic --output=compare.png

Each folder becomes one curve, labeled with its rule or with --labels. Runs with
the same label are drawn as one curve, the mean of all their agents.
"""

from collections.abc import Collection
from collections.abc import Sequence
import pathlib

from absl import app
from absl import flags
import numpy as np

from disco_rl.evaluation import learning_curves
from disco_rl.runtime import digests
from disco_rl.runtime import metrics
from launch import common
from launch.errors import fail
from launch.errors import in_one_line

_OUTPUT = common.define_path('output', 'File, .png or .svg.')
_LABELS = flags.DEFINE_list(
  'labels',
  None,
  'Labels of the folders, in their order; by default their rules.',
)


def main(argv: Sequence[str]) -> None:
  """Reads the runs and plots them."""
  common.begin(argv[:1], is_cached=None)
  workdirs = [pathlib.Path(name).expanduser() for name in argv[1:]]
  if _OUTPUT.value is None:
    fail('Name the file of the figure: --output=FILE.')
  if pathlib.PurePath(_OUTPUT.value).suffix not in ('.png', '.svg'):
    fail(f'--output={_OUTPUT.value} must end in .png or .svg.')
  if not workdirs:
    fail('Name at least one folder of a run of disco-rl evaluate.')
  labels = _LABELS.value or len(workdirs) * [None]
  if len(labels) != len(workdirs):
    fail(f'--labels has {len(labels)} for {len(workdirs)} folders.')
  curves: dict[str, learning_curves.Curve] = {}
  environments = []
  for workdir, label in zip(workdirs, labels):
    with in_one_line():
      digests.check_summary(workdir)
    try:
      config = metrics.read_json(workdir / 'config.json')
      environment, rule = config['environment'], config['rule']
      curve = learning_curves.read_curve(workdir / 'metrics.csv')
    except (OSError, ValueError) as error:
      fail(f'{workdir} contains no run of disco-rl evaluate: {error}')
    except KeyError as error:
      fail(
        f'{workdir} contains no run of disco-rl evaluate: config.json lacks '
        f'{error}.'
      )
    environments.append(environment)
    label = label or _label(rule, curves)
    curves[label] = _joined(curves.get(label), curve, workdir)
  title = ', '.join(dict.fromkeys(environments))
  with in_one_line():
    pathlib.Path(_OUTPUT.value).parent.mkdir(parents=True, exist_ok=True)
    learning_curves.learning_curves(curves, _OUTPUT.value, title)
  print(_OUTPUT.value)


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
  app.run(main, flags_parser=common.parse_flags)
