"""Makes many runs, several at a time; a failed run does not end the others.

A worker is a process that makes runs sequentially. run_all writes each run as a
line to the worker's standard input, and reads its outcome from the worker's
standard output. If a worker dies, its run has failed, and another worker
replaces it. If this process dies, the workers' input ends, so they save and
end.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import datetime
import gc
import json
import os
import pathlib
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

from disco_rl import extras
from disco_rl import paths as paths_lib
from disco_rl.evaluation import planned_runs
from disco_rl.runtime import compilation_cache
from disco_rl.runtime import metrics
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs
from launch import common
from launch import errors

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.2
# The arguments of Python that start a worker. The user's folder, which
# otherwise comes first, may have modules with the names of any others.
WORKER = (
  '-c',
  f'import sys; sys.path[:1] = [{str(_ROOT)!r}]; '
  'from launch import scheduler; scheduler.work()',
)


def run(
  runs: Sequence[planned_runs.Run],
  max_processes: int,
  workdir: pathlib.Path,
  slurm: Sequence[str],
) -> dict[pathlib.Path, str]:
  """Makes the unfinished runs in a folder by `run_on_slurm`, or by `run_all`.

  The last two arguments are the values of the flags; if `slurm` is empty, runs
  are processes on this machine.
  """
  if slurm:
    return run_on_slurm(runs, max_processes, workdir / 'slurm', slurm)
  return run_all(runs, max_processes)


def run_all(
  runs: Sequence[planned_runs.Run], max_processes: int
) -> dict[pathlib.Path, str]:
  """Makes the unfinished runs.

  After a signal the input of the workers ends, so that they save and end; then
  this function raises.

  Args:
    runs: The runs, in the order in which they start.
    max_processes: The number of concurrent runs. A single run shows its
      progress; several print to files next to their folders.

  Returns:
    Folder -> reason, for all runs that failed now, or permanently before.

  Raises:
    signals.Interrupted: A signal was received.
  """
  waiting = _announced(runs, max_processes)
  idle: list[_Worker] = []
  busy: list[_Worker] = []
  failures = {}
  with signals.StopSignals() as requests:
    requests.install()
    while requests.received is None:
      while len(busy) < max_processes and (run := next(waiting, None)):
        busy.append(idle.pop() if idle else _Worker())
        busy[-1].begin(run, has_log=max_processes > 1)
      if not busy:
        break
      ended, _, _ = select.select(busy, [], [], _POLL_SECONDS)
      for one in ended:
        busy.remove(one)
        if (reason := one.outcome()) is not None:
          failures[one.run.folder] = reason
          _report(one.run, reason)
        if one.is_reusable:
          idle.append(one)
        else:
          one.close()
    # All save at the same time. This is their only signal: if there were two, a
    # slow process might take the later one as a request to end without saving.
    for one in busy:
      one.end_input()
    for one in (*busy, *idle):
      one.close()
  earlier = {run.folder: run.failure for run in runs}
  return {x: text for x, text in (earlier | failures).items() if text}


def run_on_slurm(
  runs: Sequence[planned_runs.Run],
  max_processes: int,
  folder: pathlib.Path,
  options: Sequence[str],
  cluster: str = 'slurm',
) -> dict[pathlib.Path, str]:
  """Makes the unfinished runs as an array of SLURM jobs.

  Args:
    runs: The runs.
    max_processes: The number of concurrent jobs.
    folder: The folder of scripts and logs, shared by all machines.
    options: Parameters of submitit, NAME=VALUE, such as slurm_partition=gpu.
    cluster: The executor of submitit.

  Returns:
    The same as `run_all`. A job that ends before its run is over has failed.

  Raises:
    ImportError: submitit is not installed.
    ValueError: submitit does not know an option, or SLURM refuses the jobs.
  """
  try:
    import submitit
  except ImportError as error:
    raise ImportError(f'{error}: {extras.install("slurm")}.') from error

  os.environ['PYTHONPATH'] = _python_path()
  ended: dict[pathlib.Path, str | None] = {x.folder: x.failure for x in runs}
  todo = [run for run in runs if not run.is_over]
  jobs = []
  if todo:
    given = dict(option.partition('=')[::2] for option in options)
    values = {k: int(x) if x.isdecimal() else x for k, x in given.items()}
    try:
      executor = submitit.AutoExecutor(folder, cluster=cluster)
      executor.update_parameters(
        slurm_array_parallelism=max_processes, **values
      )
      # Jobs begin in the folder in which they are submitted.
      with contextlib.chdir(paths_lib.absolute('')), executor.batch():
        jobs += [executor.submit(_submitted, _task(run)) for run in todo]
    # Of options; RuntimeError: there is no SLURM, or it refuses the jobs.
    except (AssertionError, NameError, TypeError, RuntimeError) as error:
      raise ValueError(f'--slurm={",".join(options)}: {error}') from error
  for run, job in zip(todo, jobs):
    try:
      reason = job.result()
    except submitit.core.utils.UncompletedJobError as error:
      reason = f'{error}'.splitlines()[0]
    ended[run.folder] = reason
    if reason is not None:
      _report(run, reason)
  return {folder: text for folder, text in ended.items() if text}


class _Worker:
  """A process that makes runs.

  Attributes:
    process: The process.
    run: The current or last run.
  """

  run: planned_runs.Run

  def __init__(self) -> None:
    """Starts the process, in the folder in which the command was given."""
    self.process = subprocess.Popen(
      [sys.executable, *WORKER],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      # Environments of this process may have changed the working directory.
      cwd=paths_lib.absolute(''),
      env={**os.environ, 'PYTHONPATH': _python_path()},
      # An interrupt from the keyboard reaches it only through this process.
      start_new_session=True,
    )
    assert self.process.stdin is not None and self.process.stdout is not None
    self._tasks, self._answers = self.process.stdin, self.process.stdout

  def fileno(self) -> int:
    """Returns the file descriptor that is readable once a run has ended."""
    return self._answers.fileno()

  def begin(self, run: planned_runs.Run, has_log: bool) -> None:
    """Starts a run, with its output in a file next to its folder, or here."""
    self.run = run
    self._log = (
      run.folder.with_name(f'{run.folder.name}.log') if has_log else None
    )
    task = _task(run, self._log)
    # For a worker that has died in the meantime, `outcome` tells so.
    with contextlib.suppress(BrokenPipeError):
      self._tasks.write(json.dumps(task).encode() + b'\n')
      self._tasks.flush()

  def outcome(self) -> str | None:
    """Returns why the run has failed; None if it has not."""
    see = f'; see {self._log}' if self._log else ''
    if answer := self._answers.readline():
      reason = json.loads(answer)
      return reason and f'{reason}{see}'
    status = self.process.wait()
    ended = f'exit status {status}' if status >= 0 else f'signal {-status}'
    if status == -signal.SIGKILL:
      ended += ', likely for lack of memory'
    return f'its process ended with {ended}{see}'

  @property
  def is_reusable(self) -> bool:
    """Whether it can make another run: a CPU can be divided only once."""
    return self.process.poll() is None and not self.run.is_discovery

  def end_input(self) -> None:
    """Asks the process to save and end."""
    with contextlib.suppress(BrokenPipeError):
      self._tasks.close()

  def close(self) -> None:
    """Waits until the process has ended."""
    self.end_input()
    self.process.wait()
    self._answers.close()


def _python_path() -> str:
  """Returns a PYTHONPATH on which a worker finds this package."""
  paths = (str(_ROOT), os.environ.get('PYTHONPATH', ''))
  return os.pathsep.join(filter(None, paths))


def _report(run: planned_runs.Run, reason: str) -> None:
  """Prints why a run has failed."""
  print(f'{run.name} failed: {reason}', file=sys.stderr, flush=True)


def _task(
  run: planned_runs.Run, log: pathlib.Path | None = None
) -> dict[str, Any]:
  """Returns the message to a worker, in types of JSON."""
  return {
    'name': run.name,
    'folder': str(run.folder),
    'rule': run.rule,
    'settings': dict(run.settings),
    'digests': dict(run.digests),
    'imports': list(workdirs.IMPORTED),
    'log': log and str(log),
  }


def _announced(
  runs: Sequence[planned_runs.Run], max_processes: int
) -> Iterator[planned_runs.Run]:
  """Yields the remaining runs, each after printing a line about it."""
  todo = [run for run in runs if not run.is_over]
  start = time.perf_counter()
  for i, run in enumerate(todo):
    left, ended = '', i + 1 - max_processes
    if ended > 0:
      seconds = (time.perf_counter() - start) / ended * (len(todo) - ended)
      left = f', about {datetime.timedelta(seconds=round(seconds))} left'
    number = len(runs) - len(todo) + i + 1
    print(
      f'Run {number} of {len(runs)}{left}: {run.name}',
      file=sys.stderr,
      flush=True,
    )
    yield run


# The worker.


def work() -> None:
  """Makes the runs given on the standard input until it ends."""
  common.open_missing_streams()
  common.prepare_process()
  compilation_cache.hide_errors_of_loading()
  answers = os.fdopen(os.dup(1), 'w', encoding='utf-8')
  os.dup2(2, 1)  # Keep the output of packages apart from the answers.
  tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
  threading.Thread(target=_read_tasks, args=(tasks,), daemon=True).start()
  while True:
    reason = _attempt(json.loads(tasks.get()))
    print(json.dumps(reason), file=answers, flush=True)


def _read_tasks(tasks: queue.SimpleQueue[str]) -> None:
  for line in sys.stdin:
    tasks.put(line)
  # The current run saves a checkpoint.
  os.kill(os.getpid(), signal.SIGTERM)


def _attempt(task: Mapping[str, Any]) -> str | None:
  """Makes a run; returns why it failed, or None if it did not."""
  folder = pathlib.Path(task['folder'])
  run = planned_runs.Run(
    task['name'], folder, task['rule'], task['settings'], task['digests']
  )
  if task['log']:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(task['log'], 'ab') as log:
      os.dup2(log.fileno(), 1)
      os.dup2(log.fileno(), 2)
  try:
    # Only for the modules that the user named; see `disco_rl.__main__.main`.
    if task['imports'] and os.getcwd() not in sys.path:
      sys.path.append(os.getcwd())
    for name in task['imports']:
      common.import_module(name)
    workdirs.IMPORTED[:] = task['imports']
    _make(run)
  except metrics.NonFiniteError as error:
    # It would fail again if repeated.
    run.fail(str(error))
    return str(error)
  except Exception as error:
    if isinstance(error, (*errors.of_runs(), ValueError, ImportError)):
      return ' '.join(str(error).split())
    traceback.print_exc()
    return f'{type(error).__name__}: {" ".join(str(error).split())}'
  finally:
    # The collector runs rarely in these processes, and agents refer to
    # themselves: without this, each run leaves its programs, some 40 MB.
    gc.collect()
  return None


def _submitted(task: Mapping[str, Any]) -> str | None:
  """Makes a run, as `_attempt` does, in a job of SLURM."""
  paths_lib.keep_folder()
  return _attempt(task)


def _make(run: planned_runs.Run) -> None:
  """Makes a run, or resumes it."""
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import sharding
  from disco_rl.training import runner

  if run.is_discovery:
    config = meta_trainer.config_of(run.settings)
    sharding.divide_cpu(config.cpu_devices)
    trainer = meta_trainer.MetaTrainer(config)
    run.check_rule()
    trainer.run(run.folder, run.settings)
    return
  resolved = run.resolved
  run.check_rule()
  with contextlib.closing(runner.TrainingRun(*resolved)) as training:
    training.run(run.folder, run.settings)
