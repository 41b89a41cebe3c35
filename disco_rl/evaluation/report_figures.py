"""Figures of a comparison of rules over a benchmark."""

from collections.abc import Mapping
import math

from matplotlib import axes
from matplotlib import figure
from matplotlib import ticker
import numpy as np

from disco_rl.evaluation import comparison
from disco_rl.evaluation import normalization
from disco_rl.maths import statistics
from disco_rl.runtime import plotting
from disco_rl.training import learning_curves

TITLES = {
  'iqm': 'IQM',
  'median': 'median',
  'mean': 'mean',
  'optimality_gap': 'optimality gap',
}
_PANEL_COLUMNS = 2
# Steps or thresholds [points], and estimates [points].
_Band = tuple[np.ndarray, statistics.Estimate]


def aggregate_names(compared: comparison.Comparison) -> list[str]:
  """Returns the statistics that apply: raw returns have no optimum at 1."""
  return [
    name
    for name in statistics.AGGREGATES
    if compared.is_normalized or name != 'optimality_gap'
  ]


def metric(compared: comparison.Comparison) -> str:
  """Returns what the environments are scored by, before normalization."""
  return ' or '.join(
    dict.fromkeys(map(normalization.column, compared.environments))
  )


def aggregates(compared: comparison.Comparison) -> figure.Figure:
  """Draws a panel per statistic: agents, value and interval of each rule."""
  names = aggregate_names(compared)
  num_rules = len(compared.best)
  fig = figure.Figure(
    figsize=(2.4 * len(names) + 1.2, 1.1 + 0.4 * num_rules),
    layout='constrained',
  )
  panels = fig.subplots(1, len(names), sharey=True, squeeze=False)[0]
  styles = plotting.lines(scores.rule for scores in compared.best)
  for ax, name in zip(panels, names, strict=True):
    for i, scores in enumerate(compared.best):
      color = styles[scores.rule]['color']
      _draw_interval(ax, i, color, scores.aggregates[name])
      of_agents = statistics.AGGREGATES[name](scores.scores[:, None])
      rows = np.full(len(of_agents), i)
      ax.plot(of_agents, rows, '.', color=color, markersize=5, alpha=0.8)
    ax.set_title(TITLES[name], color=plotting.INK, fontsize=10)
    ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
    ax.margins(x=0.15)
    plotting.tidy(ax)
    ax.grid(visible=False, axis='y')
  panels[0].set_yticks(range(num_rules), [s.rule for s in compared.best])
  panels[0].set_ylim(num_rules - 0.5, -0.5)
  return fig


def sample_efficiency(compared: comparison.Comparison) -> figure.Figure:
  """Draws the IQM over environment steps, with bands."""
  fig, ax = plotting.panel(
    'environment steps of one agent', _score_label(compared)
  )
  _draw_bands(ax, {s.rule: (s.curve_steps, s.curve) for s in compared.best})
  ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
  plotting.legend_below(fig)
  return fig


def profiles(compared: comparison.Comparison) -> figure.Figure:
  """Draws the fraction of agents above each score, with bands."""
  fig, ax = plotting.panel('normalized score', 'fraction of agents above it')
  thresholds = compared.thresholds
  _draw_bands(ax, {s.rule: (thresholds, s.profile) for s in compared.best})
  ax.set_ylim(-0.02, 1.02)
  plotting.legend_below(fig)
  return fig


def learning_rates(compared: comparison.Comparison) -> figure.Figure:
  """Draws the IQM at each learning rate, with intervals."""
  fig, ax = plotting.panel('learning rate', _score_label(compared))
  styles = plotting.lines(compared.iqms)
  for rule, by_rate in compared.iqms.items():
    known = {rate: e for rate, e in sorted(by_rate.items()) if e is not None}
    # A percentile interval may not contain the value itself.
    errors = [
      (max(e.value - e.low, 0), max(e.high - e.value, 0))
      for e in known.values()
      if e.low is not None
    ]
    if known:
      ax.errorbar(
        list(known),
        [e.value for e in known.values()],
        yerr=np.transpose(errors) if errors else None,
        **styles[rule],
        label=rule,
        marker='o',
        capsize=3,
      )
  ax.set_xscale('log')
  rates = sorted(
    {rate for by_rate in compared.iqms.values() for rate in by_rate}
  )
  ax.set_xticks(rates, [f'{rate:g}' for rate in rates])
  ax.minorticks_off()
  plotting.legend_below(fig)
  return fig


