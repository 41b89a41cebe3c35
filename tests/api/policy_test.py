"""Agents that are watched, saved and loaded: policies, files and trainers."""

import copy
import hashlib
import pathlib
import pickle
import types
from typing import Any

import distrax
import gymnasium
import hubs
import jax
import jax.numpy as jnp
import masked
import numpy as np
from PIL import Image
import pytest
import small

import disco_rl
from disco_rl import types as types_lib
from disco_rl.environments import base
from disco_rl.environments.jax_native import catch
from disco_rl.runtime import npz
from disco_rl.training import player

RULE = disco_rl.load_rule('actor_critic', num_bins=21, max_abs_value=3.0)


@pytest.fixture(scope='module')
def trainer() -> disco_rl.Trainer:
  return disco_rl.Trainer('catch/4x3', RULE, seed=1, **small.AGENT)


def logit_weights(trainer: disco_rl.Trainer) -> np.ndarray:
  return np.asarray(trainer.policy().params['agent/~/logits']['w'])


def test_playing_leaves_training_as_it_is(tmp_path: pathlib.Path) -> None:
  trainer = disco_rl.Trainer('catch/4x3', RULE, seed=1, **small.AGENT)
  trainer.save(tmp_path / 'start.npz')
  want = trainer.train(4, 4, show_progress=False)
  weights = logit_weights(trainer)
  trainer.load(tmp_path / 'start.npz')
  trainer.train(2, 2, show_progress=False)
  played = trainer.evaluate(np.array(5), greedy=True)
  # Episodes take three steps, and pay 1 or -1.
  np.testing.assert_array_equal(played.lengths, 5 * [3])
  np.testing.assert_array_equal(np.abs(played.returns), 1)
  trainer.render()
  got = trainer.train(2, 2, show_progress=False)
  for name in ('return', 'episodes', 'environment_steps'):
    np.testing.assert_array_equal(got[name], want[name])
  np.testing.assert_array_equal(logit_weights(trainer), weights)


def test_policies_and_trainers_are_copied_and_not_pickled(
  trainer: disco_rl.Trainer,
) -> None:
  policy = trainer.policy()
  board = np.zeros((4, 3))
  for copied in (copy.copy(policy), copy.deepcopy(policy)):
    actions = [copied.act(board) for _ in range(20)]
    assert len(set(actions)) > 1
    assert [copied.act(board) for _ in range(20)] != actions
    # The original is where it was.
    assert [copy.copy(policy).act(board) for _ in range(2)] == actions[:1] * 2
  for thing in (policy, trainer):
    with pytest.raises(TypeError, match='pickled, .*`save`.*load_policy'):
      pickle.dumps(thing)


@pytest.mark.parametrize(
  'environment', ['catch/4x3', lambda: gymnasium.make('CartPole-v1')]
)
def test_copies_of_trainers_learn_on_their_own(environment: Any) -> None:
  """Environments on the host are made anew, and cannot be copied."""
  with disco_rl.Trainer(environment, RULE, **small.AGENT) as trainer:
    trainer.train(2, show_progress=False)
    copied = copy.deepcopy(trainer)
    weights = logit_weights(trainer)
    np.testing.assert_array_equal(logit_weights(copied), weights)
    got = copied.train(2, show_progress=False)
    assert (trainer.updates, copied.updates) == (2, 4)
    assert (logit_weights(copied) != weights).any()
    np.testing.assert_array_equal(logit_weights(trainer), weights)
    copied.close()
    want = trainer.train(2, show_progress=False)
    if isinstance(environment, str):
      np.testing.assert_equal(got, want)
    observation = np.zeros(trainer.spec.observation.shape)
    policy = trainer.policy()
    assert copy.deepcopy(policy).act(observation) == policy.act(observation)


def test_a_trainer_of_an_object_on_the_host_is_not_copied() -> None:
  env = gymnasium.make('CartPole-v1')
  settings = {**small.AGENT, 'num_environments': 1}
  with disco_rl.Trainer(env, RULE, **settings) as trainer:
    copy.deepcopy(trainer.policy())
    with pytest.raises(TypeError, match='a single object: make .* a function'):
      copy.copy(trainer)


