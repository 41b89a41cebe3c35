"""Tests of Atari-57, ProcGen-16 and the adapter of vector environments."""

import dataclasses
import sys
import types as python_types
from typing import Any
from unittest import mock

import conformance
import jax
import numpy as np
import pytest

from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import atari
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import image_vector
from disco_rl.environments.host import joined
from disco_rl.environments.host import procgen

# Ten steps of four frames.
SHORT = atari.Preprocessing(max_episode_frames=40)


def test_a_restored_game_continues_exactly(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Games that have been seeded anew at different times, and frame stacks."""
  pytest.importorskip('ale_py')
  monkeypatch.setattr(atari, 'SEEDED_STEPS', 5)
  make = lambda: atari.make('breakout', 3, 1, SHORT)
  actions = np.random.default_rng(0).integers(18, size=(80, 3)).astype(np.int32)
  games, restored = make(), make()
  games.reset()
  for t, action in enumerate(actions):
    if t == 43:
      state = games.save_state()
      assert state is not None
      assert (state['frames']['seedings'] > 1).all()
      restored.reset()
      restored.step(actions[7])
      restored.restore_state(state)
    timestep = games.step(action)
    if t >= 43:
      jax.tree.map(
        np.testing.assert_array_equal, restored.step(action), timestep
      )
  games.close()
  restored.close()


def test_joined_games_continue_exactly() -> None:
  """In discovery, the games of a group's agents are joined."""
  pytest.importorskip('ale_py')

  def make() -> tuple[joined.JoinedEnvironment, list[base.HostEnvironment]]:
    games = [atari.make('breakout', 2, seed, SHORT) for seed in (1, 2)]
    return joined.JoinedEnvironment(games), games

  actions = np.random.default_rng(0).integers(18, size=(40, 4)).astype(np.int32)
  (games, (_, last)), (restored, _) = make(), make()
  for environment in (games, restored):
    environment.reset()
  for action in actions[:20]:
    games.step(action)
  state = games.save_state()
  assert state is not None
  restored.restore_state(state)
  for action in actions[20:]:
    jax.tree.map(
      np.testing.assert_array_equal, restored.step(action), games.step(action)
    )
  with mock.patch.object(last, 'save_state', return_value=None):
    assert games.save_state() is None


class FakeVector:
  """Two environments, whose frames hold the number of their step.

  The first is terminated in its second step, the second truncated in its third;
  each then resets in the next step, which has a reward, too.
  """

  num_envs = 2
  single_action_space = python_types.SimpleNamespace(n=3)

  def __init__(self) -> None:
    self.actions: list[Any] = []
    self.is_closed = False

  def reset(self) -> tuple[Any, dict[str, Any]]:
    self._count = np.array([1, 1])
    return self._frame(), {}

  def step(self, action: Any) -> tuple[Any, ...]:
    self.actions.append(action)
    self._count = np.where(self._count == [3, 4], 1, self._count + 1)
    ended = self._count == [3, 4]
    is_first = np.array([True, False])
    return self._frame(), action + 5, ended & is_first, ended & ~is_first, {}

  def close(self) -> None:
    self.is_closed = True

  def _frame(self) -> np.ndarray:
    """[2, 1, 2, 2, 2] uint8: all bytes differ, the tens are the count."""
    return np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2) + (
      10 * self._count[:, None, None, None, None]
    ).astype(np.uint8)


def _fake(num_frames: int = 3, max_abs_reward: float = np.inf) -> Any:
  vector = FakeVector()
  environment = image_vector.ImageVectorEnvironment(
    vector,
    'fake',
    seed=7,
    frame_shape=(2, 2, 2),
    max_abs_reward=max_abs_reward,
  )
  return vector, frame_stack.stack(environment, num_frames, is_image=True)


