"""Signals that end a run after it has saved a checkpoint."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Signals so close together are one request: `timeout` and schedulers send them
# to a process and to its group.
ONE_REQUEST_SECONDS = 1.0


class Interrupted(SystemExit):
  """Ends a run that has saved its state after a signal.

  If it is not caught, the program's status is 128 plus the signal's number, by
  which schedulers recognise a job that can be queued again: 143 after SIGTERM,
  130 after an interrupt from the keyboard, 129 after the terminal is closed.
  """

  def __init__(self, signal_number: int):
    super().__init__(128 + signal_number)


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
  """Defers an interrupt from the keyboard to the end of the body.

  A second one is not deferred. Outside the main thread it does nothing.

  Yields:
    A function that returns whether there was one: the body should end soon.

  Raises:
    KeyboardInterrupt: at the end, if there was one and nothing else is raised;
      where the program has a handler of its own, that is called instead.
  """
  is_received = False
  former = signal.getsignal(signal.SIGINT)
  is_main = threading.current_thread() is threading.main_thread()
  if not is_main or not callable(former):
    yield lambda: False
    return

  def receive(*_: object) -> None:
    nonlocal is_received
    is_received = True
    signal.signal(signal.SIGINT, former)
    print('Stopping after this update.', file=sys.stderr, flush=True)

  signal.signal(signal.SIGINT, receive)
  try:
    yield lambda: is_received
  finally:
    signal.signal(signal.SIGINT, former)
  if is_received:
    signal.raise_signal(signal.SIGINT)


class Requests:
  """Records the first signal; a signal more than a second later ends at once.

  Use as a context manager around all that saves, so that a second signal within
  a second does not end it. A separate thread receives the signals, because
  Python's handlers run only after a compilation or a device program has ended.
  Outside the main thread it does nothing.

  Attributes:
    received: number of the first signal; None if there was none.
  """

  def __init__(self) -> None:
    self.received: int | None = None
    self._first = 0.0  # Time of the first signal, in seconds.
    self._handlers: dict[int, Any] = {}
    self._watcher: threading.Thread | None = None

  def check(self) -> None:
    """Raises Interrupted if a signal was received; call it after saving."""
    if self.received is not None:
      raise Interrupted(self.received)

  def listen(self) -> None:
    """Begins to record signals; later calls do nothing.

    Until there is something to save, signals should end the program.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if self._watcher or not is_main:
      return
    self._reader, self._writer = socket.socketpair()
    self._writer.setblocking(False)
    for number in SIGNALS:
      # Such as SIGHUP under nohup.
      if signal.getsignal(number) is not signal.SIG_IGN:
        self._handlers[number] = signal.signal(number, lambda *_: None)
    self._former_fd = signal.set_wakeup_fd(self._writer.fileno())
    self._watcher = threading.Thread(target=self._watch, daemon=True)
    self._watcher.start()

  def __enter__(self) -> 'Requests':
    return self

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    self._stop_listening()
    if kind is None:
      # It came while the last checkpoint was written.
      self.check()

  def _stop_listening(self) -> None:
    if self._watcher is None:
      return
    signal.set_wakeup_fd(self._former_fd)
    for number, handler in self._handlers.items():
      signal.signal(number, handler)
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
      # Not sys.exit, which would wait for threads and context managers.
      os._exit(128 + number)
    self.received = number
    self._first = now
    print(
      f'{signal.Signals(number).name}: saving after this step, then ending; '
      'the same command goes on from there. A second signal ends at once.',
      file=sys.stderr,
      flush=True,
    )
