"""Tests of disco_rl/runtime/run.py: runs whose steps do nothing but take time.

Seconds pass by a clock that the steps move. Whole runs: train_test.py and
meta_train_test.py.
"""

from collections.abc import Callable
import dataclasses
import functools
import os
import pathlib
import shutil
import signal
import time
from typing import Any

import numpy as np
import pytest

from disco_rl.runtime import checkpointing
from disco_rl.runtime import distributed
from disco_rl.runtime import forks
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import run as run_lib
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs

# Seconds that a run takes to begin, that a step takes, and between two runs.
INIT, STEP, BETWEEN = 3.0, 10.0, 1000.0
OPTIONS = run_lib.Options(step='update', series='seed', every=2)


class Killed(BaseException):
  """Ends a run without warning."""


@dataclasses.dataclass
class World:
  """What happens around a run, and in its steps.

  Attributes:
    now: The time, in seconds.
    steps_left: Number of steps until the run is killed.
    on_step: Is called in each step.
    save_seconds: Seconds that saving takes.
  """

  now: float = 0.0
  steps_left: int = 1000
  on_step: Callable[[], object] = lambda: None
  save_seconds: float = 0.0

  def run(
    self, workdir: pathlib.Path, last: int, **changes: Any
  ) -> dict[str, Any]:
    """Takes the steps that are left of `last`."""
    options = dataclasses.replace(OPTIONS, free=('last',), **changes)
    with run_lib.opened(
      workdir, {'last': last}, options, lambda: self.now
    ) as run:
      self.now += INIT
      with run.saving():
        state = np.zeros(3)
        if newest := run.restore({'state': state}):
          state = newest[1]['state']
          np.testing.assert_array_equal(state, run.step)
        with run.writer() as writer:
          self._steps(run, writer, state, last)
      return run.finish({'steps': run.step}, draw=lambda _: None)

  def _steps(
    self,
    run: run_lib.Run,
    writer: metrics.MetricsWriter,
    state: np.ndarray,
    last: int,
  ) -> None:
    should_stop = False
    while run.step < last and not should_stop:
      self.now += STEP
      self.steps_left -= 1
      if self.steps_left < 0:
        raise Killed
      self.on_step()
      state = state + 1.0
      should_stop = run.should_stop()
      run.step += 1
      writer.write([{'update': run.step, 'seed': 0, 'loss': 0.5}])
      if run.is_due(run.step == last or should_stop):
        run.save(functools.partial(self._content, state))

  def _content(self, state: np.ndarray) -> dict[str, np.ndarray]:
    self.now += self.save_seconds
    return {'state': state}


def checkpoints(workdir: pathlib.Path) -> list[int]:
  return sorted(int(x.name) for x in (workdir / 'checkpoints').iterdir())


def test_seconds_add_up_over_resumptions(tmp_path: pathlib.Path) -> None:
  """What was lost, or passed while nothing ran, does not count."""
  world = World(now=BETWEEN)
  expected = INIT + 2 * STEP
  assert world.run(tmp_path, 2)['seconds'] == expected

  world.now += BETWEEN
  world.steps_left = 2
  with pytest.raises(Killed):
    world.run(tmp_path, 5)
  # Two more steps, up to the last checkpoint.
  expected += INIT + 2 * STEP

  world.now += BETWEEN
  world.steps_left = 1000
  summary = world.run(tmp_path, 5)
  expected += INIT + STEP
  assert summary['seconds'] == pytest.approx(expected)
  saved = json_files.read(tmp_path / 'summary.json')
  assert saved['seconds'] == pytest.approx(expected)
  assert saved['steps'] == 5
  assert metrics.read(tmp_path / 'metrics.csv')['update'].tolist() == [
    *range(1, 6)
  ]

  # No step is left.
  world.now += BETWEEN
  assert world.run(tmp_path, 5)['seconds'] == pytest.approx(expected + INIT)
  assert checkpoints(tmp_path) == [4, 5]


def test_a_killed_run_loses_no_more_than_the_seconds_between_checkpoints(
  tmp_path: pathlib.Path,
) -> None:
  world = World(steps_left=8)
  by_time = {'every': 1000, 'seconds': 3 * STEP}
  with pytest.raises(Killed):
    world.run(tmp_path, 1000, **by_time)
  assert checkpoints(tmp_path) == [3, 6]
  world.steps_left = 1
  with pytest.raises(Killed):
    world.run(tmp_path, 1000, **by_time)
  assert metrics.read(tmp_path / 'metrics.csv')['update'][-1] == 7


def test_checkpoints_by_time_take_little_of_it(tmp_path: pathlib.Path) -> None:
  """Saving takes as long as a step: one in fifty is saved."""
  world = World(save_seconds=STEP)
  world.run(tmp_path, 200, every=1000, seconds=3 * STEP, keep=9)
  assert checkpoints(tmp_path) == [3, 53, 103, 153, 200]


