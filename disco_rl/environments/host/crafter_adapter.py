"""Crafter: survival in a generated world, an optional extra.

The task with rewards of Hafner (2022), "Benchmarking the Spectrum of Agent
Capabilities".
"""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from disco_rl.environments.host import adapters
from disco_rl.environments.host import image_vector
from disco_rl.runtime import config_checks

NAME = 'crafter'


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_checks.Settings, prefix='preprocessing.crafter.'):
  """What lies between the game and the agent; defaults: the benchmark's.

  Rewards are the game's own: +1 in a step that unlocks achievements for the
  first time in the episode, and a tenth of the change in health.

  Attributes:
    height: of the frames, in colour.
    width: of the frames.
    frame_stack: S, how many frames are seen at once; hardly anything moves.
    action_repeat: steps of the game for which an action is held. The rewards
      of the steps are added up.
    max_episode_steps: time limit in steps of the game, a truncation.
  """

  height: config_checks.Count = 64
  width: config_checks.Count = 64
  frame_stack: config_checks.Count = 1
  action_repeat: config_checks.Count = 1
  max_episode_steps: config_checks.Count = 10_000


BENCHMARK = Preprocessing()


@dataclasses.dataclass(frozen=True)
class Achievements:
  """What was unlocked in the episodes that have ended, in each of B games.

  The score of the benchmark is exp(mean(log(1 + s))) - 1, where s are the
  success rates of the achievements, 100 * unlocked / num_episodes.

  Attributes:
    num_episodes: [B] how many have ended.
    unlocked: name of each of the 22 achievements -> [B] the number of these
      episodes in which it was unlocked.
  """

  num_episodes: np.ndarray
  unlocked: Mapping[str, np.ndarray]


class CrafterEnvironment(image_vector.ImageVectorEnvironment):
  """Copies of the game, which step one after the other.

  Observations are [height, width, S * 3] uint8; there are 17 actions.
  Transitions are those of `ImageVectorEnvironment`.
  """

  def __init__(
    self, games: Sequence[Any], seed: int, preprocessing: Preprocessing
  ):
    """Takes over games.

    Args:
      games: B of `crafter.Env`, used by this object alone from now on.
      seed: of the batch, for messages.
      preprocessing: of frames and actions, as the games were made with.
    """
    self._games = _Games(games, preprocessing.action_repeat)
    super().__init__(
      self._games,
      NAME,
      seed,
      (preprocessing.height, preprocessing.width, 3),
      preprocessing.frame_stack,
    )

  def achievements(self) -> Achievements:
    """Of all episodes that have ended since this object was made."""
    return Achievements(
      num_episodes=self._games.num_episodes.copy(),
      unlocked={name: x.copy() for name, x in self._games.unlocked.items()},
    )


class _Games:
  """A vector environment of the Gymnasium API that resets in the next step.

  Attributes:
    num_envs: B.
    single_action_space: with `n`, the number of actions.
    num_episodes: as in `Achievements`.
    unlocked: as in `Achievements`.
  """

  def __init__(self, games: Sequence[Any], action_repeat: int):
    self._games = games
    self._action_repeat = action_repeat
    self._is_resetting = [False] * len(games)
    self.num_envs = len(games)
    self.single_action_space = games[0].action_space
    self.num_episodes = np.zeros(len(games), int)
    self.unlocked = {
      name: np.zeros(len(games), int)
      for name in import_package().constants.achievements
    }

  def reset(self, seed: None) -> tuple[np.ndarray, dict[str, Any]]:
    """Begins an episode in every game; they are seeded when they are made."""
    del seed
    self._is_resetting = [False] * self.num_envs
    return np.stack([_begin_episode(game) for game in self._games]), {}

  def step(self, action: np.ndarray) -> tuple[Any, ...]:
    """Takes actions [B]; returns frames, rewards, and which ended and how."""
    steps = [self._step_one(i, a) for i, a in enumerate(action.tolist())]
    frame, reward, is_terminated, is_truncated = map(np.stack, zip(*steps))
    self._is_resetting = (is_terminated | is_truncated).tolist()
    return frame, reward, is_terminated, is_truncated, {}

  def close(self) -> None:
    """Nothing is held that outlives the games."""

  def _step_one(
    self, index: int, action: int
  ) -> tuple[np.ndarray, float, bool, bool]:
    game = self._games[index]
    if self._is_resetting[index]:
      return _begin_episode(game), 0.0, False, False
    total = 0.0
    for _ in range(self._action_repeat):
      frame, reward, is_last, info = game.step(action)
      total += reward
      if is_last:
        self._count(index, info['achievements'])
        break
    is_terminated = info['discount'] == 0
    return frame, total, is_terminated, is_last and not is_terminated

  def _count(self, index: int, achievements: Mapping[str, int]) -> None:
    """Counts an episode, given how often it reached each achievement."""
    self.num_episodes[index] += 1
    for name, count in achievements.items():
      self.unlocked[name][index] += count > 0


class _OrderedSet(dict):
  """What Crafter asks of a set, iterated in the order of insertion."""

  def add(self, item: Any) -> None:
    self[item] = None

  def remove(self, item: Any) -> None:
    del self[item]


def _begin_episode(game: Any) -> np.ndarray:
  """Resets a game, and makes it depend on its seed alone.

  Crafter draws creatures from sets, whose order is that of memory addresses.
  """
  frame = game.reset()
  world = game._world
  chunks: Any = collections.defaultdict(_OrderedSet)
  for creature in world.objects:
    chunks[world.chunk_key(creature.pos)].add(creature)
  world._chunks = chunks
  return frame


def make(
  num_environments: int, seed: int, preprocessing: Preprocessing = BENCHMARK
) -> CrafterEnvironment:
  """Makes copies of the game.

  Args:
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`.
    preprocessing: of frames and actions.

  Returns:
    The batch.

  Raises:
    ImportError: if Crafter is not installed.
    RuntimeError: if it raised.
  """
  crafter = import_package()
  with adapters.located_errors(NAME, seed, step=0):
    games = [
      crafter.Env(
        size=(preprocessing.width, preprocessing.height),
        length=preprocessing.max_episode_steps,
        seed=int(sub_seed),
      )
      for sub_seed in adapters.sub_seeds(seed, num_environments)
    ]
  return CrafterEnvironment(games, seed, preprocessing)


def import_package() -> Any:
  """Returns the module crafter.

  Raises:
    ImportError: if it is not installed.
  """
  try:
    import crafter
  except ImportError as error:
    raise ImportError(
      f'The environment {NAME!r} needs the package crafter, which cannot be '
      f"imported ({error}): pip install -e '.[crafter]'"
    ) from error
  return crafter
