"""Lines on the standard error stream about what happened to a run."""

import sys


def note(text: str) -> None:
  """Prints a line about what the run has found out."""
  print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
  """Prints a warning of one line."""
  print(f'warning: {text}', file=sys.stderr, flush=True)
