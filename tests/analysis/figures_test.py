"""Figures of analyses, of numbers made by hand."""

from typing import Any

import drawn
from matplotlib import axes
from matplotlib import colors
import numpy as np
import pytest
import scipy.special
import scipy.stats

from disco_rl import types
from disco_rl.analysis import distillation
from disco_rl.analysis import exact_values
from disco_rl.analysis import figures
from disco_rl.analysis import probes
from disco_rl.analysis import responses
from disco_rl.analysis import scenes
from disco_rl.analysis import traces
from disco_rl.runtime import plotting
from disco_rl.update_rules import disco

T = 12
# Steps whose next observations begin episodes, by trajectory.
ENDS = np.arange(T)[:, None] == np.array([4, 7])


def random(*shape: int) -> np.ndarray:
  return np.random.default_rng(shape).normal(size=shape)


def softmax(x: np.ndarray) -> np.ndarray:
  return scipy.special.softmax(x, axis=-1)


def of_labels(ax: axes.Axes) -> dict[str, Any]:
  """The labeled curves and bars of a panel."""
  return dict(zip(*ax.get_legend_handles_labels()[::-1]))


def dashes(ax: axes.Axes) -> list[float]:
  """Where the dashed vertical lines of a panel are."""
  return [
    line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == '--'
  ]


def test_targets_along_a_trajectory() -> None:
  rollout = types.Rollout(
    observation=random(T + 1, 2, 4),
    action=np.arange(2 * T + 2).reshape(T + 1, 2) % 3,
    logits=random(T + 1, 2, 3),
    reward=random(T, 2),
    is_terminal=ENDS,
    mask=np.ones((T, 2), bool),
  )
  outputs = {'logits': random(T + 1, 2, 3) + 1.0}
  scene = scenes.Scene(rollout, outputs, state=None)
  # Of 30 entries, the first six vary least.
  y = random(T, 2, 30) * np.where(np.arange(30) < 6, 1e-3, 1.0) - 3.0
  found = disco.DiscoTargets(
    pi=random(T, 2, 3) - 1.0,
    y=y,
    z=random(T, 2, 5),
    q=random(T, 2) + 5.0,
    target_policy=random(T, 2, 3),
  )
  fig = figures.targets(scene, found, trajectory=1)
  drawn.check(fig)
  assert fig.get_figwidth() == 8
  assert fig.get_figheight() <= 11  # A page.
  panels, bars = fig.axes[:5], fig.axes[5:]
  rewards, *_ = panels
  labels = of_labels(rewards)
  np.testing.assert_array_equal(
    [bar.get_height() for bar in labels['reward']], rollout.reward[:, 1]
  )
  np.testing.assert_array_equal(
    labels['target of q'].get_ydata(), found.q[:, 1]
  )
  assert labels['target of q'].get_marker() == 'o'
  assert labels['target of q'].get_markersize() < 6
  assert {*drawn.names(fig)} == {'reward', 'target of q'}
  assert rewards.get_ylabel() == 'return'
  for bar in labels['reward']:
    assert colors.same_color(bar.get_facecolor(), plotting.FAINT)
  shown = {
    'pi': softmax(outputs['logits'][:-1, 1]),
    'pi_hat': softmax(found.pi[:, 1]),
    'y_hat': softmax(y[:, 1])[:, 6:],
    'z_hat': softmax(found.z[:, 1]),
  }
  for panel, (name, probabilities) in zip(panels[1:], shown.items()):
    (image,) = panel.images
    np.testing.assert_allclose(image.get_array(), probabilities.T, atol=1e-6)
    low, high = image.get_clim()
    # Policies have one scale.
    assert low == 0 and high == (1 if 'pi' in name else probabilities.max())
    assert panel.get_ylabel() == name
    assert len(panel.get_yticks()) == 0
  for panel in panels[1:3]:
    dots = panel.lines[0]
    np.testing.assert_array_equal(dots.get_ydata(), rollout.action[:-1, 1])
    assert (dots.get_marker(), dots.get_linestyle()) == ('o', 'None')
    assert dots.get_color() == 'white'  # On a dark map.
  assert [bar.get_ylabel() for bar in bars] == 4 * ['probability']
  assert [dashes(panel) for panel in panels] == 5 * [[7.5]]
  assert [panel.get_xlabel() for panel in panels] == 4 * [''] + ['step']
  assert len({panel.get_xlim() for panel in panels}) == 1


