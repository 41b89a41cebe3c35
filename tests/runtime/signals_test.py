"""Tests of disco_rl/runtime/signals.py; of whole runs: meta_train_test.py."""

from collections.abc import Iterator
import os
import signal
import threading
import time

import launching
import pytest

from disco_rl.runtime import signals


def wait_for(requests: signals.StopSignals) -> None:
  deadline = time.monotonic() + 10
  while requests.received is None and time.monotonic() < deadline:
    time.sleep(0.01)


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
  """Those of a program in the foreground: a parent may ignore some."""
  former = {number: signal.getsignal(number) for number in signals.SIGNALS}
  for number in signals.SIGNALS:
    signal.signal(number, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  for number, handler in former.items():
    signal.signal(number, handler)


def test_signals_that_are_all_ignored_are_watched_once() -> None:
  for number in signals.SIGNALS:
    signal.signal(number, signal.SIG_IGN)
  with signals.StopSignals() as requests:
    requests.install()
    watchers = threading.active_count()
    requests.install()
    assert threading.active_count() == watchers


@pytest.mark.parametrize('number', signals.SIGNALS)
def test_the_first_signal_is_noted(
  number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
  handler = signal.getsignal(number)
  with (
    pytest.raises(signals.Interrupted) as caught,
    signals.StopSignals() as requests,
  ):
    assert signal.getsignal(number) is handler
    for _ in range(2):
      requests.install()
    assert requests.received is None
    os.kill(os.getpid(), number)
    wait_for(requests)
  assert caught.value.code == 128 + number
  assert number.name in capfd.readouterr().err
  assert signal.getsignal(number) is handler
  assert signal.set_wakeup_fd(-1) == -1


def test_signals_close_together_are_one_request() -> None:
  """Two signals, as `timeout` sends them to a process and to its group."""
  with pytest.raises(signals.Interrupted), signals.StopSignals() as requests:
    requests.install()
    for _ in range(2):
      os.kill(os.getpid(), signal.SIGTERM)
      wait_for(requests)
    time.sleep(0.1)


def test_repeated_limits_of_time_do_not_end_a_run_that_saves(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """The kernel sends SIGXCPU in each second of processor time."""
  ended: list[int] = []
  monkeypatch.setattr(os, '_exit', ended.append)
  monkeypatch.setattr(signals, 'ONE_REQUEST_SECONDS', 0.0)
  requests = signals.StopSignals()
  for _ in range(3):
    requests._receive(signal.SIGXCPU)
  assert (requests.received, ended) == (signal.SIGXCPU, [])
  requests._receive(signal.SIGTERM)
  assert ended == [128 + signal.SIGTERM]


def test_ignored_signals_stay_ignored() -> None:
  """A signal that is ignored, as SIGHUP is under nohup."""
  signal.signal(signal.SIGHUP, signal.SIG_IGN)
  with signals.StopSignals() as requests:
    requests.install()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
  assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_threads_leave_signals_alone() -> None:
  handler = signal.getsignal(signal.SIGTERM)
  seen = []

  def run() -> None:
    with signals.StopSignals() as requests:
      requests.install()
      seen.append(signal.getsignal(signal.SIGTERM))

  thread = threading.Thread(target=run)
  thread.start()
  thread.join()
  assert seen == [handler]


def test_an_interrupt_of_a_users_program_is_deferred_to_the_end(
  capfd: pytest.CaptureFixture[str],
) -> None:
  handler = signal.getsignal(signal.SIGINT)
  done = None
  with (
    pytest.raises(KeyboardInterrupt),
    signals.StopSignals(ends_program=False) as requests,
  ):
    requests.install()
    assert requests.received is None
    signal.raise_signal(signal.SIGINT)
    done = requests.received
  assert done == signal.SIGINT
  assert signal.getsignal(signal.SIGINT) is handler
  assert capfd.readouterr().err == 'Stopping after this update.\n'


def test_a_second_interrupt_is_not_deferred() -> None:
  with (
    pytest.raises(KeyboardInterrupt),
    signals.StopSignals(ends_program=False) as requests,
  ):
    requests.install()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    pytest.fail('goes on')


# The second signal comes while the main thread runs no Python at all.
SECOND = """
import os, signal, sys, threading, time
from disco_rl.runtime import signals

def send():
  for number in (signal.SIGTERM, signal.SIGINT):
    time.sleep(0.2 + signals.ONE_REQUEST_SECONDS)
    os.kill(os.getpid(), number)

with signals.StopSignals() as requests:
  requests.install()
  threading.Thread(target=send).start()
  lock = threading.Lock()
  lock.acquire()
  lock.acquire()
"""


def test_the_second_signal_ends_the_program_at_once() -> None:
  start = time.monotonic()
  ended = launching.run_python('-c', SECOND)
  assert ended.returncode == 128 + signal.SIGINT
  assert 'A second signal ends at once.' in ended.stderr
  assert time.monotonic() - start < 60
