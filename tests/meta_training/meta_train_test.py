"""Discovery as people run it: what it leaves, resuming, and what it refuses."""

from collections.abc import Iterator
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import shutil
import signal
import time
from typing import Any
from unittest import mock

import jax
import launching
import numpy as np
import pytest

from benchmarks import small_runs
from configs import ablations
from configs import quickstart
import disco_rl
from disco_rl.meta_training import build
from disco_rl.meta_training import device_group
from disco_rl.meta_training import held_out
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.runtime import workdirs
from disco_rl.update_rules import cards
from disco_rl.update_rules import weights
from launch import meta_train

TINY = (
  f'--config={launching.REPOSITORY}/configs/quickstart.py',
  *(
    f'--config.{name}={x}'
    for name, x in (small_runs.SETTINGS | small_runs.SMALL_RULE).items()
  ),
  '--config.environments=catch/4x3',
  '--config.agents=2',
  '--config.meta_learning_rate=2e-3',
  '--config.chunk_size=2',
  '--config.meta_steps=4',
  '--config.checkpoint_every=2',
  '--config.inner_updates=2',
  '--config.validation_trajectories=4',
  '--config.unroll_length=5',
  '--config.rule_policy_channels=(3, 2)',
  '--config.rule_policy_target_channels=3',
)
# Without an evaluation every other meta-step.
ALONE = ('--config.held_out_environments=',)
# An agent takes 40 steps in each meta-step; the age of one of the two starts at
# half of its budget, and both are reset during the run.
# A step, which is an action here, counts two: a life has 100 steps.
SMALL = (
  *TINY,
  '--config.budgets=200',
  '--config.budget_steps_per_action=2',
)
# Name of a variant -> its flags.
ESTIMATORS = {
  variant: [
    f'--config.{name}={value}'
    for name, value in ablations.VARIANTS[variant].items()
  ]
  for variant in ('evolution', 'persistent_evolution', 'bootstrapping')
}
ESTIMATORS['differentiation'] = ['--config.outer_losses=2']
# What no two runs have in common.
TIMES = (
  *('seconds', 'compile_seconds', 'checkpoint_seconds'),
  'peak_memory_bytes',
)
FILES = {
  '.lock',
  '.owner',
  '.newest_checkpoint',
  'checkpoints',
  'config.json',
  'curves.png',
  'held_out',
  'initial_rule.json',
  'initial_rule.npz',
  'metrics.csv',
  'newest_rule.json',
  'newest_rule.npz',
  'rule.json',
  'rule.npz',
  'summary.json',
  'tensorboard',
}


@pytest.fixture(autouse=True, scope='module')
def shared_programs() -> Iterator[None]:
  """Runs of equal agents share their programs, where these keep no state.

  That other processes arrive at the same is shown by those that are killed.
  """
  made: dict[str, Any] = {}
  make = build.make_groups

  def make_once(config: Any, rule: Any) -> Any:
    other = ('meta_steps', 'seed', 'rule', 'lifetimes', 'held_out')
    agents = {k: v for k, v in vars(config).items() if k not in other}
    key = repr((agents, rule))
    if key not in made:
      made[key] = make(config, rule)
    if any(isinstance(x, host_group.HostGroup) for x in made[key]):
      return made.pop(key)
    return made[key]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(build, 'make_groups', make_once)
    yield


launch = functools.partial(launching.call, meta_train)
error = functools.partial(launching.error, meta_train)


def assert_same_run(
  workdir: pathlib.Path, expected: pathlib.Path, *others: str
) -> None:
  """All but the time that it took; others are files next to the usual ones."""
  assert {path.name for path in workdir.iterdir()} == {*FILES, *others}
  for name in ('metrics.csv', 'held_out/metrics.csv', 'config.json'):
    assert (workdir / name).read_text() == (expected / name).read_text()
  for name in ('initial_rule.npz', 'rule.npz', 'newest_rule.npz'):
    assert not small_runs.differing(
      weights.load(workdir / name), weights.load(expected / name)
    )
  summary, other = (
    json_files.read(path / 'summary.json') for path in (workdir, expected)
  )
  for key in TIMES:
    del summary[key], other[key]
  assert summary == other
  for name in ('rule.json', 'newest_rule.json'):
    card, of_expected = (
      dataclasses.replace(cards.read(x / name), compute={}, name='')
      for x in (workdir, expected)
    )
    assert card == of_expected


