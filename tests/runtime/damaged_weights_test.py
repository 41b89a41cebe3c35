"""Damaged and foreign files are read or refused by name, never executed."""

from collections.abc import Callable
import dataclasses
import io
import os
import pathlib
import pickle
from typing import Any
from unittest import mock
import zipfile

import damage
import hypothesis
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
import jax
import numpy as np
import pytest
import small

from disco_rl.api import agent_files
from disco_rl.environments.jax_native import sokoban_levels
from disco_rl.runtime import npz
from disco_rl.update_rules import weights

Arrays = dict[str, Any]

ARRAYS: Arrays = small.arrays()
WITH_NOTE: Arrays = {**ARRAYS, **small.NOTE}
TREE = {
  'w': np.arange(6, dtype=np.float32).reshape(2, 3),
  'n': [np.int32(3), np.ones(2, bool)],
}
# The note that an agent's file has.
NOTES = {
  npz.NOTE: npz.note_array(
    {'version': 1, **dataclasses.asdict(small.DESCRIPTION)}
  )
}
LEVEL = (
  '; 0',
  '##########',
  '#@ $.    #',
  '#  $.    #',
  '#  $.    #',
  '#  $.    #',
  *['#        #'] * 4,
  '##########',
)
LEVEL_TEXT = '\n'.join([*LEVEL, '', *LEVEL]).encode()
# Fixed and movable thing -> character.
CHARACTERS = {
  (sokoban_levels.EMPTY, sokoban_levels.EMPTY): ' ',
  (sokoban_levels.WALL, sokoban_levels.EMPTY): '#',
  (sokoban_levels.TARGET, sokoban_levels.EMPTY): '.',
  (sokoban_levels.EMPTY, sokoban_levels.AGENT): '@',
  (sokoban_levels.TARGET, sokoban_levels.AGENT): '+',
  (sokoban_levels.EMPTY, sokoban_levels.BOX): '$',
  (sokoban_levels.TARGET, sokoban_levels.BOX): '*',
}


def to_npz(arrays: Arrays) -> bytes:
  file = io.BytesIO()
  np.savez(file, **arrays)
  return file.getvalue()


def npy(array: Any) -> bytes:
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()


def level_array() -> np.ndarray:
  cells = {character: things for things, character in CHARACTERS.items()}
  return np.array([[[cells[c] for c in row] for row in LEVEL[1:]]], np.uint8)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return tmp_path_factory.mktemp('damaged')


# Weights and saved agents.


def load_weights(folder: pathlib.Path, content: bytes) -> Any:
  path = folder / 'rule.npz'
  path.write_bytes(content)
  return damage.outcome(lambda: weights.load(path), path, weights.WeightsError)


def load_tree(folder: pathlib.Path, content: bytes) -> Any:
  path = folder / 'agent.npz'
  path.write_bytes(content)
  return damage.outcome(
    lambda: agent_files.load(path, TREE)[1], path, npz.ArchiveError
  )


def assert_equal(found: Any, expected: Any) -> None:
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def flat(params: Any) -> Arrays:
  return {
    f'{m}/{k}': v for m, leaves in params.items() for k, v in leaves.items()
  }


@damage.FEW
@hypothesis.given(content=damage.damaged(to_npz(WITH_NOTE)))
def test_damaged_weights(folder: pathlib.Path, content: bytes) -> None:
  found = load_weights(folder, content)
  if found is not None:
    assert_equal(flat(found), ARRAYS)


OTHER = hnp.arrays(
  hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)
)