def environments(compared: comparison.Comparison) -> figure.Figure:
  """Draws the mean and range of agents in each environment over time."""
  names = compared.environments
  columns = min(len(names), _PANEL_COLUMNS)
  rows = math.ceil(len(names) / columns)
  fig = figure.Figure(
    figsize=(max(4.8, 3.0 * columns), 2.3 * rows + 0.8), layout='constrained'
  )
  panels = fig.subplots(rows, columns, squeeze=False).ravel()
  for ax, name in zip(panels, names):
    _draw_bands(ax, {s.rule: _range(s.curves[name]) for s in compared.best})
    ax.set_title(name, color=plotting.INK, fontsize=9)
    ax.xaxis.set_major_formatter(ticker.EngFormatter(sep=''))
    ax.xaxis.set_major_locator(ticker.MaxNLocator(3))
    plotting.tidy(ax)
    ax.tick_params(labelsize=8)
  for ax in panels[len(names) :]:
    ax.set_visible(False)
  fig.supylabel(metric(compared), color=plotting.INK, fontsize=10)
  # An axis label of the figure would overlap the legend.
  plotting.legend_below(fig, 'over environment steps of one agent')
  return fig


def over_settings(
  scores: Mapping[str, Mapping[str, np.ndarray]], name: str | None
) -> figure.Figure:
  """Draws a line for each rule over the settings of agents.

  Lines connect mean scores, and dots are agents, as in Extended Data Fig. 1.

  Args:
    scores: Rule -> text of the settings -> scores of the agents, [S]; NaN for
      missing ones.
    name: The name of the setting that varies, if there is only one: its values
      are the x-axis, as in panels a and b. None: combinations are ranked by
      their mean, best first, separately for each rule, as in panel c.
  """
  label = 'combinations of settings, ranked' if name is None else name
  fig, ax = plotting.panel(label, 'score at the end of training')
  styles = plotting.lines(scores)
  for rule, by_setting in scores.items():
    values = np.stack(list(by_setting.values()))
    if name is None:
      values = ranked(values)
    x = np.arange(1, len(values) + 1)
    style = styles[rule]
    ax.plot(x, values, '.', color=style['color'], alpha=0.35)
    ax.plot(x, values.mean(axis=1), marker='o', label=rule, **style)
    if name is not None:
      ax.set_xticks(x, list(by_setting))
  plotting.legend_below(fig, 'line: mean; dots: one agent')
  return fig


def ranked(scores: np.ndarray) -> np.ndarray:
  """Sorts rows [N, S] by their mean, the highest first, NaN last."""
  return scores[np.argsort(-scores.mean(axis=1), kind='stable')]


def _score_label(compared: comparison.Comparison) -> str:
  score = 'normalized score' if compared.is_normalized else metric(compared)
  return f'IQM of {score}'


def _draw_interval(
  ax: axes.Axes, row: int, color: str, estimate: statistics.Estimate
) -> None:
  if interval := estimate.ci95:
    ax.plot(
      interval,
      [row, row],
      color=color,
      alpha=0.4,
      linewidth=7,
      solid_capstyle='butt',
    )
  ax.plot(estimate.value, row, marker='|', color=color, markersize=14, mew=2)


def _range(curve: learning_curves.Curve) -> _Band:
  """Computes the mean and the range of agents."""
  steps, returns = curve
  return steps, statistics.Estimate(
    returns.mean(axis=0), returns.min(axis=0), returns.max(axis=0)
  )


def _draw_bands(ax: axes.Axes, bands: Mapping[str, _Band]) -> None:
  """Draws a curve with its interval for each label."""
  styles = plotting.lines(bands)
  for label, (x, estimate) in bands.items():
    marker = 'o' if len(x) == 1 else None  # A line of one point is invisible.
    style = styles[label]
    ax.plot(x, estimate.value, label=label, marker=marker, **style)
    if estimate.low is not None and estimate.high is not None:
      bounds = estimate.low, estimate.high
      ax.fill_between(x, *bounds, color=style['color'], alpha=0.2, linewidth=0)
