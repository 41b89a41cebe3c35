"""Shows the progress of a long computation on the standard error stream."""

import contextlib
import io
import os
import sys
import time
from typing import TextIO

import tqdm

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
  """A bar with the rate, the time left and named values.

  If the stream is not a terminal (a log file, a build server), or has no width
  (in a container), plain lines are printed instead: at the start, then at most
  every few seconds, and at the end. Nothing is shown without a stream, or if it
  fails.
  """

  def __init__(
    self,
    total: int,
    initial: int = 0,
    unit: str = 'update',
    description: str = '',
    stream: TextIO | None = None,
    is_shown: bool = True,
    status: str = '',
  ):
    """Shows the first state.

    Args:
      total: The number of units of work.
      initial: Units done by an earlier run, which are not part of the rate.
      unit: The name of a unit.
      description: The start of the line.
      stream: None for the standard error stream.
      is_shown: Whether anything is shown.
      status: The text before there are values.
    """
    stream = stream or sys.stderr
    if stream is None:  # As in services, and in programs with windows.
      is_shown, stream = False, io.StringIO()
    terminal = _can_redraw(stream)
    self._bar = tqdm.tqdm(
      disable=not is_shown,
      total=total,
      initial=initial,
      unit=f' {unit}',
      desc=description or None,
      postfix=status or None,
      file=(_Stream if terminal else _Lines)(stream),
      # Zero columns: numbers only, without a bar.
      ncols=None if terminal else 0,
      dynamic_ncols=terminal,
      mininterval=0.1 if terminal else _SECONDS_BETWEEN_LINES,
      # Only the clock decides when to print: steps take unequal times.
      miniters=1,
    )
    if not self._bar.disable:
      # The clock of the system may be set back, which would silence the bar.
      self._bar._time = time.monotonic
      self._bar.start_t = self._bar.last_print_t = time.monotonic()

  def begin(self) -> None:
    """Removes the status; the time until now is not part of the rate."""
    if self._bar.disable:
      return
    self._bar.unpause()
    if self._bar.postfix:
      self._bar.set_postfix_str('')

  def advance(self, n: int, /, **values: float) -> None:
    """Counts units as done, and shows values that are not NaN."""
    shown = {key: v for key, v in values.items() if v == v}
    self._bar.set_postfix(shown, refresh=False)
    self._bar.update(n)

  def note(self, text: str) -> None:
    """Prints a line above the bar."""
    if self._bar.disable:
      return
    # It also flushes the stream, when it draws the bar again.
    self._bar.write(text, file=self._bar.fp)

  def close(self) -> None:
    """Shows the last state."""
    self._bar.close()

  def __enter__(self) -> 'Progress':
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


def _can_redraw(stream: TextIO) -> bool:
  """Returns whether a stream is a terminal with a width, as tqdm needs."""
  if os.environ.get('TERM') == 'dumb':  # It cannot go back, as in editors.
    return False
  try:
    if not stream.isatty():
      return False
  # It lacks the method, is closed, or belongs to another program.
  except Exception:
    return False
  try:
    return os.get_terminal_size(stream.fileno()).columns > 0
  except (AttributeError, OSError):  # Made by a program, such as an editor.
    return True


class _Stream:
  """A stream for tqdm that drops what the user's stream does not take."""

  def __init__(self, stream: TextIO):
    self._stream = stream
    self.encoding = getattr(stream, 'encoding', None)

  def write(self, text: str) -> None:
    # The stream may be closed, a broken pipe, or an object of another program.
    with contextlib.suppress(Exception):
      self._stream.write(text)

  def flush(self) -> None:
    with contextlib.suppress(Exception):
      self._stream.flush()

  def fileno(self) -> int:
    return self._stream.fileno()


class _Lines(_Stream):
  """Turns the redrawing of tqdm into lines."""

  def write(self, text: str) -> None:
    text = text.strip()
    if text:
      super().write(text + '\n')
