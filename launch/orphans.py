"""Ends a command once the program that started it is no longer there.

A killed program cannot pass the signal on to its commands. Their standard input
is a pipe instead, whose other end the system closes with the program.
"""

from collections.abc import Iterator
import contextlib
import os
import signal
import threading

_VARIABLE = 'DISCO_RL_ENDS_WITH_STDIN'


def variables() -> dict[str, str]:
  """The environment of a command that is to `watch` its standard input."""
  return {_VARIABLE: '1'}


@contextlib.contextmanager
def pipe() -> Iterator[int]:
  """Yields the standard input of such commands; it ends with the body."""
  reader, writer = os.pipe()
  try:
    yield reader
  finally:
    os.close(writer)
    os.close(reader)


def watch() -> None:
  """From now on the end of the standard input counts as SIGTERM.

  A run then saves a checkpoint and ends; while it starts, it ends at once. Does
  nothing in commands that people start.
  """
  # Processes that this one starts have other inputs.
  if os.environ.pop(_VARIABLE, None):
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
  while os.read(0, 1):
    pass
  os.kill(os.getpid(), signal.SIGTERM)
