"""Ends runs after a signal, once they have saved a checkpoint."""

from collections.abc import Callable
import os
import signal
import socket
import threading
import time
from types import FrameType
from typing import Self

from disco_rl.runtime import reports

_Handler = Callable[[int, FrameType | None], object] | int | None
SIGNALS = (
  *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
  # Sent by some schedulers before a job ends, for example when its processor
  # time is used up; by default they also end a process.
  *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
)
# Signals within this time are one request: `timeout` and schedulers send them
# to a process and to its group.
ONE_REQUEST_SECONDS = 1.0


class Interrupted(SystemExit):
  """Raised to end a run that has saved its state after a signal.

  If it is not caught, the exit status is 128 plus the number of the signal, by
  which schedulers recognize jobs to be requeued: 143 after SIGTERM, 130 after
  an interrupt from the keyboard, 129 after the terminal is closed.
  """

  def __init__(self, signal_number: int):
    super().__init__(128 + signal_number)


class StopSignals:
  """Records the first signal that asks to end after the current step.

  Use it as a context manager around everything that saves. In programs of this
  package a signal within the next second is the same request, and a later one
  ends the program immediately; a separate thread receives it, because Python's
  handlers run only after a compilation or a device program has ended. Outside
  the main thread nothing is recorded.

  Attributes:
    received: The number of the first signal; None if there was none.
  """

  def __init__(self, ends_program: bool = True):
    """Records nothing until `install` is called.

    Args:
      ends_program: False in the user's own programs, such as notebooks: only
        interrupts from the keyboard are recorded, and the program's own handler
        gets the first one after the body, and a second one immediately.
    """
    self.received: int | None = None
    self._ends_program = ends_program
    self._first = 0.0  # The time of the first signal, in seconds.
    self._former: dict[int, _Handler] = {}
    self._watcher: threading.Thread | None = None

  def install(self) -> None:
    """Begins to record signals; later calls have no effect.

    Until there is something to save, signals should end the program.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if self._former or self._watcher is not None or not is_main:
      return
    for number in SIGNALS if self._ends_program else (signal.SIGINT,):
      former = signal.getsignal(number)
      # For example SIGHUP under nohup; None: a handler not set by Python.
      if former not in (signal.SIG_IGN, None):
        self._former[number] = signal.signal(number, self._handle)
    if self._ends_program:
      self._reader, self._writer = socket.socketpair()
      self._writer.setblocking(False)
      self._former_fd = signal.set_wakeup_fd(self._writer.fileno())
      self._watcher = threading.Thread(target=self._watch, daemon=True)
      self._watcher.start()

  def __enter__(self) -> Self:
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    self._uninstall()
    # It may have arrived while the last checkpoint was written.
    if kind is None and self.received is not None:
      if self._ends_program:
        raise Interrupted(self.received)
      signal.raise_signal(self.received)

  def _uninstall(self) -> None:
    if self._watcher is not None:
      signal.set_wakeup_fd(self._former_fd)
    for number, handler in self._former.items():
      signal.signal(number, handler)
    if self._watcher is not None:
      self._writer.close()  # Ends the watcher.
      self._watcher.join()
      self._reader.close()

  def _handle(self, number: int, _: object) -> None:
    """Runs in the main thread, between two instructions of Python."""
    if not self._ends_program:
      self._receive(number)

  def _watch(self) -> None:
    while number := self._reader.recv(1):
      if number[0] in SIGNALS:
        self._receive(number[0])

  def _receive(self, number: int) -> None:
    now = time.monotonic()
    if self.received is None:
      self.received, self._first = number, now
      reports.note(
        f'{signal.Signals(number).name}: saving after this step, then ending; '
        'the same command continues from there. A second signal ends at once.'
        if self._ends_program
        else 'Stopping after this update.'
      )
    elif not self._ends_program:
      signal.signal(number, self._former[number])
      signal.raise_signal(number)
    # SIGXCPU is repeated after each second of processor time.
    elif number == self.received == signal.SIGXCPU:
      return
    elif now >= self._first + ONE_REQUEST_SECONDS:
      # sys.exit would wait for threads and context managers.
      os._exit(128 + number)
