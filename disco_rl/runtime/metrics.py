"""Writes metrics as CSV files and TensorBoard events, and reads the former."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import csv
import errno
import io
import itertools
import math
import os
import pathlib
import time
from typing import IO
from typing import Any
from typing import Protocol

import numpy as np
from tensorboardX import event_file_writer
from tensorboardX.proto import event_pb2
from tensorboardX.proto import summary_pb2

from disco_rl.runtime import files

Value = int | float | str
_FLUSH_SECONDS = 10.0
_MAX_LINE_BYTES = 2**20
# The rows that are parsed at a time.
_BLOCK_ROWS = 4096
# Metric -> value, for one seed and one step; NumPy and JAX scalars are allowed.
Row = Mapping[str, Any]


class Logger(Protocol):
  """An additional destination for metrics; see `loggers.register`."""

  def log(self, step: int, scalars: Mapping[str, float]) -> None:
    """Logs the finite values of one step.

    Args:
      step: The number of updates or meta-steps. After a kill, the steps since
        the last checkpoint are logged again.
      scalars: The values, keyed by tags such as 'return/seed_0' and
        'held_out/return/mean'.
    """
    ...

  def close(self, has_failed: bool) -> None:
    """Closes the log. The run may be resumed later, even if it has failed.

    A run that a signal has ended after saving has not failed.
    """
    ...


class NonFiniteError(ArithmeticError):
  """A loss or a gradient is not finite."""


def check_finite(
  rows: Sequence[Row],
  since: int,
  likely_causes: Callable[[], str],
  series: str = '',
) -> None:
  """Checks that all values are finite, except those that may be missing.

  `return` and `success` are NaN until an episode has ended, and
  `evaluation_return` where agents were not evaluated.

  Args:
    rows: Rows whose first column is the step.
    since: The last step covered by earlier rows.
    likely_causes: Returns likely causes to name in the error message; it is
      called only if a value is not finite, because it may search large states.
    series: The column that tells series apart, such as `seed`; '': there is
      one series.

  Raises:
    NonFiniteError: A value is not finite. The message names the values, the
      series and the range of steps.
  """
  for row in rows:
    step, now = next(iter(row.items()))
    bad = [
      name
      for name, value in row.items()
      if name not in ('return', 'success', 'evaluation_return')
      and not isinstance(value, str)
      and not math.isfinite(value)
    ]
    if bad:
      whose = f' of {series} {row[series]}' if series else ''
      raise NonFiniteError(
        f'{", ".join(bad)}{whose} became non-finite between '
        f'{step}s {since} and {now}. Likely causes: {likely_causes()}.'
      )


def read(path: files.PathLike) -> dict[str, np.ndarray]:
  """Reads a CSV file of metrics; a run may still be appending to it.

  Returns:
    Column -> [rows]. The dtype is int64 if all fields are integers, float64
    with NaN for empty fields if all fields are numbers, and str otherwise.

  Raises:
    OSError: The file does not exist or cannot be read.
    files.WorkdirError: The file is damaged or is not a table. The message names
      the row.
  """
  return _read_columns(path, frozenset())


class MetricsWriter:
  """Appends rows to `metrics.csv` and to TensorBoard events in `tensorboard/`.

  The first two columns are the step, such as `update`, and the series, such as
  `seed`. The TensorBoard tags are `KEY/seed_SEED`, and `KEY/mean` once every
  seed has a finite value. A mean over only some seeds would jump whenever
  another seed gets its first value.

  So that a run can resume after a kill at any time, write the rows of a step
  before its checkpoint, and resume from the step of the checkpoint, if any.
  The CSV file is authoritative: TensorBoard may lack the last seconds before a
  kill.

  A resumed run may have other columns than before, as after an upgrade or in a
  fork: fields that a row lacks are empty.

  Attributes:
    path: The CSV file.
  """

  def __init__(
    self,
    workdir: files.PathLike,
    resume_from: int | None = None,
    step: str = 'update',
    series: str = 'seed',
    loggers: Sequence[Logger] = (),
    prefix: str = '',
  ):
    """Opens the files, creating the folder if needed.

    Args:
      workdir: The folder of the run.
      resume_from: The last step whose rows are kept; None for a run without a
        checkpoint, which writes all of its rows again, also those of step 0.
      step: The name of the step column, which contains integers.
      series: The name of the column that distinguishes the rows of a step.
      loggers: Loggers that receive the same data as TensorBoard.
      prefix: The prefix of the tags that loggers receive.

    Raises:
      files.WorkdirError: The file to resume is damaged, or lacks the column
        of the step or of the series.
    """
    workdir = pathlib.Path(workdir)
    workdir.mkdir(parents=True, exist_ok=True)
    self._step, self._series = step, series
    self._loggers, self._prefix = loggers, prefix
    self.path = workdir / 'metrics.csv'
    # The columns of the file, and the keys of this writer's rows.
    self._columns: list[str] = []
    self._keys: list[str] = []
    # No row has a negative step.
    last = -1 if resume_from is None else resume_from
    if self.path.exists() and self.path.stat().st_size:
      self._columns = _truncate(self.path, (step, series), last)
    self._events = workdir / 'tensorboard'
    self._events.mkdir(exist_ok=True)
    # The thread of a SummaryWriter would print errors if the disk is full.
    self._tensorboard = event_file_writer.EventsWriter(
      str(self._events / 'events'),
      # The time in the names of event files has a resolution of one second.
      # Without a suffix, a run that resumes within a second would overwrite its
      # own events. TensorBoard reads the files in the order of their names.
      f'.{len(list(self._events.glob("*"))):04d}',
    )
    self._last_flush = time.monotonic()
    # Makes TensorBoard drop the events from this step on.
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write_event(event_pb2.Event(step=last + 1, session_log=start))
    self._open()

  def _open(self) -> None:
    self._csv = self.path.open('a', encoding='utf-8', newline='')
    self._links = os.fstat(self._csv.fileno()).st_nlink

  def write(self, rows: Sequence[Row]) -> None:
    """Appends rows; they are in the CSV file when this returns.

    Args:
      rows: All rows of a step. Each row includes the step and the series, and
        all have the same keys in every call. Values are scalars or single-line
        strings. NaN marks a missing value and is written as an empty field.

    Raises:
      ValueError: The keys differ from those of the first row, the step or the
        series is missing, or a value is not a scalar. Nothing is written.
      OSError: The disk is full, or the file was removed or replaced.
    """
    if not rows:
      return
    keys = self._keys or list(rows[0])
    for row in rows:
      self._check_keys(row, keys)
    plain = [
      {key: self._to_value(key, row[key]) for key in keys} for row in rows
    ]
    text = io.StringIO()
    csv_writer = csv.writer(text, lineterminator='\n')
    if not self._columns:
      csv_writer.writerow(keys)
      self._columns = keys
    with files.naming(self.path):
      self._add_columns(keys)
      csv_writer.writerows(
        [_to_field(row.get(key, math.nan)) for key in self._columns]
        for row in plain
      )
      self._csv.write(text.getvalue())
      self._csv.flush()
      # Editors replace files; rows written to the old file would be lost.
      if os.fstat(self._csv.fileno()).st_nlink < self._links:
        raise FileNotFoundError(
          errno.ENOENT, 'Removed or replaced while the run was writing it'
        )
    self._keys = keys
    for step in dict.fromkeys(int(row[self._step]) for row in plain):
      scalars = self._scalars([row for row in plain if row[self._step] == step])
      self._write_event(_to_event(step, scalars))
      for logger in self._loggers:
        logger.log(step, {self._prefix + tag: x for tag, x in scalars.items()})

  def _add_columns(self, keys: Sequence[str]) -> None:
    """Appends new columns to the file, empty in the rows that it has."""
    new = [key for key in keys if key not in self._columns]
    if not new:
      return
    self._csv.close()
    header, *rows = _read_rows(self.path)
    write_rows(self.path, [header + new, *(x + [''] * len(new) for x in rows)])
    self._columns = header + new
    self._open()

  def close(self) -> None:
    """Closes the files; all events are on disk when this returns."""
    try:
      with files.naming(self.path):
        self._csv.close()
    finally:
      with files.naming(self._events), files.if_it_can_flush():
        self._tensorboard.close()

  def __enter__(self) -> 'MetricsWriter':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    try:
      self.close()
    except OSError:
      # If the run failed because of a full disk, that error says more.
      if kind is None:
        raise

  def _check_keys(self, row: Row, keys: Sequence[str]) -> None:
    absent = [key for key in (self._step, self._series) if key not in row]
    if absent:
      raise ValueError(f'A row of metrics lacks {absent}; its keys: {[*row]}.')
    new = [key for key in row if key not in keys]
    missing = [key for key in keys if key not in row]
    if new or missing:
      raise ValueError(
        f'A row does not fit the columns of {self.path}: new keys {new}, '
        f'missing keys {missing}. Write the same keys every time (NaN where '
        'there is no value) or choose another workdir.'
      )

  def _write_event(self, event: event_pb2.Event) -> None:
    event.wall_time = time.time()
    with files.naming(self._events), files.if_it_can_flush():
      self._tensorboard.write_event(event)
      if time.monotonic() > self._last_flush + _FLUSH_SECONDS:
        self._tensorboard.flush()
        self._last_flush = time.monotonic()

  def _scalars(self, rows: Sequence[Mapping[str, Value]]) -> dict[str, float]:
    """Returns the finite values of one step, keyed by tags."""
    scalars = {}
    over_series = collections.defaultdict(list)
    for row in rows:
      for key, value in row.items():
        if key in (self._step, self._series) or isinstance(value, str):
          continue
        scalars[f'{key}/{self._series}_{row[self._series]}'] = float(value)
        over_series[key].append(float(value))
    for key, values in over_series.items():
      scalars[f'{key}/mean'] = sum(values) / len(values)
    return {tag: x for tag, x in scalars.items() if math.isfinite(x)}

  def _to_value(self, key: str, value: Any) -> Value:
    if isinstance(value, str):
      return value
    value = np.asarray(value)
    if value.ndim or value.dtype.kind not in 'biuf':
      raise ValueError(
        f'Metric {key!r} must be a number or a string, not {value.dtype} '
        f'{value.shape}.'
      )
    value = value.item()
    return int(value) if key in (self._step, self._series) else value


def _to_event(step: int, scalars: Mapping[str, float]) -> event_pb2.Event:
  # Separate events for each value would be ten times slower, and a kill could
  # leave an incomplete step.
  summary = summary_pb2.Summary(
    value=[
      summary_pb2.Summary.Value(tag=tag, simple_value=value)
      for tag, value in scalars.items()
    ]
  )
  return event_pb2.Event(step=step, summary=summary)


def _to_field(value: Value) -> str:
  if isinstance(value, float):
    return '' if math.isnan(value) else f'{value:.6g}'
  return value if isinstance(value, str) else str(int(value))


def _to_array(fields: Sequence[str]) -> np.ndarray:
  # Integers outside the range of int64 become floats.
  for parse in (np.int64, lambda field: float(field or 'nan')):
    with contextlib.suppress(ValueError, OverflowError):
      return np.array([parse(field) for field in fields])
  return np.array(fields)


def _read_columns(
  path: files.PathLike, texts: frozenset[str]
) -> dict[str, np.ndarray]:
  """Reads arrays; the columns `texts` are texts even if they are numbers."""
  rows = _rows(path)
  header = next(rows, [])
  # Arrays of some rows each: fields as Python's texts take 15 times the file.
  blocks: dict[str, list[np.ndarray]] = {key: [] for key in header}
  while block := list(itertools.islice(rows, _BLOCK_ROWS)):
    for key, fields in zip(header, zip(*block)):
      array = np.array(fields) if key in texts else _to_array(fields)
      blocks[key].append(array)
  is_text = lambda key: [x.dtype.kind == 'U' for x in blocks[key]]
  # Read again: numbers do not tell the texts that they were parsed from.
  mixed = [key for key in header if len({*is_text(key)}) > 1]
  if mixed:
    return _read_columns(path, texts | {*mixed})
  return {
    key: np.concatenate(arrays) if arrays else _to_array(())
    for key, arrays in blocks.items()
  }


def _read_rows(path: files.PathLike) -> list[list[str]]:
  """Returns the fields of all complete lines."""
  return list(_rows(path))


def _rows(path: files.PathLike) -> Iterator[list[str]]:
  """Yields the fields of all complete lines, the header first."""
  files.check_regular(path)
  with open(path, 'rb') as file:
    rows = csv.reader(_lines(file))
    header: list[str] = []
    for i in itertools.count():
      try:
        row = next(rows, None)
      except (ValueError, csv.Error) as error:
        raise files.damaged(
          path, f'text that is not a table ({error})'
        ) from error
      if row is None:
        return
      if i == 0:
        header = row
      if len({*header}) < len(header):
        raise files.damaged(path, 'two columns with the same name')
      if len(row) != len(header):
        found = f'{len(row)} fields in row {i} below {len(header)} columns'
        raise files.damaged(path, found)
      yield row


def _lines(file: IO[bytes]) -> Iterator[str]:
  """Yields complete lines; raises ValueError for one without an end."""
  while line := file.readline(_MAX_LINE_BYTES):
    if line.endswith(b'\n'):
      yield line.decode()
    elif len(line) == _MAX_LINE_BYTES:
      raise ValueError(f'a line of more than {_MAX_LINE_BYTES:,} bytes')


def _truncate(
  path: pathlib.Path, identity: tuple[str, str], last: int
) -> list[str]:
  """Drops the rows after a step.

  Args:
    path: The file.
    identity: The columns of the step and of the series.
    last: The last step that is kept.

  Returns:
    The columns; [] if no row is kept, so that the next rows define them.
  """
  header, *rows = _read_rows(path) or [[]]
  for name in identity:
    if header and name not in header:
      raise files.damaged(path, f'no column "{name}", only {header}')
  step, _ = identity
  try:
    kept = [row for row in rows if int(row[header.index(step)]) <= last]
  except ValueError as error:
    content = f'no whole numbers in the column "{step}" ({error})'
    raise files.damaged(path, content) from error
  kept = [header, *kept] if kept else []
  write_rows(path, kept)
  return kept[0] if kept else []


def write_rows(path: pathlib.Path, rows: Iterable[Sequence[object]]) -> None:
  """Writes rows to a CSV file, atomically."""
  with (
    files.replacing(path) as temporary,
    temporary.open('w', encoding='utf-8', newline='') as file,
  ):
    csv.writer(file, lineterminator='\n').writerows(rows)
