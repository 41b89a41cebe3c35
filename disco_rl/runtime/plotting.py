"""The style that all figures share."""

from typing import Any

from matplotlib import axes
from matplotlib import figure

from disco_rl.runtime import files

# Okabe and Ito's palette for colour-blind readers, without its yellow, which is
# too faint for thin lines on white.
_COLOURS = (
  '#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000'
)  # fmt: skip
_LINES = ('solid', 'dashed', 'dotted', 'dashdot')
INK = '#333333'
FAINT = '#BBBBBB'


def colour(index: int) -> str:
  """The colour of the index-th curve."""
  return _COLOURS[index % len(_COLOURS)]


def line(index: int) -> dict[str, Any]:
  """Colour and style of the index-th curve, which no other of 28 has."""
  style = _LINES[index // len(_COLOURS) % len(_LINES)]
  return {'color': colour(index), 'linestyle': style}


def panel(
  x_label: str, y_label: str, height: float = 4.2
) -> tuple[figure.Figure, axes.Axes]:
  """A figure of one panel, 6.4 inches wide."""
  fig = figure.Figure(figsize=(6.4, height), layout='constrained')
  ax = fig.add_subplot()
  ax.set_xlabel(x_label, color=INK)
  ax.set_ylabel(y_label, color=INK)
  tidy(ax)
  return fig, ax


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
  ax.grid(color='#E6E6E6', linewidth=0.8)
  ax.set_axisbelow(True)
  ax.spines[['top', 'right']].set_visible(False)
  ax.spines[['left', 'bottom']].set_color('#999999')
  ax.tick_params(color='#999999', labelcolor=INK)


def save(fig: figure.Figure, path: files.PathLike) -> None:
  """Writes a figure as PNG, atomically."""
  with files.replacing(path) as temporary:
    fig.savefig(temporary, format='png', dpi=200)
