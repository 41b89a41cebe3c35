"""Learning curves: reads them from metrics, and plots them."""

from collections.abc import Mapping
import pathlib

from matplotlib import figure
from matplotlib import ticker
import numpy as np

from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting

# Environment steps [points], returns [seeds, points].
Curve = tuple[np.ndarray, np.ndarray]


def learning_curves(
  curves: Mapping[str, Curve],
  path: files.PathLike,
  title: str = '',
  measure: str = 'return',
) -> None:
  """Writes the figure of `draw` to a file."""
  plotting.save(draw(curves, title, measure), path)


def draw(
  curves: Mapping[str, Curve], title: str = '', measure: str = 'return'
) -> figure.Figure:
  """Plots each seed as a thin line and their mean as a thick one.

  The mean begins where every seed has a value: a mean over some of the seeds
  would jump when others join.

  Args:
    curves: Label -> steps [points] and returns [seeds, points]; NaN where a
      seed has no value.
    title: The figure's title.
    measure: The name of what is drawn.

  Returns:
    The figure.
  """
  fig, ax = plotting.panel(
    'environment steps', f'{measure} (mean of the last 100 episodes)'
  )
  ends: dict[str, tuple[float, str]] = {}
  styles = plotting.lines(curves)
  for label, (steps, returns) in curves.items():
    # A line through a single point is invisible.
    style: plotting.Style = {
      **styles[label],
      'marker': 'o' if len(steps) == 1 else None,
    }
    ax.plot(steps, returns.T, linewidth=0.7, alpha=0.35, **style)
    mean = np.mean(returns, axis=0)
    ax.plot(
      steps,
      mean,
      linewidth=2.2,
      label=label,
      solid_capstyle='round',
      zorder=3,  # Above the thin lines of all curves.
      **style,
    )
    # The last mean; if seeds without any point leave none, the last return.
    known = np.concatenate([returns.T.ravel(), mean])
    known = known[np.isfinite(known)]
    if len(known):
      ends[label] = known[-1], style['color']
  ax.set_title(title, loc='left', color=plotting.INK, fontsize=12, pad=10)
  ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  # From 0, so that a late first episode is visible.
  ax.set_xlim(0, 1.01 * max(np.max(steps) for steps, _ in curves.values()))
  plotting.label_ends(ax, ends)
  return fig


def read_curve(
  csv_path: files.PathLike, column: str = 'return', updates: float = np.inf
) -> Curve:
  """Reads a metric of agents from a file of `metrics.MetricsWriter`.

  Args:
    csv_path: The metrics.csv of a run.
    column: The metric.
    updates: The number of updates; later rows are left out.

  Returns:
    Steps [points], and returns or another metric [seeds, points].

  Raises:
    OSError: The file does not exist or cannot be read.
    files.WorkdirError: It is damaged, lacks a column, or has changed since
      its run ended.
  """
  digests.check_summary(pathlib.Path(csv_path).parent)
  files.check_exists(
    csv_path,
    'Likely the run has not logged yet: it first does after log_every updates. '
    'Wait for that, or resume the run if it was stopped.',
  )
  columns = metrics.read(csv_path)
  for name in ('update', 'seed', 'environment_steps', column):
    values = columns.get(name, np.empty(0))
    is_table = len(values) and values.dtype.kind in 'if'
    # Only returns may be missing.
    if not is_table or (name != column and not np.isfinite(values).all()):
      raise files.WorkdirError(
        f'{csv_path} has no column {name!r} of numbers, which the metrics of '
        'agents have: likely damaged, or from another kind of run. Restore the '
        'file, or choose another folder.'
      )
  points, point = np.unique(columns['update'], return_inverse=True)
  seeds, seed = np.unique(columns['seed'], return_inverse=True)
  numbers = seed * len(points) + point
  if len(np.unique(numbers)) < len(numbers):
    raise files.WorkdirError(
      f'{csv_path} has two rows of one seed and update: likely it was edited, '
      'or joined from two runs. Restore the file, or choose another folder.'
    )
  # An interrupted run may lack some seeds at its last point.
  returns = np.full((len(seeds), len(points)), np.nan)
  returns[seed, point] = columns[column]
  steps = np.empty(len(points))
  steps[point] = columns['environment_steps']
  kept = points <= updates
  return steps[kept], returns[:, kept]
