"""Tests of launch/scheduler.py: what is run, what is left, what survives."""

from collections.abc import Sequence
import gc
import json
import os
import pathlib
import signal
import threading
import time
import weakref

import launching
import pytest

from disco_rl.evaluation import planned_runs
from disco_rl.runtime import json_files
from disco_rl.runtime import signals
from launch import scheduler

# Finishes runs, or does with the process what a run's rule says.
_WORKER = """
import json, os, pathlib, sys, time
for line in sys.stdin:
  task = json.loads(line)
  folder, kind = pathlib.Path(task['folder']), task['settings']['rule']
  folder.mkdir(exist_ok=True)
  if kind == 'dies':
    os.kill(os.getpid(), 9)
  if kind == 'exits':
    sys.exit()
  fails = kind == 'fails' and not (folder / 'tried').exists()
  (folder / 'tried').touch()
  start = time.time()
  time.sleep(1.0)
  if not fails:
    (folder / 'summary.json').write_text(json.dumps({'updates': 4}))
  (folder / 'times.json').write_text(
    json.dumps([start, time.time(), os.getpid()])
  )
  print(json.dumps('it is too hot' if fails else None), flush=True)
"""
QUICK = ('-S', '-c', _WORKER)
# The true worker, but what it makes only waits until it may save, which takes
# longer in the second run. A second signal ends it at once.
_SAVES = """
import os, pathlib, signal, sys, time
from launch import scheduler

def make(run):
  received = []
  def save(*_):
    received.append(time.monotonic())
    if len(received) > 1:
      if received[1] > received[0] + 0.3:
        os._exit(1)
      return
    time.sleep(1.5 if run.folder.name == 'b' else 0.7)
    pathlib.Path(run.folder, 'saved').touch()
    sys.exit(143)
  signal.signal(signal.SIGTERM, save)
  run.folder.mkdir(parents=True)
  pathlib.Path(run.folder, 'begun').touch()
  time.sleep(300)

scheduler._make = make
scheduler.work()
"""
# The true worker, but each run raises what its rule says.
_RAISES = """
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from launch import scheduler

def make(run):
  print('a step')
  raise {'nan': metrics.NonFiniteError, 'bug': KeyError, 'bad': ValueError}[
    run.rule](f'{run.rule} it is')

scheduler._make = make
scheduler.work()
"""


def make_run(folder: pathlib.Path, kind: str = 'works') -> planned_runs.Run:
  return planned_runs.Run(
    folder.name, folder, kind, {'updates': 4, 'rule': kind}
  )


def run_all(
  runs: Sequence[planned_runs.Run],
  max_processes: int,
  worker: Sequence[str],
) -> dict[pathlib.Path, str]:
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(scheduler, 'WORKER', worker)
    return scheduler.run_all(runs, max_processes)


def await_file(path: pathlib.Path) -> None:
  deadline = time.monotonic() + 300  # Where much else is running.
  while not path.exists():
    assert time.monotonic() < deadline, f'{path} is never written'
    time.sleep(0.01)