@pytest.mark.usefixtures('foreground')
def test_signals_are_recorded_while_there_is_something_to_save(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Until the first step is over they end the program, and again at the end."""
  before = signal.getsignal(signal.SIGTERM)
  handlers = []
  close = checkpointing.Checkpointer.__exit__

  def look() -> None:
    handlers.append(signal.getsignal(signal.SIGTERM))
    if len(handlers) == 3:
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(0.2)

  def close_and_look(self: checkpointing.Checkpointer, *args: object) -> None:
    close(self, *args)
    handlers.append(signal.getsignal(signal.SIGTERM))

  monkeypatch.setattr(checkpointing.Checkpointer, '__exit__', close_and_look)
  with pytest.raises(signals.Interrupted):
    World(on_step=look).run(tmp_path, 9)
  assert checkpoints(tmp_path) == [2, 3]
  assert not (tmp_path / 'summary.json').exists()
  first, *later = handlers
  assert first is before
  # The last of these: when the checkpoint was complete.
  assert len(later) == 3
  assert before not in later
  assert signal.getsignal(signal.SIGTERM) is before


def test_lost_rows_and_checkpoints_are_reported(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  rows = tmp_path / 'metrics.csv'
  World().run(tmp_path, 2)
  World().run(tmp_path, 4)
  assert 'metrics.csv' not in capsys.readouterr().err

  whole = rows.read_text()
  lines = whole.splitlines(keepends=True)
  rows.write_text(''.join(lines[:-1]))
  World().run(tmp_path, 6)
  warning = f'{rows} has changed since the checkpoint of step 4'
  assert warning in capsys.readouterr().err

  rows.unlink()
  World().run(tmp_path, 8)
  assert 'checkpoint of step 6' in capsys.readouterr().err

  shutil.rmtree(tmp_path / 'checkpoints')
  rows.write_text(whole)
  World().run(tmp_path, 4)
  assert f'{rows} has rows, but there are no' in capsys.readouterr().err
  assert rows.read_text() == whole


def test_a_run_whose_drawing_fails_has_its_summary(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  def draw(path: pathlib.Path) -> None:
    raise RuntimeError(f'no room for {path.name}')

  with run_lib.opened(tmp_path, {}, OPTIONS) as run:
    with run.saving():
      assert run.restore({}) is None
    run.finish({'steps': 0}, draw)
  assert 'RuntimeError: no room for curves.png' in capsys.readouterr().err
  assert json_files.read(tmp_path / 'summary.json')['steps'] == 0


def test_rules_and_disks_are_checked_before_anything_is_written(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  rule = tmp_path / 'rule.npz'
  rule.write_bytes(b'one')
  workdir = tmp_path / 'run'
  World().run(workdir, 2, rules={'mine': str(rule)})
  rule.write_bytes(b'another')
  with pytest.raises(workdirs.WorkdirError, match='mine changed since'):
    World().run(workdir, 4, rules={'mine': str(rule)})

  held = sum(x.stat().st_size for x in workdir.rglob('*') if x.is_file())
  free = lambda _: shutil._ntuple_diskusage(0, 0, free=500)
  monkeypatch.setattr(run_lib.shutil, 'disk_usage', free)
  run_lib.check_disk(workdir, held + 500, 'Buy one.')
  with pytest.raises(ValueError, match='Buy one'):
    World().run(workdir, 4, disk=held + 501, remedy='Buy one.')


def test_other_processes_share_the_folder_of_the_first(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """They write replay to it, and need neither its disk nor a fork's source."""
  monkeypatch.setattr(distributed, 'is_first', lambda: False)
  settings = {forks.KEY: {'workdir': str(tmp_path / 'gone'), 'step': 1}}
  options = dataclasses.replace(OPTIONS, disk=10**18)
  with run_lib.opened(tmp_path / 'run', settings, options) as run:
    assert run.replays == tmp_path / 'run' / 'replay'
    assert tmp_path not in run.folder.parents


def test_a_change_of_the_working_directory_scatters_nothing(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Environments and other code of users may change it."""
  (tmp_path / 'elsewhere').mkdir()
  monkeypatch.chdir(tmp_path)
  change = lambda: os.chdir(tmp_path / 'elsewhere')
  World(on_step=change).run(pathlib.Path('runs/a'), 4)
  found = {path.name for path in (tmp_path / 'runs' / 'a').iterdir()}
  assert found >= {'summary.json', 'metrics.csv', 'checkpoints', 'config.json'}
  assert not list((tmp_path / 'elsewhere').iterdir())
