"""Signals that ask a run to end: it saves what it has, then goes."""

import os
import signal
import socket
import sys
import threading
import time
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Signals so close together are one request: `timeout` and schedulers send them
# to a process and to its group.
ONE_REQUEST_SECONDS = 1.0


class Interrupted(SystemExit):
  """A run has saved its state and ends, as it was asked to.

  Not caught, it ends the program with 128 and the number of the signal, as
  schedulers and shells expect of a job that may be queued again: 143 after
  SIGTERM, 130 after an interrupt from the keyboard.
  """

  def __init__(self, signal_number: int):
    super().__init__(128 + signal_number)


class Requests:
  """Notes the first signal, and ends the program at one a second later.

  Use as a context manager. A thread of its own watches, as Python's handlers
  wait until a compilation or a program on the device has ended. Outside the
  main thread of a program signals are left alone.

  Attributes:
    received: number of the signal that asked the run to end; None so far.
  """

  def __init__(self) -> None:
    self.received: int | None = None
    self._first = 0.0  # When it came.
    self._handlers: dict[int, Any] = {}

  def check(self) -> None:
    """Raises Interrupted if the run was asked to end; call it after saving."""
    if self.received is not None:
      raise Interrupted(self.received)

  def __enter__(self) -> 'Requests':
    if threading.current_thread() is not threading.main_thread():
      return self
    self._reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    for number in SIGNALS:
      self._handlers[number] = signal.signal(number, lambda *_: None)
    self._former_fd = signal.set_wakeup_fd(self._writer.fileno())
    self._watcher = threading.Thread(target=self._watch, daemon=True)
    self._watcher.start()
    return self

  def __exit__(self, *_: object) -> None:
    if not self._handlers:
      return
    signal.set_wakeup_fd(self._former_fd)
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
    self._handlers.clear()
    self._writer.close()  # The watcher reads the end.
    self._watcher.join()
    self._reader.close()

  def _watch(self) -> None:
    while number := self._reader.recv(1):
      self._receive(number[0])

  def _receive(self, number: int) -> None:
    if number not in SIGNALS:
      return
    now = time.monotonic()
    if self.received is not None:
      if now < self._first + ONE_REQUEST_SECONDS:
        return
      # Not sys.exit: nothing that a run has begun may hold it back.
      os._exit(128 + number)
    self.received = number
    self._first = now
    print(
      f'{signal.Signals(number).name}: saving after this step, then ending; '
      'the same command goes on from there. A second signal ends at once.',
      file=sys.stderr,
      flush=True,
    )
