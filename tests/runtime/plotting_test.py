"""Curves of one figure can be told apart."""

import matplotlib.colors
import numpy as np

from disco_rl.evaluation import learning_curves
from disco_rl.runtime import plotting


def test_no_two_curves_look_alike() -> None:
  assert len({tuple(plotting.line(i).values()) for i in range(28)}) == 28


def test_more_curves_than_colours_are_drawn_apart() -> None:
  curve = np.arange(3), np.ones((2, 3))
  drawn = learning_curves.draw({str(i): curve for i in range(9)}, 'nine')
  (panel,) = drawn.axes
  looks = {
    (matplotlib.colors.to_hex(line.get_color()), line.get_linestyle())
    for line in panel.get_lines()
  }
  assert len(looks) == 9