def test_a_trace_with_pictures() -> None:
  found = traces.Trace(
    reward=random(T, 2),
    ended=ENDS,
    policy_confidence=random(T, 2) - 1.0,
    value=random(T, 2) + 100.0,
    y=softmax(random(T, 2, 6)),
    y_confidence=random(T, 2) - 2.0,
  )
  pictures = random(T + 1, 2, 3, 2, 4)
  fig = figures.trace(found, pictures, start=20, trajectory=1)
  drawn.check(fig)
  assert fig.get_figwidth() == 8
  assert fig.get_figheight() <= 11
  panels = {ax.get_ylabel(): ax for ax in fig.axes}
  names = 'y: confidence', 'policy: confidence', 'reward', 'value'
  assert [*panels][:6] == ['observation', 'y', *names]
  assert [*panels][6:] == ['less its mean']  # The bar of y's colors.
  steps = 20 + np.arange(T)
  (film,) = panels['observation'].images
  # Eight pictures of 12 steps, each in the middle of its place.
  some = np.concatenate(pictures.sum(-1)[[0, 2, 3, 5, 6, 8, 9, 11], 1], axis=1)
  np.testing.assert_allclose(film.get_array(), some, rtol=1e-6)
  (of_y,) = panels['y'].images
  y = found.y[:, 1] - found.y[:, 1].mean(axis=0)
  np.testing.assert_allclose(of_y.get_array(), y.T, atol=1e-6)
  low, high = of_y.get_clim()
  assert -low == high == pytest.approx(np.abs(y).max())
  for image in (film, of_y):
    assert image.get_extent()[:2] == [19.5, 31.5]
  for name, values in (
    ('y: confidence', found.y_confidence),
    ('policy: confidence', found.policy_confidence),
    ('value', found.value),
  ):
    curve, *_ = panels[name].lines
    np.testing.assert_array_equal(curve.get_xdata(), steps)
    np.testing.assert_array_equal(curve.get_ydata(), values[:, 1])
    assert curve.get_color() == figures.COLORS[name.partition(':')[0]]
    # Numbers are whole, without an offset at the top of the axis.
    assert panels[name].yaxis.get_offset_text().get_text() == ''
  bars = panels['reward'].patches
  np.testing.assert_array_equal(
    [x.get_height() for x in bars], found.reward[:, 1]
  )
  centers = [bar.get_x() + bar.get_width() / 2 for bar in bars]
  np.testing.assert_allclose(centers, steps)
  for name, panel in [*panels.items()][:6]:
    assert dashes(panel) == [27.5], name
    assert panel.get_xlim() == pytest.approx((19.5, 31.5), abs=0.5)
  assert fig.axes[5].get_xlabel() == 'step'


def test_changes_of_targets_over_distance() -> None:
  moved = np.abs(random(5, 3))
  moved[4] = np.nan
  fig = figures.horizon({'y': moved, 'z': moved + 1.0})
  drawn.check(fig)
  assert tuple(fig.get_size_inches()) == (8, pytest.approx(3.5, abs=0.5))
  for panel, name in zip(fig.axes, 'yz', strict=True):
    *thin, bold = panel.lines
    assert len(thin) == 3
    assert all(x.get_linewidth() <= bold.get_linewidth() / 3 for x in thin)
    assert all(x.get_alpha() < 1 for x in thin)
    assert panel.get_xlabel() == f'steps until the perturbed {name}'
    assert panel.get_ylabel() == f'change of the target of {name}'
    assert panel.get_ylim()[0] == 0
    assert all(x == int(x) for x in panel.get_xticks())
    np.testing.assert_allclose(
      bold.get_ydata(), moved[:4].mean(axis=1) + (name == 'z')
    )
  assert fig.get_supxlabel().endswith('bold: mean of 3')


