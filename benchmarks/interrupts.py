"""Interrupts runs, and looks for checkpoints that are lost or runs that go on.

  python -m benchmarks.interrupts --times=20 --workdir=runs/interrupts

First runs receive two signals within a second, as schedulers send them: a new
checkpoint must be there, and complete. Then others receive an interrupt, as
from the keyboard, in their first seconds: they must end. Otherwise the exit
status is 1.
"""

from collections.abc import Sequence
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

from absl import app
from absl import flags

from benchmarks import short_runs
from disco_rl.runtime import digests
from disco_rl.runtime import metrics
from disco_rl.runtime import signals

_TIMES = flags.DEFINE_integer('times', 20, 'Number of runs of each sort.')
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the moments.')
_FIRST_SECONDS = flags.DEFINE_float(
  'first_seconds', 10.0, 'Interrupts come within so many.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the runs; must not exist.', required=True
)

_ENDLESS = 10**9
# A step of these runs takes far less.
_SECONDS_TO_END = 60.0


def main(_: Sequence[str]) -> None:
  """Sends both sorts of signals."""
  root = pathlib.Path(_WORKDIR.value)
  root.mkdir(parents=True)
  rng = random.Random(_SEED.value)
  kinds = list(short_runs.KINDS.values())
  failures = []
  for i in range(_TIMES.value):
    failures += _signal_twice(kinds[i % len(kinds)], root / 'run', rng)
  print(f'{_TIMES.value} double signals: {len(failures)} checkpoints lost')
  lost = len(failures)
  for i in range(_TIMES.value):
    failures += _interrupt_early(kinds[i % len(kinds)], root / 'run', rng)
  print(f'{_TIMES.value} interrupts: {len(failures) - lost} runs did not end')
  for failure in failures:
    print(failure)
  sys.exit(bool(failures))


def _signal_twice(
  kind: short_runs.Kind, workdir: pathlib.Path, rng: random.Random
) -> list[str]:
  """Two signals; returns what is wrong with the checkpoint."""
  first, second = rng.choices(signals.SIGNALS, k=2)
  delay = rng.uniform(0.1, 0.9)
  with short_runs.started(kind, workdir, _ENDLESS) as process:
    for _ in range(rng.randrange(2, 2 * short_runs.CHECKPOINT_EVERY)):
      short_runs.await_step(workdir, process)
    process.send_signal(first)
    time.sleep(delay)
    process.send_signal(second)
    _await_end(process)
  logged = int(metrics.read(workdir / 'metrics.csv')[kind.step][-1])
  saved = short_runs.newest_checkpoint(workdir)
  is_whole = digests.check(workdir / 'checkpoints' / str(saved) / 'default')
  shutil.rmtree(workdir)
  what = f'{first.name}, {second.name} after {delay:.2f} s: '
  what += f'status {process.returncode}, saved step {saved} of {logged}'
  print(what, file=sys.stderr, flush=True)
  return [] if is_whole and saved == logged else [what]


def _interrupt_early(
  kind: short_runs.Kind, workdir: pathlib.Path, rng: random.Random
) -> list[str]:
  """An interrupt in the first seconds; returns whether the run goes on."""
  delay = rng.uniform(0.0, _FIRST_SECONDS.value)
  with short_runs.started(kind, workdir, _ENDLESS) as process:
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    has_ended = _await_end(process)
  seconds = time.monotonic() - began
  shutil.rmtree(workdir, ignore_errors=True)
  what = f'SIGINT after {delay:.2f} s: status {process.returncode}'
  what += f' after {seconds:.1f} s'
  print(what, file=sys.stderr, flush=True)
  return [] if has_ended else [what]


def _await_end(process: subprocess.Popen[bytes]) -> bool:
  """Whether the process ends by itself in time; otherwise it is killed."""
  try:
    process.wait(_SECONDS_TO_END)
  except subprocess.TimeoutExpired:
    process.kill()
    return False
  return True


if __name__ == '__main__':
  app.run(main)
