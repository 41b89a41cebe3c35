"""Logs of rows: in memory and in files, after kills, and damage."""

import errno
import os
import pathlib
from typing import Any

import damage
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from disco_rl.runtime import row_log

ROW_BYTES = 12
# Three rows a file.
CAPACITY = 40
STRIDE = ROW_BYTES + 4

both_kinds = pytest.mark.parametrize('is_mapped', [False, True])


def rows(numbers: Any, life: int = 0) -> np.ndarray:
  """What is appended as these numbers, in one life of the process."""
  numbers = np.asarray(numbers, np.int32)
  return np.stack([numbers, -numbers, numbers * 0 + life], 1).view(np.uint8)


def make(directory: Any, is_mapped: bool) -> row_log.RowLog:
  return row_log.RowLog(ROW_BYTES, CAPACITY, directory, is_mapped)


def check(log: row_log.RowLog, first: int, life: int = 0) -> None:
  numbers = np.arange(first, log.end)
  np.testing.assert_array_equal(log.read(numbers), rows(numbers, life))


def names(directory: pathlib.Path) -> list[str]:
  return sorted(path.name for path in directory.iterdir())


def failing(code: int) -> Any:
  def fail(*_: Any) -> None:
    raise OSError(code, os.strerror(code))

  return fail


@both_kinds
def test_the_newest_are_kept(tmp_path: pathlib.Path, is_mapped: bool) -> None:
  log = make(tmp_path, is_mapped)
  for first in range(0, 3 * CAPACITY, 5):
    log.append(rows(range(first, first + 5)))
    check(log, max(0, log.end - CAPACITY))
  numbers = np.array([100, 90, 100, 119])
  copies = log.read(numbers)
  log.append(rows(range(120, 160)))
  np.testing.assert_array_equal(copies, rows(numbers))


