"""Converts a terminal's screen, as in NetHack, to pictures and text."""

import functools
import pathlib

import numpy as np

# The size of a character in pixels.
_WIDTH, _HEIGHT = 7, 14
# The 16 colors of a terminal, in the order of curses. Black is shown as blue,
# as NetHack intends.
_PALETTE = np.array(
  [
    (59, 89, 152), (205, 49, 49), (13, 188, 121), (193, 156, 0),
    (36, 114, 200), (188, 63, 188), (17, 168, 205), (204, 204, 204),
    (118, 118, 118), (241, 76, 76), (35, 209, 139), (245, 245, 67),
    (59, 142, 234), (214, 112, 214), (41, 184, 219), (255, 255, 255),
  ],
  np.uint8,
)  # fmt: skip


def to_text(characters: np.ndarray) -> str:
  """Converts characters [rows, columns] uint8 to right-stripped lines."""
  lines = (bytes(row).decode('latin-1').rstrip() for row in characters)
  return '\n'.join(lines)


def draw(characters: np.ndarray, colors: np.ndarray) -> np.ndarray:
  """Draws a screen of characters [rows, columns] uint8.

  Only the lower four bits of colors [rows, columns] are used. The picture is
  [rows * 14, columns * 7, 3] uint8.
  """
  rows, columns = characters.shape
  # [rows, columns, height, width, 1] * [rows, columns, 1, 1, 3].
  ink = _glyphs()[characters][..., None] / 255.0
  cells = ink * _PALETTE[colors & 15][:, :, None, None]
  picture = cells.transpose(0, 2, 1, 3, 4).astype(np.uint8)
  return picture.reshape(rows * _HEIGHT, columns * _WIDTH, 3)


@functools.cache
def _glyphs() -> np.ndarray:
  """Draws the ink of every character, [256, height, width] uint8."""
  # Imported late, because only rendering needs them.
  import matplotlib
  from PIL import Image
  from PIL import ImageDraw
  from PIL import ImageFont

  # Matplotlib includes the font, and Pillow.
  folder = pathlib.Path(matplotlib.get_data_path()) / 'fonts' / 'ttf'
  font = ImageFont.truetype(
    str(folder / 'DejaVuSansMono.ttf'),
    11,
    # The other layout engine would need another library.
    layout_engine=ImageFont.Layout.BASIC,
  )
  glyphs = np.zeros((256, _HEIGHT, _WIDTH), np.uint8)
  for code in range(33, 256):
    image = Image.new('L', (_WIDTH, _HEIGHT))
    ImageDraw.Draw(image).text((0, 0), chr(code), 255, font)
    glyphs[code] = np.asarray(image)
  return glyphs
