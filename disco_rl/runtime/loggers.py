"""Loggers by name: Weights & Biases, and those that users register.

They receive the same data as TensorBoard; metrics.csv remains the record. A
resumed run continues its former run there, which loggers.json in its folder
identifies.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import importlib.util
import os
import pathlib
from typing import Annotated
import uuid

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import reports
from disco_rl.runtime import signals

_PROJECT = 'disco_rl'


@dataclasses.dataclass(frozen=True)
class Run:
  """A run, as loggers see it.

  Attributes:
    workdir: The folder of the run.
    settings: The settings in config.json, to be logged as hyperparameters.
    step: The unit of steps, 'update' or 'meta_step'.
  """

  workdir: pathlib.Path
  settings: Mapping[str, object]
  step: str

  def identity(self, logger: str) -> str | None:
    """Returns what `remember` recorded earlier; None if the run is new."""
    path = self.workdir / 'loggers.json'
    return json_files.read(path).get(logger) if path.exists() else None

  def remember(self, logger: str, identity: str) -> None:
    """Records the logger's identity of the run, for when it is resumed."""
    path = self.workdir / 'loggers.json'
    known = json_files.read(path) if path.exists() else {}
    json_files.write(path, {**known, logger: identity})


Factory = Callable[[Run], metrics.Logger]


def register(name: str, factory: Factory) -> None:
  """Makes a logger known to the setting `loggers` by a name without commas."""
  _FACTORIES[name] = factory


def check(names: Sequence[str]) -> None:
  """Checks the names of loggers.

  Raises:
    ValueError: A name is unknown.
    ImportError: A package is not installed.
  """
  for name in names:
    if name not in _FACTORIES:
      nearest = difflib.get_close_matches(name, _FACTORIES)
      raise ValueError(
        f'loggers has {name!r}, which is unknown. Nearest: '
        f'{", ".join(nearest or _FACTORIES)}. To use a logger of your own, '
        'import the module that registers it: --import=MODULE.'
      )
    if name in _PACKAGES and importlib.util.find_spec(name) is None:
      raise ImportError(
        f'The logger {name!r} needs the package of that name: '
        f'{extras.install(name)}.'
      )


# A setting: the names of a run's loggers.
Names = Annotated[tuple[str, ...], config_lib.Validator(check)]


def valid(names: str | Sequence[str]) -> tuple[str, ...]:
  """Returns names given as a text with commas or a sequence; checks them."""
  return config_lib.valid('loggers', names, Names)


@contextlib.contextmanager
def opened(names: Sequence[str], run: Run) -> Iterator[list[metrics.Logger]]:
  """Opens the loggers of a run, and closes them at its end.

  A logger that fails does not end the run: a warning reports it once. A logger
  that cannot be opened, for example without a key or a server, is ignored.
  """
  loggers: list[metrics.Logger] = []
  has_failed = True
  try:
    for name in names:
      try:
        loggers.append(_Guarded(name, _FACTORIES[name](run)))
      except Exception as error:
        reports.warn(
          f'The logger {name} cannot be opened and gets no metrics of this '
          f'run; metrics.csv has them all. {_in_one_line(error)}'
        )
    yield loggers
    has_failed = False
  except signals.Interrupted:
    has_failed = False  # It is saved, and may be resumed.
    raise
  finally:
    for logger in loggers:
      logger.close(has_failed)


class _Guarded:
  """A logger whose errors, such as those of a network, become warnings."""

  def __init__(self, name: str, logger: metrics.Logger):
    self._name, self._logger = name, logger
    self._has_warned = False

  def log(self, step: int, scalars: Mapping[str, float]) -> None:
    with self._warning(f'from step {step} on'):
      self._logger.log(step, scalars)

  def close(self, has_failed: bool) -> None:
    with self._warning('at the end'):
      self._logger.close(has_failed)

  @contextlib.contextmanager
  def _warning(self, when: str) -> Iterator[None]:
    try:
      yield
    except Exception as error:
      if not self._has_warned:
        reports.warn(
          f'The logger {self._name} may lack metrics {when}; metrics.csv has '
          f'them all. {_in_one_line(error)}'
        )
      self._has_warned = True


def _in_one_line(error: Exception) -> str:
  return ' '.join(f'{type(error).__name__}: {error}'.split())


class WeightsAndBiases:
  """Logs to https://wandb.ai; WANDB_MODE, WANDB_PROJECT and others apply."""

  def __init__(self, run: Run):
    import wandb

    identity = run.identity('wandb') or uuid.uuid4().hex[:12]
    self._step = run.step
    self._run = wandb.init(
      project=os.environ.get('WANDB_PROJECT', _PROJECT),
      id=identity,
      resume='allow',
      name=str(run.workdir),
      dir=run.workdir,
      config=dict(run.settings),
      # Some settings may change when a run is resumed, such as its steps.
      allow_val_change=True,
      # Otherwise it would redirect the standard streams and the progress bar,
      # or continue a run that the user's own program has begun.
      settings=wandb.Settings(console='off', reinit='create_new'),
    )
    run.remember('wandb', identity)
    # Steps of wandb cannot decrease, but those of a run do after a kill.
    self._run.define_metric(run.step)
    self._run.define_metric('*', step_metric=run.step)

  def log(self, step: int, scalars: Mapping[str, float]) -> None:
    """Implements `metrics.Logger`."""
    self._run.log({self._step: step, **scalars})

  def close(self, has_failed: bool) -> None:
    """Implements `metrics.Logger`."""
    self._run.finish(exit_code=int(has_failed))


_FACTORIES: dict[str, Factory] = {'wandb': WeightsAndBiases}
# Loggers that need the package of the same name.
_PACKAGES = ('wandb',)
