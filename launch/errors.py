"""Errors that end a launcher with one line."""

from collections.abc import Iterator
import contextlib
import sys
from typing import NoReturn

from absl import logging

from disco_rl.runtime import escaping


def fail(reason: object) -> NoReturn:
  """Ends the program with one line on the standard error stream."""
  sys.exit('error: ' + escaping.printable(str(reason)))


@contextlib.contextmanager
def in_one_line(*types: type[Exception]) -> Iterator[None]:
  """Ends the program with one line if the body raises an expected error.

  Args:
    *types: Expected errors, in addition to those of runs and out-of-memory
      errors. All other errors are bugs, for which a traceback is shown.
  """
  try:
    yield
  except Exception as error:
    if isinstance(error, (*of_runs(), *types)):
      fail(error)
    # The host is out of memory, or, if XLA raised the error, a device is.
    if isinstance(error, MemoryError) or 'RESOURCE_EXHAUSTED' in str(error):
      fail(
        f'Out of memory: {str(error).splitlines()[0]} Likely the agents, their '
        'batches or their replay are too large: lower --config.batch_size, '
        '--config.replay_capacity or the number of agents, or set '
        '--config.torso_chunk_size.'
      )
    raise


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


def of_runs() -> tuple[type[Exception], ...]:
  """Returns the errors that end a run and are not bugs of the program."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  from disco_rl.environments.host import adapters
  from disco_rl.runtime import checkpointing
  from disco_rl.runtime import metrics
  from disco_rl.runtime import row_log
  from disco_rl.runtime import workdirs

  return (
    workdirs.WorkdirError,
    metrics.NonFiniteError,
    checkpointing.CheckpointError,
    row_log.RowLogError,
    adapters.HostEnvironmentError,
    OSError,
  )
