"""Sokoban levels as arrays, and their files.

Levels are [N, 10, 10, 2] uint8: fixed things (EMPTY, WALL or TARGET), then
movable things (EMPTY, AGENT or BOX); each level has one agent, four boxes and
four targets.
"""

from collections.abc import Iterator
import os
import pathlib

import numpy as np

from disco_rl import paths

EMPTY, WALL, TARGET, AGENT, BOX = range(5)
SIDE = 10
NUM_BOXES = 4
SHAPE = (SIDE, SIDE, 2)
SUFFIXES = ('.txt', '.npy')

# Character in Boxoban files -> fixed and movable thing.
_CELLS = {
  ' ': (EMPTY, EMPTY),
  '#': (WALL, EMPTY),
  '.': (TARGET, EMPTY),
  '@': (EMPTY, AGENT),
  '+': (TARGET, AGENT),
  '$': (EMPTY, BOX),
  '*': (TARGET, BOX),
}
_PATHS = str | os.PathLike[str]


def is_path(text: str) -> bool:
  """Returns whether a text has the suffix of a file for `read`."""
  return text.endswith(SUFFIXES)


def read(path: _PATHS) -> np.ndarray:
  """Reads a file of levels.

  Args:
    path: A text file of Boxoban, with a line '; NUMBER' and ten lines of ten
      characters for each level; or an npy file of levels as described above.

  Returns:
    [N, 10, 10, 2] uint8, N >= 1.

  Raises:
    OSError: The file does not exist or cannot be read.
    ValueError: The file is malformed; the message locates the fault.
  """
  path = pathlib.Path(paths.absolute(path))
  if path.suffix not in SUFFIXES:
    raise ValueError(f'{path}: files of levels end in {" or ".join(SUFFIXES)}.')
  if not path.is_file():
    raise FileNotFoundError(
      f'{path}: no such file of Sokoban levels; a relative path starts from '
      f'the working directory, {pathlib.Path.cwd()}.'
    )
  levels = _read_npy(path) if path.suffix == '.npy' else _read_text(path)
  if not len(levels):
    raise ValueError(f'{path}: the file holds no levels.')
  for number, level in enumerate(levels):
    if fault := _fault(level):
      raise ValueError(f'{path}, level {number}, counted from 0: {fault}.')
  return levels


def _fault(level: np.ndarray) -> str:
  """Returns the fault of a level [10, 10, 2]; empty if there is none."""
  fixed, movable = level[..., 0], level[..., 1]
  for name, cells, kinds in (
    ('fixed', fixed, (EMPTY, WALL, TARGET)),
    ('movable', movable, (EMPTY, AGENT, BOX)),
  ):
    if unknown := sorted(set(cells.ravel().tolist()) - set(kinds)):
      return f'the {name} cells hold {unknown}, but only {kinds} are allowed'
  for name, cells, kind, want in (
    ('agents', movable, AGENT, 1),
    ('boxes', movable, BOX, NUM_BOXES),
    ('targets', fixed, TARGET, NUM_BOXES),
  ):
    if (got := int((cells == kind).sum())) != want:
      return f'there are {got} {name} instead of {want}'
  if ((fixed == WALL) & (movable != EMPTY)).any():
    return 'an agent or a box is inside a wall'
  if ((fixed == TARGET) == (movable == BOX)).all():
    return 'it is solved already'
  return ''


def _read_npy(path: pathlib.Path) -> np.ndarray:
  with path.open('rb') as file:
    try:
      levels = np.lib.format.read_array(file, allow_pickle=False)  # noqa: TID251
    # NumPy raises nearly any error for a damaged header.
    except Exception as error:
      raise ValueError(
        f'{path}: not an npy file of numbers, or a damaged one ({error}).'
      ) from error
  # Compared by kind: in NumPy, times are a subtype of integers.
  if levels.shape[1:] != SHAPE or levels.dtype.kind not in 'iu':
    raise ValueError(
      f'{path}: holds {levels.dtype} {list(levels.shape)} instead of integers '
      f'{["N", *SHAPE]}.'
    )
  # Narrowing would turn other numbers into cells.
  if levels.size and not 0 <= levels.min() <= levels.max() <= BOX:
    raise ValueError(
      f'{path}: holds numbers from {levels.min()} to {levels.max()}, but '
      f'cells are 0 to {BOX}.'
    )
  return levels.astype(np.uint8)


def _read_text(path: pathlib.Path) -> np.ndarray:
  try:
    lines = path.read_text('ascii').splitlines()
  except UnicodeDecodeError as error:
    raise ValueError(f'{path}: not a text file of levels ({error}).') from error
  return np.array(list(_parse(path, lines)), np.uint8).reshape(-1, *SHAPE)


def _parse(
  path: pathlib.Path, lines: list[str]
) -> Iterator[list[list[tuple[int, int]]]]:
  """Yields levels, each as rows of cells."""
  rows: list[list[tuple[int, int]]] = []
  # The additional line ends the last level.
  for number, line in enumerate([*lines, ''], start=1):
    where = f'{path}, line {number}'
    if line and not line.startswith(';'):
      rows.append(_parse_row(line, where))
      continue
    if rows:
      if len(rows) != SIDE:
        raise ValueError(
          f'{where}: a level of {len(rows)} rows ends here, but levels have '
          f'{SIDE}.'
        )
      yield rows
      rows = []


def _parse_row(line: str, where: str) -> list[tuple[int, int]]:
  if unknown := sorted(set(line) - set(_CELLS)):
    raise ValueError(
      f'{where}: {unknown} have no meaning; rows are made of {list(_CELLS)}, '
      "and headers begin with ';'."
    )
  if len(line) != SIDE:
    raise ValueError(
      f'{where}: a row of {len(line)} characters instead of {SIDE}.'
    )
  return [_CELLS[character] for character in line]
