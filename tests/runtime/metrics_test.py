"""Tests of runtime/metrics.py, files.py and progress.py."""

import contextlib
import io
import json
import os
import pathlib
import pty
import shutil
import struct
import sys
import time
from typing import Any

import numpy as np
import pytest
from tensorboardX.proto import event_pb2
import tqdm.std

from disco_rl.runtime import files
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import progress
from disco_rl.runtime import reports


def _rows(update: int, **others: Any) -> list[dict[str, Any]]:
  return [
    {
      'update': update,
      'seed': seed,
      'environment_steps': 56 * update,
      'return': 0.25 * update + seed,
      **others,
    }
    for seed in range(2)
  ]


def _write(
  workdir: pathlib.Path, *updates: int, resume_from: int | None = None
) -> None:
  with metrics.MetricsWriter(workdir, resume_from) as writer:
    for update in updates:
      writer.write(_rows(update))


def _events(workdir: pathlib.Path) -> list[event_pb2.Event]:
  """Parses TFRecords: length uint64, its CRC uint32, data, its CRC uint32."""
  events = []
  for path in sorted((workdir / 'tensorboard').iterdir()):
    content = path.read_bytes()
    while content:
      (length,) = struct.unpack('<Q', content[:8])
      events.append(event_pb2.Event.FromString(content[12 : 12 + length]))
      content = content[16 + length :]
  return events


