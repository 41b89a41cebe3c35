r"""Kills a discovery again and again, and looks at what remains.

  python -m benchmarks.kills --kills=25 --workdir=runs/kills

A small population on Catch and on CartPole, which steps on the host, is killed
(SIGKILL) at random moments: while programs are compiled, between checkpoints
and while one is written. The same command takes it up each time. A second run
is nowhere killed, but ends and goes on where the first had to: episodes on the
host begin anew at a resumption. Both rules must be the same bit for bit; the
exit status says whether they are.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

from benchmarks import small_runs
from disco_rl.update_rules import weights

_KILLS = flags.DEFINE_integer('kills', 25, 'How many.', lower_bound=1)
_SEED = flags.DEFINE_integer('seed', 0, 'Of the moments.')
_EARLY = flags.DEFINE_float(
  'early', 0.2, 'Share of the kills that come while programs are compiled.'
)
_ENVIRONMENTS = flags.DEFINE_list(
  'environments', ['catch/4x3', 'gymnasium/CartPole-v1'], 'Of one agent each.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for both runs; must not hold any.', required=True
)

CHECKPOINT_EVERY = 5
SETTINGS = {
  **small_runs.SETTINGS,
  'budgets': (200,),
  'chunk_size': 1,
  'checkpoint_every': CHECKPOINT_EVERY,
  'inner_updates': 1,
}
# A run that is never killed would go on for so long.
_ENDLESS = 10**9
# How many meta-steps a life may have before it is killed: some checkpoints.
_LONGEST_LIFE = 3 * CHECKPOINT_EVERY
# A kill follows so much later at most: it may strike anywhere in a meta-step.
_SECONDS_LATER = 0.2


def main(_: Sequence[str]) -> None:
  """Kills, undisturbed, compares."""
  root = pathlib.Path(_WORKDIR.value)
  killed, undisturbed = root / 'killed', root / 'undisturbed'
  if killed.exists() or undisturbed.exists():
    raise app.UsageError(f'{root} holds runs already: choose another --workdir')
  resumed_at = kill_repeatedly(killed, _KILLS.value, _SEED.value)
  last = resumed_at[-1] + CHECKPOINT_EVERY
  run(killed, last)
  stops = sorted({*resumed_at, last} - {0})
  print(f'{_KILLS.value} kills; resumed at meta-steps {resumed_at}')
  for stop in stops:
    run(undisturbed, stop)
  different = small_runs.differing(
    weights.load(killed / 'rule.npz'), weights.load(undisturbed / 'rule.npz')
  )
  if different:
    sys.exit(f'After {last} meta-steps these differ: {", ".join(different)}')
  print(f'After {last} meta-steps both rules are the same bit for bit.')


def kill_repeatedly(workdir: pathlib.Path, kills: int, seed: int) -> list[int]:
  """Starts a run and kills it, so many times.

  Args:
    workdir: of the run.
    kills: how many.
    seed: of the moments.

  Returns:
    After each kill, the meta-step of the newest complete checkpoint; 0: none.

  Raises:
    RuntimeError: the run ended otherwise.
  """
  rng = random.Random(seed)
  resumed_at = []
  startup = 0.0
  for kill in range(kills):
    # The first life shows how long a start takes.
    is_early = kill > 0 and rng.random() < _EARLY.value
    began = time.monotonic()
    with started(workdir, _ENDLESS) as process:
      if is_early:
        time.sleep(rng.uniform(0.0, startup))
      else:
        _await_meta_step(workdir, process)
        startup = time.monotonic() - began
        for _ in range(rng.randrange(_LONGEST_LIFE)):
          _await_meta_step(workdir, process)
        time.sleep(rng.uniform(0.0, _SECONDS_LATER))
      process.kill()
    if process.returncode >= 0:
      raise RuntimeError(f'the run ended by itself, with {process.returncode}')
    resumed_at.append(newest_checkpoint(workdir))
    print(
      f'kill {kill + 1} of {kills}, '
      f'{"while starting" if is_early else "while running"}: '
      f'goes on from meta-step {resumed_at[-1]}',
      file=sys.stderr,
      flush=True,
    )
  return resumed_at


def run(workdir: pathlib.Path, meta_steps: int) -> None:
  """Starts a run, or goes on with it, to its end."""
  with started(workdir, meta_steps) as process:
    code = process.wait()
  if code:
    raise RuntimeError(f'the run in {workdir} ended with {code}')


@contextlib.contextmanager
def started(
  workdir: pathlib.Path, meta_steps: int
) -> Iterator[subprocess.Popen[bytes]]:
  """A run in a process of its own; what it says is shown if it fails."""
  with tempfile.TemporaryFile() as said:
    with subprocess.Popen(
      [
        *(sys.executable, '-m', 'launch.meta_train'),
        '--config=configs/quickstart.py',
        *(f'--config.{name}={value}' for name, value in SETTINGS.items()),
        f'--config.environments={",".join(_ENVIRONMENTS.value)}',
        f'--config.agents={len(_ENVIRONMENTS.value)}',
        *(f'--config.meta_steps={meta_steps}', f'--workdir={workdir}'),
      ],
      cwd=pathlib.Path(__file__).resolve().parents[1],
      env={**os.environ, **_quick_start(workdir.parent)},
      stdout=said,
      stderr=subprocess.STDOUT,
    ) as process:
      yield process
    if process.returncode > 0:
      said.seek(0)
      sys.stderr.buffer.write(said.read())


def _quick_start(root: pathlib.Path) -> dict[str, str]:
  """Variables that make lives begin sooner; the caller's own come first."""
  defaults = {
    'JAX_COMPILATION_CACHE_DIR': str(root.resolve() / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
    # JAX 0.10.1 calls it an error when it loads what it has itself compiled.
    'TF_CPP_MIN_LOG_LEVEL': '3',
  }
  return {name: os.environ.get(name, x) for name, x in defaults.items()}


def _await_meta_step(
  workdir: pathlib.Path, process: subprocess.Popen[bytes]
) -> None:
  """Waits until another meta-step is logged, or the process has ended."""
  path = workdir / 'metrics.csv'
  size = lambda: path.stat().st_size if path.exists() else 0
  # A resumption first cuts off the rows after its checkpoint.
  before = size()
  while process.poll() is None and size() <= before:
    before = min(before, size())
    time.sleep(0.01)


def newest_checkpoint(workdir: pathlib.Path) -> int:
  """Meta-step of the newest that is complete; 0 if there is none."""
  folders = (workdir / 'checkpoints').glob('*')
  return max((int(x.name) for x in folders if x.name.isdigit()), default=0)


if __name__ == '__main__':
  app.run(main)
