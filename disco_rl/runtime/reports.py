"""Notes and warnings about a run, printed to the standard error stream."""

from collections.abc import Iterator
import contextlib
import logging
import sys

from disco_rl.runtime import files


def note(text: str) -> None:
  """Prints a line of information, if there is a stream that takes it."""
  # Services and programs with windows have no stream, or closed ones, and what
  # they put in its place may lack methods or raise errors of its own.
  with contextlib.suppress(Exception):
    # For None, `print` would use the standard output.
    if sys.stderr is not None:
      print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
  """Prints a warning of one line; see `note`."""
  note(f'warning: {text}')


@contextlib.contextmanager
def surviving(what: str) -> Iterator[None]:
  """Turns failures to draw into warnings: the results are already written."""
  try:
    yield
  # The results themselves are damaged.
  except files.WorkdirError:
    raise
  # Plotting libraries raise many types of errors.
  except Exception as error:
    warn(f'no {what}: {first_line(error)}')


def first_line(error: Exception) -> str:
  """Returns the type of an error and the first line of its message."""
  name, text = type(error).__name__, str(error).strip()
  return f'{name}: {text.splitlines()[0][:300]}' if text else name


@contextlib.contextmanager
def callers_logging() -> Iterator[None]:
  """Removes handlers that the body adds to Python's root logger.

  The first message logged by absl, for example when Orbax is imported, adds a
  handler, after which the caller's `logging.basicConfig` would have no effect.
  """
  before = [*logging.root.handlers]
  try:
    yield
  finally:
    for handler in [*logging.root.handlers]:
      if handler not in before:
        logging.root.removeHandler(handler)
