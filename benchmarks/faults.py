"""Injects faults into short runs, and compares them with undisturbed runs.

  python -m benchmarks.faults --fault=kills --times=25 --workdir=runs/kills
  python -m benchmarks.faults --fault=damage --times=300 --workdir=runs/damage
  python -m benchmarks.faults --fault=flips --times=300 --workdir=runs/flips
  python -m benchmarks.faults --fault=signals --times=20 --workdir=runs/signals

The runs are trainings with a rule and discoveries, on Catch and on CartPole,
which steps on the host. Discoveries evaluate their rule on a held-out
environment after each meta-step. The faults are:

  kills    Runs are killed (SIGKILL) at random times: while programs are
           compiled, between checkpoints and while a checkpoint is written; half
           of the times before there is a checkpoint. The same command resumes
           them each time. They are compared with runs that
           are never killed. With environments on the host, those runs end and
           resume at the same steps as the killed ones, because episodes restart
           when a run resumes. All rows of metrics and all rules must be the
           same, bit for bit.
  damage   A run is copied. Then a bit of a file is flipped, or a file or a
           folder is deleted, emptied or cut in half, and the run continues. It
           must end with the results of an undamaged run, or report the damage
           with a warning or a one-line error.
  flips    Only bits are flipped: in the files of runs as above, and in files of
           agents, policies and rules, which must then be refused in one line or
           be read as before.
  signals  Runs get two signals within a second, as from schedulers, and must
           leave a new, complete checkpoint. Other runs get an interrupt, as
           from the keyboard, in their first seconds, and must end.

The exit status is 1 if any of this fails.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import importlib
import io
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any
import zlib

from absl import app
from absl import flags
from absl import logging
import jax
import numpy as np

from benchmarks import small_runs
from disco_rl.meta_training import initial_rule
from disco_rl.networks import meta_network
from disco_rl.runtime import checkpointing
from disco_rl.runtime import compilation_cache
from disco_rl.runtime import digests
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.runtime import signals
from disco_rl.runtime import workdirs
from disco_rl.update_rules import weights

_CHECKPOINT_EVERY = 5
_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
# The number of steps of a run that a fault always ends.
_ENDLESS = 10**9
# The fraction of kills while programs are compiled.
_EARLY = 0.2
# The maximum delay of a kill after a step; it can hit any part of the next.
_MAX_SECONDS_LATER = 0.2
# Interrupts are sent within this number of seconds.
_FIRST_SECONDS = 10.0
# A step of these runs takes much less time.
_SECONDS_TO_END = 60.0
# Files that no run reads, or whose contents do not matter.
_UNREAD = ('.lock', '.owner', 'curves.png', 'tensorboard')
# Launchers report these errors in one line.
_EXPECTED = (workdirs.WorkdirError, checkpointing.CheckpointError, OSError)


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of run; runs of a kind differ only in their length.

  Attributes:
    launcher: The module of the launcher.
    config: The module of the config.
    length: The name of the setting with the length of a run.
    settings: Settings that override those of the config.
  """

  launcher: str
  config: str
  length: str
  settings: Mapping[str, Any]

  def arguments(
    self, steps: int, workdir: pathlib.Path, **changes: Any
  ) -> list[str]:
    """Returns the arguments of Python that start or resume a run."""
    settings = {**self.settings, self.length: steps, **changes}
    return [
      *('-m', self.launcher),
      f'--config={self.config.replace(".", "/")}.py',
      *(f'--config.{name}={value}' for name, value in settings.items()),
      f'--workdir={workdir}',
    ]

  def make(self, steps: int) -> Callable[[pathlib.Path], Any]:
    """Prepares a run in this process, to be called with its folder."""
    # Imported late: most faults concern other processes only.
    from disco_rl.meta_training import meta_trainer
    from disco_rl.training import config as training_config
    from disco_rl.training import runner

    settings = importlib.import_module(self.config).get_config().to_dict()
    settings |= {**self.settings, self.length: steps}
    if self.length == 'updates':
      return runner.TrainingRun(training_config.config_of(settings)).run
    made = meta_trainer.MetaTrainer(meta_trainer.config_of(settings))
    return lambda workdir: made.run(workdir, settings)


