"""Tests of names of environments, for every family."""

import contextlib
import dataclasses
import sys
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import families
from disco_rl.environments import registry
from disco_rl.environments import suites
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.environments.jax_native import sokoban_generator
from disco_rl.training import config as training_config


def test_every_listed_name_is_valid_where_its_package_is() -> None:
  names = set(registry.names())
  for suite in suites.SUITES.values():
    assert set(suite) < names
  for name in names:
    try:
      registry.validate(name)
    except ImportError:
      assert name.split('/')[0] not in ('catch', 'gridworld', 'gymnasium')


def test_catch_has_the_size_of_its_name() -> None:
  for name, shape in (('catch', (8, 8)), ('catch/10x5', (10, 5))):
    environment = registry.make(name, num_environments=1, seed=0)
    assert environment.spec.observation.shape == shape


def test_grid_worlds_are_those_of_their_names() -> None:
  for name in ('gridworld/03', 'gridworld/held_out_17'):
    environment = registry.make(name, num_environments=1, seed=0)
    want = gridworld_tasks.make(name.removeprefix('gridworld/'))
    assert jax.tree.structure(environment) == jax.tree.structure(want)
    jax.tree.map(np.testing.assert_array_equal, environment, want)


def test_sokoban_has_the_levels_of_its_name_and_the_settings() -> None:
  pytest.importorskip('jumanji')
  changes = {'frame_stack': 2, 'time_limit': 5}
  for name, arguments in (
    ('sokoban', (4096, 0)),
    ('sokoban/held_out', (1024, 1)),
  ):
    environment: Any = registry.make(name, 1, 0, {'sokoban': changes})
    want = sokoban_generator.generate(*arguments)
    np.testing.assert_array_equal(environment.levels, want)
    assert environment.spec.observation.shape == (10, 10, 8)
    assert environment.preprocessing.time_limit == 5


@pytest.mark.parametrize(
  'name, changes, steps',
  [
    ('atari/pong', {}, 4),
    ('atari/pong', {'atari': {'frame_skip': 5}}, 5),
    ('dmlab/rooms_watermaze', {}, 4),
    ('procgen/coinrun', {}, 1),
    ('crafter', {}, 1),
    ('crafter', {'crafter': {'action_repeat': 3}}, 3),
    ('gymnasium/CartPole-v1', {}, 1),
    ('catch', {}, 1),
  ],
)
def test_the_steps_of_an_action_are_those_of_the_benchmark(
  name: str, changes: Any, steps: int
) -> None:
  assert registry.action_repeat(name, changes) == steps
  with contextlib.suppress(ImportError):
    assert registry.specimen(name, changes)[0].action_repeat == steps


@pytest.mark.parametrize('family', registry.usable_families())
def test_names_and_environments_agree_on_the_steps_of_an_action(
  family: str,
) -> None:
  # The first of Gymnasium's names is deprecated; that of Craftax draws textures
  # for half a minute.
  others = {
    'gymnasium': 'gymnasium/CartPole-v1',
    'craftax': 'craftax/classic_symbolic',
  }
  name = others.get(family, next(iter(families.FAMILIES[family].names())))
  environment = registry.make(name, 1, seed=0)
  environment.close()
  assert registry.action_repeat(name) == environment.spec.action_repeat


@types.record
class RepeatingCatch(catch.Catch):
  """Catch whose actions count as four steps."""

  @property
  def spec(self) -> types.EnvironmentSpec:
    return dataclasses.replace(super().spec, action_repeat=4)


class RepeatingOnHost(base.HostEnvironment):
  """An environment on the host whose actions count as four steps."""

  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((), np.float32), num_actions=2, action_repeat=4
  )
  num_environments = 1

  def reset(self) -> types.PyTree:
    return np.zeros(1, np.float32)

  def step(self, action: np.ndarray) -> types.TimeStep:
    raise NotImplementedError

  def close(self) -> None:
    pass