def test_films_show_the_board(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  frames = trainer.render(tmp_path / 'film.gif', episodes=2, seed=3)
  # Four boards an episode, the last for half a second more: of five a second,
  # two.
  assert frames.shape == (12, 4 * 8, 3 * 8, 3)
  cells = frames[:, ::8, ::8]
  lit = (cells != cells[0, 1, 1]).any(-1)
  for episode in (lit[:4], lit[6:10]):
    rows = [np.flatnonzero(board[:-1].any(-1)).tolist() for board in episode]
    assert rows == [[0], [1], [2], []]
  np.testing.assert_array_equal(frames[4], frames[3])
  np.testing.assert_array_equal(trainer.render(episodes=2, seed=3), frames)
  with Image.open(tmp_path / 'film.gif') as film:
    picture = np.asarray(film.convert('RGB'))
    # 24 pixels become 240.
    np.testing.assert_array_equal(picture[5::10, 5::10], frames[0])


def test_pictures_of_several_sizes_are_padded(
  trainer: disco_rl.Trainer,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  growing = [np.full((n, 2 * n, 3), n, np.uint8) for n in (4, 6, 5)]
  film = types.SimpleNamespace(frames=growing, frames_per_second=5.0)
  monkeypatch.setattr(disco_rl.Trainer, 'film', lambda *_, **__: (None, film))
  frames = trainer.render(tmp_path / 'film.gif')
  assert frames.shape == (3, 6, 12, 3)
  for frame, n in zip(frames, (4, 6, 5)):
    assert (frame[:n, : 2 * n] == n).all() and frame.sum() == n * 6 * n * n


def test_files_of_agents_play_as_they_did(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  trainer.save(tmp_path / 'agent.npz')
  trainer.policy().save(tmp_path / 'policy.npz')
  sizes = [
    (tmp_path / name).stat().st_size for name in ('agent.npz', 'policy.npz')
  ]
  assert sizes[1] < sizes[0] / 2  # Adam's moments and replay are left out.
  want = trainer.evaluate(6, seed=2)
  for name in ('agent.npz', 'policy.npz'):
    policy = disco_rl.load_policy(tmp_path / name)
    np.testing.assert_array_equal(
      policy.evaluate(6, seed=2).returns, want.returns
    )
    board = np.eye(4, 3)
    assert policy.act(board, greedy=True) == trainer.act(board, greedy=True)
    assert policy.description.environment == 'catch/4x3'
    assert policy.description.rule_settings['num_bins'] == 21
  trainer.load(tmp_path / 'agent.npz')


def test_an_agent_is_not_loaded_with_other_settings(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  trainer.save(tmp_path / 'agent.npz')
  other = disco_rl.Trainer(
    'catch/3x4', RULE, **{**small.AGENT, 'learning_rate': 0.5}
  )
  with pytest.raises(
    ValueError,
    match="environment was 'catch/4x3', is 'catch/3x4'; learning_rate was ",
  ):
    other.load(tmp_path / 'agent.npz')
  assert other.updates == 0


def test_normalization_goes_wherever_the_agent_goes(
  tmp_path: pathlib.Path,
) -> None:
  """Into files, bit for bit; and a policy keeps the statistics it had."""
  trainer = disco_rl.Trainer(
    lambda: gymnasium.make('CartPole-v1'),
    RULE,
    normalize_observations=True,
    normalize_rewards=True,
    **small.AGENT,
  )
  with trainer:
    trainer.train(3, show_progress=False)
    trainer.save(tmp_path / 'agent.npz')
    policy = trainer.policy()
    policy.save(tmp_path / 'policy.npz')
    played = policy.evaluate(4, seed=3).returns
    moments = lambda x: jax.tree.map(
      np.asarray, x.params['observation_moments']
    )
    before = moments(policy)
    assert before['count'] == 3 * 8 * 4
    np.testing.assert_array_equal(
      disco_rl.load_policy(
        tmp_path / 'policy.npz',
        environment=lambda: gymnasium.make('CartPole-v1'),
      )
      .evaluate(4, seed=3)
      .returns,
      played,
    )
    trainer.evaluate(2)
    jax.tree.map(
      np.testing.assert_array_equal, moments(trainer.policy()), before
    )
    rewards = trainer._train_state.acting.rewards
    trainer.train(2, show_progress=False)
    assert moments(trainer.policy())['count'] == 5 * 8 * 4
    jax.tree.map(np.testing.assert_array_equal, moments(policy), before)
    np.testing.assert_array_equal(policy.evaluate(4, seed=3).returns, played)
    trainer.load(tmp_path / 'agent.npz')
    jax.tree.map(
      np.testing.assert_array_equal, moments(trainer.policy()), before
    )
    loaded = trainer._train_state.acting.rewards
    assert loaded.returns.count == 3 * 4 * 2
    jax.tree.map(np.testing.assert_array_equal, loaded.returns, rewards.returns)


def test_a_shared_policy_is_loaded_by_its_address(
  trainer: disco_rl.Trainer,
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  path = tmp_path / 'policy.npz'
  trainer.policy().save(path)
  monkeypatch.setenv('HOME', str(tmp_path))
  with hubs.serve({}, tmp_path / 'cache') as hub:
    address = disco_rl.share_policy('~/policy.npz', 'me/rules')
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = f'policy-{digest[:8]}.npz'
    assert address == f'hf://me/rules/{name}@{hubs.COMMIT}#sha256={digest}'
    policy = disco_rl.load_policy(address)
    assert hub.files[name] == path.read_bytes()
    path.write_bytes(b'damaged')
    with pytest.raises(ValueError, match='damaged'):
      disco_rl.share_policy(path, 'me/rules')
  np.testing.assert_array_equal(
    policy.params['agent/~/logits']['w'], logit_weights(trainer)
  )


def test_another_environment_of_the_same_shapes(
  trainer: disco_rl.Trainer,
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
) -> None:
  path = tmp_path / 'policy.npz'
  trainer.policy().save(path)
  policy = disco_rl.load_policy(path, environment=catch.Catch(4, 3))
  assert capsys.readouterr().err == (
    f'warning: The agent in {path} was trained in catch/4x3, and acts in '
    'Catch.\n'
  )
  assert len(policy.evaluate(20).returns) == 20
  with pytest.raises(ValueError, match=r'linear_0.*12, 8.*20, 8|torso'):
    disco_rl.load_policy(path, environment='catch/5x4')


def test_files_that_cannot_be_played(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  path = tmp_path / 'policy.npz'
  trainer.policy().save(path)
  data = bytearray(path.read_bytes())
  # After the name of an array and its header of 128 bytes.
  data[data.index(b"['w'].npy") + 160] ^= 1
  path.write_bytes(data)
  with pytest.raises(npz.ArchiveError, match='damaged'):
    disco_rl.load_policy(path)
  npz.write(path, {'x': np.zeros(3)}, {})
  with pytest.raises(ValueError, match='does not contain an agent'):
    disco_rl.load_policy(path)
  with pytest.raises(FileNotFoundError):
    disco_rl.load_policy(tmp_path / 'absent.npz')
  trainer.policy().save(path)
  with pytest.raises(ValueError, match='no agent with seed 7'):
    disco_rl.load_policy(path, seed=7)


def test_torsos_and_environments_of_the_users_own(
  tmp_path: pathlib.Path,
) -> None:
  torso = lambda board: jnp.reshape(board, (len(board), -1))
  settings = {**small.AGENT, 'torso': torso}
  del settings['hidden_sizes']
  trainer = disco_rl.Trainer(catch.Catch(4, 3), RULE, **settings)
  path = tmp_path / 'policy.npz'
  trainer.policy().save(path)
  with pytest.raises(ValueError, match='your own environment object'):
    disco_rl.load_policy(path)
  with pytest.raises(ValueError, match='torso is a function'):
    disco_rl.load_policy(path, environment='catch/4x3')
  policy = disco_rl.load_policy(path, environment='catch/4x3', torso=torso)
  np.testing.assert_array_equal(
    policy.evaluate(4).returns, trainer.evaluate(4).returns
  )


def test_single_environments_are_left_alone() -> None:
  env = gymnasium.make('CartPole-v1')
  trainer = disco_rl.Trainer(
    env, RULE, **{**small.AGENT, 'num_environments': 1}
  )
  with pytest.raises(ValueError, match='pass a function that makes it'):
    trainer.evaluate(2)
  trainer.close()


def test_environments_on_the_host() -> None:
  make_env = lambda: gymnasium.make('CartPole-v1')
  with disco_rl.Trainer(make_env, RULE, **small.AGENT) as trainer:
    played = trainer.evaluate(3)
    # Each step pays 1.
    np.testing.assert_array_equal(played.returns, played.lengths)
    assert len(set(played.lengths.tolist())) > 1
    with pytest.raises(base.RenderError, match="render_mode='rgb_array'"):
      trainer.render()


def test_arguments_are_checked(
  trainer: disco_rl.Trainer, tmp_path: pathlib.Path
) -> None:
  with pytest.raises(ValueError, match='episodes=0 must be at least 1'):
    trainer.evaluate(0)
  with pytest.raises(ValueError, match='must end in .gif or .mp4'):
    trainer.render(tmp_path / 'film.png')
  with pytest.raises(ValueError, match='preprocessing=.* for environments by'):
    disco_rl.Trainer(catch.Catch(), RULE, preprocessing={'atari': {}})


@pytest.mark.parametrize('core_lstm', [0, 4])
def test_act_samples_from_the_distribution(core_lstm: int) -> None:
  trainer = disco_rl.Trainer(
    masked.Doors(), RULE, **small.AGENT, core_lstm=core_lstm
  )
  policy = trainer.policy()
  rng = np.random.default_rng(0)
  mask = np.tile([True, False, True, True, False], (64, 1))
  observation = {
    name: rng.normal(size=(64, *leaf.shape)).astype(leaf.dtype)
    for name, leaf in trainer.spec.observation.items()
  } | {types_lib.ACTION_MASK: mask}
  for call in range(1, 3):
    distribution = policy.distribution(observation)
    assert isinstance(distribution, distrax.Categorical)
    np.testing.assert_array_equal(distribution.probs[:, [1, 4]], 0)
    # The noise of the actions, as in versions without the distribution.
    key = jax.random.fold_in(player.action_keys(0)[0], call)
    noise = jax.random.gumbel(key, (64, 5))
    expected = np.argmax(distribution.logits + noise, axis=-1)
    np.testing.assert_array_equal(policy.act(observation), expected)
  greedy = policy.distribution(observation).mode()
  np.testing.assert_array_equal(
    policy.act(observation, greedy=True, is_first=False), greedy
  )
  one = jax.tree.map(lambda x: x[3], observation)
  alone = trainer.policy().distribution(one)
  assert alone.batch_shape == ()
  logits, core = jax.jit(policy.apply)(
    policy.params, jax.tree.map(jnp.asarray, observation)
  )
  np.testing.assert_allclose(
    jax.nn.log_softmax(logits[3]), alone.logits, rtol=1e-4
  )
  assert bool(jax.tree.leaves(core)) == bool(core_lstm)
