"""DMLab-30: levels of DeepMind Lab, which has to be built from source.

No package index has DeepMind Lab in a form that pip can build. Build it with
Bazel, following https://github.com/google-deepmind/lab (docs/users/build.md),
and install the resulting wheel. This adapter uses its module `deepmind_lab` and
is tested against a fake of it.

A substitute that pip can install is a first-person maze of ViZDoom:

  pip install 'disco-rl-discovery[gymnasium]' vizdoom
  gymnasium/vizdoom.gymnasium_wrapper:VizdoomMyWayHome-v1
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
from types import ModuleType
from typing import Annotated
from typing import Any
import zlib

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import paths
from disco_rl import types
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments import scores
from disco_rl.environments.host import adapters

# The levels of the benchmark, in lexicographic order -> returns of random play
# and of human play. Extended Data Table 3 of the DiscoRL paper has one decimal;
# the others are from the code of IMPALA's authors, in which small and large
# levels of lasertag are swapped.
LEVELS: Mapping[str, tuple[float, float]] = {
  'explore_goal_locations_large': (3.14, 194.5),
  'explore_goal_locations_small': (7.66, 267.5),
  'explore_object_locations_large': (4.673, 65.65),
  'explore_object_locations_small': (3.575, 74.45),
  'explore_object_rewards_few': (2.073, 77.7),
  'explore_object_rewards_many': (2.438, 106.7),
  'explore_obstructed_goals_large': (2.61, 119.5),
  'explore_obstructed_goals_small': (6.76, 206.0),
  'language_answer_quantitative_question': (-0.33, 184.5),
  'language_execute_random_task': (-5.913, 254.05),
  'language_select_described_object': (-0.07, 389.5),
  'language_select_located_object': (1.929, 280.7),
  'lasertag_one_opponent_large': (-0.224, 12.65),
  'lasertag_one_opponent_small': (-0.083, 18.6),
  'lasertag_three_opponents_large': (-0.214, 18.55),
  'lasertag_three_opponents_small': (-0.102, 31.5),
  'natlab_fixed_large_map': (2.173, 36.9),
  'natlab_varying_map_randomized': (7.346, 42.35),
  'natlab_varying_map_regrowth': (2.989, 24.45),
  'psychlab_arbitrary_visuomotor_mapping': (0.163, 58.75),
  'psychlab_continuous_recognition': (0.224, 58.3),
  'psychlab_sequential_comparison': (0.129, 39.5),
  'psychlab_visual_search': (0.085, 78.5),
  'rooms_collect_good_objects': (0.073, 10.0),
  'rooms_exploit_deferred_effects': (8.501, 85.65),
  'rooms_keys_doors_puzzle': (4.135, 53.8),
  'rooms_select_nonmatching_object': (0.312, 65.9),
  'rooms_watermaze': (4.065, 54.0),
  'skymaze_irreversible_path_hard': (0.1, 100.0),
  'skymaze_irreversible_path_varied': (14.4, 100.0),
}
# Two levels have a script for training, with their name in `LEVELS`, and one
# for testing, which the paper's scores refer to.
TEST_LEVELS = (
  'rooms_collect_good_objects_test',
  'rooms_exploit_deferred_effects_test',
)
# Level -> its script.
SCRIPTS = {
  **{level: level for level in (*LEVELS, *TEST_LEVELS)},
  **{
    level.removesuffix('_test'): level.removesuffix('test') + 'train'
    for level in TEST_LEVELS
  },
}
NUM_WORD_IDS = 1_000  # As in IMPALA's network.

# The nine actions of IMPALA (Espeholt et al., 2018), in DeepMind Lab's terms:
# look right, look down, strafe right, move forward, fire, jump, crouch.
ACTIONS = np.array(
  [
    (0, 0, 0, 1, 0, 0, 0),
    (0, 0, 0, -1, 0, 0, 0),
    (0, 0, -1, 0, 0, 0, 0),
    (0, 0, 1, 0, 0, 0, 0),
    (-20, 0, 0, 0, 0, 0, 0),
    (20, 0, 0, 0, 0, 0, 0),
    (-20, 0, 0, 1, 0, 0, 0),
    (20, 0, 0, 1, 0, 0, 0),
    (0, 0, 0, 0, 1, 0, 0),
  ],
  np.intc,
)


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.dmlab.'):
  """Preprocessing of DeepMind Lab; the defaults are IMPALA's.

  Rewards are the level's own. Episodes end by the level's time limit.

  Attributes:
    action_repeat: number of frames, at 60 per second, for which an action is
      repeated, with summed rewards.
    height: height of the images, in color.
    width: width of the images.
    num_words: maximal number of words of the instruction in an observation;
      only the four language levels have instructions.
    renderer: 'software' or 'hardware'.
    dataset_path: directory of the pictures for two psychlab levels, which have
      a separate license; '': the value of the environment variable
      DMLAB_DATASET_PATH.
  """

  action_repeat: config_lib.Count = 4
  height: adapters.PictureSide = 72
  width: adapters.PictureSide = 96
  num_words: config_lib.Count = 16
  renderer: Annotated[str, config_lib.one_of('software', 'hardware')] = (
    'software'
  )
  dataset_path: str = ''


class DMLabEnvironment(adapters.Adapter):
  """Copies of a level, which step sequentially.

  Observations are dictionaries of
    image: [height, width, 3] uint8.
    instruction: [num_words] int32, hashes of the words, 1 .. NUM_WORD_IDS; 0
      for missing words.
    last_action: [9] float32, one-hot; zeros at the beginning of an episode.
    last_reward: [1] float32; 0 at the beginning of an episode.

  DeepMind Lab does not provide the last observation of an episode, so
  environments reset in the same step. Nor does it tell why an episode ended, so
  ends count as truncations: when agents reach a goal in these levels, another
  map begins in the same episode, until the level's time is over.
  """

  def __init__(
    self,
    labs: Sequence[Any],
    name: str,
    seed: int,
    preprocessing: Preprocessing,
  ):
    """Wraps B `deepmind_lab.Lab`, which only this object uses from now on."""
    self._labs = labs
    self._preprocessing = preprocessing
    # Each draws the seeds of one lab's episodes.
    self._rngs = [
      np.random.default_rng(sub_seed)
      for sub_seed in adapters.sub_seeds(seed, len(labs))
    ]
    super().__init__(
      name,
      seed,
      find_spec(name, preprocessing),
      len(labs),
      resets_in_next_step=False,
    )

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    for lab in self._labs:
      lab.close()

  def _reset(self) -> types.PyTree:
    number = self.num_environments
    for i in range(number):
      self._begin_episode(i)
    return self._observe(
      np.zeros((number, len(ACTIONS)), np.float32),
      np.zeros((number, 1), np.float32),
    )

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    reward = [
      lab.step(ACTIONS[a], num_steps=self._preprocessing.action_repeat)
      for lab, a in zip(self._labs, action)
    ]
    is_last = np.array([not lab.is_running() for lab in self._labs])
    for i in np.flatnonzero(is_last).tolist():
      self._begin_episode(i)
    # IMPALA's code initially shows those of the previous episode.
    continues = ~is_last[:, None]
    last_action = np.eye(len(ACTIONS), dtype=np.float32)[action] * continues
    last_reward = np.array(reward, np.float32)[:, None] * continues
    observation = self._observe(last_action, last_reward)
    return observation, reward, np.zeros_like(is_last), is_last

  def _begin_episode(self, index: int) -> None:
    self._labs[index].reset(seed=int(self._rngs[index].integers(2**31)))

  def _observe(
    self, last_action: np.ndarray, last_reward: np.ndarray
  ) -> types.PyTree:
    observations = [lab.observations() for lab in self._labs]
    num_words = self._preprocessing.num_words
    return {
      'image': np.stack([x['RGB_INTERLEAVED'] for x in observations]),
      'instruction': np.stack(
        [_word_ids(str(x['INSTR']), num_words) for x in observations]
      ),
      'last_action': last_action,
      'last_reward': last_reward,
    }


def make(
  level: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing,
) -> DMLabEnvironment:
  """Makes copies of a level of `SCRIPTS`; see `registry.make`.

  Raises:
    ImportError: DeepMind Lab is not installed.
    HostEnvironmentError: DeepMind Lab raised.
  """
  deepmind_lab = import_package()
  config = {
    'height': str(preprocessing.height),
    'width': str(preprocessing.width),
    'logLevel': 'WARN',
  }
  pictures = preprocessing.dataset_path or os.environ.get('DMLAB_DATASET_PATH')
  if pictures:
    config['datasetPath'] = paths.absolute(pictures)
  name = f'dmlab/{level}'
  with adapters.located_errors(name, seed, step=0):
    labs = [
      deepmind_lab.Lab(
        f'contributed/dmlab30/{SCRIPTS[level]}',
        ['RGB_INTERLEAVED', 'INSTR'],
        config=config,
        renderer=preprocessing.renderer,
      )
      for _ in range(num_environments)
    ]
  return DMLabEnvironment(labs, name, seed, preprocessing)


def find_spec(
  level: str, preprocessing: Preprocessing
) -> types.EnvironmentSpec:
  """Returns the spec of any level, without DeepMind Lab."""
  del level
  image_shape = (preprocessing.height, preprocessing.width, 3)
  words_shape = (preprocessing.num_words,)
  return types.EnvironmentSpec(
    observation={
      'image': jax.ShapeDtypeStruct(image_shape, np.uint8),
      'instruction': jax.ShapeDtypeStruct(words_shape, np.int32),
      'last_action': jax.ShapeDtypeStruct((len(ACTIONS),), np.float32),
      'last_reward': jax.ShapeDtypeStruct((1,), np.float32),
    },
    num_actions=len(ACTIONS),
    action_repeat=preprocessing.action_repeat,
  )


def import_package() -> ModuleType:
  """Returns deepmind_lab; raises ImportError if it is not installed."""
  return packages.load(
    'deepmind_lab',
    "'dmlab/...'",
    'the module deepmind_lab',
    'pip cannot install it. Build it as https://github.com/google-deepmind/lab '
    'says, and pip install the wheel. A maze of ViZDoom is a substitute: pip '
    'install vizdoom, and '
    'gymnasium/vizdoom.gymnasium_wrapper:VizdoomMyWayHome-v1.',
  )


def _word_ids(text: str, num_words: int) -> np.ndarray:
  """Returns hashes of the words, [num_words] int32; 0 for missing words."""
  words = text.lower().split()[:num_words]
  # Unlike `hash`, this is the same in every process.
  ids = [1 + zlib.crc32(word.encode()) % NUM_WORD_IDS for word in words]
  return np.array(ids + [0] * (num_words - len(ids)), np.int32)


_SUITE = tuple(f'dmlab/{level}' for level in LEVELS)
_SCALES = scores.scales(
  scores.Benchmark(
    'dmlab',
    'DMLab-30, human-normalized',
    '0 is random play and 1 human play (Espeholt et al., 2018; Oh et al., '
    '2025, Extended Data Table 3).',
  ),
  LEVELS,
  'dmlab/',
)
FAMILIES = {
  'dmlab': family.Family(
    form='dmlab/LEVEL (dmlab/rooms_watermaze)',
    kind='host',
    names=lambda: (*_SUITE, *(f'dmlab/{level}' for level in TEST_LEVELS)),
    find=family.listed(SCRIPTS, make, import_package),
    suites={'dmlab30': _SUITE},
    # Test levels have the scores of the training levels.
    find_scale=lambda name: _SCALES.get(name.removesuffix('_test')),
    preprocessing=Preprocessing,
    find_spec=find_spec,
    action_repeat=lambda preprocessing: preprocessing.action_repeat,
  )
}
