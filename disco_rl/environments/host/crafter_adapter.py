"""Crafter: survival in a generated world, an optional extra.

This is the task with rewards of Hafner (2022), "Benchmarking the Spectrum of
Agent Capabilities".
"""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments import scores
from disco_rl.environments.host import adapters
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import sequential

NAME = 'crafter'
# The size of pictures in pixels, a multiple of the nine cells in view.
_PICTURE_SIZE = np.array([288, 288])


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.crafter.'):
  """Preprocessing of Crafter; the defaults are the benchmark's.

  Rewards are the game's own: +1 for a step that unlocks achievements for the
  first time in the episode, plus a tenth of the change in health.

  Attributes:
    height: height of the frames, in color.
    width: width of the frames.
    frame_stack: S, the number of frames in an observation.
    action_repeat: number of steps of the game for which an action is repeated,
      with summed rewards.
    max_episode_steps: time limit in steps of the game, a truncation.
  """

  height: adapters.PictureSide = 64
  width: adapters.PictureSide = 64
  frame_stack: config_lib.Count = 1
  action_repeat: config_lib.Count = 1
  max_episode_steps: config_lib.Count = 10_000


@dataclasses.dataclass(frozen=True)
class Achievements:
  """Achievements unlocked in the episodes that have ended, for each of B games.

  The score of the benchmark is exp(mean(log(1 + s))) - 1, where s are the
  success rates of the achievements, 100 * unlocked / num_episodes.

  Attributes:
    num_episodes: The number of episodes that have ended, [B].
    unlocked: Name of each of the 22 achievements -> the number of these
      episodes in which it was unlocked, [B].
  """

  num_episodes: np.ndarray
  unlocked: Mapping[str, np.ndarray]


class CrafterEnvironment(sequential.SequentialEnvironment):
  """Copies of the game, which step sequentially.

  Observations are single frames, [height, width, 3] uint8; there are 17
  actions.
  """

  frames_per_second = 10.0

  def __init__(
    self, games: Sequence[Any], seed: int, preprocessing: Preprocessing
  ):
    """Wraps B `crafter.Env`, made with this preprocessing."""
    self._games = [_Game(game, preprocessing.action_repeat) for game in games]
    shape = (preprocessing.height, preprocessing.width, 3)
    spec = types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct(shape, np.uint8),
      num_actions=int(games[0].action_space.n),
      action_repeat=preprocessing.action_repeat,
    )
    repeat, limit = preprocessing.action_repeat, preprocessing.max_episode_steps
    super().__init__(self._games, spec, NAME, seed, longest=-(-limit // repeat))

  def achievements(self) -> Achievements:
    """Returns counts of all episodes that have ended since this was made."""
    return Achievements(
      num_episodes=np.array([game.num_episodes for game in self._games]),
      unlocked={
        name: np.array([game.unlocked[name] for game in self._games])
        for name in import_package().constants.achievements
      },
    )


class _Game(sequential.Simulator):
  """One game, as `sequential.Simulator`.

  Attributes:
    num_episodes: The number of episodes that have ended.
    unlocked: Achievement -> the number of these in which it was unlocked.
  """

  def __init__(self, game: Any, action_repeat: int):
    self._game = game
    self._action_repeat = action_repeat
    self.num_episodes = 0
    self.unlocked: collections.Counter[str] = collections.Counter()

  def reset(self) -> np.ndarray:
    return _begin_episode(self._game)

  def skip_to(self, episode: int) -> None:
    # The game makes the seed of an episode from its own and this number.
    self._game._episode = episode

  def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
    total = 0.0
    for _ in range(self._action_repeat):
      frame, reward, is_last, info = self._game.step(action)
      total += reward
      if is_last:
        self.num_episodes += 1
        counts = info['achievements']
        self.unlocked.update(name for name in counts if counts[name] > 0)
        break
    is_terminated = info['discount'] == 0
    return frame, total, is_terminated, is_last and not is_terminated

  def render(self) -> np.ndarray:
    """Draws the game at a larger size, without affecting the game.

    At night the package draws noise from the game's own random numbers, which
    are restored.
    """
    game, random = self._game, self._game._world.random
    size, state = game._size, random.get_state()
    game._size = _PICTURE_SIZE  # Its `render` accepts no size.
    try:
      return game.render()
    finally:
      game._size = size
      random.set_state(state)

  def close(self) -> None:
    """Does nothing, because the game has no resources to free."""


class _OrderedSet(dict):
  """A set with the methods that Crafter uses, in the order of insertion."""

  def add(self, item: object) -> None:
    self[item] = None

  def remove(self, item: object) -> None:
    del self[item]


def _begin_episode(game: Any) -> np.ndarray:
  """Resets a game so that it depends only on its seed.

  Crafter draws creatures from sets, whose order depends on memory addresses.
  """
  frame = game.reset()
  world = game._world
  chunks: dict[object, _OrderedSet] = collections.defaultdict(_OrderedSet)
  for creature in world.objects:
    chunks[world.chunk_key(creature.pos)].add(creature)
  world._chunks = chunks
  return frame


def make(
  num_environments: int, seed: int, preprocessing: Preprocessing
) -> base.HostEnvironment:
  """Makes copies of the game; see `registry.make`.

  Returns:
    The batch, with observations [height, width, S * 3] uint8 and the method
    `achievements` of `CrafterEnvironment`.

  Raises:
    ImportError: Crafter is not installed.
    HostEnvironmentError: Crafter raised.
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
  environment = CrafterEnvironment(games, seed, preprocessing)
  return frame_stack.stack(environment, preprocessing.frame_stack, True)


def import_package() -> ModuleType:
  """Returns the module crafter; raises ImportError if it is not installed."""
  return packages.load(
    'crafter', f'{NAME!r}', 'the package crafter', extras.install('crafter')
  )


def _find(
  variant: str | None, preprocessing: Preprocessing
) -> family.Builder | None:
  """Returns the builder; there are no variants."""
  if variant is not None:
    return None
  import_package()
  return functools.partial(make, preprocessing=preprocessing)


# Random play and human experts: Hafner, 2022, table of rewards.
_SCALE = scores.Scale(
  scores.Benchmark(
    NAME,
    'Crafter, normalized reward',
    '0 is random play and 1 human experts (Hafner, 2022). This is the reward; '
    'the score of success rates is below, under achievements.',
  ),
  low=2.1,
  high=14.3,
)
FAMILIES = {
  NAME: family.Family(
    form=NAME,
    kind='host',
    names=lambda: (NAME,),
    find=_find,
    find_scale=lambda _: _SCALE,
    preprocessing=Preprocessing,
    action_repeat=lambda preprocessing: preprocessing.action_repeat,
  )
}
