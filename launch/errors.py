"""Errors that end a launcher with one line."""

import sys
from typing import NoReturn


def fail(reason: object) -> NoReturn:
  """Ends the program with one line on the standard error stream."""
  sys.exit('error: ' + ' '.join(str(reason).split()))


def of_runs() -> tuple[type[Exception], ...]:
  """Errors that end a run and are not bugs of the program."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.environments.host import adapters
  from disco_rl.runtime import checkpointing
  from disco_rl.runtime import metrics
  from disco_rl.runtime import workdirs

  return (
    workdirs.WorkdirError,
    metrics.NonFiniteError,
    checkpointing.CheckpointError,
    adapters.HostEnvironmentError,
    OSError,
  )