def test_responses_over_distance() -> None:
  """Of two agents, at the distances -4 to 4, of which the first is left out."""
  names = 'policy', 'y', responses.POLICY_GRADIENT
  changes = responses.REWARD, responses.END
  values = {x: np.abs(random(2, 9, i + 1))[..., 0] for i, x in enumerate(names)}
  values['y'][:, 2] = 0.0
  values['policy'][1, 8] = np.nan
  agents = [
    {change: {name: x[i] for name, x in values.items()} for change in changes}
    for i in (0, 1)
  ]
  fig = figures.responses(agents)
  drawn.check(fig)
  assert [ax.get_title(loc='left') for ax in fig.axes] == [*changes]
  labels = ['target of policy', 'target of y', responses.POLICY_GRADIENT]
  assert drawn.names(fig) == labels
  for panel in fig.axes:
    assert panel.get_yscale() == 'log'
    curves = of_labels(panel)
    for name, label in zip(names, labels):
      curve = curves[label]
      assert curve.get_color() == figures.COLORS[name]
      assert (curve.get_linestyle() == '--') == (label == labels[-1])
      assert curve.get_xdata().tolist() == [*range(-3, 5)]
      expected = values[name][:, 1:].mean(axis=0)
      np.testing.assert_allclose(curve.get_ydata(), np.maximum(expected, 1e-6))
    thin = [x for x in panel.lines if x.get_linewidth() < 1]
    assert len(thin) == 6


def test_exact_values_that_predictions_tell() -> None:
  scores = np.array([[0.5, 1.0, -0.5], [0.25, 0.75, 0.5]])
  names = 'q', 'y', exact_values.UNTRAINED + 'y'
  fig = figures.exact_values([dict(zip(names, x)) for x in scores])
  drawn.check(fig)
  (panel,) = fig.axes
  assert panel.get_xlim() == (0, pytest.approx(1, abs=0.05))
  dots = np.array([x.get_xdata() for x in panel.lines])
  np.testing.assert_allclose(dots, np.maximum(scores.T, 0.0))
  rows = [x.get_ydata().tolist() for x in panel.lines]
  assert rows == [[row, row] for row in range(3)]
  bars = [x.get_width() for x in panel.patches]
  np.testing.assert_allclose(bars, dots.mean(axis=1))
  used = [x.get_color() for x in panel.lines]
  assert used[0] == used[1] != used[2]
  assert [x.get_text() for x in panel.get_yticklabels()] == [*names]


def test_what_targets_rely_on() -> None:
  found = {
    'pi': {'learned': 0.5, 'shuffled': 0.005, 'hidden': 0.02},
    'y': {'learned': 0.25, 'shuffled': 0.002, 'hidden': 0.0},
  }
  fig = figures.reliance(found)
  drawn.check(fig)
  (panel,) = fig.axes
  assert panel.get_xscale() == 'log'
  assert panel.get_xlabel() == 'total variation'
  values = {
    'from prediction to target': [0.5, 0.25],
    'target, y and z shuffled': [0.005, 0.002],
    'target, y and z zero': [0.02, 1e-7],
    '1% of the first': [0.005, 0.0025],
  }
  lines = of_labels(panel)
  assert {name: x.get_xdata().tolist() for name, x in lines.items()} == values
  assert drawn.names(fig) == [*values]
  assert len({line.get_marker() for line in lines.values()}) == 4
  assert len({line.get_color() for line in lines.values()}) == 4
  # Rows from above, each with its label.
  assert all(line.get_ydata().tolist() == [0, 1] for line in lines.values())
  low, high = panel.get_ylim()
  assert low - 1 == 0 - high == pytest.approx(0.5)
  assert panel.get_yticks().tolist() == [0, 1]
  assert [x.get_text() for x in panel.get_yticklabels()] == [
    'target of pi:\nmoves by 0.01, used',
    'target of y:\nmoves by 0.008, not used',
  ]


def test_terms_along_lives() -> None:
  """Two agents, at three ages."""
  numbers = 0.2 + np.arange(6).reshape(2, 3) / 25

  def one(x: float) -> distillation.Distillation:
    return distillation.Distillation(
      {'a': x, 'b': -x}, 1 - x, {'a': x / 2, 'b': x / 4}
    )

  lives = distillation.Lives(
    np.array([10, 20, 40]), [[one(x) for x in row] for row in numbers]
  )
  fig = figures.terms(lives)
  drawn.check(fig)
  assert tuple(fig.get_size_inches()) == (8, pytest.approx(3.5, abs=0.5))
  left, right = fig.axes
  of_panels = {
    left: {'a': numbers, 'b': -numbers},
    right: {'all terms': 1 - numbers, 'a': numbers / 2, 'b': numbers / 4},
  }
  for panel, of_terms in of_panels.items():
    means = of_labels(panel)
    assert [*means] == [*of_terms]
    for name, values in of_terms.items():
      mean = means[name]
      np.testing.assert_allclose(mean.get_ydata(), values.mean(axis=0))
      agents = [
        line
        for line in panel.lines
        if line.get_color() == mean.get_color() and line is not mean
      ]
      np.testing.assert_array_equal([x.get_ydata() for x in agents], values)
      for line in (mean, *agents):
        assert line.get_xdata().tolist() == [10, 20, 40]
      for line in agents:
        assert line.get_linewidth() <= mean.get_linewidth() / 3
        assert line.get_alpha() < 1
    assert panel.get_xlabel() == 'environment steps'
  assert left.get_title(loc='left') == 'coefficient'
  assert right.get_title(loc='left') == 'part that is explained'
  low, high = right.get_ylim()
  assert -0.1 < low < 0 and 1 < high < 1.1
  assert drawn.names(fig) == ['all terms', 'a', 'b']