@damage.FEW
@hypothesis.given(
  key=st.sampled_from(sorted(ARRAYS)),
  other=st.none() | OTHER | OTHER.map(lambda array: array.astype(object)),
  name=st.text(max_size=5) | st.sampled_from(sorted(ARRAYS)),
)
def test_weights_with_another_array(
  folder: pathlib.Path, key: str, other: Any, name: str
) -> None:
  """Left out, under another name, of another type, shape or value."""
  hypothesis.assume('\0' not in name and not name.startswith('/'))
  changed = {k: v for k, v in WITH_NOTE.items() if k != key}
  if other is not None:
    changed[name] = other
  found = load_weights(folder, to_npz(changed))
  if found is None:
    return
  assert name == key
  assert np.isfinite(np.asarray(other, np.float32)).all()
  expected = np.asarray(other, np.float32)
  assert_equal(flat(found), {**ARRAYS, key: expected})


@pytest.mark.parametrize('axis', [0, 1])
@pytest.mark.parametrize('side', [5, 2**31, 2**60])
def test_arrays_without_entries_may_claim_any_length(
  folder: pathlib.Path, side: int, axis: int
) -> None:
  shape = (side, 0) if axis else (0, side)
  empty = {
    key: np.empty(shape if array.ndim > 1 else 0, np.float32)
    for key, array in ARRAYS.items()
  }
  assert load_weights(folder, to_npz(empty)) is None


@damage.FEW
@hypothesis.given(data=st.data())
def test_damaged_agents(folder: pathlib.Path, data: st.DataObject) -> None:
  path = folder / 'whole.npz'
  agent_files.save(path, small.DESCRIPTION, TREE)
  found = load_tree(folder, data.draw(damage.damaged(path.read_bytes())))
  if found is not None:
    assert_equal(found, TREE)


