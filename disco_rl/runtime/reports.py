"""Lines on the standard error stream about what happened to a run."""

import sys


def warn(text: str) -> None:
  """Prints a warning of one line."""
  print(f'warning: {text}', file=sys.stderr, flush=True)
