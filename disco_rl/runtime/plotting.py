"""The common style of all figures."""

from collections.abc import Iterable
from collections.abc import Mapping
import itertools
import pathlib
from typing import Any

from matplotlib import axes
from matplotlib import figure
from matplotlib import rc_context

from disco_rl.runtime import files

# Okabe and Ito's palette for color-blind readers, without its yellow, which is
# too faint for thin lines on white, and with a gray that shows on black.
_COLORS = (
  '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#7F7F7F'
)  # fmt: skip
_LINES = ('solid', 'dashed', 'dotted', 'dashdot')
# Rules with the same color in all figures -> their index in the palette.
_PLACES = {
  'discovered': 0,
  'general': 0,
  'rule.npz': 0,
  'actor-critic': 1,
  'actor_critic': 1,
  'Disco103': 2,
  'disco103': 2,
  'imitation': 3,
  'before discovery': 4,
  'initial_rule.npz': 4,
  'policy_gradient': 5,
  'ppo': 5,
  'uniform': 6,
}
# Figures have no background: text and lines contrast equally with white pages
# and with dark ones.
INK = '#7F7F7F'
FAINT = '#A6A6A6'
_GRID = '#7F7F7F40'
# Arguments by name of Matplotlib's functions that draw curves.
Style = Mapping[str, Any]


def color(index: int) -> str:
  """Returns the color of the index-th curve."""
  return _COLORS[index % len(_COLORS)]


def line(index: int) -> Style:
  """Returns the color and style of the index-th curve, unique among 28."""
  style = _LINES[index // len(_COLORS) % len(_LINES)]
  return {'color': color(index), 'linestyle': style}


def lines(labels: Iterable[str]) -> dict[str, Style]:
  """Returns color and style by label; named rules keep theirs in all figures.

  Args:
    labels: Names of rules, paths of their files, or other labels, which get the
      remaining styles in turn.
  """
  labels = list(dict.fromkeys(labels))
  places: dict[str, int] = {}
  for label in labels:
    place = _PLACES.get(pathlib.PurePath(label).name)
    if place is not None and place not in places.values():
      places[label] = place
  free = (i for i in itertools.count() if i not in places.values())
  return {
    label: line(places[label] if label in places else next(free))
    for label in labels
  }


def panel(
  x_label: str, y_label: str, height: float = 4.2
) -> tuple[figure.Figure, axes.Axes]:
  """Makes a figure of one panel, 5.6 inches wide, legible on a phone."""
  fig = figure.Figure(figsize=(5.6, height), layout='constrained')
  ax = fig.add_subplot()
  ax.set_xlabel(x_label, color=INK, fontsize=11)
  ax.set_ylabel(y_label, color=INK, fontsize=11)
  ax.tick_params(labelsize=10.5)
  tidy(ax)
  return fig, ax


def label_ends(ax: axes.Axes, ends: Mapping[str, tuple[float, str]]) -> None:
  """Writes labels to the right of a panel, at the ends of their lines.

  Args:
    ax: The panel, with its final limits.
    ends: Label -> the final y of its line, and its color.
  """
  low, high = ax.get_ylim()
  apart = 0.075 * (high - low)  # The height of a line of text.
  order = sorted(ends, key=lambda label: ends[label][0])
  places = [ends[label][0] for label in order]
  for i in range(1, len(places)):
    places[i] = max(places[i], places[i - 1] + apart)
  # Labels that were moved up over the edge push the others down.
  for i in reversed(range(len(places))):
    limit = high if i == len(places) - 1 else places[i + 1] - apart
    places[i] = min(places[i], limit)
  for label, y in zip(order, places):
    ax.annotate(
      label,
      (1.02, y),
      xycoords=('axes fraction', 'data'),
      color=ends[label][1],
      fontsize=10.5,
      va='center',
      annotation_clip=False,
    )


def legend_below(
  fig: figure.Figure, title: str | None = None, columns: int = 3
) -> None:
  """Adds a legend of the first panel's curves below all panels."""
  handles, labels = fig.axes[0].get_legend_handles_labels()
  legend = fig.legend(
    handles,
    labels,
    title=title,
    loc='outside lower center',
    ncols=columns,
    frameon=False,
    labelcolor=INK,
  )
  legend.get_title().set(color=INK, fontsize=9)


def tidy(ax: axes.Axes) -> None:
  """Removes decoration that carries no data."""
  ax.grid(color=_GRID, linewidth=0.8)
  ax.set_axisbelow(True)
  ax.spines[['top', 'right']].set_visible(False)
  ax.spines[['left', 'bottom']].set_color(FAINT)
  color_ticks(ax)


def color_ticks(ax: axes.Axes) -> None:
  """Colors ticks and their numbers, legible on white and on dark pages."""
  # Minor ticks have numbers, too, on logarithmic axes.
  ax.tick_params(which='both', color=FAINT, labelcolor=INK)


def save(fig: figure.Figure, path: files.PathLike) -> None:
  """Writes a figure without a background, as SVG or PNG, atomically."""
  kind = 'svg' if pathlib.PurePath(path).suffix == '.svg' else 'png'
  # Equal figures give equal files.
  metadata = {'Date': None} if kind == 'svg' else {}
  with (
    files.replacing(path) as temporary,
    rc_context({'svg.hashsalt': 'disco'}),
  ):
    fig.savefig(
      temporary, format=kind, dpi=200, transparent=True, metadata=metadata
    )
