"""Atari-57: games of the Arcade Learning Environment, an optional extra."""

from collections.abc import Mapping
import dataclasses
import math
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
from disco_rl.environments.host import image_vector

# The games of the benchmark, in lexicographic order -> returns of random play
# and of human play. Wang et al., 2016, "Dueling Network Architectures", from up
# to 30 no-ops. Later papers of the same laboratory report 0 for random play of
# Video Pinball, which changes the mean, but not the IQM.
GAMES: Mapping[str, tuple[float, float]] = {
  'alien': (227.8, 7127.7),
  'amidar': (5.8, 1719.5),
  'assault': (222.4, 742.0),
  'asterix': (210.0, 8503.3),
  'asteroids': (719.1, 47388.7),
  'atlantis': (12850.0, 29028.1),
  'bank_heist': (14.2, 753.1),
  'battle_zone': (2360.0, 37187.5),
  'beam_rider': (363.9, 16926.5),
  'berzerk': (123.7, 2630.4),
  'bowling': (23.1, 160.7),
  'boxing': (0.1, 12.1),
  'breakout': (1.7, 30.5),
  'centipede': (2090.9, 12017.0),
  'chopper_command': (811.0, 7387.8),
  'crazy_climber': (10780.5, 35829.4),
  'defender': (2874.5, 18688.9),
  'demon_attack': (152.1, 1971.0),
  'double_dunk': (-18.6, -16.4),
  'enduro': (0.0, 860.5),
  'fishing_derby': (-91.7, -38.7),
  'freeway': (0.0, 29.6),
  'frostbite': (65.2, 4334.7),
  'gopher': (257.6, 2412.5),
  'gravitar': (173.0, 3351.4),
  'hero': (1027.0, 30826.4),
  'ice_hockey': (-11.2, 0.9),
  'jamesbond': (29.0, 302.8),
  'kangaroo': (52.0, 3035.0),
  'krull': (1598.0, 2665.5),
  'kung_fu_master': (258.5, 22736.3),
  'montezuma_revenge': (0.0, 4753.3),
  'ms_pacman': (307.3, 6951.6),
  'name_this_game': (2292.3, 8049.0),
  'phoenix': (761.4, 7242.6),
  'pitfall': (-229.4, 6463.7),
  'pong': (-20.7, 14.6),
  'private_eye': (24.9, 69571.3),
  'qbert': (163.9, 13455.0),
  'riverraid': (1338.5, 17118.0),
  'road_runner': (11.5, 7845.0),
  'robotank': (2.2, 11.9),
  'seaquest': (68.4, 42054.7),
  'skiing': (-17098.1, -4336.9),
  'solaris': (1236.3, 12326.7),
  'space_invaders': (148.0, 1668.7),
  'star_gunner': (664.0, 10250.0),
  'surround': (-10.0, 6.5),
  'tennis': (-23.8, -8.3),
  'time_pilot': (3568.0, 5229.2),
  'tutankham': (11.4, 167.6),
  'up_n_down': (533.4, 11693.2),
  'venture': (0.0, 1187.5),
  'video_pinball': (16256.9, 17667.9),
  'wizard_of_wor': (563.5, 4756.5),
  'yars_revenge': (3092.9, 54576.9),
  'zaxxon': (32.5, 9173.3),
}


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.atari.'):
  """Preprocessing of Atari; the defaults are the benchmark's.

  The protocol is that of Machado et al. (2018), with the usual frame skip of 4
  instead of 5, which is an assumption: the DiscoRL paper does not state it. The
  loss of a life never ends an episode: agents should learn the value of lives.

  Attributes:
    frame_skip: number of frames for which an action is repeated; with 4 there
      are 15 decisions a second. Their rewards are summed.
    max_over_frames: each frame is the maximum of the last two emulated ones,
      because the console draws some sprites only in every other frame.
    height: height of the frames, which are scaled down from 210.
    width: width of the frames, which are scaled down from 160.
    is_grayscale: frames have one channel. Colors carry little information in
      most games, at three times the memory.
    frame_stack: S, the number of frames in an observation, which makes
      velocities observable.
    sticky_action_probability: probability of repeating the previous action
      for one more emulated frame. The console is deterministic: without sticky
      actions, a memorized sequence of actions would suffice.
    max_no_ops: maximum of the random number of no-op actions at the beginning
      of an episode; 0: none, because sticky actions already make episodes
      differ.
    fires_on_reset: presses the button once, for games that wait for it. By
      default agents have to learn it.
    has_all_actions: offers all 18 actions in every game, nine directions with
      or without the button, not only those with an effect. This is harder,
      but agents of all games then have the same shapes. In Skiing, which
      ignores the button, the emulator offers only nine: pairs of actions are
      then the same direction.
    max_episode_frames: time limit in emulated frames, a truncation: 30 minutes
      of play.
    max_abs_reward: bound to which rewards are clipped; returns are then sums of
      clipped rewards, not the game's score. 0: rewards are not clipped.
  """

  frame_skip: config_lib.Count = 4
  max_over_frames: bool = True
  height: adapters.PictureSide = 84
  width: adapters.PictureSide = 84
  is_grayscale: bool = True
  frame_stack: config_lib.Count = 4
  sticky_action_probability: config_lib.Fraction = 0.25
  max_no_ops: config_lib.CountOrZero = 0
  fires_on_reset: bool = False
  has_all_actions: bool = True
  max_episode_frames: config_lib.Count = 108_000
  max_abs_reward: config_lib.FiniteOrZero = 0.0


