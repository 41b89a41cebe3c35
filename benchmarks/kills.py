"""Kills runs again and again, and compares their results with undisturbed ones.

  python -m benchmarks.kills --kills=25 --workdir=runs/kills

Trainings with a rule and discoveries, on Catch and on CartPole, which steps on
the host, are killed (SIGKILL) at random moments: while programs are compiled,
between checkpoints and while one is written. The same command resumes them each
time. Other runs are never killed. Where environments are on the host, these end
and resume at the same steps as the first: episodes restart at a resumption. All
rows of metrics and all rules must be the same bit for bit; otherwise the exit
status is 1.
"""

from collections.abc import Sequence
import pathlib
import random
import sys
import time

from absl import app
from absl import flags

from benchmarks import short_runs

_KILLS = flags.DEFINE_integer(
  'kills', 25, 'Number of kills of each kind of run.', lower_bound=1
)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the moments.')
_EARLY = flags.DEFINE_float(
  'early', 0.2, 'Fraction of the kills that come while programs are compiled.'
)
_KINDS = flags.DEFINE_multi_enum(
  'kind', list(short_runs.KINDS), list(short_runs.KINDS), 'Kinds of runs.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the runs; must not contain any.', required=True
)

# Steps of a run that always ends by a kill.
_ENDLESS = 10**9
# A process is killed after fewer steps, which include some checkpoints.
_MAX_STEPS = 3 * short_runs.CHECKPOINT_EVERY
# The largest delay after a step: a kill may come anywhere in the next.
_MAX_SECONDS_LATER = 0.2


def main(_: Sequence[str]) -> None:
  """Kills a run of each kind."""
  root = pathlib.Path(_WORKDIR.value)
  if any((root / name).exists() for name in short_runs.KINDS):
    raise app.UsageError(f'{root} holds runs already: choose another --workdir')
  different = [
    name for name in _KINDS.value if not _survives(name, root / name)
  ]
  if different:
    sys.exit(f'Kills have changed results: {", ".join(different)}')


def _survives(name: str, workdir: pathlib.Path) -> bool:
  """Whether a killed run ends like another that is resumed without kills."""
  kind = short_runs.KINDS[name]
  killed, undisturbed = workdir / 'killed', workdir / 'undisturbed'
  resumed_at = kill_repeatedly(kind, killed, _KILLS.value, _SEED.value)
  last = resumed_at[-1] + short_runs.CHECKPOINT_EVERY
  short_runs.run(kind, killed, last)
  print(f'{name}: {_KILLS.value} kills; resumed at steps {resumed_at}')
  stops = {last} if name.endswith('_device') else {*resumed_at, last} - {0}
  for stop in sorted(stops):
    short_runs.run(kind, undisturbed, stop)
  different = short_runs.differences(killed, undisturbed)
  print(
    f'{name}: after {last} steps '
    + (f'these differ: {", ".join(different)}' if different else 'all is equal')
  )
  return not different


def kill_repeatedly(
  kind: short_runs.Kind, workdir: pathlib.Path, kills: int, seed: int
) -> list[int]:
  """Starts a run and kills it, several times.

  Args:
    kind: of the run.
    workdir: of the run.
    kills: number of kills.
    seed: of the moments.

  Returns:
    After each kill, the step of the newest complete checkpoint; 0: none.

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
    with short_runs.started(kind, workdir, _ENDLESS) as process:
      if is_early:
        time.sleep(rng.uniform(0.0, startup))
      else:
        short_runs.await_step(workdir, process)
        startup = time.monotonic() - began
        for _ in range(rng.randrange(_MAX_STEPS)):
          short_runs.await_step(workdir, process)
        time.sleep(rng.uniform(0.0, _MAX_SECONDS_LATER))
      process.kill()
    if process.returncode >= 0:
      raise RuntimeError(f'the run ended by itself, with {process.returncode}')
    resumed_at.append(short_runs.newest_checkpoint(workdir))
    print(
      f'kill {kill + 1} of {kills}, '
      f'{"while starting" if is_early else "while running"}: '
      f'resumes at step {resumed_at[-1]}',
      file=sys.stderr,
      flush=True,
    )
  return resumed_at


if __name__ == '__main__':
  app.run(main)
