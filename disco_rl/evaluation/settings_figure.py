"""Scores of rules over the settings of agents, as in Extended Data Fig. 1."""

from collections.abc import Mapping

from matplotlib import figure
import numpy as np

from disco_rl.runtime import plotting


def draw(
  scores: Mapping[str, Mapping[str, np.ndarray]], name: str | None
) -> figure.Figure:
  """Draws a line for each rule: its mean scores, with those of single agents.

  Args:
    scores: rule -> text of the settings -> scores of the agents, [S]; NaN where
      there is none.
    name: of the setting that varies, if there is only one: its values are the
      x-axis, as in panels a and b. None: combinations are ranked by their mean,
      from the best, each rule for itself, as in panel c.

  Returns:
    The figure.
  """
  label = 'combinations of settings, ranked' if name is None else name
  fig, ax = plotting.panel(label, 'return at the end of training')
  for i, (rule, by_setting) in enumerate(scores.items()):
    values = np.stack(list(by_setting.values()))
    if name is None:
      values = ranked(values)
    x = np.arange(1, len(values) + 1)
    style = plotting.line(i)
    ax.plot(x, values, '.', color=style['color'], alpha=0.35)
    ax.plot(x, values.mean(axis=1), marker='o', label=rule, **style)
    if name is not None:
      ax.set_xticks(x, list(by_setting))
  plotting.legend_below(fig, 'line: mean; dots: one agent')
  return fig


def ranked(scores: np.ndarray) -> np.ndarray:
  """Sorts rows [N, S] by their mean, the highest first, NaN last."""
  return scores[np.argsort(-scores.mean(axis=1), kind='stable')]
