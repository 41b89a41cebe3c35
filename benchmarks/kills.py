r"""Kills a discovery again and again, and compares the rule that results.

  python -m benchmarks.kills --kills=25 --workdir=runs/kills

A small population on Catch and on CartPole, which steps on the host, is killed
(SIGKILL) at random moments: while programs are compiled, between checkpoints
and while one is written. The same command resumes it each time. A second run
is never killed, but ends and resumes at the same meta-steps as the first:
episodes on the host restart at a resumption. Both rules must be the same bit
for bit; otherwise the exit status is 1.
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

_KILLS = flags.DEFINE_integer('kills', 25, 'Number of kills.', lower_bound=1)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the moments.')
_EARLY = flags.DEFINE_float(
  'early', 0.2, 'Fraction of the kills that come while programs are compiled.'
)
_ENVIRONMENTS = flags.DEFINE_list(
  'environments', ['catch/4x3', 'gymnasium/CartPole-v1'], 'Of one agent each.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder for both runs; must not contain any.', required=True
)

CHECKPOINT_EVERY = 5
SETTINGS = {
  **small_runs.SETTINGS,
  'budgets': (200,),
  'chunk_size': 1,
  'checkpoint_every': CHECKPOINT_EVERY,
  'inner_updates': 1,
}
# Meta-steps of a run that always ends by a kill.
_ENDLESS = 10**9
# A process is killed after fewer meta-steps, which include some checkpoints.
_MAX_META_STEPS = 3 * CHECKPOINT_EVERY
# The largest delay after a meta-step: a kill may come anywhere in the next.
_MAX_SECONDS_LATER = 0.2


def main(_: Sequence[str]) -> None:
  """Kills one run, resumes another without kills, compares their rules."""
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
  """Starts a run and kills it, several times.

  Args:
    workdir: of the run.
    kills: number of kills.
    seed: of the moments.

  Returns:
    After each kill, the meta-step of the newest complete checkpoint; 0: none.

  Raises:
    RuntimeError: the run ended before it was killed.
  """
  rng = random.Random(seed)
  resumed_at = []
  startup = 0.0
  for kill in range(kills):
    # The first process measures how long a start takes.
    is_early = kill > 0 and rng.random() < _EARLY.value
    began = time.monotonic()
    with started(workdir, _ENDLESS) as process:
      if is_early:
        time.sleep(rng.uniform(0.0, startup))
      else:
        _await_meta_step(workdir, process)
        startup = time.monotonic() - began
        for _ in range(rng.randrange(_MAX_META_STEPS)):
          _await_meta_step(workdir, process)
        time.sleep(rng.uniform(0.0, _MAX_SECONDS_LATER))
      process.kill()
    if process.returncode >= 0:
      raise RuntimeError(f'the run ended by itself, with {process.returncode}')
    resumed_at.append(newest_checkpoint(workdir))
    print(
      f'kill {kill + 1} of {kills}, '
      f'{"while starting" if is_early else "while running"}: '
      f'resumes at meta-step {resumed_at[-1]}',
      file=sys.stderr,
      flush=True,
    )
  return resumed_at


def run(workdir: pathlib.Path, meta_steps: int) -> None:
  """Starts or resumes a run, and waits for its end."""
  with started(workdir, meta_steps) as process:
    code = process.wait()
  if code:
    raise RuntimeError(f'the run in {workdir} ended with {code}')


@contextlib.contextmanager
def started(
  workdir: pathlib.Path, meta_steps: int
) -> Iterator[subprocess.Popen[bytes]]:
  """A run in a process of its own; its output is shown if it fails."""
  with tempfile.TemporaryFile() as output:
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
      env={**os.environ, **_variables(workdir.parent)},
      stdout=output,
      stderr=subprocess.STDOUT,
    ) as process:
      yield process
    if process.returncode > 0:
      output.seek(0)
      sys.stderr.buffer.write(output.read())


def _variables(root: pathlib.Path) -> dict[str, str]:
  """Variables that shorten the start; the caller's own take precedence."""
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
  """Waits until another meta-step is logged, or the process ends."""
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
