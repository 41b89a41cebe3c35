"""Tests of launch.train with one run: files, resuming, errors, settings."""

import dataclasses
import pathlib
import re
import shutil
from typing import Any
from unittest import mock

import conformance
import jax
import launching
import numpy as np
import pytest
import small
from train_runs import CATCH
from train_runs import CONFIG
from train_runs import FILES
from train_runs import error
from train_runs import launch

from configs import evaluate as configs
import disco_rl
from disco_rl import config as config_lib
from disco_rl.agent import learner
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.maths import statistics
from disco_rl.planning import fitting
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import plotting
from disco_rl.training import config as training_config
from disco_rl.training import parallel
from disco_rl.training import runner
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import sources
from launch import train


@pytest.fixture(scope='module')
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """An uninterrupted run, to be read only."""
  workdir = tmp_path_factory.mktemp('evaluate') / 'new' / 'run'
  launch(workdir, *CATCH)
  return workdir


@pytest.fixture
def copy(finished: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(finished, tmp_path / 'run')


def test_files(finished: pathlib.Path) -> None:
  assert {path.name for path in finished.iterdir()} == FILES
  settings = json_files.read(finished / 'config.json')
  assert settings.pop('version') == disco_rl.__version__
  assert settings['hidden_sizes'] == [16]
  assert settings['learning_rate'] == 0.01
  assert set(settings) == {
    *config_lib.names(training_config.TrainingConfig),
    *config_lib.names(actor_critic.ActorCritic),
  }
  assert (finished / 'curves.png').read_bytes().startswith(b'\x89PNG')
  (events,) = (finished / 'tensorboard').iterdir()
  assert b'return/seed_1' in events.read_bytes()
  checkpoints = {path.name for path in (finished / 'checkpoints').iterdir()}
  assert checkpoints == {'10', '20'}


def test_metrics(finished: pathlib.Path) -> None:
  columns = metrics.read(finished / 'metrics.csv')
  np.testing.assert_array_equal(
    columns['update'], np.repeat([5, 10, 15, 20], 2)
  )
  np.testing.assert_array_equal(columns['seed'], [0, 1] * 4)
  # Two environments, six steps each.
  np.testing.assert_array_equal(
    columns['environment_steps'], 12 * columns['update']
  )
  # An episode takes three steps.
  np.testing.assert_array_equal(columns['episodes'], 4 * columns['update'])
  assert {'loss', 'value', 'policy_entropy', 'gradient_norm'} <= set(columns)
  assert all(np.isfinite(column).all() for column in columns.values())


def test_the_summary_agrees_with_the_metrics(finished: pathlib.Path) -> None:
  summary = json_files.read(finished / 'summary.json')
  columns = metrics.read(finished / 'metrics.csv')
  last = columns['update'] == 20
  returns = summary.pop('return')
  assert set(returns) == {'mean', 'iqm', 'ci95', 'per_seed'}
  for name, value in statistics.summarize(columns['return'][last]).items():
    np.testing.assert_allclose(returns[name], value, rtol=1e-5)
  for name in (
    *('seconds', 'compile_seconds', 'checkpoint_seconds'),
    'peak_memory_bytes',
  ):
    assert summary.pop(name) > 0
  assert summary == {
    'environment': 'catch/4x3',
    'rule': 'actor_critic',
    'seeds': 2,
    'updates': 20,
    'environment_steps': 240,
    'digests': launching.digests(finished, 'metrics.csv'),
  }


def test_a_killed_run_resumes_to_the_same_results(
  finished: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  lines = launching.kill(train, tmp_path, 'update', 15, *CATCH)
  # The standard error stream contains only progress.
  assert lines
  for line in lines:
    assert re.match('catch/4x3 actor_critic: +[0-9]+% ', line), line
  # As if another process had been killed while writing a checkpoint.
  (tmp_path / 'checkpoints' / '15.orbax-checkpoint-tmp').mkdir()

  launch(tmp_path, *CATCH)
  printed = capsys.readouterr()
  assert ' 50% 120/240 ' in printed.err.splitlines()[0]
  assert printed.out == (tmp_path / 'summary.json').read_text()
  assert {path.name for path in tmp_path.iterdir()} == FILES
  for name in ('metrics.csv', 'config.json'):
    assert (tmp_path / name).read_text() == (finished / name).read_text()
  summary, expected = (
    json_files.read(workdir / 'summary.json')
    for workdir in (tmp_path, finished)
  )
  assert summary['return'] == expected['return']


def test_a_run_killed_before_its_first_checkpoint_restarts(
  finished: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  write = metrics.MetricsWriter.write

  def write_or_die(self: metrics.MetricsWriter, rows: Any) -> None:
    # A checkpoint is due, but must not precede its rows.
    if rows[0]['update'] == 10:
      raise KeyboardInterrupt
    write(self, rows)

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(metrics.MetricsWriter, 'write', write_or_die)
    launch(tmp_path, *CATCH)
  assert not [*(tmp_path / 'checkpoints').glob('[0-9]*')]
  assert metrics.read(tmp_path / 'metrics.csv')['update'].tolist() == [5, 5]
  launch(tmp_path, *CATCH)
  assert (tmp_path / 'metrics.csv').read_text() == (
    finished / 'metrics.csv'
  ).read_text()


def test_a_finished_run_can_be_continued_and_needs_no_picture(
  copy: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  before = (copy / 'metrics.csv').read_text()
  monkeypatch.setattr(plotting, 'save', mock.Mock(side_effect=KeyError('font')))
  launch(copy, *CATCH, '--config.updates=30')
  printed = capsys.readouterr()
  assert '"updates": 30' in printed.out
  assert "warning: no curves.png: KeyError: 'font'" in printed.err
  assert (copy / 'metrics.csv').read_text().startswith(before)
  columns = metrics.read(copy / 'metrics.csv')
  np.testing.assert_array_equal(columns['update'][::2], range(5, 31, 5))
  np.testing.assert_array_equal(
    columns['episodes'], 4 * columns['update'], 'episodes were counted from 0'
  )
  assert json_files.read(copy / 'summary.json')['updates'] == 30
  assert json_files.read(copy / 'config.json')['updates'] == 30


@pytest.mark.parametrize('name', ['metrics.csv', 'checkpoints'])
def test_results_of_unknown_settings_are_not_overwritten(
  tmp_path: pathlib.Path, name: str
) -> None:
  (tmp_path / name).mkdir()
  assert f'has {name}, but no config.json' in error(tmp_path, *CATCH)
  assert [path.name for path in tmp_path.iterdir()] == [name]


def test_settings_that_are_not_finite_can_be_resumed(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """JSON has no infinity, which turns clipping off."""
  stop = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(parallel.DeviceTraining, 'init', stop)
  for _ in range(2):
    with pytest.raises(KeyboardInterrupt):
      launch(tmp_path, *CATCH, '--config.max_abs_update=inf')
  assert 'max_abs_update was None, is 1.0' in error(tmp_path, *CATCH)


def test_losses_that_are_not_finite(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  init = parallel.DeviceTraining.init

  def poisoned(training: parallel.DeviceTraining, keys: Any) -> Any:
    train_state = init(training, keys)
    params = jax.tree.map(
      lambda x: x.at[1].set(np.nan), train_state.learner.params
    )
    learner = dataclasses.replace(train_state.learner, params=params)
    return dataclasses.replace(train_state, learner=learner)

  monkeypatch.setattr(parallel.DeviceTraining, 'init', poisoned)
  message = error(tmp_path, *CATCH, '--config.seed=7')
  assert re.search(
    'loss.* of seed 8 became non-finite between updates 0 and 5[.].*'
    'learning rate',
    message,
  )
  # No run may resume from such a state.
  assert not list((tmp_path / 'checkpoints').iterdir())


@pytest.fixture
def rule_path(tmp_path: pathlib.Path) -> pathlib.Path:
  """A rule with random weights."""
  path = tmp_path / 'rules' / 'mine.npz'
  small.save(path, {key: 0.3 * x for key, x in small.arrays().items()})
  return path


@pytest.mark.slow
def test_a_rule_from_a_file_in_host_environments(
  rule_path: pathlib.Path,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  traces = 0
  update = learner.update

  def counted(*args: Any) -> Any:
    nonlocal traces
    traces += 1
    return update(*args)

  monkeypatch.setattr(learner, 'update', counted)
  workdir = tmp_path / 'run'
  cartpole = (
    f'{CONFIG}:cartpole',
    '--config.environment=gymnasium/CartPole-v1',
    *CATCH[2:],
    f'--config.rule={rule_path}',
  )
  launch(workdir, *cartpole, '--config.updates=15', '--config.log_every=1')
  assert traces == 1
  columns = metrics.read(workdir / 'metrics.csv')
  np.testing.assert_array_equal(columns['update'][::2], range(1, 16))
  np.testing.assert_array_equal(columns['seed'], [0, 1] * 15)
  # No pole falls within six steps.
  assert (columns['episodes'][:2] == 0).all()
  assert np.isnan(columns['return'][:2]).all()
  assert (columns['episodes'][-2:] > 0).all()
  # A pole stays up for at least 8 steps, each with a reward of 1.
  assert (columns['return'][-2:] >= 8).all()
  losses = {'pi_loss', 'y_loss', 'z_loss', 'aux_pi_loss', 'q_loss', 'loss'}
  assert losses <= set(columns)
  for name in losses:
    assert (columns[name][0::2] != columns[name][1::2]).all(), name

  # Again: the checkpoint is read, and no update is left.
  summary = json_files.read(workdir / 'summary.json')
  assert summary['rule'] == str(rule_path)
  make, seeds = registry.make, []

  def noted(name: str, number: int, seed: int, *args: Any) -> Any:
    seeds.append(seed)
    return make(name, number, seed, *args)

  monkeypatch.setattr(registry, 'make', noted)
  capsys.readouterr()
  launch(workdir, *cartpole, '--config.updates=15')
  again = json_files.read(workdir / 'summary.json')
  assert again['return'] == summary['return']
  # The time until the checkpoint counts, not that after it.
  assert again['seconds'] > 0.5 * summary['seconds']
  # Not the first episodes once more. None is made for its shapes alone, because
  # no setting depends on them.
  assert seeds == [0, adapters.seed_after(0, 15)]
  assert adapters.seed_after(0, 15) != adapters.seed_after(0, 16) != 0
  answer = capsys.readouterr().err
  assert 'CartPole-v1 begins new episodes, with seeds of their own' in answer


@pytest.mark.slow
def test_a_killed_run_of_atari_resumes_to_the_same_results(
  tmp_path: pathlib.Path,
) -> None:
  """Bit for bit, in the middle of episodes."""
  pytest.importorskip('ale_py')
  settings = (
    f'{CONFIG}:atari42',
    '--config.environment=atari/breakout',
    *CATCH[2:],
    '--config.on_policy_share=0.1',
    '--config.torso=mlp',
    '--config.preprocessing.atari.height=28',
    '--config.preprocessing.atari.width=28',
  )
  launching.kill(train, tmp_path / 'killed', 'update', 15, *settings)
  for name in ('killed', 'whole'):
    launch(tmp_path / name, *settings)
  killed, whole = (
    (tmp_path / name / 'metrics.csv').read_text()
    for name in ('killed', 'whole')
  )
  assert killed == whole


def test_an_agent_does_not_depend_on_the_number_of_agents(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
  init = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(parallel.DeviceTraining, 'init', init)
  for i, arguments in enumerate(
    [(), ('--config.seeds=5',), ('--config.seed=1',)]
  ):
    with pytest.raises(KeyboardInterrupt):
      launch(tmp_path / str(i), *CATCH, *arguments)
  two, five, other = (
    np.asarray(jax.random.key_data(call.args[0])) for call in init.mock_calls
  )
  assert len(np.unique(five, axis=0)) == 5
  np.testing.assert_array_equal(two, five[:2])
  assert (other[0] != two[0]).any()


# Settings.


@pytest.mark.parametrize('missing', ['config', 'workdir'])
def test_missing_flags(tmp_path: pathlib.Path, missing: str) -> None:
  given = {'config': f'{CONFIG}:catch', 'workdir': f'--workdir={tmp_path}'}
  del given[missing]
  ended = launching.run_python('-m', 'launch.train', *given.values())
  assert ended.returncode == 1
  assert re.fullmatch(f'error: Name .*--{missing}=.*\n', ended.stderr)
  assert not ended.stdout


@pytest.mark.parametrize('variant', configs.VARIANTS)
def test_every_variant_is_documented_and_can_be_built(
  variant: str, disco103_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  assert configs.__doc__
  assert f'\n  {variant} ' in configs.__doc__
  monkeypatch.setenv(sources.DIRECTORY_VARIABLE, str(disco103_path.parent))
  settings = configs.get_config(variant).to_dict()
  # Less to allocate; shapes are checked as before.
  settings.update(num_environments=1, on_policy_share=0, replay_capacity=2)
  config = training_config.config_of(settings)
  conformance.skip_without(config.environment)
  # Accelerators have more memory than the machine that runs tests, and tracing
  # for what is needed takes a third of the time.
  monkeypatch.setattr(fitting.Needs, 'check', mock.Mock())
  runner.TrainingRun(config).close()