def test_runs_go_on_side_by_side_and_are_not_repeated(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  runs = [
    make_run(tmp_path / 'a'),
    make_run(tmp_path / 'b'),
    make_run(tmp_path / 'c', kind='fails'),
    make_run(tmp_path / 'd'),
  ]
  failures = run_all(runs, 2, QUICK)
  log = tmp_path / 'c.log'
  assert failures == {tmp_path / 'c': f'it is too hot; see {log}'}
  (begin_a, end_a, worker_a), (begin_b, end_b, worker_b), *others = (
    json.loads((tmp_path / x / 'times.json').read_text()) for x in 'abcd'
  )
  assert begin_a < end_b and begin_b < end_a
  # Processes are used again.
  assert {worker for _, _, worker in others} == {worker_a, worker_b}
  lines = capsys.readouterr().err.splitlines()
  assert lines[:2] == ['Run 1 of 4: a', 'Run 2 of 4: b']
  assert lines[2].startswith('Run 3 of 4, about 0:00:0')
  assert f'c failed: it is too hot; see {log}' in lines

  # Only what failed is left.
  assert not run_all(runs, 2, QUICK)
  assert capsys.readouterr().err.splitlines() == ['Run 4 of 4: c']
  assert not run_all(runs, 2, QUICK)
  assert capsys.readouterr().err == ''


def test_a_worker_that_is_killed_ends_no_other_run(
  tmp_path: pathlib.Path,
) -> None:
  runs = [make_run(tmp_path / 'a', 'dies'), make_run(tmp_path / 'b')]
  runs.append(make_run(tmp_path / 'c', 'exits'))
  assert run_all(runs, 1, QUICK) == {
    tmp_path
    / 'a': 'its process ended with signal 9, likely for lack of memory',
    tmp_path / 'c': 'its process ended with exit status 0',
  }
  assert runs[1].is_over


def test_how_runs_fail(tmp_path: pathlib.Path) -> None:
  kinds = ('bad', 'bug', 'nan')
  runs = [make_run(tmp_path / x, x) for x in kinds]
  worker = ('-c', _RAISES)
  failures = run_all(runs, 2, worker)
  texts = ('bad it is', "KeyError: 'bug it is'", 'nan it is')
  assert failures == {
    tmp_path / x: f'{text}; see {tmp_path / x}.log'
    for x, text in zip(kinds, texts)
  }
  # A bug shows where it is; losses that are not finite would be so again.
  assert [
    ('Traceback' in (tmp_path / f'{x}.log').read_text()) for x in kinds
  ] == [False, True, False]
  assert [run.is_over for run in runs] == [False, False, True]
  assert run_all(runs[2:], 1, worker) == {tmp_path / 'nan': 'nan it is'}


@pytest.mark.parametrize('fails', [False, True])
def test_a_worker_keeps_nothing_of_a_run(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
  class Agent:
    """Refers to itself, as agents with compiled methods do."""

    def __init__(self) -> None:
      self.itself = self

  made = []

  def make(run: planned_runs.Run) -> None:
    agent = Agent()
    made.append(weakref.ref(agent))
    if fails:
      raise ValueError(run.name)

  monkeypatch.setattr(scheduler, '_make', make)
  task = scheduler._task(make_run(tmp_path / 'a'))
  gc.disable()  # Workers let it run rarely.
  try:
    assert scheduler._attempt(task) == ('a' if fails else None)
  finally:
    gc.enable()
  (agent,) = made
  assert agent() is None


def test_a_signal_reaches_the_runs(tmp_path: pathlib.Path) -> None:
  folders = [tmp_path / x for x in 'ab']

  def interrupt() -> None:
    for folder in folders:
      await_file(folder / 'begun')
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=interrupt).start()
  with pytest.raises(signals.Interrupted) as caught:
    run_all([make_run(x) for x in folders], 2, ('-c', _SAVES))
  assert caught.value.code == 128 + signal.SIGTERM
  assert all((x / 'saved').exists() for x in folders)


# A sweep of one run, which ends like those of launchers.
_SWEEP = """
import pathlib, sys
from disco_rl.evaluation import planned_runs
from launch import scheduler
settings = {'updates': 4, 'rule': 'x'}
run = planned_runs.Run('a', pathlib.Path(sys.argv[1]), 'x', settings)
scheduler.WORKER = ('-c', sys.argv[2])
scheduler.run_all([run], 1)
"""


@pytest.mark.slow
def test_runs_save_when_the_sweep_is_killed(tmp_path: pathlib.Path) -> None:
  folder = tmp_path / 'a'
  with launching.start_python('-c', _SWEEP, str(folder), _SAVES) as process:
    await_file(folder / 'begun')
    assert not (folder / 'saved').exists()
    process.kill()
  await_file(folder / 'saved')


# The executor does not close its logs.
@pytest.mark.filterwarnings('ignore::ResourceWarning')
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_jobs_of_slurm(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """By an executor of submitit that calls functions in this process."""
  monkeypatch.setenv('PYTHONPATH', '')
  runs = [make_run(tmp_path / x, x) for x in ('over', 'good', 'bad')]
  runs[0].fail('it was too hot')

  def make(run: planned_runs.Run) -> None:
    if run.rule != 'good':
      raise ValueError(f'{run.rule} it is')
    run.folder.mkdir()
    json_files.write(run.folder / 'summary.json', {'updates': 4})

  monkeypatch.setattr(scheduler, '_make', make)
  reported = []
  monkeypatch.setattr(scheduler, '_report', lambda *x: reported.append(x))
  start = lambda *options: scheduler.run_on_slurm(
    runs, 2, tmp_path / 'slurm', options, cluster='debug'
  )
  assert start('timeout_min=5', 'slurm_partition=gpu') == {
    tmp_path / 'over': 'it was too hot',
    tmp_path / 'bad': 'bad it is',
  }
  assert runs[1].is_over
  assert reported == [(runs[2], 'bad it is')]
  for option in ('no_such=1', 'no_such', 'timeout_min=x'):
    with pytest.raises(ValueError, match=f'--slurm={option}: '):
      start(option)
  monkeypatch.setenv('PATH', '')
  with pytest.raises(ValueError, match='--slurm=timeout_min=5: .*srun'):
    scheduler.run_on_slurm(runs, 2, tmp_path, ['timeout_min=5'])
  # Nothing is left to submit.
  assert scheduler.run_on_slurm(runs[:2], 2, tmp_path, ['timeout_min=5']) == {
    tmp_path / 'over': 'it was too hot'
  }
