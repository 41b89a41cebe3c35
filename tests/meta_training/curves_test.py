"""Figures of discovery runs, of metrics made by hand."""

from collections.abc import Mapping
import math
import pathlib
from typing import Any

import drawn
from matplotlib import figure
import numpy as np
import pytest

from disco_rl.meta_training import curves
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting

STEPS = [10, 20, 30]


def write(
  workdir: pathlib.Path, environments: Mapping[str, Mapping[str, list[float]]]
) -> None:
  workdir.mkdir(exist_ok=True)
  with metrics.MetricsWriter(
    workdir, step='meta_step', series='environment'
  ) as writer:
    for i, step in enumerate(STEPS if environments else ()):
      writer.write(
        [
          {
            'meta_step': step,
            'environment': name,
            **{key: values[i] for key, values in columns.items()},
          }
          for name, columns in environments.items()
        ]
      )


def draw(
  workdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> figure.Figure:
  saved: list[Any] = []
  monkeypatch.setattr(plotting, 'save', lambda *x: saved.append(x))
  curves.meta_training_curves(workdir, 'curves.png', held_out_updates=1500)
  ((fig, path),) = saved
  assert path == 'curves.png'
  drawn.check(fig)
  # The size of the picture, at 200 dots per inch.
  assert (200 * fig.get_size_inches()).tolist() == [2000, 1600]
  assert [ax.get_xlabel() for ax in fig.axes] == 4 * ['meta-steps']
  assert [ax.get_title(loc='left') for ax in fig.axes] == [
    "returns of the population's agents",
    'returns of held-out agents after 1,500 updates',
    'norms, no unit',
    'entropies and divergence, nats',
  ]
  return fig


def test_a_run_in_two_environments(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  columns = {
    'return': [0.0, 0.5, 1.0],
    'meta_gradient_norm': [1.0, 2.0, 3.0],
    'rule_update_norm': [0.1, 0.2, 0.3],
    'validation_policy_entropy': [0.9, math.nan, 0.7],
    'target_kl': [0.3, math.nan, 0.1],
  }
  other = {
    **{name: [x + 1.0 for x in values] for name, values in columns.items()},
    'validation_policy_entropy': [0.5, math.nan, math.nan],
  }
  write(tmp_path, {'catch': columns, 'chain': other})
  held_out = {
    'return': [0.2, 0.3, 0.4],
    'return_min': [0.1, 0.0, 0.2],
    'return_max': [0.3, 0.6, 0.7],
  }
  write(tmp_path / 'held_out', {'grid': held_out})
  returns, of_held_out, norms, entropies = draw(tmp_path, monkeypatch).axes

  def check(panel: Any, expected: Mapping[str, list[float]]) -> None:
    lines = {line.get_label(): line for line in panel.lines}
    assert [*lines] == [*expected]
    assert len(
      {(x.get_color(), x.get_linestyle()) for x in panel.lines}
    ) == len(expected)
    for name, values in expected.items():
      assert lines[name].get_xdata().tolist() == STEPS
      np.testing.assert_allclose(lines[name].get_ydata(), values)
    legend = panel.get_legend()
    assert [x.get_text() for x in legend.get_texts()] == [*expected]
    # Below the axis, not on the curves.
    assert legend.get_window_extent().y1 < panel.get_window_extent().y0

  check(returns, {'catch': [0, 0.5, 1], 'chain': [1, 1.5, 2]})
  check(of_held_out, {'grid': [0.2, 0.3, 0.4]})
  assert not returns.collections
  (band,) = of_held_out.collections
  (path,) = band.get_paths()
  for step, low, high in zip(STEPS, [0.1, 0, 0.2], [0.3, 0.6, 0.7]):
    edges = path.vertices[path.vertices[:, 0] == step, 1]
    assert (edges.min(), edges.max()) == pytest.approx((low, high))
  assert band.get_alpha() < 0.5 and band.get_linewidth() == 0
  assert {x.get_marker() for x in returns.lines} == {'None'}
  # Means over environments, or over those that have values.
  check(
    norms,
    {
      'meta-gradient, before Adam': [1.5, 2.5, 3.5],
      'mean of the meta-updates': [0.6, 0.7, 0.8],
    },
  )
  assert norms.get_yscale() == 'log'
  check(
    entropies,
    {
      'entropy of pi': [0.7, math.nan, 0.7],
      'KL(pi_target || pi_hat)': [0.8, math.nan, 0.6],
    },
  )
  assert entropies.get_yscale() == 'linear'


def test_a_run_in_many_environments(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  write(tmp_path, {f'e{i}': {'return': [i, i, 2 * i]} for i in range(8)})
  write(tmp_path / 'held_out', {})
  returns, held_out, norms, _ = draw(tmp_path, monkeypatch).axes
  *single, mean = returns.lines
  assert len(single) == 8
  assert {line.get_color() for line in single} == {plotting.FAINT}
  assert mean.get_color() != plotting.FAINT
  assert all(x.get_linewidth() < mean.get_linewidth() / 2 for x in single)
  np.testing.assert_allclose(mean.get_ydata(), [3.5, 3.5, 7.0])
  assert mean.get_xdata().tolist() == STEPS
  names = [x.get_text() for x in returns.get_legend().get_texts()]
  assert names == ['mean']
  for empty in (held_out, norms):
    assert not empty.lines
    (text,) = empty.texts
    assert text.get_text() == 'none'
    assert text.get_position() == (0.5, 0.5)
    assert text.get_ha() == 'center'


def test_the_first_values_are_visible(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(f'{__name__}.STEPS', [1, 2])
  write(tmp_path, {f'e{i}': {'return': [0.5, 1]} for i in range(7)})
  write(tmp_path / 'held_out', {})
  returns, *_ = draw(tmp_path, monkeypatch).axes
  assert [x.get_marker() for x in returns.lines] == 7 * ['o']
  assert len(returns.get_legend().get_texts()) == 7