def _training(environment: str) -> Kind:
  agent = (
    *('unroll_length', 'batch_size', 'num_environments', 'on_policy_share'),
    *('replay_capacity', 'hidden_sizes', 'action_model_lstm'),
    *('action_model_head', 'num_bins'),
  )
  settings = {
    **{name: small_runs.SETTINGS[name] for name in agent},
    'environment': environment,
    'rule': 'actor_critic',
    'seeds': 2,
    'log_every': 1,
    'checkpoint_every': _CHECKPOINT_EVERY,
  }
  return Kind('launch.train', 'configs.evaluate', 'updates', settings)


def _discovery(environment: str) -> Kind:
  settings = {
    **small_runs.SETTINGS,
    **small_runs.SMALL_RULE,
    'environments': environment,
    'agents': 2,
    'budgets': (200,),
    'chunk_size': 1,
    'inner_updates': 1,
    # A run that ends and is resumed would have one row more than others.
    'held_out_every': 1,
    'checkpoint_every': _CHECKPOINT_EVERY,
  }
  return Kind('launch.meta_train', 'configs.quickstart', 'meta_steps', settings)


KINDS = {
  'evaluate_device': _training('catch/4x3'),
  'evaluate_host': _training('gymnasium/CartPole-v1'),
  'discover_device': _discovery('catch/4x3'),
  'discover_host': _discovery('gymnasium/CartPole-v1'),
}

_FAULT = flags.DEFINE_enum(
  'fault',
  None,
  ['kills', 'damage', 'flips', 'signals'],
  'The fault.',
  required=True,
)
_TIMES = flags.DEFINE_integer(
  'times',
  20,
  'Kills of each kind of run; flipped bits, or signals of each sort, in all.',
  lower_bound=1,
)
_SEED = flags.DEFINE_integer('seed', 0, 'Seed of the times and bits.')
_KINDS = flags.DEFINE_multi_enum(
  'kind', list(KINDS), list(KINDS), 'Kinds of runs.'
)
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Folder of the runs; must not exist.', required=True
)


def main(_: Sequence[str]) -> None:
  """Disturbs runs of each kind."""
  logging.set_verbosity(logging.WARNING)
  # Runs in this process must compute bit for bit what those of launchers do.
  compilation_cache.leave_loops_rolled()
  root = pathlib.Path(_WORKDIR.value)
  if root.exists():
    raise app.UsageError(f'{root} exists already: choose another --workdir.')
  root.mkdir(parents=True)
  found = {
    'kills': _kill_all,
    'damage': _damage_all,
    'flips': _damage_all,
    'signals': _signal_all,
  }
  if failures := [*found[_FAULT.value](root)]:
    sys.exit('\n'.join(failures))


# Kills.


def _kill_all(root: pathlib.Path) -> Iterator[str]:
  """Yields differences between killed and undisturbed runs."""
  for name in _KINDS.value:
    kind = KINDS[name]
    killed, whole = root / name / 'killed', root / name / 'undisturbed'
    resumed_at = _kill_repeatedly(kind, killed)
    last = resumed_at[-1] + _CHECKPOINT_EVERY
    _run(kind, killed, last)
    early = resumed_at.count(0)
    print(
      f'{name}: {_TIMES.value} kills, {early} of them before the first '
      f'checkpoint; resumed at steps {resumed_at}'
    )
    stops = {last} if name.endswith('_device') else {*resumed_at, last} - {0}
    for stop in sorted(stops):
      _run(kind, whole, stop)
    different = ', '.join(_differences(killed, whole))
    what = f'these differ: {different}' if different else 'all is equal'
    print(f'{name}: after {last} steps {what}')
    if different:
      yield f'Kills have changed results of {name}: {different}'


