"""DMLab-30: levels of DeepMind Lab, for those who have built it.

DeepMind Lab is on no package index in a form that pip can build: it is built
with Bazel, by the instructions of https://github.com/google-deepmind/lab
(docs/users/build.md), and installed from the wheel that comes out. This adapter
uses its module `deepmind_lab` and is tested against a fake of it.

Without it, something of the kind is a first-person maze of ViZDoom:

  pip install -e '.[gymnasium]' vizdoom
  gymnasium/vizdoom.gymnasium_wrapper:VizdoomMyWayHome-v1
"""

from collections.abc import Sequence
import dataclasses
import os
from typing import Annotated
from typing import Any
import zlib

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters
from disco_rl.runtime import config_checks

# The levels of the benchmark, in lexicographic order.
LEVELS = (
  'explore_goal_locations_large',
  'explore_goal_locations_small',
  'explore_object_locations_large',
  'explore_object_locations_small',
  'explore_object_rewards_few',
  'explore_object_rewards_many',
  'explore_obstructed_goals_large',
  'explore_obstructed_goals_small',
  'language_answer_quantitative_question',
  'language_execute_random_task',
  'language_select_described_object',
  'language_select_located_object',
  'lasertag_one_opponent_large',
  'lasertag_one_opponent_small',
  'lasertag_three_opponents_large',
  'lasertag_three_opponents_small',
  'natlab_fixed_large_map',
  'natlab_varying_map_randomized',
  'natlab_varying_map_regrowth',
  'psychlab_arbitrary_visuomotor_mapping',
  'psychlab_continuous_recognition',
  'psychlab_sequential_comparison',
  'psychlab_visual_search',
  'rooms_collect_good_objects',
  'rooms_exploit_deferred_effects',
  'rooms_keys_doors_puzzle',
  'rooms_select_nonmatching_object',
  'rooms_watermaze',
  'skymaze_irreversible_path_hard',
  'skymaze_irreversible_path_varied',
)
# Level -> its script, where there is one to train on and one held out.
_TRAINING_SCRIPTS = {
  'rooms_collect_good_objects': 'rooms_collect_good_objects_train',
  'rooms_exploit_deferred_effects': 'rooms_exploit_deferred_effects_train',
}

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
class Preprocessing(config_checks.Settings, prefix='preprocessing.dmlab.'):
  """What lies between the level and the agent; defaults: IMPALA's.

  Rewards are the level's own. Episodes end by the level's time limit.

  Attributes:
    action_repeat: frames for which an action is held, of 60 a second. The
      rewards of the frames are added up.
    height: of the images, in colour.
    width: of the images.
    num_words: how many words of the instruction are seen; only the four
      language levels give instructions.
    num_word_ids: words are hashed to 1 .. this number; 0 is no word.
    renderer: 'software' or 'hardware'.
    dataset_path: directory of the pictures that two psychlab levels need, which
      are licensed apart; by default, that of the environment variable
      DMLAB_DATASET_PATH.
  """

  action_repeat: config_checks.Count = 4
  height: config_checks.Count = 72
  width: config_checks.Count = 96
  num_words: config_checks.Count = 16
  num_word_ids: config_checks.Count = 1_000
  renderer: Annotated[str, config_checks.one_of('software', 'hardware')] = (
    'software'
  )
  dataset_path: str = dataclasses.field(
    default_factory=lambda: os.environ.get('DMLAB_DATASET_PATH', '')
  )


