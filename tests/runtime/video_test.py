"""Films: scaling, and GIF files as another program reads them."""

import os
import pathlib
import sys
from typing import Any
from unittest import mock
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from disco_rl.runtime import video


def read_gif(path: pathlib.Path) -> np.ndarray:
  """[N, H, W, 3] uint8."""
  with Image.open(path) as film:
    pictures = []
    for i in range(film.n_frames):
      film.seek(i)
      pictures.append(np.asarray(film.convert('RGB')))
      assert film.info['duration'] == 70
    assert film.info['loop'] == 0
  return np.stack(pictures)


def test_gifs_hold_the_pictures_enlarged_by_whole_numbers(
  tmp_path: pathlib.Path,
) -> None:
  rng = np.random.default_rng(0)
  frames = rng.integers(256, size=(3, 4, 6, 3), dtype=np.uint8)
  path = tmp_path / 'new' / 'film.gif'
  video.write(path, frames, 15.0)
  large = read_gif(path)
  assert large.shape == (3, 256, 384, 3)
  # 64 x 64 pixels for each.
  np.testing.assert_array_equal(large[:, ::64, ::64], frames)
  np.testing.assert_array_equal(large[:, 63::64, 63::64], frames)
  assert [x.name for x in path.parent.iterdir()] == ['film.gif']


@pytest.mark.parametrize(
  'shape, large',
  [
    ((1, 100), (10, 1000)),
    ((210, 160), (210, 160)),
    ((301, 5000), (302, 5000)),
  ],
)
def test_neither_wide_nor_large_pictures_grow_out_of_bounds(
  tmp_path: pathlib.Path, shape: tuple[int, int], large: tuple[int, int]
) -> None:
  video.write(tmp_path / 'film.gif', np.zeros((1, *shape, 3), np.uint8), 15.0)
  with Image.open(tmp_path / 'film.gif') as film:
    assert film.size == large[::-1]


def test_smaller_pictures_are_padded(tmp_path: pathlib.Path) -> None:
  wide, high = (
    np.zeros((2, 200, 3), np.uint8),
    np.zeros((300, 100, 3), np.uint8),
  )
  wide += np.uint8(9)
  high += np.uint8(7)
  video.write(tmp_path / 'film.gif', [wide, high], 15.0)
  padded = read_gif(tmp_path / 'film.gif')
  assert padded.shape == (2, 300, 200, 3)
  assert (padded[0, :2] == 9).all()
  assert not padded[0, 2:].any()
  assert (padded[1, :, :100] == 7).all()
  assert not padded[1, :, 100:].any()


def test_names_are_checked(tmp_path: pathlib.Path) -> None:
  with pytest.raises(ValueError, match='must end in .gif or .mp4'):
    video.check_name(tmp_path / 'film.png')


@pytest.mark.parametrize(
  ('frames_per_second', 'milliseconds'), [(5.0, 200), (50.0, 20), (200.0, 20)]
)
def test_gifs_have_a_speed_that_all_viewers_support(
  tmp_path: pathlib.Path, frames_per_second: float, milliseconds: int
) -> None:
  frames = np.zeros((2, 300, 300, 3), np.uint8)
  frames[1] = 255
  video.write(tmp_path / 'film.gif', frames, frames_per_second)
  with Image.open(tmp_path / 'film.gif') as film:
    assert film.info['duration'] == milliseconds


def test_pictures_are_handed_to_ffmpeg(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  sent: list[np.ndarray | None] = []
  given: list[Any] = []

  class Writer:
    def send(self, frame: np.ndarray | None) -> None:
      assert frame is None or frame.flags.c_contiguous
      sent.append(frame)

    def close(self) -> None:
      pathlib.Path(given[0]).write_bytes(b'film')

  def write_frames(path: str, size: Any, **options: Any) -> Writer:
    given.extend([path, tuple(size), options])
    return Writer()

  variable = 'IMAGEIO_FFMPEG_NO_PREVENT_SIGINT'
  monkeypatch.setenv(variable, '')  # Restored afterwards.
  monkeypatch.delenv(variable)
  package = mock.Mock(write_frames=write_frames)
  monkeypatch.setitem(sys.modules, 'imageio_ffmpeg', package)
  frames = np.zeros((3, 201, 301, 3), np.uint8)
  frames[:] = np.arange(3)[:, None, None, None]
  video.write(tmp_path / 'film.mp4', frames, 5.0)
  _, size, options = given
  # Even numbers, the width first.
  assert size == (302, 202)
  assert options['fps'] == 5 and options['macro_block_size'] == 2
  # The name of the temporary file does not tell.
  assert options['output_params'] == ['-f', 'mp4']
  assert os.environ[variable] == '1'
  first, *pictures = sent
  assert first is None  # Starts the generator.
  assert [x[0, 0, 0] for x in pictures if x is not None] == [0, 1, 2]
  assert (tmp_path / 'film.mp4').read_bytes() == b'film'


def test_mp4(tmp_path: pathlib.Path) -> None:
  ffmpeg = pytest.importorskip('imageio_ffmpeg')
  frames = np.zeros((4, 5, 7, 3), np.uint8)
  frames[:, :, :, 0] = 255
  jax.block_until_ready(jnp.zeros(3))  # Starts threads, which forks may block.
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    video.write(tmp_path / 'film.mp4', frames, 5.0)
  assert not [x for x in caught if 'fork' in str(x.message)]
  reader = ffmpeg.read_frames(str(tmp_path / 'film.mp4'))
  assert next(reader)['size'] == (358, 256)
  picture = np.frombuffer(next(reader), np.uint8).reshape(256, 358, 3)
  assert picture[99, 99, 0] > 200
  assert (picture[99, 99, 1:] < 60).all()
  reader.close()
