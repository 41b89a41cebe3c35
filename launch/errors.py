"""How launchers end when something is wrong."""

import sys
from typing import NoReturn


def fail(reason: object) -> NoReturn:
  """Ends the program with one line on the standard error stream."""
  sys.exit('error: ' + ' '.join(str(reason).split()))


def of_runs() -> tuple[type[Exception], ...]:
  """What may end a run that could be built, and is no fault of the program."""
  # Here, not above: a mistyped flag should not wait for JAX to load.
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