def test_scores_of_probes() -> None:
  scores = np.abs(random(5, 4)) / 4
  scores[2, 3] = np.nan  # A fold without an answer that far ahead.
  by_name = {'y': scores, probes.INITIAL: scores / 2}
  fig = figures.probes(
    {'reward': by_name, 'end': by_name, 'value': by_name},
    {'reward': False, 'end': True, 'value': False},
  )
  drawn.check(fig)
  assert fig.get_figwidth() == 8
  assert 4 <= fig.get_figheight() <= 7
  assert [ax.get_title(loc='left') for ax in fig.axes[:3]] == [
    'reward',
    'end',
    'value',
  ]
  assert drawn.names(fig) == ['y', probes.INITIAL]
  for panel, is_accuracy in zip(fig.axes, (False, True, False)):
    y_label = 'accuracy, balanced' if is_accuracy else '$R^2$'
    assert panel.get_ylabel() == y_label
    assert panel.get_xlabel() == 'steps ahead'
    low, high = panel.get_ylim()
    # An accuracy of 0.5, or an R^2 of 0, is that of chance.
    assert 0 < (0.5 if is_accuracy else 0.0) - low < 0.4
    assert 1 < high < 1.1
    assert all(x == int(x) for x in panel.get_xticks())
    for line, band, (name, values) in zip(
      panel.lines, panel.collections, by_name.items(), strict=True
    ):
      assert line.get_color() == figures.COLORS[name]
      assert line.get_xdata().tolist() == [0, 1, 2]
      own = values[:, :3]
      np.testing.assert_allclose(line.get_ydata(), own.mean(axis=0))
      (path,) = band.get_paths()
      below, above = scipy.stats.t.interval(
        0.95, 4, own.mean(axis=0), scipy.stats.sem(own)
      )
      for x in range(3):
        edges = path.vertices[path.vertices[:, 0] == x, 1]
        assert edges.min() == pytest.approx(below[x])
        assert edges.max() == pytest.approx(above[x])
      assert band.get_alpha() < 0.5
      assert band.get_linewidth() == 0


@pytest.mark.parametrize('shape', [(3, 2), (3, 2, 4)])
def test_sensitivity_of_pictures(shape: tuple[int, ...]) -> None:
  observation, norms = random(5, 2, *shape), np.abs(random(4, 2, *shape))
  fig = figures.sensitivity(observation, {'y': norms, 'z': norms}, trajectory=1)
  drawn.check(fig)
  width, height = fig.get_size_inches()
  assert 1 <= width / 3 <= 2 and 1 <= height / 4 <= 2
  rows = np.array(fig.axes).reshape(4, 3)
  titles = [[panel.get_title() for panel in row] for row in rows]
  assert titles == [['observation', 'y', 'z']] + 3 * [3 * ['']]
  channels = lambda x: x.sum(-1) if len(shape) == 3 else x
  for t, row in enumerate(rows):
    for panel, x in zip(row, (observation, norms, norms)):
      (image,) = panel.images
      np.testing.assert_allclose(
        image.get_array(), channels(x[t, 1]), rtol=1e-5
      )
      assert not panel.axison
    maps = [panel.images[0].get_cmap().name for panel in row]
    # Large values are dark.
    assert maps[0] != maps[1] == maps[2]


def test_quantities_have_colors_of_their_own() -> None:
  assert len({*figures.COLORS.values()}) == len(figures.COLORS)
  assert plotting.INK not in figures.COLORS.values()
