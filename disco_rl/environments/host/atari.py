"""Atari-57: games of the Arcade Learning Environment, an optional extra."""

import dataclasses
import math
from typing import Any

from disco_rl.environments import base
from disco_rl.environments import packages
from disco_rl.environments.host import adapters
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import image_vector
from disco_rl.runtime import config_checks

# The games of the benchmark, in lexicographic order.
GAMES = (
  'alien',
  'amidar',
  'assault',
  'asterix',
  'asteroids',
  'atlantis',
  'bank_heist',
  'battle_zone',
  'beam_rider',
  'berzerk',
  'bowling',
  'boxing',
  'breakout',
  'centipede',
  'chopper_command',
  'crazy_climber',
  'defender',
  'demon_attack',
  'double_dunk',
  'enduro',
  'fishing_derby',
  'freeway',
  'frostbite',
  'gopher',
  'gravitar',
  'hero',
  'ice_hockey',
  'jamesbond',
  'kangaroo',
  'krull',
  'kung_fu_master',
  'montezuma_revenge',
  'ms_pacman',
  'name_this_game',
  'phoenix',
  'pitfall',
  'pong',
  'private_eye',
  'qbert',
  'riverraid',
  'road_runner',
  'robotank',
  'seaquest',
  'skiing',
  'solaris',
  'space_invaders',
  'star_gunner',
  'surround',
  'tennis',
  'time_pilot',
  'tutankham',
  'up_n_down',
  'venture',
  'video_pinball',
  'wizard_of_wor',
  'yars_revenge',
  'zaxxon',
)


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_checks.Settings, prefix='preprocessing.atari.'):
  """Preprocessing of Atari; the defaults are the benchmark's.

  The protocol is that of Machado et al. (2018), with the usual frame skip of 4
  in place of 5. The loss of a life never ends an episode: agents should learn
  what a life is worth.

  Attributes:
    frame_skip: number of frames for which an action is repeated; with 4 there
      are 15 decisions a second. Their rewards are summed.
    max_over_frames: each frame is the maximum of the last two emulated ones,
      because the console draws some sprites in every other frame only.
    height: of the frames, which are scaled down from 210.
    width: of the frames, which are scaled down from 160.
    is_grayscale: frames have one channel. Colours carry little information in
      most games, at three times the memory.
    frame_stack: S, the number of frames in an observation, which makes
      velocities observable.
    sticky_action_probability: of repeating the previous action for one more
      emulated frame. The console is deterministic: without sticky actions, a
      memorised sequence of actions would suffice.
    max_no_ops: largest number of no-op actions at the beginning of an episode,
      where it is random. 0: none, since sticky actions already make episodes
      differ.
    fires_on_reset: presses the button once, for games that wait for it. By
      default agents have to learn it.
    has_all_actions: offers all 18 actions in every game (9 in Skiing, which
      has no more) in place of those with an effect. This is harder, but agents
      of all games then have the same shapes.
    max_episode_frames: time limit in emulated frames, a truncation: 30 minutes
      of play.
    max_abs_reward: bound to which rewards are clipped; returns are then sums of
      clipped rewards, not the game's score. 0: rewards are not clipped.
  """

  frame_skip: config_checks.Count = 4
  max_over_frames: bool = True
  height: config_checks.Count = 84
  width: config_checks.Count = 84
  is_grayscale: bool = True
  frame_stack: config_checks.Count = 4
  sticky_action_probability: config_checks.Fraction = 0.25
  max_no_ops: config_checks.CountOrZero = 0
  fires_on_reset: bool = False
  has_all_actions: bool = True
  max_episode_frames: config_checks.Count = 108_000
  max_abs_reward: config_checks.FiniteOrZero = 0.0


BENCHMARK = Preprocessing()


def make(
  game: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing = BENCHMARK,
) -> base.HostEnvironment:
  """Makes copies of a game, which a pool of threads steps.

  Args:
    game: of `GAMES`.
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`.
    preprocessing: of frames and actions.

  Returns:
    The batch, with observations [height, width, S] uint8 (S * 3 channels if in
    colour).

  Raises:
    ImportError: if a package is not installed.
  """
  env = import_package().AtariVectorEnv(
    game,
    num_environments,
    frameskip=preprocessing.frame_skip,
    maxpool=preprocessing.max_over_frames,
    img_height=preprocessing.height,
    img_width=preprocessing.width,
    grayscale=preprocessing.is_grayscale,
    # `frame_stack` stacks them, in the order [H, W, S].
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
  environment = image_vector.ImageVectorEnvironment(
    env,
    f'atari/{game}',
    seed,
    frame_shape=(
      preprocessing.height,
      preprocessing.width,
      1 if preprocessing.is_grayscale else 3,
    ),
    reset_seeds=adapters.sub_seeds(seed, num_environments),
    max_abs_reward=preprocessing.max_abs_reward or math.inf,
  )
  return frame_stack.stack(environment, preprocessing.frame_stack, True)


def import_package() -> Any:
  """Returns ale_py.vector_env; raises ImportError if it is not installed."""
  return packages.load(
    'ale_py.vector_env',
    "'atari/...'",
    'the packages ale-py (0.12.1 or later) and gymnasium',
    "pip install -e '.[atari]'",
  )
