"""Films: scaling, and GIF files as another program reads them."""

import pathlib

import numpy as np
from PIL import Image
import pytest

from disco_rl.runtime import video


def test_small_pictures_are_enlarged_by_whole_numbers() -> None:
  rng = np.random.default_rng(0)
  frames = rng.integers(256, size=(2, 3, 5, 3), dtype=np.uint8)
  large = video.enlarge(list(frames))
  assert large.shape == (2, 3 * 85, 5 * 85, 3)
  np.testing.assert_array_equal(large[:, ::85, ::85], frames)
  np.testing.assert_array_equal(large[:, 84::85, 84::85], frames)
  # Neither a wide one nor a large one grows out of bounds.
  assert video.enlarge([np.zeros((1, 100, 3), np.uint8)]).shape[2] == 1000
  assert video.enlarge([np.zeros((210, 160, 3), np.uint8)]).shape[1] == 210


def test_smaller_pictures_are_padded() -> None:
  frames = [
    np.full((2, 200, 3), 9, np.uint8),
    np.full((300, 100, 3), 7, np.uint8),
  ]
  padded = video.enlarge(frames)
  assert padded.shape == (2, 300, 200, 3)
  assert (padded[0, :2] == 9).all() and not padded[0, 2:].any()
  assert (padded[1, :, :100] == 7).all() and not padded[1, :, 100:].any()


def test_gifs_hold_the_pictures(tmp_path: pathlib.Path) -> None:
  frames = np.zeros((3, 4, 6, 3), np.uint8)
  frames[0, 1, 2], frames[1, 2, 3] = (230, 159, 0), (86, 180, 233)
  frames[2, 0, 0] = (1, 2, 3)
  path = tmp_path / 'new' / 'film.gif'
  video.write(path, frames, 15.0)
  with Image.open(path) as film:
    assert film.n_frames == 3
    assert film.info['loop'] == 0
    for i, frame in enumerate(frames):
      film.seek(i)
      assert film.info['duration'] == 70
      np.testing.assert_array_equal(np.asarray(film.convert('RGB')), frame)
  assert [x.name for x in path.parent.iterdir()] == ['film.gif']


def test_names_are_checked(tmp_path: pathlib.Path) -> None:
  with pytest.raises(ValueError, match='must end in .gif or .mp4'):
    video.check_name(tmp_path / 'film.png')


def test_mp4(tmp_path: pathlib.Path) -> None:
  ffmpeg = pytest.importorskip('imageio_ffmpeg')
  frames = np.zeros((4, 5, 7, 3), np.uint8)
  frames[:, :, :, 0] = 255
  video.write(tmp_path / 'film.mp4', frames, 5.0)
  reader = ffmpeg.read_frames(str(tmp_path / 'film.mp4'))
  assert next(reader)['size'] == (8, 6)
  picture = np.frombuffer(next(reader), np.uint8).reshape(6, 8, 3)
  assert picture[2, 2, 0] > 200 and (picture[2, 2, 1:] < 60).all()
  reader.close()
