"""Plots of learning curves."""

from collections.abc import Mapping

from matplotlib import axes
from matplotlib import figure
from matplotlib import ticker
import numpy as np

from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting

# Environment steps [points], returns [seeds, points].
Curve = tuple[np.ndarray, np.ndarray]


def learning_curves(
  curves: Mapping[str, Curve],
  path: files.PathLike,
  title: str = '',
  x_label: str = 'environment steps',
  y_label: str = 'return (mean of the last 100 episodes)',
) -> None:
  """Plots each seed as a thin line and their mean as a thick one, as PNG.

  The mean begins where every seed has a value: a mean over some seeds would
  jump as the others join.

  Args:
    curves: label -> steps [points] and returns [seeds, points]; NaN where a
      seed has no value.
    path: of the PNG file, 1280 x 880 pixels; written atomically.
    title: of the plot.
    x_label: of the horizontal axis.
    y_label: of the vertical axis.
  """
  fig = figure.Figure(figsize=(6.4, 4.4), layout='constrained')
  ax = fig.add_subplot()
  for i, (label, (steps, returns)) in enumerate(curves.items()):
    _draw(ax, steps, returns, label, plotting.colour(i))
  ax.set_title(title, loc='left', color=plotting.INK, fontsize=12, pad=10)
  ax.set_xlabel(x_label, color=plotting.INK)
  ax.set_ylabel(y_label, color=plotting.INK)
  ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  # From 0, so that a late first episode shows as such.
  ax.set_xlim(0, 1.01 * max(np.max(steps) for steps, _ in curves.values()))
  plotting.tidy(ax)
  legend = fig.legend(
    title='thick: mean of the seeds; thin: one seed',
    loc='outside lower center',
    ncols=2,
    frameon=False,
    labelcolor=plotting.INK,
  )
  legend.get_title().set(color='#777777', fontsize=8)
  plotting.save(fig, path)


def read_curve(csv_path: files.PathLike, column: str = 'return') -> Curve:
  """Steps and returns in a file that `metrics.MetricsWriter` wrote.

  Args:
    csv_path: has the columns update, seed, environment_steps and `column`.
    column: read in place of returns.

  Returns:
    Steps [points] and returns [seeds, points].

  Raises:
    OSError: there is no such file, or it cannot be read.
    files.WorkdirError: it is damaged, or lacks a column.
  """
  columns = metrics.read(csv_path)
  for name in ('update', 'seed', 'environment_steps', column):
    if name not in columns or columns[name].dtype.kind not in 'if':
      raise files.WorkdirError(
        f'{csv_path} has no column {name!r} of numbers, as the metrics of an '
        'agent have: likely damaged, or of another kind of run. Choose another '
        'folder.'
      )
  updates, point = np.unique(columns['update'], return_inverse=True)
  seeds, seed = np.unique(columns['seed'], return_inverse=True)
  # A run that was cut off may lack some seeds at its last point.
  returns = np.full((len(seeds), len(updates)), np.nan)
  returns[seed, point] = columns[column]
  steps = np.empty(len(updates))
  steps[point] = columns['environment_steps']
  return steps, returns


def _draw(
  ax: axes.Axes, steps: np.ndarray, returns: np.ndarray, label: str, colour: str
) -> None:
  # A line through a single point is invisible.
  marker = 'o' if len(steps) == 1 else None
  for of_seed in returns:
    ax.plot(
      steps, of_seed, color=colour, linewidth=0.7, alpha=0.35, marker=marker
    )
  seeds = '1 seed' if len(returns) == 1 else f'{len(returns)} seeds'
  ax.plot(
    steps,
    np.mean(returns, axis=0),
    color=colour,
    linewidth=2.2,
    label=f'{label} ({seeds})',
    marker=marker,
    solid_capstyle='round',
    # Above the thin lines of all the other curves too.
    zorder=3,
  )