# The size of the console's screen in pixels, for most games.
_SCREEN_SHAPE = (210, 160)
# After this number of steps, the end of an episode reseeds a game, which takes
# as long as 200 steps. Restoring it repeats at most these steps and those of an
# episode.
SEEDED_STEPS = 20_000


def make(
  game: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing,
  can_render: bool = False,
) -> base.HostEnvironment:
  """Makes copies of a game of `GAMES`, which step in a pool of threads.

  The arguments are those of `registry.make`; `can_render` takes twice the time.

  Returns:
    The batch, with observations [height, width, S] uint8, or S * 3 channels in
    color.

  Raises:
    ImportError: A package is not installed.
  """
  environment = _make_frames(game, num_environments, seed, preprocessing)
  if can_render:
    height, width = _SCREEN_SHAPE
    whole = dataclasses.replace(
      preprocessing, height=height, width=width, is_grayscale=False
    )
    environment = _ScreenEnvironment(
      environment, _make_frames(game, num_environments, seed, whole)
    )
  return frame_stack.stack(environment, preprocessing.frame_stack, True)


def _make_frames(
  game: str, num_environments: int, seed: int, preprocessing: Preprocessing
) -> base.HostEnvironment:
  """Makes copies of a game with single frames as observations."""
  env = import_package().AtariVectorEnv(
    game,
    num_environments,
    frameskip=preprocessing.frame_skip,
    maxpool=preprocessing.max_over_frames,
    img_height=preprocessing.height,
    img_width=preprocessing.width,
    grayscale=preprocessing.is_grayscale,
    # `frame_stack` stacks frames in the order [H, W, S].
    stack_num=1,
    repeat_action_probability=preprocessing.sticky_action_probability,
    noop_max=preprocessing.max_no_ops,
    use_fire_reset=preprocessing.fires_on_reset,
    full_action_space=preprocessing.has_all_actions,
    max_num_frames_per_episode=preprocessing.max_episode_frames,
    episodic_life=False,
    reward_clipping=False,
    autoreset_mode='NextStep',
  )
  environment = _AtariGames(
    env,
    f'atari/{game}',
    seed,
    frame_shape=_frame_shape(preprocessing),
    longest=-(-preprocessing.max_episode_frames // preprocessing.frame_skip),
    max_abs_reward=preprocessing.max_abs_reward or math.inf,
    actions=_with_button(int(env.single_action_space.n))
    if preprocessing.has_all_actions
    else None,
  )
  environment.spec = dataclasses.replace(
    environment.spec, action_repeat=preprocessing.frame_skip
  )
  # The console draws 60 frames a second.
  environment.frames_per_second = 60 / preprocessing.frame_skip
  return environment


class _AtariGames(image_vector.ImageVectorEnvironment):
  """A vector environment of ALE, whose emulators cannot be saved.

  They are deterministic given their seeds, including sticky actions. So the
  state of a game is its seed and all actions since then, which are repeated
  when it is restored; from time to time the end of an episode reseeds it.
  """

  def __init__(self, *args: Any, longest: int, **kwargs: Any):
    """Wraps a vector environment.

    Args:
      *args: The arguments of `ImageVectorEnvironment`.
      longest: The maximal number of steps of an episode.
      **kwargs: The keyword arguments of `ImageVectorEnvironment`.
    """
    super().__init__(*args, **kwargs)
    number = self.num_environments
    # A reset, and steps that reset, take one more each.
    shape = number, SEEDED_STEPS + longest + 2
    self._seedings = np.full(number, -1, np.int32)
    self._taken = np.zeros(number, np.int32)
    self._past = np.zeros(shape, np.int8)

  def save_state(self) -> types.PyTree:
    """Implements `HostEnvironment.save_state`."""
    return {
      'seedings': self._seedings.copy(),
      'taken': self._taken.copy(),
      'past': self._past.copy(),
      'is_resetting': self._is_resetting.copy(),
    }

  def restore_state(self, state: types.PyTree) -> None:
    """Takes the past actions again; see `HostEnvironment.restore_state`."""
    state = {name: np.array(x) for name, x in state.items()}
    seedings, taken, past = (state[x] for x in ('seedings', 'taken', 'past'))
    # All games end at the same time: games with fewer actions begin later.
    first = taken.max() - taken
    self._seed_where(np.ones(self.num_environments, bool), seedings)
    games = np.arange(self.num_environments)
    for t in range(taken.max()):
      if (begins := (first == t) & (t > 0)).any():
        self._seed_where(begins, seedings)
      action = np.where(t < first, 0, past[games, np.maximum(t - first, 0)])
      super()._step(action.astype(np.int32))
    if (begins := (first == taken.max()) & (first > 0)).any():
      self._seed_where(begins, seedings)
    self._seedings, self._taken, self._past = seedings, taken, past
    self._is_resetting = state['is_resetting']

  def _reset(self) -> np.ndarray:
    self._seedings += 1
    self._taken[:] = 0
    return self._seed_where(
      np.ones(self.num_environments, bool), self._seedings
    )

  def _step(self, action: np.ndarray) -> tuple[types.PyTree, ...]:
    frame, *outcome = super()._step(action)
    is_due = self._is_resetting & (self._taken >= SEEDED_STEPS)
    if is_due.any():
      self._seedings[is_due] += 1
      frame = self._seed_where(is_due, self._seedings)
    games = np.flatnonzero(~is_due)
    self._past[games, self._taken[games]] = action[games]
    self._taken = np.where(is_due, 0, self._taken + 1)
    return frame, *outcome

  def _seed_where(self, chosen: np.ndarray, seedings: np.ndarray) -> np.ndarray:
    """Begins episodes of some games [B], for the n-th time with a seed."""
    first = adapters.sub_seeds(self._seed, self.num_environments)
    seeds = [
      adapters.seed_after(seed, number) if number else seed
      for seed, number in zip(first[chosen].tolist(), seedings[chosen].tolist())
    ]
    options = None if chosen.all() else {'reset_mask': chosen}
    frame, _ = self._env.reset(
      seed=np.asarray(seeds, np.int32), options=options
    )
    return self._reshaped(frame)


class _ScreenEnvironment(base.HostEnvironment):
  """Plays a game twice in lockstep: for the agent, and for the viewer.

  The vector environment scales frames in its own threads, and returns no
  others. Emulators are deterministic given their seeds, including sticky
  actions, so the second game, with whole frames, is the same as the first.
  """

  def __init__(
    self, environment: base.HostEnvironment, screen: base.HostEnvironment
  ):
    """Wraps two batches, which only this object uses from now on.

    Args:
      environment: The batch that the agent sees.
      screen: A batch with the same size, seed and settings, but whole frames.
    """
    self.spec = environment.spec
    self.num_environments = environment.num_environments
    self.frames_per_second = screen.frames_per_second
    self._environment = environment
    self._screen = screen

  def reset(self) -> types.PyTree:
    """Implements `HostEnvironment.reset`."""
    self._screen.reset()
    return self._environment.reset()

  def step(self, action: np.ndarray) -> types.TimeStep:
    """Implements `HostEnvironment.step`."""
    self._screen.step(action)
    return self._environment.step(action)

  def render(self) -> np.ndarray:
    """Implements `HostEnvironment.render`."""
    return self._screen.render()

  def close(self) -> None:
    """Implements `HostEnvironment.close`."""
    self._screen.close()
    self._environment.close()


def find_spec(
  game: str, preprocessing: Preprocessing
) -> types.EnvironmentSpec | None:
  """Returns the spec of a game without the emulator, if it is known."""
  del game
  if not preprocessing.has_all_actions:
    return None
  frame = jax.ShapeDtypeStruct(_frame_shape(preprocessing), np.uint8)
  return frame_stack.stacked_spec(
    types.EnvironmentSpec(
      frame, num_actions=18, action_repeat=preprocessing.frame_skip
    ),
    preprocessing.frame_stack,
    True,
  )


def _frame_shape(preprocessing: Preprocessing) -> tuple[int, int, int]:
  channels = 1 if preprocessing.is_grayscale else 3
  return preprocessing.height, preprocessing.width, channels


def _with_button(num_actions: int) -> np.ndarray | None:
  """Maps the 18 actions to those of a game that ignores the button.

  Args:
    num_actions: The number of actions that the emulator offers.

  Returns:
    [18] actions, or None if the game has all 18. Action 0 has no direction in
    either set. Among the 18, action 1 is the button alone; eight directions
    follow, then the same with the button.
  """
  if num_actions != 9:
    return None
  return np.array([0, 0, *range(1, 9), *range(1, 9)])


def import_package() -> ModuleType:
  """Returns ale_py.vector_env; raises ImportError if it is not installed."""
  return packages.load(
    'ale_py.vector_env',
    "'atari/...'",
    'the packages ale-py (0.12.1 or later) and gymnasium',
    extras.install('atari'),
  )


_SUITE = tuple(f'atari/{game}' for game in GAMES)
_BENCHMARK = scores.Benchmark(
  'atari',
  'Atari, human-normalized',
  '0 is random play and 1 a professional human tester (Wang et al., 2016).',
)
FAMILIES = {
  'atari': family.Family(
    form='atari/GAME (atari/breakout)',
    kind='host',
    names=lambda: _SUITE,
    find=family.listed(GAMES, make, import_package),
    suites={'atari57': _SUITE},
    find_scale=scores.scales(_BENCHMARK, GAMES, 'atari/').get,
    preprocessing=Preprocessing,
    takes_can_render=True,
    find_spec=find_spec,
    action_repeat=lambda preprocessing: preprocessing.frame_skip,
  )
}
