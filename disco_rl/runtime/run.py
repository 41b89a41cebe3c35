"""Runs in folders: locked, resumed, saved, logged, and ended by signals.

Training and discovery share it:

  with run_lib.opened(workdir, settings, options) as run:
    with run.saving():
      if newest := run.restore(like):
        state = newest[1]
      while run.step < last and not run.should_stop():
        ...
        run.step += 1
        if run.is_due():
          run.save(lambda: state)
    return run.finish(summary, draw)

A checkpoint contains what `MetaStep.to_tree` of discovery, or
`TrainingRun._content` of training, makes of the state, and the seconds so far;
in discovery also what `selection` knows of earlier rules. Of agents these are
their `agent.AgentState`: the learner (parameters, optimizer, the rule's state),
what acts, replay or its counters; in discovery their `inner_loop.Member`, which
also has the meta-value network and Adam's moments of the meta-gradient.
`Run.save` hands it to `checkpointing.Checkpointer`, which writes it with Orbax.
Replay of environments on the host is written before it, to replay/, by
`agent.cohort.Cohort.save_replays`.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import math
import pathlib
import shutil
import time
from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.runtime import checkpointing
from disco_rl.runtime import compilation
from disco_rl.runtime import digests
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.runtime import memory
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs

# The largest fraction of the time that saving by `Options.seconds` may take.
_MAX_FRACTION = 0.02

# The content of a checkpoint, by name.
Content = Mapping[str, types.PyTree]


@dataclasses.dataclass(frozen=True)
class Options:
  """Options of a run in its folder.

  Attributes:
    step: The unit of steps, 'update' or 'meta_step'.
    series: The column of metrics that distinguishes rows of one step.
    every: The number of steps between two checkpoints.
    seconds: The time after which a checkpoint is due in any case; longer if
      saving takes over 2% of the time.
    keep: The number of checkpoints to keep; two, because one may be damaged.
    parts: Subfolders with additional metrics.
    free: Settings that may change when the run is resumed.
    complete: Adds settings that the folder's config.json lacks; see `workdirs`.
    rules: Rules whose files must stay the same, with their paths.
    loggers: The names of loggers.
    disk: The bytes of checkpoints and replay.
    remedy: Advice for disks with less space.
  """

  step: str
  series: str
  every: int
  seconds: float = math.inf
  keep: int = 2
  parts: Sequence[str] = ()
  free: Collection[str] = ()
  complete: workdirs.Complete = dict
  rules: Mapping[str, str] = dataclasses.field(default_factory=dict)
  loggers: Sequence[str] = ()
  disk: int = 0
  remedy: str = ''


@contextlib.contextmanager
def opened(
  workdir: files.PathLike,
  settings: Mapping[str, Any],
  options: Options,
  clock: Callable[[], float] = time.perf_counter,
) -> Iterator['Run']:
  """Locks and claims the folder of a run; opens its loggers.

  Args:
    workdir: The folder, which is made if it is missing.
    settings: The settings for config.json; for a fork also its origin, see
      `forks`.
    options: The options of the run.
    clock: A function that returns seconds.

  Raises:
    ValueError: The disk is too small.
    workdirs.WorkdirError: The folder contains a run with other settings, or is
      in use by another run; nothing is changed.
  """
  workdir = files.expanded(workdir)
  with distributed.folder(workdir) as own, workdirs.locked(own):
    if distributed.is_first():
      check_disk(own, options.disk, options.remedy)
    workdirs.claim(own, settings, options.free, options.rules, options.complete)
    if distributed.is_first():
      forks.begin(own, settings.get(forks.KEY))
    distributed.wait('the folder is claimed')
    names = options.loggers if distributed.is_first() else ()
    logged = loggers_lib.Run(own, settings, options.step)
    with loggers_lib.opened(names, logged) as loggers:
      yield Run(own, workdir / 'checkpoints', options, loggers, clock)


class Run:
  """A run in its folder; see `opened`.

  Attributes:
    folder: The folder that this process writes to, which is the run's in the
      first process.
    step: The number of steps so far.
    options: The options of the run.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    checkpoints: pathlib.Path,
    options: Options,
    loggers: Sequence[metrics.Logger],
    clock: Callable[[], float],
  ):
    """Begins to count seconds."""
    self.folder = folder
    self.step = 0
    self.options = options
    self._loggers, self._clock = loggers, clock
    # The step of the newest checkpoint.
    self._saved: int | None = None
    self._start = self._last_save = clock()
    self._compiled_before = compilation.seconds()
    self._wait = options.seconds
    self._requests = signals.StopSignals()
    self._checkpoints = checkpoints
    self._checkpointer: checkpointing.Checkpointer  # Opened by `saving`.

  @property
  def seconds(self) -> float:
    """The seconds so far, including those before the run was resumed."""
    return self._clock() - self._start

  @property
  def replays(self) -> pathlib.Path:
    """The folder for replay, to which all processes write."""
    return self._checkpoints.with_name('replay')

  @property
  def newest_step(self) -> int:
    """The step of the newest checkpoint; 0 if there is none."""
    return self._checkpointer.newest_step

  @contextlib.contextmanager
  def saving(self) -> Iterator[None]:
    """Opens the checkpoints, and completes them at the end.

    Raises:
      checkpointing.CheckpointError: A checkpoint cannot be written.
      signals.Interrupted: A signal ended the run; a checkpoint was saved.
    """
    logs = [self.folder / x / 'metrics.csv' for x in ('', *self.options.parts)]
    with (
      # Outermost: a second signal must not end the writing of a checkpoint.
      self._requests,
      checkpointing.Checkpointer(
        self._checkpoints,
        self.options.keep,
        logs if distributed.is_first() else (),
      ) as self._checkpointer,
    ):
      # The time before this does not make a checkpoint due.
      self._last_save = self._clock()
      yield

  def restore(
    self,
    like: Content,
    restore_more: Callable[[Content], None] | None = None,
    optional: Collection[str] = (),
  ) -> tuple[int, dict[str, types.PyTree]] | None:
    """Restores the newest checkpoint; see `Checkpointer.restore`."""
    newest = self._checkpointer.restore(
      {**like, 'seconds': np.zeros(())}, restore_more, optional
    )
    if newest is not None:
      self.step = self._saved = newest[0]
      self._start -= float(newest[1]['seconds'])
    return newest

  def writer(self, part: str = '') -> metrics.MetricsWriter:
    """Opens the metrics of the run or a part; removes rows of later steps."""
    options = self.options
    return metrics.MetricsWriter(
      self.folder / part,
      self._saved,
      options.step,
      options.series,
      self._loggers,
      part and f'{part}/',
    )

  def install_signals(self) -> None:
    """Begins to record signals; call it once there is a state to save.

    Until then a signal ends the program.
    """
    self._requests.install()

  def should_stop(self) -> bool:
    """Returns whether a signal asks the run to end after a checkpoint.

    Also begins to record signals. All processes get the same answer.
    """
    self.install_signals()
    signal = distributed.largest(self._requests.received or 0)
    if signal:
      self._requests.received = signal
    return bool(signal)

  def is_due(self, is_last: bool = False) -> bool:
    """Returns whether to save now; `is_last` if the run ends with this step."""
    return self.step > (self._saved or 0) and (
      is_last
      or self.step % self.options.every == 0
      or self._clock() - self._last_save >= self._wait
    )

  def save(self, make_content: Callable[[], Content]) -> None:
    """Makes the content of a checkpoint of this step, and begins to save it.

    Raises:
      checkpointing.CheckpointError: It cannot be written; others are kept.
    """
    start = self._clock()
    seconds = np.asarray(self.seconds)
    content = {**make_content(), 'seconds': seconds}
    self._checkpointer.save(self.step, content)
    self._saved, self._last_save = self.step, self._clock()
    self._wait = max(
      self.options.seconds, (self._last_save - start) / _MAX_FRACTION
    )

  def finish(
    self,
    summary: Mapping[str, object],
    draw: Callable[[pathlib.Path], None],
  ) -> dict[str, object]:
    """Writes summary.json and curves.png, after `saving`.

    Args:
      summary: Entries in addition to times and memory.
      draw: A function that draws curves into a file.

    Returns:
      The whole summary; see `digests.write_summary`.
    """
    complete = digests.write_summary(
      self.folder,
      {
        **summary,
        'seconds': self.seconds,
        'compile_seconds': compilation.seconds() - self._compiled_before,
        'peak_memory_bytes': memory.peak_bytes(),
        'checkpoint_seconds': self._checkpointer.seconds,
      },
    )
    with reports.surviving('curves.png'):
      draw(self.folder / 'curves.png')
    return complete


def check_disk(folder: pathlib.Path, needed: int, remedy: str) -> None:
  """Raises ValueError if there is too little space for a run's folder.

  The needed bytes include files that are already in the folder.
  """
  own = (path for path in folder.rglob('*') if path.is_file())
  held = sum(path.stat().st_size for path in own)
  available = shutil.disk_usage(folder).free
  if needed - held > available:
    raise ValueError(
      f'The run needs {memory.gib(needed)} on disk for checkpoints and replay. '
      f'{folder} holds {memory.gib(held)}, and {memory.gib(available)} are '
      f'free. {remedy}'
    )
