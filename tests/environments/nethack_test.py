"""Tests of NetHack's adapter."""

import dataclasses
from typing import Any
from unittest import mock

import conformance
import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments.host import nethack

SHORT = nethack.Preprocessing(max_episode_steps=10)
SCREEN = {'glyphs': (21, 79), 'blstats': (27,), 'message': (256,)}


def test_rules_and_limits_are_those_of_the_benchmarks() -> None:
  """The benchmarks of Kuettler et al. (2020), and the NetHack Challenge."""
  tasks: Any = mock.Mock(TASK_ACTIONS='few')
  tasks.nethack.USEFUL_ACTIONS, tasks.nethack.ACTIONS = 'useful', 'all'
  rules, limits = nethack._task(tasks, nethack.BENCHMARK)
  assert rules == {
    'character': 'mon-hum-neu-mal',
    'actions': 'few',
    'penalty_step': -0.01,
  }
  assert limits.steps == 5000
  assert limits.idle_steps > 10**12  # No limit.
  more = dataclasses.replace(nethack.BENCHMARK, has_all_actions=True)
  assert nethack._task(tasks, more)[0]['actions'] == 'useful'
  rules, limits = nethack._challenge(tasks, nethack.BENCHMARK)
  assert rules == {
    'character': '@',
    'actions': 'all',
    'penalty_step': 0.0,
    'allow_all_yn_questions': True,
    'allow_all_modes': True,
  }
  assert (limits.steps, limits.idle_steps) == (10**6, 10**4)