def test_an_agent_that_unpacks_to_more_is_refused_before(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  path = tmp_path / 'agent.npz'
  zeros = {"['w']": np.zeros((2, 10**6), np.float32)}
  np.savez_compressed(
    path,
    **zeros,
    **NOTES,
    **{"['n'][0]": TREE['n'][0], "['n'][1]": TREE['n'][1]},
  )
  assert path.stat().st_size < 10**5
  monkeypatch.delattr(npz, '_read_arrays')
  with pytest.raises(
    npz.ArchiveError, match=r"has \['w'\] of float32\[2, 1000"
  ):
    agent_files.load(path, TREE)


def test_an_agent_of_zeros_that_unpack_to_far_more(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  path = tmp_path / 'agent.npz'
  tree = {'w': np.zeros(10**6, np.float32)}
  np.savez_compressed(path, **NOTES, **{"['w']": tree['w']})
  with monkeypatch.context() as patch:
    patch.delattr(npz, '_read_arrays')
    with pytest.raises(npz.ArchiveError, match=r'bytes unpack to 4000\d{3}\W'):
      agent_files.load(path, tree)
  agent_files.save(path, small.DESCRIPTION, tree)
  assert_equal(agent_files.load(path, tree)[1], tree)


class Payload:
  """Makes a directory when it is unpickled."""

  def __init__(self, path: pathlib.Path) -> None:
    self._path = path

  def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
    return os.mkdir, (str(self._path),)


@pytest.mark.parametrize('kind', ['pickle', 'npy', 'npz'])
def test_nothing_is_unpickled(tmp_path: pathlib.Path, kind: str) -> None:
  mark = tmp_path / 'was_here'
  payload = np.array([Payload(mark)], dtype=object)
  content = {
    'pickle': pickle.dumps(Payload(mark)),
    'npy': npy(payload),
    'npz': to_npz({"['w']": payload, **ARRAYS, 'lstm/linear/w': payload}),
  }[kind]
  assert load_weights(tmp_path, content) is None
  assert load_tree(tmp_path, content) is None
  assert read_levels(tmp_path / 'levels.npy', content) is None
  assert not mark.exists()
  # Unpickling creates the directory.
  pickle.loads(pickle.dumps(Payload(mark)))
  assert mark.exists()


# Levels.


def test_arrays_are_not_unpickled_even_after_their_headers() -> None:
  stream = io.BytesIO()
  np.savez(stream, x=np.array([{}], object))
  with (
    zipfile.ZipFile(stream) as archive,
    pytest.raises(ValueError, match='allow_pickle=False'),
  ):
    npz._read_array(archive, archive.getinfo('x.npy'))


def read_levels(path: pathlib.Path, content: bytes) -> Any:
  path.write_bytes(content)
  levels = damage.outcome(lambda: sokoban_levels.read(path), path, ValueError)
  if levels is not None:
    assert levels.dtype == np.uint8
    assert levels.shape[1:] == sokoban_levels.SHAPE
    assert (levels[..., 1] == sokoban_levels.AGENT).sum((1, 2)).tolist() == (
      [1] * len(levels)
    )
  return levels


@damage.FEW
@hypothesis.given(content=damage.damaged(LEVEL_TEXT))
@hypothesis.example(content=LEVEL_TEXT)
def test_damaged_levels(folder: pathlib.Path, content: bytes) -> None:
  levels = read_levels(folder / 'levels.txt', content)
  if levels is None:
    assert content != LEVEL_TEXT
    return
  lines = content.decode('ascii').splitlines()
  assert [
    ''.join(CHARACTERS[tuple(cell)] for cell in row)
    for level in levels.tolist()
    for row in level
  ] == [line for line in lines if line and not line.startswith(';')]


@damage.FEW
@hypothesis.given(row=st.integers(1, 10), line=st.text(' #.@+$*x', max_size=12))
def test_lines_of_levels_are_located(
  folder: pathlib.Path, row: int, line: str
) -> None:
  path = folder / 'levels.txt'
  lines = [*LEVEL[:row], line, *LEVEL[row + 1 :]]
  path.write_text('\n'.join(lines))
  try:
    sokoban_levels.read(path)
  except ValueError as error:
    if not line:  # It ends a level, or leaves the last one too short.
      where = f'line {row + 1 if row > 1 else 12}: a level of {row - 1 or 9} '
    elif len(line) == 10 and 'x' not in line:
      where = 'level 0'
    else:
      where = f'line {row + 1}: '
    assert str(error).startswith(f'{path}, {where}')
  else:
    assert len(line) == 10


@damage.FEW
@hypothesis.given(
  content=st.one_of(
    damage.damaged(npy(level_array())),
    hnp.arrays(
      hnp.scalar_dtypes(),
      st.sampled_from(((1, *sokoban_levels.SHAPE), (0, 10, 10, 2), (), (3,))),
      fill=st.nothing(),
    ).map(npy),
  )
)
@hypothesis.example(content=npy(level_array()))
def test_damaged_arrays_of_levels(folder: pathlib.Path, content: bytes) -> None:
  levels = read_levels(folder / 'levels.npy', content)
  if levels is None:
    assert content != npy(level_array())
    return
  expected = np.load(io.BytesIO(content), allow_pickle=False)
  np.testing.assert_array_equal(levels, expected)


@damage.FEW
@hypothesis.given(header=st.text(max_size=60) | st.text('{}[]():\'"a1,\n '))
def test_headers_of_arrays_of_levels(folder: pathlib.Path, header: str) -> None:
  data = header.encode('utf-8', 'replace')
  # Of the first version, which NumPy mends where it was written by Python 2.
  content = b'\x93NUMPY\x01\x00' + len(data).to_bytes(2, 'little') + data
  assert read_levels(folder / 'levels.npy', content) is None


@pytest.mark.parametrize('number', [5_000, 50_000])
def test_files_with_too_many_arrays_are_refused_at_once(
  number: int, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'x.npz'
  with zipfile.ZipFile(path, 'w') as archive:
    for i in range(number):
      archive.writestr(f'{i}.npy', b'')
  with (
    mock.patch.object(npz, '_read_header', side_effect=AssertionError),
    pytest.raises(weights.WeightsError, match=f'{number:,} arrays, more than'),
  ):
    weights.load(path)
