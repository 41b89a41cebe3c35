"""Runs commands of the launchers, each in a process of its own."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import signal
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


@dataclasses.dataclass(frozen=True)
class _Process:
  """A command that runs.

  Attributes:
    process: the command's.
    printed: bytes of its log that earlier processes wrote.
  """

  process: subprocess.Popen[bytes]
  printed: int


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
    Folder -> the last line that its command printed, how it ended and where
    its log is, of those that failed.

  Raises:
    signals.Interrupted: a signal was received.
  """
  waiting = jobs_lib.announced(commands, at_once)
  running: dict[Command, _Process] = {}
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
        x for x, one in running.items() if one.process.poll() is not None
      ]
      for command in ended:
        one = running.pop(command)
        if one.process.returncode:
          failures[command.folder] = _reason(one, command.log)
    for one in running.values():
      one.process.send_signal(requests.received)
    for one in running.values():
      one.process.wait()
  return failures  # Not reached: the context manager raises.


def _start(command: Command, stdin: int) -> _Process:
  """Starts a command in the folder in which this one was started."""
  command.log.parent.mkdir(parents=True, exist_ok=True)
  paths = (str(_ROOT), os.environ.get('PYTHONPATH', ''))
  with command.log.open('ab') as output:
    printed = output.tell()
    process = subprocess.Popen(
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
  return _Process(process, printed)


def _reason(one: _Process, log: pathlib.Path) -> str:
  """Why a process failed, as far as its log and its end tell."""
  status = one.process.returncode
  ended = f'exit status {status}' if status > 0 else f'signal {-status}'
  if status == -signal.SIGKILL:
    ended += ', likely for lack of memory'
  with log.open('rb') as file:
    file.seek(one.printed)
    lines = file.read().decode(errors='replace').strip().splitlines()
  line = lines[-1] if lines else 'nothing was printed'
  return f'{line} ({ended}; see {log})'
