"""Figures of a comparison of rules over a benchmark."""

from collections.abc import Sequence
import math
from typing import Any

from matplotlib import axes
from matplotlib import figure
from matplotlib import ticker
import numpy as np

from disco_rl.evaluation import comparison
from disco_rl.evaluation import statistics
from disco_rl.runtime import files
from disco_rl.runtime import plotting

TITLES = {
  'iqm': 'IQM',
  'median': 'median',
  'mean': 'mean',
  'optimality_gap': 'optimality gap',
}
_PANEL_COLUMNS = 4


def aggregates(compared: comparison.Comparison, path: files.PathLike) -> None:
  """One panel per statistic: a point and its interval for each rule.

  Args:
    compared: what to draw, with at least one rule.
    path: of the PNG file, as in all functions here; written atomically.
  """
  names = aggregate_names(compared)
  num_rules = len(compared.best)
  fig = figure.Figure(
    figsize=(2.4 * len(names) + 1.2, 1.1 + 0.4 * num_rules),
    layout='constrained',
  )
  panels = fig.subplots(1, len(names), sharey=True, squeeze=False)[0]
  for ax, name in zip(panels, names, strict=True):
    for i, scores in enumerate(compared.best):
      _draw_interval(ax, i, scores.aggregates[name])
    ax.set_title(TITLES[name], color=plotting.INK, fontsize=10)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
    ax.margins(x=0.15)
    plotting.tidy(ax)
    ax.grid(visible=False, axis='y')
  panels[0].set_yticks(
    range(num_rules), [scores.rule for scores in compared.best]
  )
  panels[0].set_ylim(num_rules - 0.5, -0.5)
  plotting.save(fig, path)


def sample_efficiency(
  compared: comparison.Comparison, path: files.PathLike
) -> None:
  """IQM over environment steps, with bands."""
  fig, ax = _figure()
  for i, scores in enumerate(compared.best):
    _draw_band(ax, i, scores.curve_steps, scores.curve, scores.rule)
  ax.set_xlabel('environment steps of one agent', color=plotting.INK)
  ax.set_ylabel(_score_label(compared), color=plotting.INK)
  ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  _finish(fig, path)


def profiles(compared: comparison.Comparison, path: files.PathLike) -> None:
  """Share of agents above each score, with bands."""
  fig, ax = _figure()
  for i, scores in enumerate(compared.best):
    _draw_band(ax, i, compared.thresholds, scores.profile, scores.rule)
  ax.set_xlabel('normalised score', color=plotting.INK)
  ax.set_ylabel('share of agents above it', color=plotting.INK)
  ax.set_ylim(-0.02, 1.02)
  _finish(fig, path)


def learning_rates(
  compared: comparison.Comparison, path: files.PathLike
) -> None:
  """IQM at each learning rate."""
  fig, ax = _figure()
  for i, (rule, by_rate) in enumerate(compared.iqms.items()):
    known = {rate: e for rate, e in sorted(by_rate.items()) if e is not None}
    if known:
      _draw_rates(ax, i, known, rule)
  ax.set_xscale('log')
  rates = sorted({rate for rates in compared.iqms.values() for rate in rates})
  ax.set_xticks(rates, [f'{rate:g}' for rate in rates])
  ax.minorticks_off()
  ax.set_xlabel('learning rate', color=plotting.INK)
  ax.set_ylabel(_score_label(compared), color=plotting.INK)
  _finish(fig, path)


def environments(compared: comparison.Comparison, path: files.PathLike) -> None:
  """Learning curves in each environment, means over agents and their range."""
  names = compared.environments
  columns = min(len(names), _PANEL_COLUMNS)
  rows = math.ceil(len(names) / columns)
  fig = figure.Figure(
    figsize=(max(4.8, 2.6 * columns), 2.1 * rows + 0.8), layout='constrained'
  )
  panels = fig.subplots(rows, columns, squeeze=False).ravel()
  for ax, name in zip(panels, names):
    for i, scores in enumerate(compared.best):
      steps, returns = scores.curves[name]
      estimate = statistics.Estimate(
        returns.mean(axis=0), returns.min(axis=0), returns.max(axis=0)
      )
      _draw_band(ax, i, steps, estimate, scores.rule)
    ax.set_title(name, color=plotting.INK, fontsize=9)
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
    ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
    plotting.tidy(ax)
    ax.tick_params(labelsize=8)
  for ax in panels[len(names) :]:
    ax.set_visible(False)
  # Not as labels of axes: those of a whole figure lie where the legend does.
  _finish(fig, path, 'score, not normalised, over environment steps')


def aggregate_names(compared: comparison.Comparison) -> Sequence[str]:
  """The statistics that make sense: raw returns have no optimum at 1."""
  return [
    name
    for name in statistics.AGGREGATES
    if compared.is_normalised or name != 'optimality_gap'
  ]


def _figure() -> tuple[figure.Figure, axes.Axes]:
  fig = figure.Figure(figsize=(6.4, 4.2), layout='constrained')
  ax = fig.add_subplot()
  plotting.tidy(ax)
  return fig, ax


def _finish(
  fig: figure.Figure, path: files.PathLike, title: str | None = None
) -> None:
  """Adds the legend, which may have a title, and writes the file."""
  handles, labels = fig.axes[0].get_legend_handles_labels()
  fig.legend(
    handles,
    labels,
    title=title,
    loc='outside lower center',
    ncols=3,
    frameon=False,
    labelcolor=plotting.INK,
  )
  plotting.save(fig, path)


def _score_label(compared: comparison.Comparison) -> str:
  score = 'normalised score' if compared.is_normalised else 'return'
  return f'IQM of {score}'


def _draw_interval(
  ax: axes.Axes, row: int, estimate: statistics.Estimate
) -> None:
  colour = plotting.colour(row)
  if estimate.low is not None:
    ax.plot(
      [estimate.low, estimate.high],
      [row, row],
      color=colour,
      alpha=0.4,
      linewidth=7,
      solid_capstyle='butt',
    )
  ax.plot(estimate.value, row, marker='|', color=colour, markersize=14, mew=2)


def _draw_band(
  ax: axes.Axes,
  index: int,
  x: np.ndarray,
  estimate: statistics.Estimate,
  label: str,
) -> None:
  colour = plotting.colour(index)
  marker = 'o' if len(x) == 1 else None  # A line of one point is invisible.
  ax.plot(x, estimate.value, color=colour, label=label, marker=marker)
  if estimate.low is not None:
    ax.fill_between(
      x, estimate.low, estimate.high, color=colour, alpha=0.2, linewidth=0
    )


def _draw_rates(
  ax: axes.Axes,
  index: int,
  known: dict[float, statistics.Estimate],
  label: str,
) -> None:
  errors: Any = None
  if all(e.low is not None for e in known.values()):
    errors = np.transpose(
      [(e.value - e.low, e.high - e.value) for e in known.values()]
    )
  ax.errorbar(
    list(known),
    [e.value for e in known.values()],
    # The percentile interval need not hold the value itself.
    yerr=None if errors is None else np.maximum(errors, 0),
    color=plotting.colour(index),
    label=label,
    marker='o',
    capsize=3,
  )