@pytest.mark.needs('nethack/score')
class TestNetHack:
  def test_conforms_and_time_limits_are_truncations(self) -> None:
    trajectory = conformance.check(
      lambda seed: nethack.make('score', 4, seed, SHORT), 34, num_environments=4
    )
    observation, timestep = trajectory.observation, trajectory.timestep
    conformance.check_truncations(timestep, 10)
    # The last observation is still one of the game: the hero has health and is
    # on the map. After a game both are blank.
    assert (observation['blstats'][..., 10, :] > 0).all()
    glyphs = observation['glyphs'][..., -1].reshape(35 * 4, -1)
    assert (glyphs != glyphs[:, :1]).any(-1).all()

  def test_screens_are_stacked_within_episodes(self) -> None:
    def play(frame_stack: int) -> conformance.Trajectory:
      settings = dataclasses.replace(SHORT, frame_stack=frame_stack)
      make = lambda seed: nethack.make('score', 2, seed, settings)
      return conformance.check(make, 25, num_environments=2)

    single, stack = play(1), play(4)
    is_first = np.concatenate([np.ones((1, 2), bool), ~single.timestep.mask])
    for key, shape in SCREEN.items():
      frame = single.observation[key]
      assert frame.shape[2:] == shape
      np.testing.assert_array_equal(
        stack.observation[key], conformance.stacked(frame, is_first, 4)
      )
    # The hero does move: the screens of a stack differ.
    assert (np.ptp(stack.observation['blstats'][:, :, :2], -1) > 0).any()

  @pytest.mark.parametrize('task', ['score', nethack.CHALLENGE])
  def test_a_restored_game_continues_exactly(self, task: str) -> None:
    """Within episodes, and where one has ended."""
    settings = nethack.BENCHMARK if task == nethack.CHALLENGE else SHORT
    make = lambda: nethack.make(task, 2, 4, settings)
    conformance.check_restored(make, 30, at=(0, 16, 21))

  def test_96_environments_do_not_depend_on_one_another(self) -> None:
    conformance.check_independence('nethack/score', 5)

  def test_every_episode_is_another_dungeon(self) -> None:
    environment = nethack.make('score', 2, 0, SHORT)
    first = environment.reset()
    steps = [
      environment.step(action)
      for action in conformance.random_actions(23, 33, 2)
    ]
    environment.close()
    starts = [first, *(s.observation for s in steps if not s.mask.all())]
    maps = [x.tobytes() for start in starts for x in start['glyphs']]
    assert len(maps) == len(set(maps)) == 8

  def test_death_is_a_termination(self) -> None:
    environment = registry.make('nethack/score', 4, seed=0)
    environment.reset()
    for action in conformance.random_actions(23, 2_000, 4):
      timestep = environment.step(action)
      if timestep.is_terminal.any():
        break
    died = timestep.is_terminal
    np.testing.assert_array_equal(timestep.is_last, died)
    assert timestep.mask.all()
    timestep = environment.step(action)
    environment.close()
    np.testing.assert_array_equal(timestep.mask, ~died)
    # The first turn of the next game.
    np.testing.assert_array_equal(timestep.observation['blstats'][died, 20], 1)

  @pytest.mark.parametrize('task', nethack.TASKS)
  def test_every_task_is_here(self, task: str) -> None:
    environment = registry.make(f'nethack/{task}', 1, seed=0)
    environment.reset()
    assert np.isfinite(environment.step([1]).reward).all()
    environment.close()

  def test_the_challenge_is_that_of_the_package(self) -> None:
    from nle.env import tasks

    environment = registry.make('nethack/challenge', 4, seed=0)
    assert environment.spec.num_actions == len(tasks.nethack.ACTIONS) == 121
    heroes = {
      bytes(x.astype(np.uint8)).split(b'neutral')[0]
      for x in environment.reset()['message'][..., -1]
    }
    assert len(heroes) > 1
    # The same game as that of the package's own class, which takes no seeds.
    game = nethack.make('challenge', 1, 3)._environment._simulators[0]
    game.reset()
    game._env.seed(5, 6, reseed=False)
    theirs = tasks.NetHackChallenge(save_ttyrec_every=0, fix_moon_phase=True)
    del theirs.nethack.set_initial_seeds
    theirs.nethack.set_initial_seeds(5, 6, False, None)
    start, _ = theirs.reset()
    game._observation, _ = game._env.reset()
    np.testing.assert_array_equal(game._observation['glyphs'], start['glyphs'])
    rng, total = np.random.default_rng(0), 0.0
    for action in rng.integers(121, size=500):
      seen, reward, is_over, _ = game.step(action)
      expected, expected_reward, has_ended, _, _ = theirs.step(action)
      assert (reward, is_over) == (expected_reward, has_ended)
      for key in SCREEN:
        np.testing.assert_array_equal(seen[key], expected[key])
      total += reward
      if is_over:
        break
    assert total >= 0

  def test_games_in_which_no_time_passes_are_truncated(self) -> None:
    environment = nethack.make('score', 1, 0)
    (game,) = environment._environment._simulators
    game._limits = nethack._Limits(steps=100, idle_steps=3)
    environment.reset()
    # Searching takes time, kicking asks for a direction, and is declined.
    kick, search = (
      [int(x) for x in game._env.actions].index(key) for key in (4, ord('s'))
    )
    ends = [
      bool(environment.step([action]).is_last[0])
      for action in (kick, kick, search, kick, kick, kick)
    ]
    environment.close()
    assert ends == 5 * [False] + [True]

  def test_the_challenge_ignores_no_setting(self) -> None:
    for changes in ({'character': '@'}, {'idle_penalty': 0.0}):
      with pytest.raises(ValueError, match="'nethack/challenge' has its"):
        registry.make('nethack/challenge', 1, 0, {'nethack': changes})

  def test_a_hero_that_the_game_would_ignore(self) -> None:
    for hero in ('vla-dwa-law-fem', 'val dwa', ''):
      with pytest.raises(ValueError, match='first three letters of role'):
        registry.make('nethack/score', 1, 0, {'nethack': {'character': hero}})

  def test_settings_are_used(self) -> None:
    preprocessing = nethack.Preprocessing(
      character='val-dwa-law-fem',
      has_all_actions=True,
      idle_penalty=-3.0,
      frame_stack=1,
    )
    environment = nethack.make('score', 2, 0, preprocessing)
    num_actions = environment.spec.num_actions
    assert num_actions > 80
    messages = environment.reset()['message']
    assert any(b'Valkyrie' in x.astype(np.uint8).tobytes() for x in messages)
    rewards = [environment.step([a, a]).reward for a in range(num_actions)]
    environment.close()
    assert np.min(rewards) == -3