class DMLabEnvironment(base.HostEnvironment):
  """Copies of a level, which step one after the other.

  Observations are {'image': [height, width, 3] uint8, 'instruction':
  [num_words] int32}. The last observation of an episode cannot be had: the step
  that ends an episode returns the first of the next one, is terminal, and is
  not masked.
  """

  def __init__(
    self,
    labs: Sequence[Any],
    name: str,
    seed: int,
    preprocessing: Preprocessing,
  ):
    """Takes over environments.

    Args:
      labs: B of `deepmind_lab.Lab`, used by this object alone from now on.
      name: for messages.
      seed: of the batch; see `adapters.sub_seeds`.
      preprocessing: of images, instructions and actions.
    """
    self._labs = labs
    self._name = name
    self._seed = seed
    self._preprocessing = preprocessing
    self._num_steps = 0
    # Each draws the seeds of its episodes.
    self._rngs = [
      np.random.default_rng(sub_seed)
      for sub_seed in adapters.sub_seeds(seed, len(labs))
    ]
    self.num_environments = len(labs)
    image_shape = (preprocessing.height, preprocessing.width, 3)
    self.spec = types.EnvironmentSpec(
      observation={
        'image': jax.ShapeDtypeStruct(image_shape, np.uint8),
        'instruction': jax.ShapeDtypeStruct(
          (preprocessing.num_words,), np.int32
        ),
      },
      num_actions=len(ACTIONS),
    )

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`.

    Raises:
      RuntimeError: if an environment raised.
    """
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      for i in range(self.num_environments):
        self._begin_episode(i)
      return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`.

    Raises:
      RuntimeError: if an environment raised.
    """
    self._num_steps += 1
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      reward = [
        lab.step(ACTIONS[a], num_steps=self._preprocessing.action_repeat)
        for lab, a in zip(self._labs, action)
      ]
      is_last = np.array([not lab.is_running() for lab in self._labs])
      for i in np.flatnonzero(is_last).tolist():
        self._begin_episode(i)
      observation = self._observe()
    outcome: dict[str, Any] = {
      'reward': np.array(reward, np.float32),
      'is_terminal': is_last,
      'is_last': is_last,
      'mask': np.ones_like(is_last),
    }
    return types.TimeStep(observation=observation, **outcome)

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    for lab in self._labs:
      lab.close()

  def _begin_episode(self, index: int) -> None:
    self._labs[index].reset(seed=int(self._rngs[index].integers(2**31)))

  def _observe(self) -> types.PyTree:
    observations = [lab.observations() for lab in self._labs]
    return {
      'image': np.stack([x['RGB_INTERLEAVED'] for x in observations]),
      'instruction': np.stack(
        [
          _word_ids(
            str(x['INSTR']),
            self._preprocessing.num_words,
            self._preprocessing.num_word_ids,
          )
          for x in observations
        ]
      ),
    }


def make(
  level: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing | None = None,
) -> DMLabEnvironment:
  """Makes copies of a level.

  Args:
    level: of `LEVELS`. Of the two that have a variant to train on and one held
      out, the former.
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`.
    preprocessing: of images, instructions and actions; None: IMPALA's.

  Returns:
    The batch.

  Raises:
    ImportError: if DeepMind Lab is not installed.
    RuntimeError: if it raised.
  """
  deepmind_lab = import_package()
  preprocessing = preprocessing or Preprocessing()
  config = {
    'height': str(preprocessing.height),
    'width': str(preprocessing.width),
    'logLevel': 'WARN',
  }
  if preprocessing.dataset_path:
    config['datasetPath'] = preprocessing.dataset_path
  name = f'dmlab/{level}'
  with adapters.located_errors(name, seed, step=0):
    labs = [
      deepmind_lab.Lab(
        f'contributed/dmlab30/{_TRAINING_SCRIPTS.get(level, level)}',
        ['RGB_INTERLEAVED', 'INSTR'],
        config=config,
        renderer=preprocessing.renderer,
      )
      for _ in range(num_environments)
    ]
  return DMLabEnvironment(labs, name, seed, preprocessing)


def import_package() -> Any:
  """Returns the module deepmind_lab.

  Raises:
    ImportError: if it is not installed.
  """
  try:
    import deepmind_lab
  except ImportError as error:
    raise ImportError(
      "Environments named 'dmlab/...' need the module deepmind_lab, which "
      f'cannot be imported ({error}). pip cannot install it: build it as '
      'https://github.com/google-deepmind/lab says, and pip install the wheel. '
      'disco_rl/environments/host/dmlab.py names a substitute.'
    ) from error
  return deepmind_lab


def _word_ids(text: str, num_words: int, num_ids: int) -> np.ndarray:
  """Returns [num_words] int32: hashes of the words, 0 where there are none."""
  words = text.lower().split()[:num_words]
  # Unlike `hash`, this is the same in every process.
  ids = [1 + zlib.crc32(word.encode()) % num_ids for word in words]
  return np.array(ids + [0] * (num_words - len(ids)), np.int32)
