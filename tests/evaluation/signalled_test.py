"""Signals to runs, whose updates and meta-steps do nothing."""

import os
import pathlib
import signal
import time
from typing import Any

import pytest
import resumed_seconds_test as idle

from disco_rl.runtime import checkpointing
from disco_rl.runtime import signals


@pytest.mark.parametrize('kind', [idle.discovery, idle.evaluation])
def test_signals_are_recorded_while_there_is_something_to_save(
  kind: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Until the first step is over they end the program, and again at the end."""
  clock = idle.Clock()
  session = kind(clock, monkeypatch)
  before = signal.getsignal(signal.SIGTERM)
  handlers = []
  step = clock.step
  close = checkpointing.Checkpointer.__exit__

  def interrupted_step(count: int = 1) -> None:
    step(count)
    handlers.append(signal.getsignal(signal.SIGTERM))
    if len(handlers) == 3:
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(0.2)

  def close_and_look(self: checkpointing.Checkpointer, *args: object) -> None:
    close(self, *args)
    handlers.append(signal.getsignal(signal.SIGTERM))

  monkeypatch.setattr(clock, 'step', interrupted_step)
  monkeypatch.setattr(checkpointing.Checkpointer, '__exit__', close_and_look)
  with pytest.raises(signals.Interrupted):
    session(9, tmp_path)
  assert (tmp_path / 'checkpoints' / '3').exists()
  first, *later = handlers
  assert first is before
  # The last of these: when the checkpoint was complete.
  assert len(later) == 3
  assert before not in later
  assert signal.getsignal(signal.SIGTERM) is before
