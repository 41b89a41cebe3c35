"""What all figures have in common, and how tests read them."""

import itertools

from matplotlib import axes
from matplotlib import colors
from matplotlib import figure
from matplotlib import layout_engine
from matplotlib import legend
from matplotlib import text
import numpy as np


def check(fig: figure.Figure) -> None:
  """Checks that a figure is legible on white and on dark pages, and tidy.

  Texts and axes are drawn without a background: neither may be black or white.
  """
  assert isinstance(
    fig.get_layout_engine(), layout_engine.ConstrainedLayoutEngine
  )
  fig.draw_without_rendering()
  for shown in texts(fig):
    label = shown.get_text()
    lightness = np.dot(
      colors.to_rgb(shown.get_color()), (0.2126, 0.7152, 0.0722)
    )
    assert 0.25 < lightness < 0.75, f'{label} has the color of a page'
    assert 7.9 <= shown.get_fontsize() <= 12, f'{label} is small or large'
  for found in fig.findobj(legend.Legend):
    assert not found.get_frame_on()
  for panel in panels(fig):
    spines = panel.spines
    assert not any(spines[x].get_visible() for x in ('top', 'right'))
    lines = panel.get_xgridlines() + panel.get_ygridlines()
    assert any(line.get_visible() for line in lines), 'a panel has no grid'
    assert panel.get_axisbelow() is True, 'the grid is above the curves'
    for spine, ticks in (
      ('left', panel.yaxis.get_ticklines()),
      ('bottom', panel.xaxis.get_ticklines()),
    ):
      for line in ticks:
        assert colors.same_color(
          line.get_color(), spines[spine].get_edgecolor()
        )


def panels(fig: figure.Figure) -> list[axes.Axes]:
  """Returns the panels with data other than pictures."""
  return [
    ax
    for ax in fig.axes
    if ax.get_visible() and (ax.lines or ax.patches) and not ax.images
  ]


def texts(fig: figure.Figure) -> list[text.Text]:
  """Returns all texts that a reader sees."""
  hidden = {
    id(x)
    for ax in fig.axes
    for axis in (ax.xaxis, ax.yaxis)
    if not (ax.axison and ax.get_visible())
    for x in axis.findobj(text.Text)
  }
  found = fig.findobj(text.Text)
  return [
    x
    for x in found
    if x.get_text().strip() and x.get_visible() and id(x) not in hidden
  ]


def names(fig: figure.Figure) -> list[str]:
  """Returns the labels in the legends of a figure and of its panels."""
  legends = fig.findobj(legend.Legend)
  return [
    x.get_text()
    for x in itertools.chain.from_iterable(x.get_texts() for x in legends)
  ]
