"""Tests of the plots: that they exist and show what they should."""

import pathlib

import matplotlib.colors
import matplotlib.image
import numpy as np

from disco_rl.evaluation import learning_curves
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting


def _curves(num_seeds: int) -> tuple[np.ndarray, np.ndarray]:
  steps = 5600 * np.arange(1, 21)
  returns = 1 - np.exp(-steps / 4e4) + 0.1 * np.arange(num_seeds)[:, None]
  return steps, returns


def _pixels(path: pathlib.Path, colour: str) -> np.ndarray:
  """Returns the columns and rows of pixels of a colour, [2, n]."""
  image = matplotlib.image.imread(path)
  assert image.shape == (880, 1280, 4)
  distance = np.abs(image[..., :3] - matplotlib.colors.to_rgb(colour)).max(-1)
  rows, columns = np.nonzero(distance < 0.02)
  return np.stack([columns, rows])


def _drawn(path: pathlib.Path, curve: int) -> np.ndarray:
  """Returns the pixels of a mean line; the legend lies below row 740."""
  pixels = _pixels(path, plotting.colour(curve))
  return pixels[:, pixels[1] < 740]


def test_two_rules(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'curves.png'
  steps, returns = _curves(5)
  learning_curves.learning_curves(
    {'disco': (steps, returns), 'actor-critic': (steps, returns - 0.5)},
    path,
    title='Catch',
  )
  columns, rows = _drawn(path, 0)
  # The mean rises over nearly the whole width: rows count from the top.
  assert np.ptp(columns) > 900
  assert rows[columns.argmin()] > rows[columns.argmax()] + 200
  assert _drawn(path, 1)[1].mean() > rows.mean() + 50
  assert _drawn(path, 2).size == 0
  assert list(tmp_path.iterdir()) == [path]


def test_values_missing_at_the_start(tmp_path: pathlib.Path) -> None:
  steps, returns = _curves(3)
  learning_curves.learning_curves(
    {'a': (steps, returns)}, tmp_path / 'full.png'
  )
  late = returns.copy()
  late[1, :10] = np.nan
  learning_curves.learning_curves({'a': (steps, late)}, tmp_path / 'late.png')
  full = _drawn(tmp_path / 'full.png', 0)[0]
  late_columns = _drawn(tmp_path / 'late.png', 0)[0]
  assert late_columns.max() == full.max()
  # The mean begins at the 11th of 20 points, about the middle.
  assert late_columns.min() - full.min() > 0.4 * np.ptp(full)


def test_no_episode_ended(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'curves.png'
  steps, returns = _curves(3)
  learning_curves.learning_curves(
    {'a': (steps, np.full_like(returns, np.nan))}, path
  )
  assert _drawn(path, 0).size == 0


def test_single_point_is_visible(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'curves.png'
  learning_curves.learning_curves(
    {'a': (np.array([56]), np.array([[0.5]]))}, path
  )
  assert _drawn(path, 0).shape[1] > 50


def test_from_csv_whose_last_point_lacks_a_seed(
  tmp_path: pathlib.Path,
) -> None:
  steps, returns = _curves(2)
  with metrics.MetricsWriter(tmp_path) as writer:
    for i in range(20):
      rows = [
        {
          'update': 100 * i,
          'seed': seed,
          'environment_steps': steps[i],
          'return': returns[seed, i],
        }
        for seed in range(2)
      ]
      writer.write(rows if i < 19 else rows[:1])
  read_steps, read_returns = learning_curves.read_curve(
    tmp_path / 'metrics.csv'
  )
  returns[1, -1] = np.nan
  # The file holds six digits.
  np.testing.assert_allclose(read_steps, steps, rtol=1e-5)
  np.testing.assert_allclose(read_returns, returns, rtol=1e-5)