def _kill_repeatedly(kind: Kind, workdir: pathlib.Path) -> list[int]:
  """Starts and kills a run several times; returns the steps it resumes at."""
  rng = random.Random(_SEED.value)
  resumed_at = []
  startup = 0.0
  for kill in range(_TIMES.value):
    # The first process measures how long a start takes.
    is_early = kill > 0 and rng.random() < _EARLY
    # In the first half no checkpoint is due; that setting may change.
    is_unsaved = kill < _TIMES.value // 2
    changes = {'checkpoint_every': _ENDLESS} if is_unsaved else {}
    began = time.monotonic()
    with _started(kind, workdir, _ENDLESS, **changes) as process:
      if is_early:
        time.sleep(rng.uniform(0.0, startup))
      else:
        _await_steps(workdir, process, 1)
        startup = time.monotonic() - began
        # Checkpoints are written after some of these steps.
        _await_steps(workdir, process, rng.randrange(3 * _CHECKPOINT_EVERY))
        time.sleep(rng.uniform(0.0, _MAX_SECONDS_LATER))
      process.kill()
    if process.returncode >= 0:
      raise RuntimeError(f'the run ended by itself, with {process.returncode}')
    resumed_at.append(_newest_checkpoint(workdir))
    _tell(
      f'kill {kill + 1} of {_TIMES.value}, '
      f'{"while starting" if is_early else "while running"}: '
      f'resumes at step {resumed_at[-1]}'
    )
  return resumed_at


# Damage.


def _damage_all(root: pathlib.Path) -> Iterator[str]:
  """Yields the cases in which results changed silently."""
  if _FAULT.value == 'flips':
    yield from _flip_files(root)
  for name in _KINDS.value:
    kind = KINDS[name]
    whole, expected = root / name, root / f'{name}_continued'
    steps = 2 * _CHECKPOINT_EVERY
    more = steps + _CHECKPOINT_EVERY
    _run(kind, whole, steps)
    shutil.copytree(whole, expected)
    _run(kind, expected, more)
    # Runs on the device keep compiled programs, but no state.
    reused = kind.make(more) if name.endswith('_device') else None
    counts: collections.Counter[str] = collections.Counter()
    for path, what, damage in _cases(whole):
      copy = shutil.copytree(whole, root / 'copy')
      damage(copy / path)
      outcome = _continue(reused or kind.make(more), copy, expected)
      shutil.rmtree(copy)
      if what == 'left alone' and outcome != 'no effect':
        # Otherwise every error would be attributed to damage.
        raise RuntimeError(f'the undamaged run in {whole} ended in: {outcome}')
      counts[f'{what}: {outcome}'] += 1
      _tell(f'{name}: {path} {what}: {outcome}')
      if outcome == 'SILENT':
        yield f'SILENT: {name}: {path} {what}'
    for case, count in sorted(counts.items()):
      print(f'{name}: {count:4} {case}', flush=True)


def _cases(
  whole: pathlib.Path,
) -> Iterator[tuple[pathlib.Path, str, Callable[[pathlib.Path], None]]]:
  """Yields paths within a folder, and the name and function of a damage."""
  rng = random.Random(_SEED.value)
  paths = sorted(path.relative_to(whole) for path in whole.rglob('*'))
  paths = [path for path in paths if path.parts[0] not in _UNREAD]
  full = [
    x for x in paths if (whole / x).is_file() and (whole / x).read_bytes()
  ]

  def delete(path: pathlib.Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()

  def empty(path: pathlib.Path) -> None:
    path.write_bytes(b'')

  def cut(path: pathlib.Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])

  yield pathlib.Path(), 'left alone', lambda _: None
  number = _TIMES.value // len(_KINDS.value)
  if _FAULT.value == 'flips':
    number //= 2  # The others are in files of agents and rules.
  for _ in range(number):
    yield rng.choice(full), 'flipped', functools.partial(_flip, rng)
  if _FAULT.value == 'flips':
    return
  for path in paths:
    yield path, 'deleted', delete
    if path in full:
      yield path, 'emptied', empty
      yield path, 'cut', cut


def _flip(rng: random.Random, path: pathlib.Path) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


