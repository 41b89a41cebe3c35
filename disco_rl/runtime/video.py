"""Writes films of episodes: GIF with Pillow, MP4 with imageio-ffmpeg."""

from collections.abc import Iterator
from collections.abc import Sequence
import importlib
import itertools
import os
import pathlib
from types import ModuleType

import numpy as np

from disco_rl import extras
from disco_rl.runtime import files

SUFFIXES = ('.gif', '.mp4')
# The maximal size in pixels of the shorter side of pictures that are scaled up;
# the longer side may have four times as many.
_SIDE = 256


def check_name(path: files.PathLike) -> None:
  """Checks that a film can be written, before anything is played.

  Raises:
    ValueError: The path ends neither in '.gif' nor in '.mp4'.
    ImportError: imageio-ffmpeg, which writes MP4, is not installed.
    OSError: The file cannot be created.
  """
  files.check_writable(path)
  suffix = pathlib.Path(path).suffix
  if suffix not in SUFFIXES:
    raise ValueError(
      f'{path}: the name of the file must end in {" or ".join(SUFFIXES)}.'
    )
  if suffix == '.mp4':
    _import_ffmpeg()


def write(
  path: files.PathLike,
  frames: Sequence[np.ndarray],
  frames_per_second: float,
) -> None:
  """Writes a film, atomically; missing parent folders are created.

  Small pictures are scaled up by a whole number, so that pixels stay sharp.

  Args:
    path: The file, ending in '.gif' or '.mp4'.
    frames: N >= 1 pictures [H, W, 3] uint8; smaller pictures are padded with
      black, below and to the right.
    frames_per_second: The speed; for GIF at most 50, which all viewers support.
  """
  check_name(path)
  target = files.expanded(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  write_file = _write_gif if target.suffix == '.gif' else _write_mp4
  with files.replacing(target) as temporary:
    write_file(temporary, _enlarged(frames), frames_per_second)


def stack(frames: Sequence[np.ndarray]) -> np.ndarray:
  """Stacks pictures [H, W, 3], padded to the largest height and width."""
  height, width = np.max([x.shape[:2] for x in frames], axis=0)
  return np.stack([_padded(x, (height, width)) for x in frames])


def _padded(frame: np.ndarray, shape: Sequence[int]) -> np.ndarray:
  """Pads a picture with black, below and to the right, to height and width."""
  missing = [(0, n - m) for n, m in zip(shape, frame.shape)]
  return np.pad(frame, [*missing, (0, 0)]) if np.any(missing) else frame


def _enlarged(frames: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
  """Yields pictures of equal, even sizes, one at a time."""
  height, width = np.max([x.shape[:2] for x in frames], axis=0)
  scale = min(_SIDE // min(height, width), 4 * _SIDE // max(height, width))
  scale = max(1, scale)
  # MP4 shares colors between two rows and two columns.
  shape = [-(-size * scale // 2) * 2 for size in (height, width)]
  for frame in frames:
    large = frame.repeat(scale, axis=0).repeat(scale, axis=1)
    yield _padded(large, shape)


def _write_gif(
  path: pathlib.Path, frames: Iterator[np.ndarray], frames_per_second: float
) -> None:
  # Imported late: most programs write no film.
  from PIL import Image

  # Viewers slow down frames of less than 20 milliseconds.
  milliseconds = max(20, round(100 / frames_per_second) * 10)
  images = (
    Image.fromarray(x).quantize(256, dither=Image.Dither.NONE) for x in frames
  )
  next(images).save(
    path,
    format='GIF',
    save_all=True,
    append_images=images,
    duration=milliseconds,
    loop=0,
  )


def _write_mp4(
  path: pathlib.Path, frames: Iterator[np.ndarray], frames_per_second: float
) -> None:
  first = next(frames)
  # To shield ffmpeg from Ctrl-C, the package would run Python in a fork of this
  # process, which JAX's threads may block.
  os.environ.setdefault('IMAGEIO_FFMPEG_NO_PREVENT_SIGINT', '1')
  writer = _import_ffmpeg().write_frames(
    str(path),
    first.shape[1::-1],
    fps=frames_per_second,
    macro_block_size=2,
    output_params=['-f', 'mp4'],
  )
  writer.send(None)
  for frame in itertools.chain([first], frames):
    writer.send(np.ascontiguousarray(frame))
  writer.close()


def _import_ffmpeg() -> ModuleType:
  try:
    return importlib.import_module('imageio_ffmpeg')
  except ImportError as error:
    raise ImportError(
      f'MP4 requires the package imageio-ffmpeg, which cannot be imported '
      f'({error}): {extras.install("video")}, or name a file that ends in '
      '.gif.'
    ) from error
