"""Tests of Crafter's adapter."""

import dataclasses
import functools
from typing import Any

import conformance
import numpy as np
import pytest

from disco_rl.environments.host import adapters
from disco_rl.environments.host import crafter_adapter

# Ten steps.
SHORT = crafter_adapter.Preprocessing(max_episode_steps=10)
NO_OP, DO = 0, 5


@pytest.mark.needs('crafter')
class TestCrafter:
  def test_conforms_and_time_limits_are_truncations(self) -> None:
    trajectory = conformance.check(
      lambda seed: crafter_adapter.make(2, seed, SHORT), 25, num_environments=2
    )
    conformance.check_truncations(trajectory.timestep, 10)

  def test_a_restored_game_continues_exactly(self) -> None:
    """Within episodes, and where one has ended."""
    settings = dataclasses.replace(SHORT, frame_stack=2)
    make = lambda: crafter_adapter.make(2, 4, settings)
    conformance.check_restored(make, 30, at=(0, 16, 21))

  def test_a_restored_game_counts_each_episode_once(self) -> None:
    games, restored = (crafter_adapter.make(2, 4, SHORT) for _ in range(2))
    for environment in (games, restored):
      environment.reset()
    for action in conformance.random_actions(17, 10, 2):
      games.step(action)
    restored.restore_state(games.save_state())
    assert isinstance(restored, crafter_adapter.CrafterEnvironment)
    assert restored.achievements().num_episodes.tolist() == [0, 0]

  def test_96_environments_do_not_depend_on_one_another(
    self, monkeypatch: pytest.MonkeyPatch
  ) -> None:
    def generate_world(world: Any, player: Any) -> None:
      world._mat_map[:] = 1 + world.random.randint(2, size=world.area)

    # Worlds and textures of the package take a tenth of a second each.
    crafter = crafter_adapter.import_package()
    monkeypatch.setattr(crafter.worldgen, 'generate_world', generate_world)
    load = functools.cache(crafter.engine.Textures)
    monkeypatch.setattr(crafter.engine, 'Textures', load)
    conformance.check_independence('crafter', 12)

  def test_plays_as_the_package_does(self) -> None:
    environment = crafter_adapter.make(2, 3, SHORT)
    seed = int(adapters.sub_seeds(3, 2)[1])
    game = crafter_adapter.import_package().Env(length=10, seed=seed)
    np.testing.assert_array_equal(environment.reset()[1], game.reset())
    # In the tenth step, the package draws from sets.
    for action in conformance.random_actions(17, 9, 2):
      timestep = environment.step(action)
      frame, reward, *_ = game.step(action[1])
      np.testing.assert_array_equal(timestep.observation[1], frame)
      assert timestep.reward[1] == np.float32(reward)

  def test_the_seed_alone_decides(self) -> None:
    def play(gap: int) -> list[Any]:
      game = crafter_adapter.import_package().Env(seed=0)
      crafter_adapter._begin_episode(game)
      creatures, kept = [], []
      for _ in range(40):
        # Creatures come to lie at other places in memory.
        kept.append([bytearray(size) for size in range(8, 600, gap)])
        game.step(NO_OP)
        creatures.append(
          [(type(x), *x.pos.tolist()) for x in game._world.objects]
        )
      return creatures

    assert play(gap=8) == play(gap=100)

  def test_death_is_a_termination(self) -> None:
    environment = crafter_adapter.make(1, 0, crafter_adapter.Preprocessing())
    environment.reset()
    # Who does nothing starves, or meets a zombie.
    for _ in range(500):
      timestep = environment.step(np.full(1, NO_OP))
      assert timestep.mask.all()
      if timestep.is_last[0]:
        break
    assert timestep.is_last[0]
    assert timestep.is_terminal[0]
    assert timestep.reward[0] < 0
    assert not environment.step(np.full(1, NO_OP)).mask[0]

  def test_achievements_of_ended_episodes_are_counted(self) -> None:
    environment: Any = crafter_adapter.make(2, 1, SHORT)
    environment.reset()
    none = environment.achievements()
    assert none.num_episodes.tolist() == [0, 0]
    assert len(none.unlocked) == 22
    assert not np.any([*none.unlocked.values()])
    # One in ten times, grass yields a sapling.
    is_unlocked = np.array(
      [environment.step(np.full(2, DO)).reward > 0.5 for _ in range(42)]
    )
    # Each episode takes eleven steps, of which one resets; the fourth of either
    # has not ended.
    episodes = is_unlocked[:33].reshape(3, 11, 2).any(1)
    assert 0 < episodes.sum() < 6
    assert is_unlocked[33:].any()
    got = environment.achievements()
    assert got.num_episodes.tolist() == [3, 3]
    want = {**none.unlocked, 'collect_sapling': episodes.sum(axis=0)}
    assert got.unlocked.keys() == want.keys()
    for name, counts in want.items():
      np.testing.assert_array_equal(got.unlocked[name], counts)

  def test_settings_are_used(self) -> None:
    preprocessing = crafter_adapter.Preprocessing(
      height=36, width=54, frame_stack=2, action_repeat=4, max_episode_steps=6
    )
    environment = crafter_adapter.make(2, 0, preprocessing)
    assert environment.spec.observation.shape == (36, 54, 6)
    first = environment.reset()
    assert not first[..., :3].any()
    assert first[..., 3:].any()
    steps = [environment.step(np.full(2, NO_OP)) for _ in range(3)]
    assert [step.is_last[0] for step in steps] == [False, True, False]
    assert [step.mask[0] for step in steps] == [True, True, False]
