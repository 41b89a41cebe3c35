"""Plots a discovery run: returns, held-out returns, norms, entropies."""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib

from matplotlib import axes
from matplotlib import figure
import numpy as np

from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting

# If there are more lines than colors, only their mean is labeled.
_MAX_NAMED = 7

_NORMS = {
  'meta_gradient_norm': 'meta-gradient, before Adam',
  'meta_update_norm': "each agent's meta-update, after Adam",
  'rule_update_norm': 'mean of the meta-updates',
}
_ENTROPIES = {
  'validation_policy_entropy': 'entropy of pi',
  'validation_y_entropy': 'entropy of y',
  'validation_z_entropy': 'entropy of z',
  'target_kl': 'KL(pi_target || pi_hat)',
}

# Environment -> column -> values by meta-step.
_Series = Mapping[str, Mapping[str, np.ndarray]]


def meta_training_curves(
  workdir: files.PathLike, path: files.PathLike, held_out_updates: int
) -> None:
  """Plots the metrics of a run as PNG, 2000 x 1600 pixels, atomically.

  Args:
    workdir: The folder of the run, with metrics.csv and held_out/metrics.csv.
    path: The PNG file.
    held_out_updates: The number of updates of each held-out agent.
  """
  workdir = pathlib.Path(workdir)
  series = _read(workdir / 'metrics.csv')
  held_out = _read(workdir / 'held_out' / 'metrics.csv')
  fig = figure.Figure(figsize=(10, 8), layout='constrained')
  panels = fig.subplots(2, 2).ravel()
  _draw_returns(panels[0], series, "returns of the population's agents")
  _draw_returns(
    panels[1],
    held_out,
    f'returns of held-out agents after {held_out_updates:,} updates',
  )
  _draw_means(panels[2], series, _NORMS, 'norms, no unit')
  panels[2].set_yscale('log')
  _draw_means(panels[3], series, _ENTROPIES, 'entropies and divergence, nats')
  for panel in panels:
    plotting.tidy(panel)
    panel.set_xlabel('meta-steps', color=plotting.INK)
  plotting.save(fig, path)


def _read(path: pathlib.Path) -> _Series:
  columns = metrics.read(path)
  if not columns:
    return {}
  names = columns['environment']
  return {
    name: {key: column[names == name] for key, column in columns.items()}
    for name in dict.fromkeys(names.tolist())
  }


def _draw_returns(panel: axes.Axes, series: _Series, title: str) -> None:
  is_named = len(series) <= _MAX_NAMED
  for i, (name, columns) in enumerate(series.items()):
    color = plotting.color(i) if is_named else plotting.FAINT
    panel.plot(
      columns['meta_step'],
      columns['return'],
      color=color,
      linewidth=1.8 if is_named else 0.7,
      label=name if is_named else None,
      marker='o' if len(columns['return']) < 3 else None,
    )
    if 'return_min' in columns:
      panel.fill_between(
        columns['meta_step'],
        columns['return_min'],
        columns['return_max'],
        color=color,
        alpha=0.15,
        linewidth=0,
      )
  if not is_named:
    steps, mean = _mean_over(series, 'return')
    panel.plot(
      steps, mean, color=plotting.color(0), linewidth=2.2, label='mean'
    )
  _finish(panel, title, len(series))


def _draw_means(
  panel: axes.Axes, series: _Series, labels: Mapping[str, str], title: str
) -> None:
  """Draws the means of several columns over environments."""
  drawn = 0
  for i, (key, label) in enumerate(labels.items()):
    if all(key in columns for columns in series.values()):
      steps, mean = _mean_over(series, key)
      panel.plot(steps, mean, label=label, **plotting.line(i))
      drawn += 1
  _finish(panel, title, drawn)


def _mean_over(series: _Series, key: str) -> Sequence[np.ndarray]:
  first, *_ = series.values()
  values = np.array([columns[key] for columns in series.values()], float)
  count = np.sum(~np.isnan(values), axis=0)
  mean = np.nansum(values, axis=0) / np.where(count, count, np.nan)
  return first['meta_step'], mean


def _finish(panel: axes.Axes, title: str, num_lines: int) -> None:
  panel.set_title(title, loc='left', color=plotting.INK, fontsize=11)
  if num_lines:
    panel.legend(
      loc='upper center',
      bbox_to_anchor=(0.5, -0.14),  # Below the label of the axis.
      ncols=2,
      frameon=False,
      labelcolor=plotting.INK,
      fontsize=8,
    )
  else:
    panel.text(
      *(0.5, 0.5, 'none'),
      color=plotting.INK,
      ha='center',
      transform=panel.transAxes,
    )
