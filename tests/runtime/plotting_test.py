"""Curves of one figure can be told apart."""

import drawn
import matplotlib.colors
import numpy as np

from disco_rl.evaluation import report_figures
from disco_rl.runtime import plotting
from disco_rl.training import learning_curves


def test_no_two_curves_look_alike() -> None:
  assert len({tuple(plotting.line(i).values()) for i in range(28)}) == 28


def test_rules_have_their_colors_in_every_figure() -> None:
  few = plotting.lines(['disco103', 'mine', 'actor_critic'])
  many = plotting.lines(
    ['x', 'actor-critic', 'runs/a/rule.npz', 'y', 'disco103']
  )
  assert few['actor_critic'] == many['actor-critic']
  assert few['disco103'] == many['disco103']
  assert (
    few['mine']
    == many['runs/a/rule.npz']
    == plotting.lines(['general'])['general']
  )
  # Of two rules that would have the same, the second takes another.
  both = plotting.lines(['a/rule.npz', 'b/rule.npz'])
  assert both['a/rule.npz'] != both['b/rule.npz']
  assert len({line['color'] for line in many.values()}) == 5
  by_setting = {'0.1': np.zeros(2)}
  drawn = report_figures.over_settings({'disco103': by_setting}, None)
  (panel,) = drawn.axes
  assert {line.get_color() for line in panel.lines} == {
    few['disco103']['color']
  }


def test_labels_at_the_ends_of_lines_keep_apart() -> None:
  _, ax = plotting.panel('x', 'y')
  ax.set_ylim(0, 1)
  ends = {'a': 1.0, 'b': 0.99, 'c': 0.98, 'd': 0.2}
  plotting.label_ends(ax, {name: (y, 'red') for name, y in ends.items()})
  places = {text.get_text(): text.xy[1] for text in ax.texts}
  in_order = [places[name] for name in 'abcd']
  assert in_order[0] <= 1
  assert in_order[3] == 0.2
  assert (np.diff(in_order) <= -0.07).all()
  numbers = ax.get_xticklabels() + ax.get_yticklabels()
  assert min(x.get_fontsize() for x in numbers) > 10


def test_a_panel_with_a_legend_looks_as_it_did() -> None:
  fig, ax = plotting.panel('x', 'y')
  for label, style in plotting.lines(['a', 'b']).items():
    ax.plot([0, 1], [1, 2], label=label, **style)
  plotting.label_ends(ax, {'a': (1.0, plotting.INK), 'b': (2.0, plotting.INK)})
  plotting.legend_below(fig, 'a title')
  drawn.check(fig)


def test_more_curves_than_colors_are_drawn_apart() -> None:
  curve = np.arange(3), np.ones((2, 3))
  drawn = learning_curves.draw({str(i): curve for i in range(9)}, 'nine')
  (panel,) = drawn.axes
  looks = {
    (matplotlib.colors.to_hex(line.get_color()), line.get_linestyle())
    for line in panel.get_lines()
  }
  assert len(looks) == 9
