"""Makes standard streams whose failures do not end a run."""

import contextlib
import io
import os
import sys
from typing import Any

from absl import logging


class _Lossy(io.FileIO):
  """Drops output that cannot be written, for some reasons."""

  def __init__(self, descriptor: int, reasons: type[OSError]):
    super().__init__(descriptor, 'w', closefd=False)
    self._reasons = reasons

  def write(self, data: Any) -> int:
    """Returns the number of bytes that were written or dropped."""
    with contextlib.suppress(self._reasons):
      # None means that the stream does not block, and cannot take bytes now.
      return super().write(data) or len(data)
    return len(data)


def hide_tracebacks() -> None:
  """Drops tracebacks of threads of libraries.

  Callers get the same errors, which end a launcher with one line. On a full
  disk, hundreds of lines would precede it.
  """
  logging.get_absl_handler().addFilter(lambda record: not record.exc_info)
  show = sys.unraisablehook

  def show_others(unraisable: 'sys.UnraisableHookArgs') -> None:
    # Late callbacks of TensorStore raise errors without an object.
    if unraisable.object is not None:
      show(unraisable)

  sys.unraisablehook = show_others


def protect(reasons: type[OSError] = OSError) -> None:
  """Replaces the standard streams with streams that do not fail.

  Args:
    reasons: The errors on which output is dropped; all by default, such as
      closed pipes, full disks and lost terminals.
  """
  for _ in range(3):
    # Otherwise a file of the run could get the number of a closed stream, and
    # messages of libraries would be written into it.
    unused = os.open(os.devnull, os.O_RDWR)
    if unused > 2:
      os.close(unused)
      break
  sys.stdout = _open(1, reasons, is_line_buffered=os.isatty(1))
  sys.stderr = _open(2, reasons, is_line_buffered=True)


def _open(
  descriptor: int, reasons: type[OSError], is_line_buffered: bool
) -> io.TextIOWrapper:
  return io.TextIOWrapper(
    io.BufferedWriter(_Lossy(descriptor, reasons)),
    errors='backslashreplace',
    line_buffering=is_line_buffered,
  )
