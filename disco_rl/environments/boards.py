"""Draws boards, with a square for each cell.

The colors are Okabe and Ito's, which color-blind readers can tell apart, on a
dark floor.
"""

from collections.abc import Sequence

import numpy as np

Color = tuple[int, int, int]

# The size of a cell in pixels.
CELL = 8

FLOOR: Color = (24, 26, 32)
WALL: Color = (112, 116, 124)
AGENT: Color = (86, 180, 233)
# Colors of objects and channels, used cyclically.
COLORS: Sequence[Color] = (
  (230, 159, 0),
  (0, 158, 115),
  (213, 94, 0),
  (204, 121, 167),
  (240, 228, 66),
  (0, 114, 178),
  (238, 238, 238),
)


def paint(*layers: tuple[np.ndarray, Color]) -> np.ndarray:
  """Paints a board.

  Args:
    *layers: Cells [H, W] bool and their color; later layers hide earlier ones.

  Returns:
    [H * CELL, W * CELL, 3] uint8, with darker lines between cells.
  """
  picture = np.full((*np.shape(layers[0][0]), 3), FLOOR, np.uint8)
  for cells, color in layers:
    picture[np.asarray(cells, bool)] = color
  picture = picture.repeat(CELL, axis=0).repeat(CELL, axis=1)
  for lines in (picture[CELL - 1 :: CELL], picture[:, CELL - 1 :: CELL]):
    lines -= lines // 4
  return picture
