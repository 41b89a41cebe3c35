"""Tests of DMLab-30, against a fake of DeepMind Lab."""

import sys
import types as python_types
from typing import Any

import conformance
import jax
import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments import suites
from disco_rl.environments.host import dmlab
from disco_rl.networks import dmlab_encoder


class FakeLab:
  """`deepmind_lab.Lab`: the documented methods alone.

  Episodes last 20 to 39 frames; the reward of a frame is the forward motion.
  The first pixel is the number of the frame, the second differs by episode.
  """

  made: list['FakeLab'] = []

  def __init__(
    self,
    level: str,
    observations: list[str],
    config: dict[str, str],
    renderer: str = 'software',
  ):
    assert all(isinstance(value, str) for value in config.values())
    self.level, self.config, self.renderer = level, config, renderer
    self._names = observations
    self._shape = (int(config['height']), int(config['width']), 3)
    self.seeds: list[int | None] = []
    self._frames_left = 0
    FakeLab.made.append(self)

  def reset(self, episode: int = -1, seed: int | None = None) -> bool:
    assert episode == -1
    assert seed is None or 0 <= seed < 2**31
    self.seeds.append(seed)
    rng = np.random.default_rng(seed)
    self._frame, self._look = 0, rng.integers(256)
    self._frames_left = rng.integers(20, 40)
    return True

  def is_running(self) -> bool:
    return self._frames_left > 0

  def step(self, action: Any, num_steps: int = 1) -> float:
    if not self.is_running():
      raise RuntimeError('Environment in wrong status')
    assert action.dtype == np.intc
    assert action.shape == (7,)
    num_steps = min(num_steps, self._frames_left)
    self._frames_left -= num_steps
    self._frame += num_steps
    return float(num_steps * action[3])

  def observations(self) -> dict[str, Any]:
    if not self.is_running():
      raise RuntimeError('Environment in wrong status')
    image = np.zeros(self._shape, np.uint8)
    image[0, 0], image[0, 1] = self._frame, self._look
    all_observations = {'RGB_INTERLEAVED': image, 'INSTR': 'Go to the Red ball'}
    return {name: all_observations[name] for name in self._names}

  def close(self) -> None:
    self._frames_left = 0


@pytest.fixture(autouse=True)
def _fake_package(monkeypatch: pytest.MonkeyPatch) -> None:
  FakeLab.made = []
  fake = python_types.SimpleNamespace(Lab=FakeLab)
  monkeypatch.setitem(sys.modules, 'deepmind_lab', fake)


def test_conforms() -> None:
  trajectory = conformance.check(
    lambda seed: registry.make('dmlab/rooms_watermaze', 8, seed),
    num_steps=25,
    num_environments=8,
  )
  timestep, image = trajectory.timestep, trajectory.observation['image']
  np.testing.assert_array_equal(timestep.is_terminal, timestep.is_last)
  # Episodes end by their time limit.
  np.testing.assert_array_equal(timestep.mask, ~timestep.is_last)
  # Where an episode ends, the first observation of the next is returned.
  frame, look = image[:, :, 0, 0, 0], image[:, :, 0, 1, 0]
  np.testing.assert_array_equal(frame[1:] == 0, timestep.is_last)
  np.testing.assert_array_equal(
    frame[1:][~timestep.is_last], frame[:-1][~timestep.is_last] + 4
  )
  differs = (look[1:] != look[:-1]) & timestep.is_last
  assert differs.sum() > 0.9 * timestep.is_last.sum()
  # Four frames of forward motion, but for the last step of an episode.
  motion = dmlab.ACTIONS[trajectory.action, 3]
  within = ~timestep.is_last
  np.testing.assert_array_equal(timestep.reward[within], 4 * motion[within])


def test_observations_and_actions() -> None:
  environment = registry.make('dmlab/explore_object_rewards_few', 2, seed=0)
  assert environment.spec.observation == {
    'image': jax.ShapeDtypeStruct((72, 96, 3), np.uint8),
    'instruction': jax.ShapeDtypeStruct((16,), np.int32),
    'last_action': jax.ShapeDtypeStruct((9,), np.float32),
    'last_reward': jax.ShapeDtypeStruct((1,), np.float32),
  }
  assert environment.spec.num_actions == 9
  words = environment.reset()['instruction']
  np.testing.assert_array_equal(words[0], words[1])
  assert (words[0, :5] > 0).all()
  assert (words[0, :5] <= 1000).all()
  assert len(set(words[0, :5])) == 5
  assert not words[0, 5:].any()


def test_instructions_are_cut_and_hashed_alike_everywhere() -> None:
  preprocessing = dmlab.Preprocessing(num_words=3)
  environment = dmlab.make(
    'language_select_located_object', 1, 0, preprocessing
  )
  words = environment.reset()['instruction']
  # CRC-32 of 'go', 'to' and 'the', modulo 1000, plus 1.
  np.testing.assert_array_equal(words, [[775, 757, 79]])
  assert dmlab.NUM_WORD_IDS == dmlab_encoder.NUM_WORD_IDS


def test_observations_hold_the_last_action_and_reward() -> None:
  environment = registry.make('dmlab/rooms_watermaze', 2, seed=0)
  observation, forward, turn = environment.reset(), 0, 4
  assert not observation['last_action'].any()
  assert not observation['last_reward'].any()
  has_ended = np.zeros(2, bool)
  while not has_ended.all():
    timestep = environment.step(np.array([forward, turn]))
    shown = timestep.observation
    has_ended |= timestep.is_last
    expected = np.zeros((2, 9))
    expected[[0, 1], [forward, turn]] = ~timestep.is_last
    np.testing.assert_array_equal(shown['last_action'], expected)
    # Four frames of forward motion.
    reward = np.where(timestep.is_last, 0.0, [4.0, 0.0])
    np.testing.assert_array_equal(shown['last_reward'][:, 0], reward)


def test_two_levels_have_scripts_for_tests() -> None:
  for name in ('rooms_collect_good_objects', 'rooms_exploit_deferred_effects'):
    registry.make(f'dmlab/{name}', 1, seed=0)
    registry.make(f'dmlab/{name}_test', 1, seed=0)
    trained, tested = FakeLab.made[-2:]
    assert trained.level == f'contributed/dmlab30/{name}_train'
    assert tested.level == f'contributed/dmlab30/{name}_test'
  assert len(suites.SUITES['dmlab30']) == 30


def test_settings_reach_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setenv('DMLAB_DATASET_PATH', '/pictures')
  registry.make('dmlab/psychlab_continuous_recognition', 1, seed=0)
  monkeypatch.delenv('DMLAB_DATASET_PATH')
  preprocessing = dmlab.Preprocessing(height=30, width=32, renderer='hardware')
  dmlab.make('rooms_collect_good_objects', 1, 0, preprocessing)
  first, second = FakeLab.made
  assert first.level == 'contributed/dmlab30/psychlab_continuous_recognition'
  assert first.config['datasetPath'] == '/pictures'
  assert first.renderer == 'software'
  assert second.level == 'contributed/dmlab30/rooms_collect_good_objects_train'
  assert second.config == {'height': '30', 'width': '32', 'logLevel': 'WARN'}
  assert second.renderer == 'hardware'


def test_episodes_have_seeds_of_their_own() -> None:
  for seed in (0, 1):
    environment = registry.make('dmlab/rooms_watermaze', 16, seed)
    for _ in range(3):
      environment.reset()
  seeds = [seed for lab in FakeLab.made for seed in lab.seeds]
  assert len(set(seeds)) == len(seeds) == 2 * 16 * 3