def _flip_files(root: pathlib.Path) -> Iterator[str]:
  """Flips bits in files of agents and rules; yields silent changes."""
  # Imported late: most faults concern other processes only.
  import disco_rl
  from disco_rl.update_rules import disco
  from disco_rl.update_rules import registry

  rng = random.Random(_SEED.value)
  agent = {
    name: _training('').settings[name]
    for name in ('unroll_length', 'batch_size', 'num_environments')
  }
  agent |= {'replay_capacity': 8, 'hidden_sizes': (8,)}
  trainer = disco_rl.Trainer('catch/4x3', 'actor_critic', **agent)
  trainer.train(2, show_progress=False)
  trainer.save(root / 'agent.npz')
  trainer.policy().save(root / 'policy.npz')
  network = meta_network.MetaNetworkConfig(
    prediction_size=0, lstm_size=8, meta_rnn_size=4
  )
  rule = initial_rule.draw(jax.random.key(0), network)
  registry.save(root / 'rule.npz', disco.Disco(network), rule)

  def read_agent(path: pathlib.Path) -> Any:
    trainer.load(path)
    return trainer._saved()

  readers: dict[str, Callable[[pathlib.Path], Any]] = {
    'agent.npz': read_agent,
    'policy.npz': lambda path: disco_rl.load_policy(path).params,
    'rule.npz': weights.load,
  }
  for name, read in readers.items():
    whole, copy = root / name, root / f'flipped_{name}'
    expected = _digest(read(whole))
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(_TIMES.value // 2 // len(readers)):
      shutil.copy(whole, copy)
      _flip(rng, copy)
      try:
        outcome = 'no effect' if _digest(read(copy)) == expected else 'SILENT'
      except ValueError:  # Launchers report these in one line.
        outcome = 'refused'
      counts[outcome] += 1
      if outcome == 'SILENT':
        kept = root / f'silent_{sum(counts.values())}_{name}'
        yield f'SILENT: {shutil.copy(copy, kept)}'
    print(f'{name}: {dict(counts)}', flush=True)


def _digest(tree: Any) -> int:
  """Returns a checksum of all arrays of a tree."""
  return functools.reduce(
    lambda crc, x: zlib.crc32(np.asarray(files.to_data(x)).tobytes(), crc),
    jax.tree.leaves(tree),
    0,
  )


def _continue(
  run: Callable[[pathlib.Path], Any],
  workdir: pathlib.Path,
  expected: pathlib.Path,
) -> str:
  """Says what happens if the run is continued in a damaged folder."""
  output = io.StringIO()
  try:
    with contextlib.redirect_stderr(output):
      run(workdir)
  except _EXPECTED as error:
    return f'error ({type(error).__name__})'
  is_reported = 'warning: ' in output.getvalue()
  if not _differences(workdir, expected):
    return 'mended and reported' if is_reported else 'no effect'
  return 'reported' if is_reported else 'SILENT'


# Signals.


def _signal_all(root: pathlib.Path) -> Iterator[str]:
  """Yields lost checkpoints, and runs that did not end."""
  rng = random.Random(_SEED.value)
  kinds = [KINDS[name] for name in _KINDS.value]
  for disturb in (_signal_twice, _interrupt_early):
    failures = 0
    for i in range(_TIMES.value):
      what, is_fine = disturb(kinds[i % len(kinds)], root / 'run', rng)
      shutil.rmtree(root / 'run', ignore_errors=True)
      _tell(what)
      failures += not is_fine
      if not is_fine:
        yield what
    print(f'{disturb.__name__}: {failures} of {_TIMES.value} went wrong')


def _signal_twice(
  kind: Kind, workdir: pathlib.Path, rng: random.Random
) -> tuple[str, bool]:
  """Sends two signals; returns whether the last step was saved intact."""
  first, second = rng.choices(signals.SIGNALS, k=2)
  delay = rng.uniform(0.1, 0.9)
  with _started(kind, workdir, _ENDLESS) as process:
    _await_steps(workdir, process, rng.randrange(2, 2 * _CHECKPOINT_EVERY))
    process.send_signal(first)
    time.sleep(delay)
    process.send_signal(second)
    _await_end(process)
  column = kind.length.removesuffix('s')
  logged = int(metrics.read(workdir / 'metrics.csv')[column][-1])
  saved = _newest_checkpoint(workdir)
  is_whole = digests.check(workdir / 'checkpoints' / str(saved) / 'default')
  what = f'{first.name}, {second.name} after {delay:.2f} s: '
  what += f'status {process.returncode}, saved step {saved} of {logged}'
  return what, is_whole and saved == logged


def _interrupt_early(
  kind: Kind, workdir: pathlib.Path, rng: random.Random
) -> tuple[str, bool]:
  """Sends an interrupt in the first seconds; returns whether the run ends."""
  delay = rng.uniform(0.0, _FIRST_SECONDS)
  with _started(kind, workdir, _ENDLESS) as process:
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    has_ended = _await_end(process)
  what = f'SIGINT after {delay:.2f} s: status {process.returncode}'
  return f'{what} after {time.monotonic() - began:.1f} s', has_ended


def _await_end(process: subprocess.Popen[bytes]) -> bool:
  """Returns whether the process ends in time; otherwise it is killed."""
  try:
    process.wait(_SECONDS_TO_END)
  except subprocess.TimeoutExpired:
    process.kill()
    return False
  return True


# Runs.


def _run(kind: Kind, workdir: pathlib.Path, steps: int) -> None:
  """Starts or resumes a run, and waits for its end."""
  with _started(kind, workdir, steps) as process:
    code = process.wait()
  if code:
    raise RuntimeError(f'the run in {workdir} ended with {code}')


@contextlib.contextmanager
def _started(
  kind: Kind, workdir: pathlib.Path, steps: int, **changes: Any
) -> Iterator[subprocess.Popen[bytes]]:
  """Starts a run in a process; its output is shown if it fails."""
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # This is a background process, and the run would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
  defaults = {
    'JAX_COMPILATION_CACHE_DIR': str(workdir.resolve().parent / 'compiled'),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0.1',
    # JAX 0.10.1 logs errors when it loads programs that it compiled itself.
    'TF_CPP_MIN_LOG_LEVEL': '3',
  }
  with tempfile.TemporaryFile() as output:
    with subprocess.Popen(
      [sys.executable, *kind.arguments(steps, workdir, **changes)],
      cwd=_REPOSITORY,
      env={**defaults, **os.environ},
      stdout=output,
      stderr=subprocess.STDOUT,
    ) as process:
      yield process
    if process.returncode > 0:
      output.seek(0)
      sys.stderr.buffer.write(output.read())


def _await_steps(
  workdir: pathlib.Path, process: subprocess.Popen[bytes], number: int
) -> None:
  """Waits until a number of steps are logged or the process ends."""
  path = workdir / 'metrics.csv'
  size = lambda: path.stat().st_size if path.exists() else 0
  for _ in range(number):
    # A resumption first cuts off the rows after its checkpoint.
    before = size()
    while process.poll() is None and size() <= before:
      before = min(before, size())
      time.sleep(0.01)


def _newest_checkpoint(workdir: pathlib.Path) -> int:
  """Returns the step of the newest complete checkpoint; 0 without any."""
  return max(files.steps(workdir / 'checkpoints'), default=0)


def _differences(workdir: pathlib.Path, expected: pathlib.Path) -> list[str]:
  """Returns names of results that differ: rows as text, rules bit for bit."""
  names = [
    str(path.relative_to(expected))
    for pattern in ('**/metrics.csv', '*.npz')
    for path in sorted(expected.glob(pattern))
  ]
  return [name for name in names if not _same(workdir / name, expected / name)]


def _same(path: pathlib.Path, expected: pathlib.Path) -> bool:
  if not path.exists():
    return False
  if path.suffix == '.csv':
    return path.read_bytes() == expected.read_bytes()
  return not small_runs.differing(weights.load(path), weights.load(expected))


def _tell(what: str) -> None:
  print(what, file=sys.stderr, flush=True)


if __name__ == '__main__':
  app.run(main)