@pytest.fixture(scope='module')
def finished(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """A run that nothing disturbed; not to be changed."""
  workdir = tmp_path_factory.mktemp('meta_train') / 'new' / 'run'
  launch(workdir, *SMALL)
  return workdir


@pytest.fixture
def copy(finished: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(finished, tmp_path / 'copy')


# What a run leaves.


def test_files(finished: pathlib.Path) -> None:
  assert {path.name for path in finished.iterdir()} == FILES
  settings = json_files.read(finished / 'config.json')
  assert settings.pop('version') == disco_rl.__version__
  assert settings['budgets'] == [200]
  assert settings['meta_learning_rate'] == 2e-3
  assert set(settings) == set(quickstart.get_config())
  assert (finished / 'curves.png').read_bytes().startswith(b'\x89PNG')
  (events,) = (finished / 'tensorboard').iterdir()
  assert b'target_kl/environment_catch/4x3' in events.read_bytes()
  checkpoints = {path.name for path in (finished / 'checkpoints').iterdir()}
  assert checkpoints == {'2', '4'}


def test_metrics(finished: pathlib.Path) -> None:
  columns = metrics.read(finished / 'metrics.csv')
  np.testing.assert_array_equal(columns['meta_step'], [1, 2, 3, 4])
  assert columns['environment'].tolist() == ['catch/4x3'] * 4
  assert (columns['agents'] == 2).all()
  # Two agents, two environments each; two updates and two rollouts more.
  np.testing.assert_array_equal(
    columns['environment_steps'], 2 * 2 * (2 + 2) * 5 * columns['meta_step']
  )
  assert set(columns) >= {
    'age',
    'gradient_norm',
    'inner_meta_value_loss',
    'loss',
    'meta_gradient_norm',
    'meta_policy_loss',
    'meta_update_norm',
    'meta_value_loss',
    'policy_entropy',
    'return',
    'rule_update_norm',
    'target_kl',
    'target_squared_mean',
    'validation_policy_entropy',
  }
  for key, column in columns.items():
    if key != 'environment':
      assert np.isfinite(column).all(), key
  for key in ('meta_gradient_norm', 'meta_update_norm', 'rule_update_norm'):
    assert (columns[key] > 0).all(), key
  # Agents explore at first: the entropy is near that of uniform choices.
  entropy = columns['validation_policy_entropy']
  np.testing.assert_allclose(entropy, np.log(3), rtol=0.1)
  assert (entropy <= np.log(3) + 1e-5).all()


def test_agents_are_reset_when_budgets_are_consumed(
  finished: pathlib.Path,
) -> None:
  """One agent begins at 0, the other at 100; each is reset at 200 or more."""
  age = metrics.read(finished / 'metrics.csv')['age']
  one, other = [80, 160, 240, 80], [180, 260, 80, 160]
  np.testing.assert_array_equal(age, np.mean([one, other], axis=0))


def test_held_out(finished: pathlib.Path) -> None:
  columns = metrics.read(finished / 'held_out' / 'metrics.csv')
  assert columns['meta_step'].tolist() == [0, 2, 4]
  assert columns['environment'].tolist() == ['catch/4x3'] * 3
  assert (columns['return_min'] <= columns['return']).all()
  assert (columns['return'] <= columns['return_max']).all()
  assert (np.abs(columns['return']) <= 1).all()


def test_the_summary_agrees_with_the_metrics(finished: pathlib.Path) -> None:
  summary = json_files.read(finished / 'summary.json')
  for name in TIMES:
    assert summary.pop(name) > 0
  columns = metrics.read(finished / 'metrics.csv')
  chosen, _ = best(finished)
  held_out = metrics.read(finished / 'held_out' / 'metrics.csv')
  assert summary == {
    'rule': 'untrained',
    'meta_steps': 4,
    'agents': 2,
    'environment_steps': 2 * 4 * 40,
    'return': {'catch/4x3': columns['return'][-1]},
    'rule_meta_step': held_out['meta_step'][chosen],
    'evaluations_since_rule': len(held_out['meta_step']) - 1 - chosen,
    'held_out': {'catch/4x3': held_out['return'][chosen]},
    'digests': launching.digests(
      finished, 'metrics.csv', 'held_out/metrics.csv'
    ),
  }


def best(workdir: pathlib.Path) -> tuple[int, int]:
  """Returns the row of the best of three evaluations, and its meta-step."""
  columns = metrics.read(workdir / 'held_out' / 'metrics.csv')
  zero, one, two = columns['return'].tolist()
  smoothed = [(zero + one) / 2, (zero + one + two) / 3, (one + two) / 2]
  row = max(range(3), key=lambda i: (smoothed[i], i))
  return row, int(columns['meta_step'][row])


@pytest.mark.parametrize('name', ['rule', 'newest_rule'])
def test_the_card_agrees_with_the_run(
  finished: pathlib.Path, name: str
) -> None:
  card = cards.read(finished / f'{name}.json')
  digest = hashlib.sha256((finished / f'{name}.npz').read_bytes()).hexdigest()
  assert card.sha256 == digest
  row, meta_step = best(finished) if name == 'rule' else (-1, 4)
  assert (card.name, card.environments) == ('run', ('catch/4x3',))
  assert (card.agents, card.meta_steps, card.seed) == (2, meta_step, 0)
  assert card.environment_steps == 2 * meta_step * 40
  settings = json_files.read(finished / 'config.json')
  assert {'version': disco_rl.__version__, **card.settings} == settings
  assert card.versions['jax'] == jax.__version__
  assert (
    0
    < card.compute['seconds']
    <= 1 + (json_files.read(finished / 'summary.json')['seconds'])
  )
  rows = metrics.read(finished / 'held_out' / 'metrics.csv')
  columns = {'mean': 'return', 'min': 'return_min', 'max': 'return_max'}
  assert card.held_out == {
    'meta_step': meta_step,
    'updates': 4,
    'agents': 2,
    'returns': {
      'catch/4x3': {key: rows[column][row] for key, column in columns.items()}
    },
  }


def test_every_parameter_of_the_rule_changes(finished: pathlib.Path) -> None:
  initial = weights.load(finished / 'initial_rule.npz')
  rule = weights.load(finished / 'newest_rule.npz')
  assert small_runs.differing(rule, initial) == small_runs.differing(
    rule, jax.tree.map(lambda x: np.full_like(x, np.nan), rule)
  )


# Determinism and resuming.


def test_another_seed_is_another_run(
  finished: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  launch(tmp_path, *TINY, *ALONE, '--config.seed=1', '--config.meta_steps=1')
  for name in ('initial_rule.npz', 'rule.npz'):
    assert small_runs.differing(
      weights.load(tmp_path / name), weights.load(finished / name)
    )
  one, other = (
    metrics.read(workdir / 'metrics.csv') for workdir in (tmp_path, finished)
  )
  for key in ('loss', 'meta_gradient_norm', 'meta_value_loss'):
    assert one[key][0] != other[key][0]


def test_a_finished_run_can_be_continued(
  finished: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  """And a run in another folder is the same bit for bit."""
  workdir = tmp_path / 'run'
  launch(workdir, *SMALL, '--config.meta_steps=2')
  assert 'compiling: a program for each' in capsys.readouterr().err
  rows = (workdir / 'metrics.csv').read_text()
  assert rows.count('\n') == 1 + 2
  assert (finished / 'metrics.csv').read_text().startswith(rows)
  rule = (workdir / 'newest_rule.npz').read_bytes()
  assert json_files.read(workdir / 'summary.json')['meta_steps'] == 2

  launch(workdir, *SMALL)
  assert_same_run(workdir, finished)
  assert (workdir / 'newest_rule.npz').read_bytes() != rule


@pytest.mark.slow
def test_discovery_ends_when_held_out_agents_no_longer_improve(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
) -> None:
  """Smoothed, the scores of 0, 1 and 2 meta-steps are 4.5, 3 and 2."""
  returns = iter([5.0, 4.0, 0.0, 6.0, 7.0])
  monkeypatch.setattr(
    held_out.HeldOut,
    'evaluate',
    lambda *_: {'catch/4x3': np.array([next(returns)])},
  )
  flags = (*SMALL, '--config.held_out_every=1')
  launch(tmp_path, *flags, '--config.held_out_patience=2')
  printed = capsys.readouterr()
  assert '2 evaluations did not improve' in printed.err
  assert 'after 0 meta-steps: held-out agents earned most' in printed.out
  rule, initial = (tmp_path / x for x in ('rule.npz', 'initial_rule.npz'))
  assert not small_runs.differing(weights.load(rule), weights.load(initial))
  card = cards.read(tmp_path / 'rule.json')
  assert (card.meta_steps, card.environment_steps) == (0, 0)
  assert 'Of 3 evaluations up to meta-step 2, held-out' in card.description
  assert cards.read(tmp_path / 'newest_rule.json').meta_steps == 2

  # Repeating it does nothing more; more patience goes on.
  launch(tmp_path, *flags, '--config.held_out_patience=2')
  summary = json_files.read(tmp_path / 'summary.json')
  assert (summary['meta_steps'], summary['evaluations_since_rule']) == (2, 2)
  launch(tmp_path, *flags, '--config.held_out_patience=4')
  summary = json_files.read(tmp_path / 'summary.json')
  assert (summary['meta_steps'], summary['rule_meta_step']) == (4, 4)
  assert summary['held_out'] == {'catch/4x3': 7.0}


def test_a_run_that_receives_sigterm_saves_first(
  finished: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  workdir = tmp_path / 'run'
  write = metrics.MetricsWriter.write

  def write_and_ask(self: metrics.MetricsWriter, rows: Any) -> None:
    write(self, rows)
    if rows and rows[0]['meta_step'] == 3:
      os.kill(os.getpid(), signal.SIGTERM)
      time.sleep(0.5)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(metrics.MetricsWriter, 'write', write_and_ask)
    with pytest.raises(SystemExit) as caught:
      launch(workdir, *SMALL)
  assert caught.value.code == 128 + signal.SIGTERM
  assert (workdir / 'checkpoints' / '3').exists()  # Not due: every other one.
  launch(workdir, *SMALL)
  assert_same_run(workdir, finished)


def test_a_killed_run_resumes_bit_for_bit(
  finished: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  workdir = tmp_path / 'run'
  lines = launching.kill(meta_train, workdir, 'meta_step', 3, *SMALL)
  # Nothing but progress is on the standard error stream.
  assert lines
  progress = (
    'discovery: +[0-9]+% |compiling.*: a program for each group of |new agents '
  )
  for line in lines:
    assert re.match(progress, line), line
  launch(workdir, *SMALL)
  printed = capsys.readouterr()
  assert ' 50% 2/4 ' in printed.err.splitlines()[1]
  assert f'The rule is {workdir / "rule.npz"}' in printed.out
  assert_same_run(workdir, finished)


@pytest.mark.slow
def test_a_killed_run_in_atari_resumes_exactly(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  """A checkpoint has the actions of the games, which are replayed."""
  pytest.importorskip('ale_py')
  whole, killed = tmp_path / 'whole', tmp_path / 'killed'
  settings = (*SMALL, '--config.environments=atari/breakout')
  launch(whole, *settings)
  launching.kill(meta_train, killed, 'meta_step', 3, *settings)
  launch(killed, *settings)
  assert 'cannot be saved' not in capsys.readouterr().err
  assert_same_run(killed, whole, 'replay')


# Other populations.


@pytest.mark.slow
def test_environments_on_the_host_beside_others(tmp_path: pathlib.Path) -> None:
  """All agents are reset after each meta-step."""
  mixed = (
    *TINY,
    *ALONE,
    '--config.environments=catch/4x3,gymnasium/CartPole-v1',
    '--config.budgets=40',
    '--config.stagger=false',
  )
  launch(tmp_path, *mixed, '--config.meta_steps=2')
  assert not (tmp_path / 'held_out' / 'metrics.csv').read_text()
  columns = metrics.read(tmp_path / 'metrics.csv')
  assert columns['meta_step'].tolist() == [1, 1, 2, 2]
  names = ['catch/4x3', 'gymnasium/CartPole-v1']
  assert (columns['agents'] == 1).all()
  assert columns['environment'].tolist() == names * 2
  assert (columns['age'] == 40).all()
  assert (columns['meta_gradient_norm'] > 0).all()
  # A pole stays up for at least 8 steps, with a reward of 1 each; two
  # environments take 20 steps each, so some have fallen.
  returns = columns['return'][1::2]
  assert ((returns >= 8) & (returns <= 20) | np.isnan(returns)).all()
  assert np.isfinite(returns).any()


@pytest.mark.slow
def test_evolution(tmp_path: pathlib.Path) -> None:
  """Large perturbations, so that some agents act differently at once."""
  launch(
    tmp_path,
    *TINY,
    *ALONE,
    *ESTIMATORS['evolution'],
    '--config.evolution_pairs=2',
    '--config.evolution_std=1',
    '--config.learning_rate=0.5',
    '--config.meta_steps=1',
  )
  columns = metrics.read(tmp_path / 'metrics.csv')
  assert (columns['reward_difference'] > 0).all()
  assert (columns['meta_gradient_norm'] > 0).all()
  initial, rule = (
    weights.load(tmp_path / name) for name in ('initial_rule.npz', 'rule.npz')
  )
  # Every entry is perturbed.
  assert len(small_runs.differing(rule, initial)) == len(jax.tree.leaves(rule))


@pytest.mark.slow
@pytest.mark.parametrize(
  ('estimator', 'steps'),
  [
    # Two agents, two environments, rollouts of 5 steps: in a meta-step two for
    # updates and two for validation, and another for each later update, or two
    # more for the second outer loss; or four of them for each of four agents.
    ('bootstrapping', 2 * 10 * (4 + 4)),
    ('differentiation', 2 * 10 * (4 + 2)),
    ('persistent_evolution', 2 * 10 * 4 * 4),
  ],
)
def test_a_discovery_goes_on_with_another_estimator(
  finished: pathlib.Path, tmp_path: pathlib.Path, estimator: str, steps: int
) -> None:
  """From a rule that differentiation has found, as in docs/discover.md."""
  start = finished / 'rule.npz'
  launch(
    tmp_path,
    *TINY,
    *ESTIMATORS[estimator],
    f'--config.rule={start}',
    '--config.persistent_pairs=2',
    '--config.persistent_std=1',
    '--config.learning_rate=0.5',
    '--config.meta_steps=1',
  )
  columns = metrics.read(tmp_path / 'metrics.csv')
  assert (columns['meta_gradient_norm'] > 0).all()
  assert columns['environment_steps'].sum() == steps
  rule = weights.load(tmp_path / 'rule.npz')
  assert small_runs.differing(rule, weights.load(start))


@pytest.fixture
def stop_at_init(monkeypatch: pytest.MonkeyPatch) -> None:
  """Ends runs before anything costly."""
  stop = mock.Mock(side_effect=KeyboardInterrupt)
  monkeypatch.setattr(device_group.DeviceGroup, 'init', stop)


@pytest.mark.usefixtures('stop_at_init')
def test_fine_tuning_begins_with_the_rule_in_the_file(
  finished: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  """Sizes are those of the file, and flags with others are refused."""
  path = finished / 'rule.npz'
  arguments = (*TINY, f'--config.rule={path}', '--config.seed=3')
  message = error(tmp_path, *arguments, '--config.rule_lstm_size=50')
  assert 'rule_lstm_size=50 is for untrained rules' in message
  with pytest.raises(KeyboardInterrupt):
    launch(tmp_path, *arguments)
  assert not small_runs.differing(
    weights.load(tmp_path / 'initial_rule.npz'), weights.load(path)
  )


# Errors.


def test_another_run_is_not_overwritten(copy: pathlib.Path) -> None:
  before = launching.contents(copy)
  message = error(
    copy, *SMALL, '--config.meta_learning_rate=0.5', '--config.seed=3'
  )
  assert 'meta_learning_rate was 0.002, is 0.5; seed was 0, is 3.' in message
  assert 'hidden_sizes' not in message
  assert '--workdir' in message
  assert launching.contents(copy) == before


@pytest.mark.usefixtures('stop_at_init')
def test_two_runs_in_one_folder(tmp_path: pathlib.Path) -> None:
  with workdirs.locked(tmp_path):
    message = error(tmp_path, *TINY)
  assert re.search(f'in use by another run .process {os.getpid()} on', message)
  assert {path.name for path in tmp_path.iterdir()} == {'.lock', '.owner'}
  with pytest.raises(KeyboardInterrupt):
    launch(tmp_path, *TINY)


@pytest.mark.parametrize('estimator', ESTIMATORS)
def test_estimators_for_the_device_refuse_environments_on_the_host(
  tmp_path: pathlib.Path, estimator: str
) -> None:
  workdir = tmp_path / 'run'
  message = error(
    workdir,
    *TINY,
    '--config.environments=catch/4x3,gymnasium/CartPole-v1',
    *ESTIMATORS[estimator],
  )
  assert re.search(
    f'={estimator}.* gymnasium/CartPole-v1 .*=differentiation', message
  )
  assert not workdir.exists()


def poison(members: inner_loop.Member) -> inner_loop.Member:
  """Sets the parameters of agent 1 to NaN."""
  learner = members.learner
  params = jax.tree.map(lambda x: x.at[1].set(np.nan), learner.params)
  learner = dataclasses.replace(learner, params=params)
  return dataclasses.replace(members, learner=learner)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
  init = device_group.DeviceGroup.init
  monkeypatch.setattr(
    device_group.DeviceGroup, 'init', lambda *args: poison(init(*args))
  )


@pytest.mark.usefixtures('poisoned')
def test_an_agent_whose_losses_are_not_finite_is_reset(
  tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
  launch(tmp_path, *TINY, '--config.stagger=False')
  columns = metrics.read(tmp_path / 'metrics.csv')
  assert columns['failed'].tolist() == [1, 0, 0, 0]
  for key, column in columns.items():
    if key != 'environment':
      assert np.isfinite(column).all(), key
  # Both began at 0; one of them once more.
  assert columns['age'].tolist() == [40, 60, 100, 140]
  assert re.search(
    'agent 1, in catch/4x3, is not finite in meta-step 1: its meta-update is '
    'dropped',
    capfd.readouterr().err,
  )
  rule = weights.load(tmp_path / 'rule.npz')
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(rule))


@pytest.mark.usefixtures('poisoned')
def test_an_agent_that_fails_again_and_again_ends_the_run(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  reset_expired = device_group.DeviceGroup.reset_expired
  monkeypatch.setattr(
    device_group.DeviceGroup,
    'reset_expired',
    lambda *args: poison(reset_expired(*args)),
  )
  message = error(tmp_path, *TINY)
  assert re.search(
    'agent 1, in catch/4x3, is not finite in meta-steps 1 to 3, .*'
    'meta_learning_rate',
    message,
  )
