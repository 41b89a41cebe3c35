"""Progress of a long computation, shown on the standard error stream."""

import os
import sys
from typing import TextIO

import tqdm

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
  """A bar with the rate, the time left and named values.

  If the stream is not a terminal (a log file, a build server), or one without
  a width (in a container), plain lines appear instead: at the start, then at
  most every few seconds, and at the end.
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
      total: Number of units of work.
      initial: Units done by an earlier run; they do not count for the rate.
      unit: The name of a unit.
      description: The start of the line.
      stream: None for the standard error stream.
      is_shown: False: it stays silent.
      status: Shown instead of values, before there are some.
    """
    stream = stream or sys.stderr
    terminal = _can_redraw(stream)
    self._bar = tqdm.tqdm(
      disable=not is_shown,
      total=total,
      initial=initial,
      unit=f' {unit}',
      desc=description or None,
      postfix=status or None,
      file=stream if terminal else _Lines(stream),
      # Zero columns: the numbers alone, without a bar.
      ncols=None if terminal else 0,
      dynamic_ncols=terminal,
      mininterval=0.1 if terminal else _SECONDS_BETWEEN_LINES,
      # The clock alone decides when to print: steps take unequal times.
      miniters=1,
    )

  def begin(self) -> None:
    """Shows no status any more; the time until now is not in the rate."""
    if self._bar.disable:
      return
    self._bar.unpause()
    if self._bar.postfix:
      self._bar.set_postfix_str('')

  def advance(self, n: int, /, **values: float) -> None:
    """Counts units as done; shows values next to the bar, but not NaN."""
    shown = {key: v for key, v in values.items() if v == v}
    self._bar.set_postfix(shown, refresh=False)
    self._bar.update(n)

  def note(self, text: str) -> None:
    """Prints a line above the bar."""
    if self._bar.disable:
      return
    self._bar.write(text, file=self._bar.fp)
    self._bar.fp.flush()

  def close(self) -> None:
    """Shows the last state."""
    self._bar.close()

  def __enter__(self) -> 'Progress':
    return self

  def __exit__(self, *_: object) -> None:
    self.close()


def next_multiple(x: int, step: int) -> int:
  """The smallest multiple of a step that is greater than x."""
  return (x // step + 1) * step


def _can_redraw(stream: TextIO) -> bool:
  """Whether it is a terminal; tqdm shows nothing in one of no columns."""
  if not stream.isatty():
    return False
  try:
    return os.get_terminal_size(stream.fileno()).columns > 0
  except OSError:  # A stream of a program, such as an editor.
    return True


class _Lines:
  """A stream for tqdm that turns its redrawing into lines."""

  def __init__(self, stream: TextIO):
    self._stream = stream

  def write(self, text: str) -> None:
    text = text.strip()
    if text:
      self._stream.write(text + '\n')

  def flush(self) -> None:
    self._stream.flush()