class TestImageVectorEnvironment:
  def test_frames_are_stacked_within_episodes(self) -> None:
    _, environment = _fake(num_frames=3)
    assert environment.spec.observation.shape == (2, 2, 6)
    observations = [environment.reset()]
    observations += [environment.step([0, 0]).observation for _ in range(5)]
    one_frame = np.arange(8).reshape(2, 2, 2)
    # The counts of the last three frames; 0 is a black one.
    want = [
      [(0, 0, 1), (0, 1, 2), (1, 2, 3), (0, 0, 1), (0, 1, 2), (1, 2, 3)],
      [(0, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (0, 0, 1), (0, 1, 2)],
    ]
    for i, stacks in enumerate(want):
      for observation, counts in zip(observations, stacks):
        frames = [(one_frame + 10 * c) * (c > 0) for c in counts]
        np.testing.assert_array_equal(
          observation[i], np.concatenate(frames, axis=-1)
        )

  def test_steps_that_reset_are_masked(self) -> None:
    _, environment = _fake()
    environment.reset()
    steps = [environment.step([0, 1]) for _ in range(6)]
    fields = {
      name: np.stack([getattr(step, name) for step in steps], axis=1)
      for name in ('reward', 'is_terminal', 'is_last', 'mask')
    }
    np.testing.assert_array_equal(
      fields['is_last'], [[0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]
    )
    np.testing.assert_array_equal(
      fields['is_terminal'], [[0, 1, 1, 0, 1, 1], [0, 0, 0, 1, 0, 0]]
    )
    np.testing.assert_array_equal(
      fields['mask'], [[1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 1]]
    )
    np.testing.assert_array_equal(
      fields['reward'], [[5, 5, 0, 5, 5, 0], [6, 6, 6, 0, 6, 6]]
    )

  def test_a_reset_begins_anew(self) -> None:
    _, environment = _fake()
    first = environment.reset()
    for _ in range(2):
      environment.step([0, 0])
    np.testing.assert_array_equal(environment.reset(), first)
    assert environment.step([0, 0]).mask.all()

  def test_rewards_are_clipped(self) -> None:
    _, environment = _fake(max_abs_reward=5.5)
    environment.reset()
    np.testing.assert_array_equal(environment.step([0, 1]).reward, [5, 5.5])

  @pytest.mark.parametrize('action', [[0, 3], [-1, 0]])
  def test_actions_out_of_range_do_not_reach_the_simulator(
    self, action: list[int]
  ) -> None:
    vector, environment = _fake()
    environment.reset()
    with pytest.raises(RuntimeError, match='fake .* step 1 .*must be 0 .. 2'):
      environment.step(np.array(action))
    assert not vector.actions

  def test_close_closes_the_environment(self) -> None:
    vector, environment = _fake()
    environment.close()
    assert vector.is_closed


class TestSubSeeds:
  def test_batches_share_no_seed(self) -> None:
    drawn = np.stack([adapters.sub_seeds(seed, 96) for seed in range(100)])
    assert drawn.dtype == np.int32
    assert (drawn >= 0).all()
    assert len(np.unique(drawn)) == drawn.size


@pytest.mark.needs('atari/pong')
class TestAtari:
  # Making an environment takes a fifth of a second, hence so few.
  @pytest.mark.parametrize(
    'game, num_actions, num_frames',
    [('breakout', 18, 4), ('montezuma_revenge', 18, 4), ('skiing', 18, 1)],
  )
  def test_conforms_and_time_limits_are_truncations(
    self, game: str, num_actions: int, num_frames: int
  ) -> None:
    settings = dataclasses.replace(SHORT, frame_stack=num_frames)
    trajectory = conformance.check(
      lambda seed: atari.make(game, 2, seed, settings), 25, num_environments=2
    )
    assert trajectory.observation.shape == (26, 2, 84, 84, num_frames)
    assert trajectory.action.max() == num_actions - 1
    conformance.check_truncations(trajectory.timestep, 10)

  def test_games_without_a_button_have_all_actions_too(self) -> None:
    names = []
    for game in ('pong', 'skiing'):
      env = atari.import_package().AtariVectorEnv(
        game, 1, full_action_space=True
      )
      names.append(
        [str(x).removeprefix('Action.') for x in env.ale.get_action_set()]
      )
      env.close()
    every, directions = names
    assert len(every) == 18
    mapped = atari._with_button(len(directions))
    assert mapped is not None
    assert [directions[i] for i in mapped] == [
      name.removesuffix('FIRE') or 'NOOP' for name in every
    ]
    assert atari._with_button(len(every)) is None

  @pytest.mark.slow
  def test_32_environments_do_not_depend_on_one_another(self) -> None:
    conformance.check_independence('atari/breakout', 12)

  def test_the_end_of_a_game_is_a_termination(self) -> None:
    environment = registry.make('atari/breakout', 4, seed=0)
    environment.reset()
    rng = np.random.default_rng(0)
    num_terminated = 0
    for _ in range(400):
      timestep = environment.step(rng.integers(18, size=4))
      np.testing.assert_array_equal(
        timestep.is_terminal, timestep.is_last | ~timestep.mask
      )
      num_terminated += timestep.is_last.sum()
    environment.close()
    # A random policy plays five lives in some two hundred steps: if the loss of
    # one were an end, there would be forty.
    assert 2 <= num_terminated <= 16

  def test_frames_are_stacked_as_the_package_does(self) -> None:
    environment = atari.make('pong', 2, 3, SHORT)
    env = atari.import_package().AtariVectorEnv(
      'pong',
      2,
      stack_num=4,
      repeat_action_probability=0.25,
      full_action_space=True,
      max_num_frames_per_episode=40,
      noop_max=0,
      use_fire_reset=False,
    )
    want, _ = env.reset(seed=adapters.sub_seeds(3, 2))
    got = environment.reset()
    for t in range(25):
      np.testing.assert_array_equal(got, np.moveaxis(want, 1, -1))
      action = np.array([t % 18, t % 5], np.int32)
      want = env.step(action)[0]
      got = environment.step(action).observation

  def test_rewards_are_not_clipped(self) -> None:
    environment = registry.make('atari/ms_pacman', 2, seed=0)
    environment.reset()
    rng = np.random.default_rng(0)
    # The first points, 10 each, come after the music.
    rewards = [
      environment.step(rng.integers(18, size=2)).reward for _ in range(100)
    ]
    assert np.max(rewards) >= 10

  def test_settings_are_used(self) -> None:
    preprocessing = atari.Preprocessing(
      height=42,
      width=50,
      is_grayscale=False,
      frame_stack=2,
      has_all_actions=False,
      max_no_ops=30,
      sticky_action_probability=0.0,
    )
    environment = atari.make('breakout', 2, 0, preprocessing)
    assert environment.spec.observation.shape == (42, 50, 6)
    assert environment.spec.num_actions == 4
    environment.reset()
    assert environment.step(np.ones(2, np.int32)).observation.any()

  def test_every_game_is_here(self) -> None:
    for game in atari.GAMES:
      assert atari.import_package().roms.get_rom_path(game).is_file(), game


@pytest.mark.needs('procgen/maze')
class TestProcgen:
  @pytest.mark.parametrize(
    'name, num_environments, num_frames',
    [('procgen/bigfish', 96, 4), ('procgen/easy/leaper', 4, 1)],
  )
  def test_conforms(
    self, name: str, num_environments: int, num_frames: int
  ) -> None:
    settings = {'procgen': {'frame_stack': num_frames}}
    trajectory = conformance.check(
      lambda seed: registry.make(name, num_environments, seed, settings),
      40,
      num_environments,
    )
    assert trajectory.observation.shape[2:] == (64, 64, 3 * num_frames)
    timestep = trajectory.timestep
    np.testing.assert_array_equal(timestep.mask[1:], ~timestep.is_last[:-1])
    # Where an episode begins, all frames but the newest are black.
    first = trajectory.observation[1:][~timestep.mask]
    assert not first[..., :-3].any()
    assert first[..., -3:].any((-3, -2, -1)).all()

  def test_time_limits_are_truncations(self) -> None:
    environment = registry.make('procgen/maze', 2, seed=0)
    environment.reset()
    stay = np.full(2, 4)
    steps = [environment.step(stay) for _ in range(502)]
    is_last = np.stack([step.is_last for step in steps])
    np.testing.assert_array_equal(is_last[:, 0], np.arange(502) == 499)
    assert not steps[499].is_terminal.any()
    assert not steps[500].mask.any()

  def test_modes_differ(self) -> None:
    first = [
      registry.make(name, 2, seed=0).reset()
      for name in ('procgen/bigfish', 'procgen/bigfish', 'procgen/easy/bigfish')
    ]
    np.testing.assert_array_equal(first[0], first[1])
    assert (first[0] != first[2]).any()

  def test_levels_can_be_limited(self) -> None:
    one_level = procgen.Preprocessing(num_levels=1, start_level=5)
    first = procgen.make('coinrun', 4, 0, one_level).reset()
    np.testing.assert_array_equal(
      first, np.broadcast_to(first[:1], first.shape)
    )

  def test_every_game_is_here(self) -> None:
    for game in procgen.GAMES:
      for prefix in ('procgen', 'procgen/easy'):
        environment = registry.make(f'{prefix}/{game}', 1, seed=0)
        assert environment.spec.num_actions == 15
        environment.close()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
  fake = mock.Mock()
  fake.make_spec.side_effect = ImportError('wants libQt5Gui.so.5')
  monkeypatch.setitem(sys.modules, 'envpool', fake)
  with pytest.raises(ImportError, match='libqt5gui5.*wants libQt5Gui.so.5'):
    registry.validate('procgen/bigfish')
