"""What all figures have in common, and how tests read them.

Figures also look as they did: `LOOKS` has what is drawn, a line for each part,
by test and number of the figure in it. With REDRAW=1 tests write it anew:

  REDRAW=1 pytest tests/analysis/figures_test.py tests/evaluation/report_test.py
  REDRAW=1 pytest tests/training/learning_curves_test.py
  REDRAW=1 pytest tests/meta_training/curves_test.py
  REDRAW=1 pytest tests/runtime/plotting_test.py
"""

import collections
from collections.abc import Iterator
import itertools
import json
import os
import pathlib
import re

import matplotlib
from matplotlib import artist
from matplotlib import axes
from matplotlib import colors
from matplotlib import figure
from matplotlib import layout_engine
from matplotlib import legend
from matplotlib import text
import numpy as np

LOOKS = pathlib.Path(__file__).parent / 'data' / 'figures.json'
# Their defaults are those of the version of the library, without the patch.
_VERSION = '.'.join(matplotlib.__version__.split('.')[:2])
_PROPERTIES = (
  *('color', 'facecolor', 'edgecolor', 'alpha', 'linestyle', 'linewidth'),
  *('marker', 'markersize', 'zorder', 'label', 'xydata', 'clim', 'cmap'),
  *('extent', 'interpolation', 'width', 'height', 'xy', 'aspect'),
)
_OF_TEXTS = ('text', 'color', 'fontsize', 'rotation', 'ha', 'va', 'position')
_OF_PANELS = (
  *('xlim', 'ylim', 'xscale', 'yscale', 'xticks', 'yticks', 'aspect'),
  *('visible', 'axisbelow'),
)
_NUMBER = re.compile(r'-?\d+(?:\.\d+)?(?:e[-+]\d+)?')
_seen = collections.Counter[str]()


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
  _check_look(fig)


def _check_look(fig: figure.Figure) -> None:
  """Compares a figure with the one that the same test drew earlier."""
  test = os.environ['PYTEST_CURRENT_TEST'].removesuffix(' (call)')
  name = f'{test} {_seen[test]}'
  _seen[test] += 1
  found = list(look(fig))
  known = json.loads(LOOKS.read_text()) if LOOKS.exists() else {}
  if os.environ.get('REDRAW'):
    known[name], known['matplotlib'] = found, _VERSION
    LOOKS.write_text(json.dumps(known, indent=1, sort_keys=True) + '\n')
  elif known['matplotlib'] == _VERSION:
    change = f'{name} has another look: see drawn.py if this is intended'
    assert len(found) == len(known[name]), change
    for now, before in zip(found, known[name]):
      numbers = [np.array(_NUMBER.findall(x), float) for x in (now, before)]
      assert _NUMBER.sub('0', now) == _NUMBER.sub('0', before), change
      np.testing.assert_allclose(*numbers, rtol=0.02, atol=1e-6, err_msg=change)


def look(fig: figure.Figure) -> Iterator[str]:
  """Describes each part of a figure by a line, with three digits."""
  yield f'figure {_shown(fig.get_size_inches())}'
  for ax in fig.axes:
    yield f'panel {_properties(ax, _OF_PANELS)}'
    for part in (*ax.lines, *ax.collections, *ax.patches, *ax.images):
      yield f'{type(part).__name__} {_properties(part, _PROPERTIES)}'
    for axis in (ax.xaxis, ax.yaxis):
      grid = axis.get_gridlines()[:1]
      yield f'grid {[_properties(x, _PROPERTIES[:6]) for x in grid]}'
  for shown in texts(fig):
    yield f'text {_properties(shown, _OF_TEXTS)}'
  for found in fig.findobj(legend.Legend):
    yield f'legend {found._ncols} {found._loc} {found.get_zorder()}'


def _properties(part: artist.Artist, names: tuple[str, ...]) -> str:
  found = {}
  for name in names:
    get = getattr(part, f'get_{name}', None)
    if get and (value := _shown(get())) != 'None':
      found[name] = value
  return ' '.join(f'{name}={value}' for name, value in found.items())


def _shown(value: object) -> str:
  """Shows a value, of long arrays their ends and their mean."""
  if isinstance(value, colors.Colormap):
    return value.name
  if isinstance(value, str) or value is None:
    return str(value)
  x = np.ravel(np.ma.filled(np.ma.asarray(value, float), np.nan))
  if len(x) > 12:
    x = np.array([len(x), *x[:3], *x[-3:], np.nanmean(x), np.nanstd(x)])
  return ','.join(f'{number:.3g}' for number in x)


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
