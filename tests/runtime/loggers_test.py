"""Tests of disco_rl/runtime/loggers.py: one's own, and packages offline."""

from collections.abc import Iterator
import contextlib
import pathlib
import re
import sys
from typing import Any
from unittest import mock

import launching
import numpy as np
import pytest

from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import json_files
from disco_rl.runtime import loggers
from disco_rl.runtime import metrics
from disco_rl.runtime import signals
from disco_rl.training import config as training_config

SETTINGS = {
  'learning_rate': 1e-3,
  'hidden_sizes': (8, 4),
  'by': {'a': {'b': 2}},
}
ROWS = [
  {'update': update, 'seed': seed, 'return': update + seed, 'loss': np.nan}
  for update in (10, 20, 30)
  for seed in (0, 1)
]


class Recorder:
  """A logger that keeps what it gets."""

  def __init__(self, run: loggers.Run):
    self.run = run
    self.logged: list[tuple[int, dict]] = []
    self.has_failed: bool | None = None

  def log(self, step: int, scalars: Any) -> None:
    self.logged.append((step, dict(scalars)))

  def close(self, has_failed: bool) -> None:
    self.has_failed = has_failed


@pytest.fixture
def made() -> Iterator[list[Recorder]]:
  """Recorders that were made by the name `recorder`."""
  recorders: list[Recorder] = []

  def make(run: loggers.Run) -> Recorder:
    recorders.append(Recorder(run))
    return recorders[-1]

  loggers.register('recorder', make)
  yield recorders
  del loggers._FACTORIES['recorder']


def write(
  workdir: pathlib.Path, name: str, rows: list[dict], since: int = 0
) -> None:
  run = loggers.Run(workdir, SETTINGS, 'update')
  with (
    loggers.opened([name], run) as opened,
    metrics.MetricsWriter(
      workdir, since, loggers=opened, prefix='of/'
    ) as writer,
  ):
    for i in range(0, len(rows), 2):
      writer.write(rows[i : i + 2])


# One's own.


def test_loggers_get_the_finite_values_of_each_step(
  tmp_path: pathlib.Path, made: list[Recorder]
) -> None:
  write(tmp_path, 'recorder', ROWS)
  (recorder,) = made
  tags = ('of/return/seed_0', 'of/return/seed_1', 'of/return/mean')
  assert recorder.logged == [
    (step, dict(zip(tags, (step, step + 1, step + 0.5))))
    for step in (10, 20, 30)
  ]
  assert recorder.run.settings == SETTINGS
  assert recorder.has_failed is False


def test_an_error_of_the_run_reaches_the_logger(
  tmp_path: pathlib.Path, made: list[Recorder]
) -> None:
  run = loggers.Run(tmp_path, SETTINGS, 'update')
  with contextlib.suppress(SystemExit), loggers.opened(['recorder'], run):
    raise SystemExit(143)
  assert made[0].has_failed is True


def test_a_run_that_is_saved_after_a_signal_has_not_failed(
  tmp_path: pathlib.Path, made: list[Recorder]
) -> None:
  run = loggers.Run(tmp_path, SETTINGS, 'update')
  with (
    contextlib.suppress(signals.Interrupted),
    loggers.opened(['recorder'], run),
  ):
    raise signals.Interrupted(15)
  assert made[0].has_failed is False


def test_an_error_of_a_logger_is_a_warning(
  tmp_path: pathlib.Path,
  made: list[Recorder],
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  def log(self: Any, step: int, scalars: Any) -> None:
    raise OSError('the network is down')

  monkeypatch.setattr(Recorder, 'log', log)
  write(tmp_path, 'recorder', ROWS)
  (line,) = capsys.readouterr().err.splitlines()
  assert 'recorder may lack metrics from step 10 on' in line
  assert 'the network is down' in line
  assert len(metrics.read(tmp_path / 'metrics.csv')['return']) == 6
  assert made[0].has_failed is False


def test_a_logger_that_cannot_be_opened_is_a_warning(
  tmp_path: pathlib.Path,
  made: list[Recorder],
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  def fail(run: loggers.Run) -> Recorder:
    raise ConnectionError('no server\n  there')

  monkeypatch.setitem(loggers._FACTORIES, 'away', fail)
  run = loggers.Run(tmp_path, SETTINGS, 'update')
  with loggers.opened(['away', 'recorder'], run) as opened:
    opened[-1].log(3, {'x': 1.0})
  (line,) = capsys.readouterr().err.splitlines()
  assert 'away cannot be opened' in line
  assert line.endswith('ConnectionError: no server there')
  assert made[0].logged == [(3, {'x': 1.0})]


def test_names_are_checked_with_the_settings(
  made: list[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
  configs = f'--config={launching.REPOSITORY}/configs'
  for file, build in (
    ('quickstart', meta_trainer.config_of),
    ('evaluate', training_config.config_of),
  ):
    flags = ['--workdir=x', f'{configs}/{file}.py']
    if file == 'evaluate':  # By default there would be a file to download.
      flags.append('--config.rule=actor_critic')
    with launching.parsed(*flags, '--config.loggers=recorder, ') as settings:
      assert build(settings).loggers == ('recorder',)
    with (
      launching.parsed(*flags, '--config.loggers=wandbb') as settings,
      pytest.raises(ValueError, match='Nearest: wandb. .*--import=MODULE'),
    ):
      build(settings)
  monkeypatch.setattr('importlib.util.find_spec', lambda _: None)
  with pytest.raises(ImportError, match=r"'disco-rl-discovery\[wandb\]'"):
    loggers.check(['wandb'])


# Those of packages.


def test_weights_and_biases_resumes_and_ends_a_run(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """By what its package is told, which need not be installed."""
  wandb = mock.Mock()
  monkeypatch.setitem(sys.modules, 'wandb', wandb)
  loggers.Run(tmp_path, SETTINGS, 'update').remember('another', 'its')
  write(tmp_path, 'wandb', ROWS[:4])
  write(tmp_path, 'wandb', ROWS[4:], since=20)
  first, second = (call.kwargs['id'] for call in wandb.init.call_args_list)
  assert first == second
  known = json_files.read(tmp_path / 'loggers.json')
  assert known == {'another': 'its', 'wandb': first}
  ends = wandb.init.return_value.finish.call_args_list
  assert ends == [mock.call(exit_code=0)] * 2


def test_weights_and_biases_offline(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  wandb = pytest.importorskip('wandb', reason="pip install -e '.[wandb]'")
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_SILENT', 'true')
  (tmp_path / 'own').mkdir()
  own = wandb.init(dir=tmp_path / 'own')
  write(tmp_path, 'wandb', ROWS[:4])
  write(tmp_path, 'wandb', ROWS[4:], since=20)  # Resumed.
  own.log({'a': 1})  # It goes on.
  assert not dict(own.config)
  own.finish()
  logs = sorted(tmp_path.glob('wandb/offline-run-*/run-*.wandb'))
  assert len(logs) == 2  # `wandb sync` joins them: they have one identity.
  assert logs[0].name == logs[1].name
  # Records of names and of values as JSON.
  first, second = (path.read_bytes() for path in logs)
  for content in (first, second):
    assert b'of/return/mean' in content
    assert re.search(rb'learning_rate.{1,4}0\.001', content)
  assert b'20.5' in first and b'30.5' not in first
  assert b'30.5' in second and b'20.5' not in second
