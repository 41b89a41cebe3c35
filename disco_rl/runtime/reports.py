"""Lines on the standard error stream about what happened to a run."""

from collections.abc import Iterator
import contextlib
import logging
import sys

from disco_rl.runtime import files


def note(text: str) -> None:
  """Prints a line about what the run has found out."""
  print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
  """Prints a warning of one line."""
  print(f'warning: {text}', file=sys.stderr, flush=True)


@contextlib.contextmanager
def surviving(what: str) -> Iterator[None]:
  """Turns a failure to draw something into a warning: results are written."""
  try:
    yield
  # The results themselves are damaged.
  except files.WorkdirError:
    raise
  # Libraries that draw raise many types.
  except Exception as error:
    first = (f'{error}'.strip().splitlines() or [''])[0]
    warn(f'no {what}: {type(error).__name__}: {first}')


@contextlib.contextmanager
def callers_logging() -> Iterator[None]:
  """Removes handlers that the body adds to the root of Python's logging.

  The first message that absl logs, as Orbax does when it is imported, adds one:
  `logging.basicConfig` of the caller would then do nothing.
  """
  before = [*logging.root.handlers]
  try:
    yield
  finally:
    for handler in [*logging.root.handlers]:
      if handler not in before:
        logging.root.removeHandler(handler)
