"""Tests of launch.play, and of loading agents of runs."""

import functools
import pathlib
import shutil
from typing import Any
from unittest import mock

from absl import flags
import jax
import launching
import numpy as np
from PIL import Image
import pytest

import disco_rl
from disco_rl.api import loading
from disco_rl.runtime import checkpointing
from disco_rl.runtime import files
from disco_rl.runtime import metrics
from disco_rl.training import stored
from launch import play

call = functools.partial(launching.call_main, play)
error = functools.partial(launching.error_of_main, play)


def test_plays_an_agent_of_a_run_and_changes_nothing(
  run: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  # As while a checkpoint is being written.
  (run / 'checkpoints' / '30.orbax-checkpoint-tmp').mkdir()
  before = launching.contents(run)
  to = tmp_path / 'film.gif'
  call(workdir=str(run), seed=1, episodes=2, greedy=True, to=str(to))
  assert launching.contents(run) == before
  *episodes, mean, path = capsys.readouterr().out.splitlines()
  want = disco_rl.load_policy(run, seed=1).evaluate(2, greedy=True)
  assert [x.split(': ')[0] for x in episodes] == ['episode 1', 'episode 2']
  assert all(x.endswith(', 3 steps') for x in episodes)
  assert mean.startswith('mean return ') and mean.endswith(', 2 episodes')
  assert len(want.returns) == 2
  assert path == str(to)
  with Image.open(to) as film:
    assert film.n_frames >= 7


def test_an_agent_of_a_run_plays_in_the_environment_that_is_given(
  run: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  want = disco_rl.load_policy(run, seed=1)
  policy = disco_rl.load_policy(run, seed=1, environment='catch/6x2')
  assert policy.spec.observation.shape == (6, 2)
  np.testing.assert_array_equal(policy.evaluate(2).lengths, 5)
  call(
    workdir=str(run),
    play_in='catch/6x2',
    episodes=2,
    to=str(tmp_path / 'play.gif'),
  )
  assert 'episode 2: ' in (printed := capsys.readouterr().out)
  assert printed.count(', 5 steps') == 2
  jax.tree.map(np.testing.assert_array_equal, policy.params, want.params)
  with pytest.raises(ValueError, match=r'12, 16.*20, 16'):
    disco_rl.load_policy(run, environment='catch/5x4')
  with pytest.raises(ValueError, match='leave out torso=...'):
    disco_rl.load_policy(run, torso=lambda board: board)


def test_an_environment_that_is_given_has_the_preprocessing_of_the_run(
  run: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  made = []
  make = loading._make_one

  def record(environment: Any, preprocessing: Any) -> Any:
    made.append((environment, preprocessing))
    return make(environment, preprocessing)

  monkeypatch.setattr(loading, '_make_one', record)
  disco_rl.load_policy(run, environment='catch/6x2')
  ((name, given),) = made
  assert name == 'catch/6x2'
  assert given == stored.read_settings(run)['preprocessing']
  assert 'atari' in given


def test_a_loaded_agent_trains_on_as_in_the_run(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  half = shutil.copytree(run, tmp_path / 'run')
  shutil.rmtree(half / 'checkpoints' / '20')
  trainer = disco_rl.load_agent(half, seed=1)
  assert trainer.updates == 10
  got = trainer.train(10, 5, show_progress=False)
  rows = metrics.read(run / 'metrics.csv')
  is_there = (rows['seed'] == 1) & (rows['update'] > 10)
  for name in ('update', 'episodes', 'return', 'loss', 'gradient_norm'):
    # The program for one agent rounds otherwise than that for two.
    np.testing.assert_allclose(got[name], rows[name][is_there], rtol=1e-4)


def test_all_agents_of_a_run_are_of_one_checkpoint(
  run: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  each = [stored.read(run, seed) for seed in (0, 1)]
  read = mock.Mock(side_effect=checkpointing.read)
  monkeypatch.setattr(checkpointing, 'read', read)
  together = stored.read_all(run)
  assert read.call_count == 1
  # Programs of one kind of agent are compiled once.
  assert together[0].agent is together[1].agent
  for got, want in zip(together, each, strict=True):
    assert (got.seed, got.update) == (want.seed, want.update)
    jax.tree.map(
      np.testing.assert_array_equal,
      got.train_state.learner.params,
      want.train_state.learner.params,
    )


def test_damaged_checkpoints_are_passed_over(
  run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
  copy = shutil.copytree(run, tmp_path / 'run')
  (copy / 'checkpoints' / '20' / 'default' / '_METADATA').write_text('{')
  assert disco_rl.load_agent(copy).updates == 10
  shutil.rmtree(copy / 'checkpoints')
  with pytest.raises(checkpointing.CheckpointError, match='is not a folder of'):
    disco_rl.load_agent(copy)
  (copy / 'checkpoints').mkdir()
  with pytest.raises(checkpointing.CheckpointError, match='has saved none yet'):
    disco_rl.load_agent(copy)


def test_errors_in_one_line(run: pathlib.Path, tmp_path: pathlib.Path) -> None:
  assert '--workdir=RUN or by --agent=FILE' in error()
  assert (
    'has no agent with seed 2: the seeds of its agents are 0 to 1'
    in error(workdir=str(run), seed=2)
  )
  assert 'holds no run of disco-rl train' in error(workdir=str(tmp_path))
  for flag in ('workdir', 'agent'):
    assert 'nothing.npz does not exist: name the file of an agent, or' in error(
      **{flag: str(tmp_path / 'nothing.npz')}
    )
  assert 'must end in .gif or .mp4' in error(workdir=str(run), to='film.avi')
  long = str(tmp_path / f'{"x" * 300}.gif')
  assert 'Cannot create a file (File name' in error(workdir=str(run), to=long)


def test_folders_that_take_no_pictures(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  denied = mock.Mock(side_effect=PermissionError('no'))
  monkeypatch.setattr(files, 'check_writable', denied)
  found = error(workdir=str(tmp_path))
  assert found.endswith('no. Name another file for the pictures: --to=FILE.')


def test_a_link_beside_the_agent_is_not_overwritten(
  tmp_path: pathlib.Path,
) -> None:
  """It may have come with the agent; a link that --to names is the user's."""
  (tmp_path / 'mine').write_text('mine')
  (tmp_path / 'play.gif').symlink_to(tmp_path / 'mine')
  for flag, value in (('agent', tmp_path / 'x.npz'), ('workdir', tmp_path)):
    assert 'play.gif is a link' in error(**{flag: str(value)})
  to = str(tmp_path / 'play.gif')
  assert 'does not exist' in error(agent=str(tmp_path / 'x.npz'), to=to)


def test_an_address_of_an_agent_is_no_path(tmp_path: pathlib.Path) -> None:
  flag = play._AGENT
  address = flags.FLAGS[flag.name].parser.parse('hf://me/rules/policy.npz')
  assert 'is not pinned' in error(agent=address, to=str(tmp_path / 'play.gif'))


def test_what_cannot_be_drawn_is_played(
  tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
  pytest.importorskip('gymnax')
  trainer = disco_rl.Trainer(
    'gymnax/CartPole-v1', 'actor_critic', hidden_sizes=(8,)
  )
  trainer.policy().save(tmp_path / 'policy.npz')
  call(agent=str(tmp_path / 'policy.npz'), episodes=1)
  printed = capsys.readouterr()
  assert printed.err.startswith(
    'No pictures: There are no pictures of CartPole'
  )
  assert printed.out.startswith('episode 1: return ')
  assert [x.name for x in tmp_path.iterdir()] == ['policy.npz']
