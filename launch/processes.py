"""Runs commands of the launchers, each in a process of its own."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

from disco_rl.runtime import jobs as jobs_lib
from disco_rl.runtime import signals
from launch import orphans

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_POLL_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Command(jobs_lib.Job):
  """A job by a command of Python.

  Attributes:
    arguments: of Python.
  """

  arguments: tuple[str, ...]

  @property
  def log(self) -> pathlib.Path:
    """What it prints, in a file beside its folder."""
    return self.folder.with_name(f'{self.folder.name}.log')


def run_all(
  commands: Sequence[Command], at_once: int
) -> dict[pathlib.Path, str]:
  """Runs the commands that are not over.

  A signal is passed on to the commands, which save and end; so does this
  function then. They do the same if this process is killed.

  Args:
    commands: in the order in which they begin.
    at_once: processes at the same time.

  Returns:
    Folder -> the last line that its command printed, of those that failed.

  Raises:
    signals.Interrupted: a signal was received.
  """
  waiting = jobs_lib.announced(commands, at_once)
  running: dict[Command, subprocess.Popen[bytes]] = {}
  failures: dict[pathlib.Path, str] = {}
  with signals.Requests() as requests, orphans.pipe() as stdin:
    requests.listen()
    while requests.received is None:
      while len(running) < at_once and (command := next(waiting, None)):
        running[command] = _start(command, stdin)
      if not running:
        return failures
      time.sleep(_POLL_SECONDS)
      ended = [
        x for x, process in running.items() if process.poll() is not None
      ]
      for command in ended:
        if running.pop(command).returncode:
          failures[command.folder] = _last_line(command.log)
    for process in running.values():
      process.send_signal(requests.received)
    for process in running.values():
      process.wait()
  return failures  # Not reached: the context manager raises.


def _start(command: Command, stdin: int) -> subprocess.Popen[bytes]:
  """Starts a command in the folder in which this one was started."""
  command.log.parent.mkdir(parents=True, exist_ok=True)
  paths = (str(_ROOT), os.environ.get('PYTHONPATH', ''))
  with command.log.open('ab') as output:
    return subprocess.Popen(
      [sys.executable, *command.arguments],
      stdin=stdin,
      stdout=output,
      stderr=subprocess.STDOUT,
      env={
        **os.environ,
        **orphans.variables(),
        'PYTHONPATH': os.pathsep.join(filter(None, paths)),
      },
      # An interrupt from the keyboard reaches it through this process, once.
      start_new_session=True,
    )


def _last_line(log: pathlib.Path) -> str:
  lines = log.read_text(errors='replace').strip().splitlines()
  return lines[-1] if lines else f'nothing was printed; see {log}'