@both_kinds
def test_every_save_can_be_restored(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  """Also by the other kind, after more was appended, without an end."""
  log = make(tmp_path, is_mapped)
  saved = []
  for count in (1, 30, 2, 0, 57, 1):
    log.append(rows(range(log.end, log.end + count)))
    log.save()
    saved.append(log.end)
  log.append(rows(range(log.end, log.end + 7)))
  for end in saved:
    first = max(0, end - CAPACITY)
    other = make(tmp_path, not is_mapped)
    other.restore(first, end)
    assert other.end == end
    check(other, first)


@both_kinds
def test_what_followed_an_older_save_is_replaced(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  log = make(tmp_path, is_mapped)
  log.append(rows(range(50)))
  log.save()
  log.append(rows(range(50, 90)))
  log.save()
  for life in (1, 2):
    log = make(tmp_path, is_mapped)
    log.restore(20, 50)
    log.append(rows(range(50, 65), life))
    kept = np.arange(25, 50)
    np.testing.assert_array_equal(log.read(kept), rows(kept))
    check(log, 50, life)
    log.save()
  log = make(tmp_path, not is_mapped)
  log.restore(25, 65)
  check(log, 50, life=2)


@both_kinds
def test_restoring_nothing_in_the_midst_of_a_file(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  log = make(tmp_path, is_mapped)
  log.restore(20, 20)
  log.append(rows(range(20, 30)))
  log.save()
  other = make(tmp_path, is_mapped)
  other.restore(20, 30)
  check(other, 20)


@pytest.mark.skipif(not os.path.exists('/proc/self/io'), reason='no counter')
def test_only_new_rows_are_written(tmp_path: pathlib.Path) -> None:
  def written() -> int:
    content = pathlib.Path('/proc/self/io').read_text(encoding='ascii')
    return int(content.partition('wchar: ')[2].split()[0])

  row_bytes, capacity = 10_000, 160
  log = row_log.RowLog(row_bytes, capacity, tmp_path)
  for count in (100, 3, 0):
    log.append(np.ones((count, row_bytes), np.uint8))
    before = written()
    log.save()
    total = written() - before
    assert count * row_bytes <= total < count * (row_bytes + 4) + 1000


def saved(directory: pathlib.Path) -> row_log.RowLog:
  log = make(directory, is_mapped=False)
  log.append(rows(range(8)))
  log.save()
  return log


@both_kinds
def test_all_flipped_bits_are_found(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  saved(tmp_path)
  path = tmp_path / '000000000001.rows'
  good = path.read_bytes()
  for place in range(8 * len(good)):
    bad = bytearray(good)
    bad[place // 8] ^= 1 << place % 8
    path.write_bytes(bad)
    row = 3 + place // 8 // STRIDE
    log = make(tmp_path, is_mapped)
    with pytest.raises(row_log.RowLogError, match=f'{path}.* row {row} '):
      log.restore(0, 8)
    # An older checkpoint may not need it.
    log.restore(0, 3)
    check(log, 0)
    log.restore(6, 8)
    check(log, 6)


@both_kinds
@hypothesis.given(data=st.data())
@damage.FEW
def test_damage_is_found(
  tmp_path_factory: pytest.TempPathFactory, is_mapped: bool, data: Any
) -> None:
  directory = tmp_path_factory.mktemp('log')
  saved(directory)
  path = directory / '000000000001.rows'
  path.write_bytes(data.draw(damage.damaged(path.read_bytes())))
  log = make(directory, is_mapped)

  def read() -> np.ndarray:
    log.restore(0, 8)
    return log.read(np.arange(8))

  got = damage.outcome(read, path, row_log.RowLogError)
  if got is not None:
    np.testing.assert_array_equal(got, rows(range(8)))


@both_kinds
def test_missing_files_and_swapped_ones(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  saved(tmp_path)
  first, second = tmp_path / '000000000000.rows', tmp_path / '000000000001.rows'
  log = make(tmp_path, is_mapped)
  content = first.read_bytes()
  first.write_bytes(second.read_bytes())
  with pytest.raises(row_log.RowLogError, match=f'{first} .* row 0 '):
    log.restore(0, 8)
  first.unlink()
  with pytest.raises(row_log.RowLogError, match=f'{first} is missing'):
    log.restore(0, 8)
  first.write_bytes(content[:-1])
  with pytest.raises(row_log.RowLogError, match=f'{first} has 47 bytes'):
    log.restore(0, 8)
  log.restore(3, 8)
  check(log, 3)


@both_kinds
def test_files_are_deleted(tmp_path: pathlib.Path, is_mapped: bool) -> None:
  log = make(tmp_path, is_mapped)
  for first in range(0, 60, 10):
    log.append(rows(range(first, first + 10)))
    log.save()
  assert len(names(tmp_path)) == 20
  log.delete_below(17)
  assert names(tmp_path)[0] == '000000000005.rows'
  assert len(names(tmp_path)) == 15
  other = make(tmp_path, is_mapped)
  other.restore(17, 57)
  check(other, 17)
  check(log, 20)
  # The last one is not full, and gets the next rows.
  log.append(rows(range(60, 62)))
  log.save()
  log.delete_below(62)
  assert names(tmp_path) == ['000000000020.rows']
  log.append(rows(range(62, 70)))
  check(log, 62)


@both_kinds
def test_disk_space_is_that_of_the_estimate(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  log = make(tmp_path, is_mapped)
  most = 0
  for number in range(100):
    log.append(rows([number]))
    log.save()
    log.delete_below(max(0, log.end - CAPACITY))
    most = max(most, sum(path.stat().st_size for path in tmp_path.iterdir()))
  bound = row_log.disk_bytes(ROW_BYTES, CAPACITY)
  assert most <= bound < 1.3 * most
  assert row_log.memory_bytes(ROW_BYTES, CAPACITY) == CAPACITY * STRIDE


@both_kinds
def test_a_full_disk(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
  log = make(tmp_path, is_mapped)
  log.append(rows(range(5)))
  log.save()

  with monkeypatch.context() as patch:
    patch.setattr(os, 'posix_fallocate', failing(errno.ENOSPC))
    with pytest.raises(
      row_log.RowLogError, match=f'{tmp_path}/0+2.rows .* No space left'
    ):
      log.append(rows(range(5, 8)))
      log.save()
  assert names(tmp_path) == ['000000000000.rows', '000000000001.rows']
  other = make(tmp_path, is_mapped)
  other.restore(0, 5)
  check(other, 0)
  # Once there is space.
  log.append(rows(range(log.end, 9)))
  log.save()
  other.restore(0, 9)
  check(other, 0)


@both_kinds
@pytest.mark.parametrize('code', [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_without_posix_fallocate(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  is_mapped: bool,
  code: int | None,
) -> None:
  if code is None:
    monkeypatch.delattr(os, 'posix_fallocate')
  else:
    monkeypatch.setattr(os, 'posix_fallocate', failing(code))
  log = make(tmp_path, is_mapped)
  log.append(rows(range(5)))
  log.save()
  sizes = {path.stat().st_size for path in tmp_path.iterdir()}
  assert sizes == {3 * STRIDE}
  check(log, 0)


@both_kinds
def test_file_systems_that_cannot_flush(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
  monkeypatch.setattr(os, 'fsync', failing(errno.EINVAL))
  log = make(tmp_path, is_mapped)
  log.append(rows(range(5)))
  log.save()
  other = make(tmp_path, is_mapped)
  other.restore(0, 5)
  check(other, 0)


@pytest.mark.parametrize('code', [errno.EDQUOT, errno.EACCES])
def test_only_a_full_disk_is_called_full(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
  log = make(tmp_path, is_mapped=False)
  log.append(rows(range(5)))
  monkeypatch.setattr(os, 'posix_fallocate', failing(code))
  with pytest.raises(row_log.RowLogError, match=os.strerror(code)) as raised:
    log.save()
  is_full = 'Free space for files of 1 MB' in str(raised.value)
  assert is_full == (code == errno.EDQUOT)
  # The file cannot even be opened.
  monkeypatch.setattr(pathlib.Path, 'open', failing(errno.EROFS))
  with pytest.raises(row_log.RowLogError, match=os.strerror(errno.EROFS)):
    log.save()


def test_a_log_without_directory() -> None:
  log = make(None, is_mapped=False)
  log.append(rows(range(100)))
  check(log, 60)
  for call in (log.save, lambda: log.restore(0, 0)):
    with pytest.raises(ValueError, match='without a directory'):
      call()
  with pytest.raises(ValueError, match='needs a directory'):
    make(None, is_mapped=True)
