"""Tests of NetHack's adapter."""

import dataclasses

import conformance
import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments.host import nethack

SHORT = nethack.Preprocessing(max_episode_steps=10)
SCREEN = {'glyphs': (21, 79), 'blstats': (27,), 'message': (256,)}


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
