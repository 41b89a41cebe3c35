"""Tests of --from: runs that begin where others are."""

import itertools
import pathlib
import shutil
from typing import Any

import launching
import numpy as np
import pytest
from train_runs import CATCH
from train_runs import error
from train_runs import launch

import disco_rl
from disco_rl.runtime import files
from disco_rl.runtime import forks
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics

LONGER = (*CATCH, '--config.updates=25')


@pytest.mark.slow
def test_a_fork_goes_on_as_its_source_would(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  before = launching.contents(run)
  resumed = shutil.copytree(run, tmp_path / 'resumed')
  launch(resumed, *LONGER)
  fork = tmp_path / 'fork'
  launch(fork, *LONGER, f'--from={run}')
  assert launching.contents(run) == before
  rows = [(x / 'metrics.csv').read_bytes() for x in (fork, resumed)]
  assert rows[0] == rows[1]
  settings = json_files.read(fork / 'config.json')
  assert settings.pop('forked_from') == {'workdir': str(run), 'step': 20}
  assert settings == json_files.read(resumed / 'config.json')

  # If it was killed while it began, it begins again.
  shutil.rmtree(fork / 'checkpoints')
  (fork / 'metrics.csv').unlink()
  (fork / '.forked').mkdir()
  launch(fork, *LONGER, f'--from={run}')
  assert (fork / 'metrics.csv').read_bytes() == rows[1]

  # It is resumed, not forked again.
  launch(fork, *CATCH, '--config.updates=26', f'--from={run}')
  assert metrics.read(fork / 'metrics.csv')['update'][-1] == 26
  assert 'forked_from' in json_files.read(fork / 'config.json')
  assert 'runs/other: choose another' in error(
    fork, *LONGER, '--from=runs/other'
  )


@pytest.mark.slow
def test_settings_of_a_fork_may_differ(
  run: pathlib.Path,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  changes = (
    *('--config.learning_rate=0.5', '--config.entropy_cost=0.2'),
    *('--config.updates_per_rollout=2', '--config.updates=30'),
  )
  launch(tmp_path / 'fork', *CATCH, *changes, f'--from={run}')
  assert 'learning_rate=0.5 (there 0.01)' in capsys.readouterr().err
  rows = metrics.read(tmp_path / 'fork' / 'metrics.csv')
  old = metrics.read(run / 'metrics.csv')
  np.testing.assert_array_equal(rows['loss'][:8], old['loss'])
  # Twice as many updates for each step.
  steps = [60, 120, 180, 240, 264, 300]
  np.testing.assert_array_equal(rows['environment_steps'][::2], steps)
  summary = json_files.read(tmp_path / 'fork' / 'summary.json')
  assert summary['environment_steps'] == steps[-1]
  assert disco_rl.load_agent(tmp_path / 'fork').train(2)[
    'environment_steps'
  ] == [312]
  # With such a learning rate the policy is soon certain.
  assert (rows['policy_entropy'][-2:] < old['policy_entropy'][6:]).all()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      ['replay_capacity=32', 'learning_rate=0.5'],
      'does not fit replay_capacity=32 (there 16): a fork',
    ),
    (
      ['environment=catch/5x3'],
      "fit environment='catch/5x3' (there 'catch/4x3')",
    ),
    (['seeds=3'], 'does not fit seeds=3 (there 2): a fork keeps environment, '),
    (
      ['seed=1'],
      'does not fit seed=1 (there 0): a fork keeps environment, preprocessing,',
    ),
    (
      ['updates_per_rollout=3', 'updates=30'],
      'has made 20 updates, no multiple of updates_per_rollout=3: choose a ',
    ),
    (['updates=20'], 'steps, and this run would end after 20: raise --config'),
  ],
)
def test_what_does_not_fit_is_named(
  run: pathlib.Path, tmp_path: pathlib.Path, changes: list[str], message: str
) -> None:
  flags = [f'--config.{change}' for change in changes]
  workdir = tmp_path / 'fork'
  answer = error(workdir, *LONGER, *flags, f'--from={run}')
  assert message in answer
  assert not workdir.exists()


def test_arrays_of_other_shapes_are_named(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  # Added to the width that is given before.
  flags = (*LONGER, '--config.hidden_sizes=8')
  answer = error(tmp_path / 'fork', *flags, f'--from={run}')
  assert ' has the shape ' in answer
  assert '(a fork with those of its source)' in answer


def test_lists_are_compared_however_they_are_written(
  tmp_path: pathlib.Path,
) -> None:
  json_files.write(tmp_path / 'config.json', {'environments': ['a', 'b']})
  (tmp_path / 'checkpoints' / '1').mkdir(parents=True)
  kept = ('environments',)
  fork = lambda names: forks.describe(
    tmp_path / 'fork', f'{tmp_path}', {'environments': names}, kept, 2
  )
  assert fork('a,b')[forks.KEY] == fork(('a', 'b'))[forks.KEY]
  with pytest.raises(files.WorkdirError, match="does not fit environments='b'"):
    fork('b')


def test_there_is_a_checkpoint_to_fork_from(tmp_path: pathlib.Path) -> None:
  assert 'has no checkpoints to fork from' in error(
    tmp_path / 'fork', *LONGER, f'--from={tmp_path}'
  )
  assert 'none does not exist. Likely' in error(
    tmp_path / 'fork', *LONGER, f'--from={tmp_path}/none'
  )


def test_a_source_that_runs_may_delete_the_checkpoint(
  tmp_path: pathlib.Path,
) -> None:
  (tmp_path / 'checkpoints' / '30').mkdir(parents=True)
  with pytest.raises(files.WorkdirError, match='no longer has .* of step 20'):
    forks.begin(tmp_path / 'fork', {'workdir': str(tmp_path), 'step': 20})


@pytest.mark.parametrize('last', range(5))
def test_a_fork_that_is_killed_between_two_copies_begins_again(
  last: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  source, fork = tmp_path / 'source', tmp_path / 'fork'
  names = ('metrics.csv', 'held_out/metrics.csv', 'replay/0/1', 'rule.npz')
  for name in (*names, 'checkpoints/20/state'):
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).write_text(name)
  origin = {'workdir': str(source), 'step': 20}
  copy, number = forks._copy, itertools.count()

  def copy_or_die(*arguments: Any) -> None:
    if next(number) == last:
      raise KeyboardInterrupt
    copy(*arguments)

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(forks, '_copy', copy_or_die)
    forks.begin(fork, origin)
  forks.begin(fork, origin)
  assert launching.contents(fork) == launching.contents(source)
