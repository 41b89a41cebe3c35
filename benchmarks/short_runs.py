"""Short runs of four kinds, which the loops of faults disturb."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import dataclasses
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import small_runs
from disco_rl.update_rules import weights
from launch import to_records

CHECKPOINT_EVERY = 5
_REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Kind:
  """Runs that differ in their length alone.

  Attributes:
    launcher: its module.
    config: module of the config.
    length: name of the setting that ends a run.
    settings: on top of the config.
  """

  launcher: str
  config: str
  length: str
  settings: Mapping[str, Any]

  @property
  def step(self) -> str:
    """The column of steps in metrics.csv."""
    return self.length.removesuffix('s')

  def arguments(self, steps: int, workdir: pathlib.Path) -> list[str]:
    """Those of Python, to start or resume a run."""
    settings = {**self.settings, self.length: steps}
    return [
      *('-m', self.launcher),
      f'--config={self.config.replace(".", "/")}.py',
      *(f'--config.{name}={value}' for name, value in settings.items()),
      f'--workdir={workdir}',
    ]

  def make(self, steps: int) -> Callable[[pathlib.Path], Any]:
    """Prepares a run in this process, to be called with its folder."""
    # Imported late: most loops start other processes only.
    from disco_rl.evaluation import runner
    from disco_rl.meta_training import meta_trainer

    settings = importlib.import_module(self.config).get_config().to_dict()
    settings |= {**self.settings, self.length: steps}
    if self.length == 'updates':
      return runner.Evaluation(to_records.evaluation(settings)).run
    made = meta_trainer.MetaTrainer(to_records.meta_training(settings))
    return lambda workdir: made.run(workdir, settings)


def _evaluation(environment: str) -> Kind:
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
    'checkpoint_every': CHECKPOINT_EVERY,
  }
  return Kind('launch.evaluate', 'configs.evaluate', 'updates', settings)


def _discovery(environment: str) -> Kind:
  settings = {
    **small_runs.SETTINGS,
    **small_runs.SMALL_RULE,
    'environments': environment,
    'agents': 2,
    'budgets': (200,),
    'chunk_size': 1,
    'inner_updates': 1,
    'checkpoint_every': CHECKPOINT_EVERY,
  }
  return Kind('launch.meta_train', 'configs.quickstart', 'meta_steps', settings)


KINDS = {
  'evaluate_device': _evaluation('catch/4x3'),
  'evaluate_host': _evaluation('gymnasium/CartPole-v1'),
  'discover_device': _discovery('catch/4x3'),
  'discover_host': _discovery('gymnasium/CartPole-v1'),
}


def run(kind: Kind, workdir: pathlib.Path, steps: int) -> None:
  """Starts or resumes a run, and waits for its end."""
  with started(kind, workdir, steps) as process:
    code = process.wait()
  if code:
    raise RuntimeError(f'the run in {workdir} ended with {code}')


@contextlib.contextmanager
def started(
  kind: Kind, workdir: pathlib.Path, steps: int
) -> Iterator[subprocess.Popen[bytes]]:
  """A run in a process of its own; its output is shown if it fails."""
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background. The run would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
  with tempfile.TemporaryFile() as output:
    with subprocess.Popen(
      [sys.executable, *kind.arguments(steps, workdir)],
      cwd=_REPOSITORY,
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


def await_step(workdir: pathlib.Path, process: subprocess.Popen[bytes]) -> None:
  """Waits until another step is logged, or the process ends."""
  path = workdir / 'metrics.csv'
  size = lambda: path.stat().st_size if path.exists() else 0
  # A resumption first cuts off the rows after its checkpoint.
  before = size()
  while process.poll() is None and size() <= before:
    before = min(before, size())
    time.sleep(0.01)


def newest_checkpoint(workdir: pathlib.Path) -> int:
  """Step of the newest that is complete; 0 if there is none."""
  folders = (workdir / 'checkpoints').glob('*')
  return max((int(x.name) for x in folders if x.name.isdigit()), default=0)


def differences(workdir: pathlib.Path, expected: pathlib.Path) -> list[str]:
  """The results of a run that differ from those of another.

  Args:
    workdir: of one run.
    expected: of the other.

  Returns:
    Names of files: rows of metrics are compared as text, rules bit for bit.
  """
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