@pytest.mark.parametrize(
  ('kind', 'make'),
  [('device', RepeatingCatch), ('host', RepeatingOnHost)],
)
def test_registered_environments_say_how_many_steps_an_action_takes(
  kind: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(families, 'FAMILIES', {**families.FAMILIES})
  made = []
  registry.register('mine', lambda *_: made.append(1) or make(), kind)
  config = training_config.TrainingConfig(environment='mine')
  steps = config.environment_steps
  assert steps == 4 * config.agent.actions(config.updates)
  assert config.updates_for(steps) == config.updates
  assert len(made) == 1
  # As an agent counts them, made by its name or from the object.
  assert registry.make('mine', 1, seed=0).spec.action_repeat == 4
  # A cell of a notebook that is run again.
  registry.register('mine', lambda *_: catch.Catch(), 'device')
  assert registry.action_repeat('mine') == 1


def test_names_of_no_family_have_no_steps() -> None:
  with pytest.raises(ValueError, match="Unknown environment 'cach'"):
    registry.action_repeat('cach')


@pytest.mark.parametrize(
  'name, changes',
  [
    ('atari/skiing', {}),
    ('atari/pong', {'atari': {'has_all_actions': False, 'frame_skip': 2}}),
    ('atari/pong', {'atari': {'frame_stack': 1, 'is_grayscale': False}}),
    ('procgen/coinrun', {}),
    ('procgen/easy/maze', {'procgen': {'frame_stack': 2}}),
    ('gymnasium/CartPole-v1', {}),
    ('catch/5x4', {}),
  ],
)
def test_a_specimen_is_as_the_environment_itself(
  name: str, changes: Any
) -> None:
  try:
    environment = registry.make(name, 2, 0, changes)
  except ImportError as error:
    pytest.skip(str(error))
  spec, own = registry.specimen(name, changes)
  assert spec == environment.spec
  if isinstance(environment, base.HostEnvironment):
    assert own is None
    environment.close()


def test_what_is_not_installed_has_a_specimen() -> None:
  with mock.patch.dict(sys.modules, {'deepmind_lab': None, 'ale_py': None}):
    for name, num_actions in (('dmlab/rooms_watermaze', 9), ('atari/pong', 18)):
      spec, _ = registry.specimen(name)
      assert (spec.num_actions, spec.action_repeat) == (num_actions, 4)
    with pytest.raises(ValueError, match='Nearest names: dmlab/rooms_waterma'):
      registry.specimen('dmlab/rooms_watermaz')


@pytest.mark.parametrize(
  'name, nearest',
  [
    ('cach', 'catch'),
    ('catch/8', 'catch'),
    ('catch/', 'catch'),
    ('CartPole-v1', 'gymnasium/CartPole-v1'),
    ('gymnasium/FrozenLak-v1', 'gymnasium/FrozenLake-v1'),
    ('gymnasium', 'gymnasium/'),
    ('atari/Breakout', 'atari/breakout'),
    ('atari', 'atari57'),
    ('procgen/easy/easy/maze', 'procgen/easy/maze'),
    ('dmlab/watermaze', 'dmlab/rooms_watermaze'),
    ('nethack/stair', 'nethack/staircase'),
    ('crafter/reward', 'crafter'),
    ('craftax/classic_symbols', 'craftax/classic_symbolic'),
    ('sokoban/held-out', 'sokoban/held_out'),
    ('minatar', 'minatar'),
    ('bsuite/deepsea', 'bsuite/deep_sea'),
    ('gymnax/CartPole', 'gymnax/CartPole-v1'),
    ('gridworld/57', 'gridworld/'),
    ('atari75', 'atari57'),
    ('ALE/Pong-v5', 'atari/pong'),
    ('SpaceInvadersNoFrameskip-v4', 'atari/space_invaders'),
    ('zzz', 'none'),
  ],
)
def test_unknown_names_are_answered_with_the_nearest(
  name: str, nearest: str
) -> None:
  if name.startswith('gymnax'):
    pytest.importorskip('gymnax')
  if name == 'minatar':
    message = "'minatar' is a suite of 5 environments"
  else:
    message = f"'{name}'. Nearest names: .*{nearest}.* list-environments lists"
  with pytest.raises(ValueError, match=message):
    registry.validate(name)
  with pytest.raises(ValueError, match=message):
    registry.make(name, num_environments=1, seed=0)


@pytest.mark.parametrize(
  'name, module, remedy',
  [
    ('gymnasium/CartPole-v1', 'gymnasium', "'disco-rl-discovery[gymnasium]'"),
    ('atari/pong', 'ale_py', "'disco-rl-discovery[atari]'"),
    ('procgen/easy/maze', 'envpool', "'disco-rl-discovery[procgen]'"),
    ('dmlab/rooms_watermaze', 'deepmind_lab', 'google-deepmind/lab'),
    ('nethack/score', 'nle', "'disco-rl-discovery[nethack]'"),
    ('crafter', 'crafter', "'disco-rl-discovery[crafter]'"),
    ('craftax/classic_pixels', 'craftax', "'disco-rl-discovery[craftax]'"),
    ('sokoban', 'jumanji', "'disco-rl-discovery[sokoban]'"),
    ('minatar/asterix', 'gymnax', "'disco-rl-discovery[gymnax]'"),
    ('bsuite/catch', 'gymnax', "'disco-rl-discovery[gymnax]'"),
    ('gymnax/CartPole-v1', 'gymnax', "'disco-rl-discovery[gymnax]'"),
  ],
)
def test_a_missing_package_is_named(
  name: str, module: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  # What the import system keeps for a module that cannot be imported.
  monkeypatch.setitem(sys.modules, module, None)
  for call in (registry.validate, lambda name: registry.make(name, 2, 0)):
    with pytest.raises(ImportError, match=module) as raised:
      call(name)
    assert remedy in str(raised.value)


def test_families_are_usable_without_gymnasium(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setitem(sys.modules, 'gymnasium', None)
  usable = registry.usable_families()
  assert 'catch' in usable
  assert 'gymnasium' not in usable


def test_names_are_listed_without_gymnasium(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setitem(sys.modules, 'gymnasium', None)
  assert not any(name.startswith('gymnasium/') for name in registry.names())
  with pytest.raises(ValueError, match='Nearest names: catch'):
    registry.validate('cach')


def test_levels_are_not_generated_by_validation(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  pytest.importorskip('jumanji')
  build = mock.Mock(side_effect=AssertionError('built'))
  monkeypatch.setattr(sokoban_generator, 'generate', build)
  registry.validate('sokoban')
  with pytest.raises(AssertionError, match='built'):
    registry.make('sokoban', 1, seed=0)


def test_impossible_sizes_and_numbers_are_refused() -> None:
  with pytest.raises(ValueError, match='rows=1, columns=5'):
    registry.validate('catch/1x5')
  with pytest.raises(ValueError, match='rows=5, columns=0'):
    registry.validate('catch/5x0')
  with pytest.raises(ValueError, match='num_environments.*0'):
    registry.make('catch', num_environments=0, seed=0)