def _scalars(workdir: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
  curves: dict[str, list[tuple[int, float]]] = {}
  for event in _events(workdir):
    for value in event.summary.value:
      points = curves.setdefault(value.tag, [])
      points.append((event.step, value.simple_value))
  return curves


def test_round_trip(tmp_path: pathlib.Path) -> None:
  _write(tmp_path / 'new' / 'run', 10, 20)
  columns = metrics.read(tmp_path / 'new' / 'run' / 'metrics.csv')
  assert list(columns) == ['update', 'seed', 'environment_steps', 'return']
  np.testing.assert_array_equal(columns['update'], [10, 10, 20, 20])
  np.testing.assert_array_equal(columns['seed'], [0, 1, 0, 1])
  np.testing.assert_array_equal(columns['return'], [2.5, 3.5, 5, 6])
  assert columns['environment_steps'].dtype == np.int64


def test_a_full_disk_is_reported_with_the_path(tmp_path: pathlib.Path) -> None:
  with (
    pytest.raises(OSError, match='No space left .*metrics.csv'),
    metrics.MetricsWriter(tmp_path) as writer,
  ):
    writer.path.unlink()
    writer.path.symlink_to('/dev/full')
    writer._csv.close()
    writer._csv = writer.path.open('a')
    writer.write(_rows(1))
  with (
    pytest.raises(OSError, match='No space left .*rule.npz'),
    files.replacing(tmp_path / 'rule.npz'),
    open('/dev/full', 'w') as full,
  ):
    full.write('lost')


def test_formats_of_fields(tmp_path: pathlib.Path) -> None:
  steps = 2**53 + 1
  row = {
    'update': np.int32(1),
    'seed': 0,
    'steps': np.int64(steps),
    'third': 1 / 3,
    'single': np.array(0.1, np.float32),
    'small': 1.2345678e-9,
    'nothing': np.nan,
    'done': True,
    'name': 'catch, "small"',
  }
  with metrics.MetricsWriter(tmp_path) as writer:
    writer.write([row])
  line = (tmp_path / 'metrics.csv').read_text().splitlines()[1]
  assert line == (f'1,0,{steps},0.333333,0.1,1.23457e-09,,1,"catch, ""small"""')
  columns = metrics.read(tmp_path / 'metrics.csv')
  assert columns['steps'][0] == steps
  assert np.isnan(columns['nothing'][0])
  assert columns['name'][0] == 'catch, "small"'


def test_rows_are_in_the_file_at_once(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    writer.write([])
    assert metrics.read(writer.path) == {}
    writer.write(_rows(1))
    assert len(metrics.read(writer.path)['update']) == 2


def test_order_of_keys_does_not_matter(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    writer.write(_rows(1))
    writer.write([dict(reversed(row.items())) for row in _rows(2)])
  columns = metrics.read(tmp_path / 'metrics.csv')
  np.testing.assert_array_equal(
    columns['environment_steps'], [56, 56, 112, 112]
  )


@pytest.mark.parametrize('is_resumed', [False, True])
@pytest.mark.parametrize(
  'row, message',
  [
    ({'update': 20, 'return': 0.0}, r"lacks \['seed'\]"),
    (
      {'update': 20, 'seed': 0, 'environment_steps': 1, 'entropy': 0.5},
      r"\['entropy'\].*\['return'\]",
    ),
    *(
      ({**_rows(20)[0], 'return': value}, "'return' must be a number")
      for value in (np.zeros(2), None, 1j)
    ),
  ],
)
def test_invalid_rows_raise_and_nothing_is_written(
  tmp_path: pathlib.Path, row: dict[str, Any], message: str, is_resumed: bool
) -> None:
  if is_resumed:
    _write(tmp_path, 10)
  with metrics.MetricsWriter(tmp_path, resume_from=10) as writer:
    if not is_resumed:
      writer.write(_rows(10))
    before = writer.path.read_bytes()
    with pytest.raises(ValueError, match=message):
      writer.write([*_rows(20), row])
    assert writer.path.read_bytes() == before


@pytest.mark.parametrize('is_replaced', [False, True])
def test_rows_are_not_written_into_a_file_that_is_gone(
  tmp_path: pathlib.Path, is_replaced: bool
) -> None:
  with (
    pytest.raises(FileNotFoundError, match='Removed or replaced.*metrics.csv'),
    metrics.MetricsWriter(tmp_path) as writer,
  ):
    writer.write(_rows(10))
    if is_replaced:  # As editors do it.
      (tmp_path / 'edited').write_bytes(writer.path.read_bytes())
      (tmp_path / 'edited').replace(writer.path)
    else:
      shutil.rmtree(tmp_path)
    writer.write(_rows(20))


def test_resuming_equals_never_stopping(tmp_path: pathlib.Path) -> None:
  _write(tmp_path / 'straight', 10, 20, 30, 40)
  _write(tmp_path / 'resumed', 10, 20, 30)
  _write(tmp_path / 'resumed', 30, 40, resume_from=20)
  assert (tmp_path / 'resumed' / 'metrics.csv').read_bytes() == (
    tmp_path / 'straight' / 'metrics.csv'
  ).read_bytes()


def test_a_run_without_a_checkpoint_keeps_no_row(
  tmp_path: pathlib.Path,
) -> None:
  """Not even its columns, which an upgrade may have changed."""
  _write(tmp_path, 0, 10)
  with metrics.MetricsWriter(tmp_path, None) as writer:
    writer.write([{'update': 0, 'seed': 0, 'loss': 1.0}])
  assert writer.path.read_text() == 'update,seed,loss\n0,0,1\n'


def test_a_resumed_run_may_have_other_columns(tmp_path: pathlib.Path) -> None:
  _write(tmp_path, 10)
  with metrics.MetricsWriter(tmp_path, 10) as writer:
    for update in (20, 30):
      writer.write([{'loss': 0.5, 'seed': 0, 'update': update, 'return': 1.0}])
  assert writer.path.read_text().splitlines()[-3:] == [
    '10,1,560,3.5,',
    '20,0,,1,0.5',
    '30,0,,1,0.5',
  ]
  columns = metrics.read(writer.path)
  assert [*columns] == [
    *('update', 'seed', 'environment_steps', 'return', 'loss')
  ]


def test_reading_a_file_cut_off_anywhere(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'metrics.csv'
  _write(tmp_path, 10, 20)
  whole = path.read_bytes()
  expected = metrics.read(path)
  for end in range(len(whole)):
    path.write_bytes(whole[:end])
    num_lines = whole[:end].count(b'\n')
    columns = metrics.read(path)
    assert list(columns) == (list(expected) if num_lines else [])
    for key, column in columns.items():
      np.testing.assert_array_equal(column, expected[key][: num_lines - 1])


@pytest.mark.parametrize('kept', [0, 5, 33, 34, 50, -8, -3, -1])
def test_resuming_a_file_cut_off(tmp_path: pathlib.Path, kept: int) -> None:
  path = tmp_path / 'metrics.csv'
  _write(tmp_path, 10, 20)
  whole = path.read_bytes()
  path.write_bytes(whole[:kept])
  # A part of update 20 at most: its checkpoint can't exist.
  _write(tmp_path, 20, resume_from=10)
  lines = whole[:kept].splitlines(keepends=True)
  survivors = [line for line in lines if line.startswith((b'upd', b'10,'))]
  survivors = [line for line in survivors if line.endswith(b'\n')]
  header, rows_20 = whole.splitlines(True)[:1], whole.splitlines(True)[3:]
  assert path.read_bytes() == b''.join((survivors or header) + rows_20)


def test_resuming_a_foreign_file(tmp_path: pathlib.Path) -> None:
  (tmp_path / 'metrics.csv').write_text('step,loss\n1,2\n')
  with pytest.raises(ValueError, match='no column "update"'):
    metrics.MetricsWriter(tmp_path)


def test_tensorboard_curves(tmp_path: pathlib.Path) -> None:
  with metrics.MetricsWriter(tmp_path) as writer:
    first, second = _rows(10, name='catch')
    writer.write([first, {**second, 'return': np.nan}])
    writer.write(_rows(20, name='catch'))
  curves = _scalars(tmp_path)
  assert curves['return/seed_0'] == [(10, 2.5), (20, 5.0)]
  assert curves['return/seed_1'] == [(20, 6.0)]
  # At update 10 one seed has no return yet.
  assert curves['return/mean'] == [(20, 5.5)]
  assert {tag.split('/')[0] for tag in curves} == {
    'return',
    'environment_steps',
  }


def test_tensorboard_receives_the_restart(tmp_path: pathlib.Path) -> None:
  _write(tmp_path, 10, 20, 30)
  # In the same second, so that a name made of the time alone would repeat.
  _write(tmp_path, 30, resume_from=20)
  assert len(list((tmp_path / 'tensorboard').iterdir())) == 2
  events = _events(tmp_path)
  restarts = [event for event in events if event.HasField('session_log')]
  # Steps from here on are discarded by the reader.
  assert [event.step for event in restarts] == [0, 21]
  points = [step for step, _ in _scalars(tmp_path)['return/mean']]
  assert points == [10, 20, 30, 30]
  assert events.index(restarts[1]) > max(
    i for i, event in enumerate(events[:-1]) if event.summary.value
  )


def test_json_round_trip(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'summary.json'
  json_files.write(
    path,
    {
      'z': np.float32(0.5),
      'a': np.array([[1.0, np.nan], [np.inf, 2.0]]),
      'count': np.int64(2**40),
      'flag': np.bool_(True),
      'nested': ({'x': None}, 'text', float('nan')),
    },
  )
  text = path.read_text()
  assert text.startswith('{\n  "z": 0.5,')
  assert json.loads(text) == {
    'z': 0.5,
    'a': [[1.0, None], [None, 2.0]],
    'count': 2**40,
    'flag': True,
    'nested': [{'x': None}, 'text', None],
  }


def test_replacing_is_all_or_nothing(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'file'
  path.write_text('old')
  with (
    pytest.raises(RuntimeError, match='stopped'),
    files.replacing(path) as temporary,
  ):
    temporary.write_text('ne')
    assert path.read_text() == 'old'
    raise RuntimeError('stopped')
  assert path.read_text() == 'old'
  with files.replacing(path) as temporary:
    temporary.write_text('new')
  assert path.read_text() == 'new'
  assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_points_to_is_replaced(tmp_path: pathlib.Path) -> None:
  (tmp_path / 'runs').mkdir()
  link, target = tmp_path / 'newest.json', tmp_path / 'runs' / '1.json'
  link.symlink_to(target)
  for content in ({'a': 1}, {'a': 2}):
    json_files.write(link, content)
    assert link.is_symlink()
    assert json_files.read(target) == content
  assert len([*tmp_path.iterdir()]) == 2


def test_two_may_replace_a_file_at_once(tmp_path: pathlib.Path) -> None:
  path = tmp_path / 'file'
  with files.replacing(path) as outer:
    outer.write_text('outer')
    with files.replacing(path) as inner:
      inner.write_text('inner')
    assert path.read_text() == 'inner'
  assert path.read_text() == 'outer'
  assert outer.parent == inner.parent == tmp_path
  assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_its_name(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  calls: list[int | None] = []
  replace = os.replace
  monkeypatch.setattr(
    os, 'fsync', lambda descriptor: calls.append(os.fstat(descriptor).st_size)
  )
  monkeypatch.setattr(
    os, 'replace', lambda *paths: calls.append(replace(*paths))
  )
  with files.replacing(tmp_path / 'file') as temporary:
    temporary.write_text('new')
  assert calls == [3, None]


class _Terminal(io.StringIO):
  def isatty(self) -> bool:
    return True


def _advance(stream: io.StringIO) -> str:
  with progress.Progress(
    100, initial=20, description='catch', stream=stream
  ) as bar:
    for i in range(8):
      bar.advance(10, **{'return': np.float32(i), 'loss': np.nan})
  return stream.getvalue()


def test_progress_in_a_log_file_is_lines() -> None:
  text = _advance(io.StringIO())
  assert '\r' not in text
  # Quicker than the interval: the first and the last alone.
  first, last = text.splitlines()
  assert first.startswith('catch:  20% 20/100')
  assert last.startswith('catch: 100% 100/100')
  assert last.endswith('return=7]')


def test_progress_in_a_terminal_that_cannot_go_back_is_lines(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv('TERM', 'dumb')
  assert '\r' not in _advance(_Terminal())


def test_time_before_the_beginning_is_not_in_the_rate() -> None:
  stream = io.StringIO()
  with progress.Progress(10, stream=stream, status='compiling') as bar:
    time.sleep(1.2)
    bar.begin()
    bar.advance(1)
  first, *_, last = stream.getvalue().splitlines()
  assert first.endswith('compiling]')
  assert '[00:00<' in last
  assert 'compiling' not in last


def test_progress_in_a_terminal_without_a_width_is_lines() -> None:
  ours, theirs = pty.openpty()
  with (
    open(theirs, 'w') as stream,
    progress.Progress(3, stream=stream) as bar,
  ):
    bar.advance(3)
  text = ''
  with contextlib.suppress(OSError):  # Of the end, on Linux.
    while some := os.read(ours, 1000):
      text += some.decode()
  os.close(ours)
  assert text.splitlines()[-1].startswith('100% 3/3')


class _Writer:
  """What a program with a window may put in the place of a stream."""

  def __init__(self, error: Exception | None = None):
    self.text, self._error = '', error

  def write(self, text: str) -> None:
    if self._error:
      raise self._error
    self.text += text

  def flush(self) -> None:
    pass


def _closed() -> io.StringIO:
  stream = io.StringIO()
  stream.close()
  return stream


@pytest.mark.parametrize(
  'stream', [None, _closed(), _Writer(), _Writer(BrokenPipeError()), object()]
)
def test_streams_that_cannot_show_progress(
  stream: Any,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  monkeypatch.setattr(sys, 'stderr', stream)
  with progress.Progress(3) as bar:
    bar.note('a note')
    bar.advance(3)
  reports.warn('a warning')
  if isinstance(stream, _Writer) and stream.text:
    assert '100% 3/3' in stream.text
    assert stream.text.endswith('warning: a warning\n')
  # Nor on the other stream, which may be the program's output.
  assert capsys.readouterr().out == ''


@pytest.mark.parametrize('is_terminal', [False, True])
def test_notes_and_steps_are_seen_at_once(
  is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
  """A log of a service is a buffered file."""
  monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LINES', 0.0)
  monkeypatch.setattr(progress, '_can_redraw', lambda _: is_terminal)
  seen = io.BytesIO()
  stream = io.TextIOWrapper(io.BufferedWriter(seen))  # type: ignore[type-var]
  with progress.Progress(3, stream=stream) as bar:
    assert b' 0/3' in seen.getvalue()
    bar.note('a note')
    assert b'a note\n' in seen.getvalue()
    time.sleep(0.11)
    bar.advance(2)
    assert b' 2/3' in seen.getvalue()


def test_progress_does_not_depend_on_the_clock_of_the_system(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setattr(progress, '_SECONDS_BETWEEN_LINES', 0.0)
  now = time.time()
  monkeypatch.setattr(tqdm.std, 'time', lambda: now)
  stream = io.StringIO()
  with progress.Progress(4, stream=stream) as bar:
    for jump in (0, -7200, 1e9, -1e9):
      now += jump
      bar.advance(1)
  lines = stream.getvalue().splitlines()
  assert len(lines) >= 5
  assert all('[00:00<' in line for line in lines)


def test_progress_in_a_terminal_is_redrawn() -> None:
  text = _advance(_Terminal())
  assert text.count('\r') >= 2
  assert text.rstrip().endswith('return=7]')
