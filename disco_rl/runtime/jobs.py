"""Several runs, each in a folder of its own: what is left of them, and when."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import datetime
import pathlib
import sys
import time
from typing import Any
from typing import TypeVar

from disco_rl.runtime import files
from disco_rl.runtime import metrics


@dataclasses.dataclass(frozen=True)
class Job:
  """One of several runs.

  Attributes:
    name: the job as messages name it.
    folder: of the run.
    counter: the entry of its summary.json that counts its steps.
    goal: steps of the finished run.
  """

  name: str
  folder: pathlib.Path
  counter: str
  goal: int

  @property
  def steps_done(self) -> int:
    """Steps of the finished run; 0 if it has not finished."""
    return _read_entry(self.folder / 'summary.json', self.counter, int) or 0

  @property
  def has_begun(self) -> bool:
    """Whether the run has written anything."""
    return (self.folder / 'config.json').exists()

  @property
  def failure(self) -> str | None:
    """Why the run ended early for good; None if it did not."""
    return _read_entry(self.folder / 'failure.json', 'reason', str)

  @property
  def is_over(self) -> bool:
    """Whether the run has finished or failed."""
    return self.failure is not None or self.steps_done >= self.goal

  def fail(self, reason: str) -> None:
    """Notes that the run cannot go on, so that it is not repeated."""
    metrics.write_json(self.folder / 'failure.json', {'reason': reason})


_AnyJob = TypeVar('_AnyJob', bound=Job)


def announced(jobs: Sequence[_AnyJob], at_once: int = 1) -> Iterator[_AnyJob]:
  """Yields the jobs that are not over, each after a line that announces it.

  Args:
    jobs: all of them.
    at_once: jobs that run at the same time; the next is taken when one ends.

  Yields:
    What is left to do.
  """
  todo = [job for job in jobs if not job.is_over]
  start = time.perf_counter()
  for i, job in enumerate(todo):
    left, ended = '', i + 1 - at_once
    if ended > 0:
      seconds = (time.perf_counter() - start) / ended * (len(todo) - ended)
      left = f', about {datetime.timedelta(seconds=round(seconds))} left'
    number = len(jobs) - len(todo) + i + 1
    # No progress bar: the runs print theirs.
    print(
      f'Run {number} of {len(jobs)}{left}: {job.name}',
      file=sys.stderr,
      flush=True,
    )
    yield job


def _read_entry(path: pathlib.Path, key: str, kind: type) -> Any:
  """Reads an entry of a JSON file; None if the file does not exist."""
  if not path.exists():
    return None
  value = metrics.read_json(path).get(key)
  if not isinstance(value, kind):
    raise files.WorkdirError(
      f'{path} has {key}={value!r}, which is not {kind.__name__}: likely '
      "damaged, or not written by a run. Delete the run's folder to repeat it."
    )
  return value
