"""ProcGen-16: games with generated levels, by EnvPool, an optional extra."""

from collections.abc import Mapping
import dataclasses
from types import ModuleType

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import scores
from disco_rl.environments.host import adapters
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import image_vector

# The games of the benchmark, in lexicographic order -> R_min, R_max in hard
# mode, then in easy mode. Cobbe et al., 2020, "Leveraging Procedural Generation
# to Benchmark Reinforcement Learning", appendix C: the score of an agent
# without observations, and the best possible score, or the best one ever
# reached.
GAMES: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
  'bigfish': ((0.0, 40.0), (1.0, 40.0)),
  'bossfight': ((0.5, 13.0), (0.5, 13.0)),
  'caveflyer': ((2.0, 13.4), (3.5, 12.0)),
  'chaser': ((0.5, 14.2), (0.5, 13.0)),
  'climber': ((1.0, 12.6), (2.0, 12.6)),
  'coinrun': ((5.0, 10.0), (5.0, 10.0)),
  'dodgeball': ((1.5, 19.0), (1.5, 19.0)),
  'fruitbot': ((-0.5, 27.2), (-1.5, 32.4)),
  'heist': ((2.0, 10.0), (3.5, 10.0)),
  'jumper': ((1.0, 10.0), (3.0, 10.0)),
  'leaper': ((1.5, 10.0), (3.0, 10.0)),
  'maze': ((4.0, 10.0), (5.0, 10.0)),
  'miner': ((1.5, 20.0), (1.5, 13.0)),
  'ninja': ((2.0, 10.0), (3.5, 10.0)),
  'plunder': ((3.0, 30.0), (4.5, 30.0)),
  'starpilot': ((1.5, 35.0), (2.5, 64.0)),
}
_FRAME_SHAPE = (64, 64, 3)
_NUM_ACTIONS = 15


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.procgen.'):
  """Preprocessing of ProcGen; the defaults are the paper's.

  Rewards are the game's own, and so are the time limits (500, 1,000, 4,000 or
  6,000 steps), which are truncations.

  Attributes:
    num_levels: number of levels that episodes are drawn from, 500 in the paper,
      which trains and evaluates on the same levels; 0: no limit.
    start_level: number of the first of these levels.
    frame_stack: S, the number of frames in an observation; 4 in the paper,
      although one suffices for most games.
  """

  num_levels: config_lib.CountOrZero = 500
  start_level: config_lib.CountOrZero = 0
  frame_stack: config_lib.Count = 4


# Games in hard mode, as in published scores at 50M steps and more, and in easy
# mode, for small budgets.
VARIANTS = (*GAMES, *(f'easy/{game}' for game in GAMES))


def make(
  variant: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing,
) -> base.HostEnvironment:
  """Makes copies of one of `VARIANTS`, which step in a pool of threads.

  The arguments are those of `registry.make`.

  Returns:
    The batch, with observations [64, 64, S * 3] uint8 and 15 actions.

  Raises:
    ImportError: A package or a library is not installed.
  """
  game = variant.removeprefix('easy/')
  env = import_package().make(
    _task(game, is_hard=game == variant),
    env_type='gymnasium',
    num_envs=num_environments,
    seed=adapters.sub_seeds(seed, num_environments).tolist(),
    channel_first=False,
    num_levels=preprocessing.num_levels,
    start_level=preprocessing.start_level,
  )
  environment = image_vector.ImageVectorEnvironment(
    env, f'procgen/{variant}', seed, _FRAME_SHAPE
  )
  return frame_stack.stack(environment, preprocessing.frame_stack, True)


def find_spec(game: str, preprocessing: Preprocessing) -> types.EnvironmentSpec:
  """Returns the spec of a game, without EnvPool."""
  del game
  frame = jax.ShapeDtypeStruct(_FRAME_SHAPE, np.uint8)
  return frame_stack.stacked_spec(
    types.EnvironmentSpec(frame, _NUM_ACTIONS), preprocessing.frame_stack, True
  )


def import_package() -> ModuleType:
  """Returns envpool; raises ImportError if it or a library is missing."""
  try:
    import envpool

    # Loads the library for ProcGen, which in turn needs Qt.
    envpool.make_spec(_task('bigfish', is_hard=True))
  except ImportError as error:
    raise ImportError(
      "'procgen/...' requires the package envpool (1.2.5 or "
      f'later; {extras.install("procgen")}) and the library Qt 5 (Debian: '
      'apt-get install libqt5gui5), one of which cannot be imported: '
      f'{error}'
    ) from error
  return envpool


def _task(game: str, is_hard: bool) -> str:
  """Returns EnvPool's name of a game."""
  return f'{game.capitalize()}{"Hard" if is_hard else "Easy"}-v0'


def _scales(index: int, mode: str, prefix: str) -> dict[str, scores.Scale]:
  """Makes the scales of a mode, whose bounds have this index in `GAMES`."""
  benchmark = scores.Benchmark(
    'procgen' if mode == 'hard' else f'procgen_{mode}',
    f'ProcGen, {mode} mode, normalized',
    'By the bounds of Cobbe et al. (2020, appendix C): 0 is an agent that sees '
    'nothing, 1 the best possible score or the best one reached.',
  )
  bounds = {game: bounds[index] for game, bounds in GAMES.items()}
  return scores.scales(benchmark, bounds, prefix)


FAMILIES = {
  'procgen': family.Family(
    form='procgen/GAME or procgen/easy/GAME (procgen/bigfish)',
    kind='host',
    names=lambda: (f'procgen/{variant}' for variant in VARIANTS),
    find=family.listed(VARIANTS, make, import_package),
    suites={'procgen16': tuple(f'procgen/{game}' for game in GAMES)},
    find_scale={
      **_scales(0, 'hard', 'procgen/'),
      **_scales(1, 'easy', 'procgen/easy/'),
    }.get,
    preprocessing=Preprocessing,
    find_spec=find_spec,
  )
}
