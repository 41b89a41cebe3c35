"""Tests of learning curves: what is drawn, and what is read."""

import pathlib

import drawn
from matplotlib import lines
import numpy as np
import pytest

from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.training import learning_curves

STEPS = 5600 * np.arange(1, 21)
# Of three seeds.
RETURNS = 1 - np.exp(-STEPS / 4e4) + 0.1 * np.arange(3)[:, None]


def _drawn(curves: dict[str, learning_curves.Curve]) -> list[lines.Line2D]:
  fig = learning_curves.draw(curves, 'Catch', 'success')
  drawn.check(fig)
  (ax,) = fig.axes
  assert ax.get_title(loc='left') == 'Catch'
  assert ax.get_xlabel() == 'environment steps'
  assert ax.get_ylabel() == 'success (mean of the last 100 episodes)'
  low, high = ax.get_xlim()
  last = max(steps[-1] for steps, _ in curves.values())
  assert low == 0 and last < high < 1.05 * last
  return ax.lines


def test_each_curve_has_its_seeds_and_their_mean() -> None:
  single = (STEPS, RETURNS[:1])
  *seeds, mean, seed, same = _drawn({'a': (STEPS, RETURNS), 'b': single})
  for line, returns in zip(seeds, RETURNS, strict=True):
    np.testing.assert_array_equal(line.get_xdata(), STEPS)
    np.testing.assert_array_equal(line.get_ydata(), returns)
    assert line.get_color() == mean.get_color() != seed.get_color()
    assert line.get_linewidth() < mean.get_linewidth() / 2
    assert line.get_alpha() < 1
    assert line.get_zorder() < mean.get_zorder()
  np.testing.assert_array_equal(mean.get_ydata(), RETURNS.mean(axis=0))
  assert mean.get_label() == 'a'
  np.testing.assert_array_equal(same.get_ydata(), seed.get_ydata())
  assert same.get_label() == 'b'


def test_the_mean_begins_where_every_seed_has_a_value() -> None:
  late = RETURNS.copy()
  late[1, :10] = np.nan
  *_, mean = _drawn({'a': (STEPS, late)})
  expected = np.where(np.arange(20) < 10, np.nan, RETURNS.mean(axis=0))
  np.testing.assert_array_equal(mean.get_ydata(), expected)


def test_curves_that_lack_seeds_have_labels() -> None:
  unfinished, without_mean = RETURNS.copy(), RETURNS.copy()
  unfinished[1:, -1] = np.nan
  without_mean[0] = np.nan
  curves = {'a': (STEPS, unfinished), 'b': (STEPS, without_mean)}
  (ax,) = learning_curves.draw(curves).axes
  labels = {text.get_text(): text.xy[1] for text in ax.texts}
  np.testing.assert_allclose(labels['a'], RETURNS[:, -2].mean())
  np.testing.assert_allclose(labels['b'], RETURNS[-1, -1])


def test_a_single_point_has_a_marker() -> None:
  points = _drawn({'a': (np.array([56]), np.array([[0.5]]))})
  assert [line.get_marker() for line in points] == ['o', 'o']


def test_a_figure_without_any_finished_episode(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'curves.png'
  nothing = np.full_like(RETURNS, np.nan)
  learning_curves.learning_curves({'a': (STEPS, nothing)}, path)
  assert path.read_bytes().startswith(b'\x89PNG')
  assert list(tmp_path.iterdir()) == [path]


def test_a_file_whose_last_point_lacks_a_seed(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    for i, steps in enumerate(STEPS):
      rows = [
        {
          'update': 100 * i,
          'seed': seed,
          'environment_steps': steps,
          'return': RETURNS[seed, i],
        }
        for seed in range(3)
      ]
      writer.write(rows if i < 19 else rows[:1])
  steps, returns = learning_curves.read_curve(tmp_path / 'metrics.csv')
  expected = RETURNS.copy()
  expected[1:, -1] = np.nan
  # The file has six digits.
  np.testing.assert_allclose(steps, STEPS, rtol=1e-5)
  np.testing.assert_allclose(returns, expected, rtol=1e-5)


@pytest.mark.parametrize(
  ('row', 'message'),
  [
    (b'5,0,40,1\n5,1,40,1\n5,0,40,2\n', 'two rows of one seed and update'),
    (b'nan,0,40,1\n', "no column 'update' of numbers"),
    (
      b'5,0,' + 400 * b'9' + b',1\n',
      "no column 'environment_steps' of numbers",
    ),
  ],
)
def test_rows_that_no_run_writes(
  row: bytes, message: str, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'metrics.csv'
  path.write_bytes(b'update,seed,environment_steps,return\n' + row)
  with pytest.raises(files.WorkdirError, match=message):
    learning_curves.read_curve(path)


def test_metrics_that_changed_after_their_run_are_refused(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'metrics.csv'
  path.write_text('update,seed,environment_steps,return\n1,0,2,0.5\n')
  digests.write_summary(tmp_path, {})
  # A longer run has added a row, or another program has changed one.
  path.write_text(path.read_text() + '2,0,4,0.75\n')
  _, returns = learning_curves.read_curve(path)
  np.testing.assert_array_equal(returns, [[0.5, 0.75]])
  path.write_text(path.read_text().replace('0.5', '0.9'))
  with pytest.raises(files.WorkdirError, match=f'{path} has changed since'):
    learning_curves.read_curve(path)
