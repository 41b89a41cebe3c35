"""NetHack: tasks of the NetHack Learning Environment, an optional extra."""

from collections.abc import Mapping
import dataclasses
import functools
import re
import sys
from types import ModuleType
from typing import Annotated
from typing import Any

import jax
import numpy as np

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments.host import adapters
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import sequential
from disco_rl.environments.host import terminal

# The NeurIPS 2021 Challenge (Hambro et al., 2022), the task of the paper.
CHALLENGE = 'challenge'
# Task -> its class in nle.env.tasks, as in Kuettler et al. (2020). The class
# NetHackChallenge does not accept seeds, so runs would not be reproducible:
# instead we use NetHackScore with the settings of `_challenge`.
TASKS = {
  CHALLENGE: 'NetHackScore',
  'eat': 'NetHackEat',
  'gold': 'NetHackGold',
  'oracle': 'NetHackOracle',
  'score': 'NetHackScore',
  'scout': 'NetHackScout',
  'staircase': 'NetHackStaircase',
  'staircase_pet': 'NetHackStaircasePet',
}

# Key of the observation -> type; large arrays of uint8 would be pictures.
OBSERVATION_TYPES = {
  'glyphs': np.int16,
  'blstats': np.int32,
  'message': np.int16,
}


# Keys of the screen for people: characters and colors.
_TERMINAL = ('tty_chars', 'tty_colors')
_TIME = 20  # The entry of `blstats` with the turn of the game.
# The game ignores unknown words, and draws that part of the hero.
_WORD = (
  '(@|arc|bar|cav|hea|kni|mon|pri|rog|ran|sam|tou|val|wiz'
  '|hum|elf|dwa|gno|orc|law|neu|cha|mal|fem)'
)
_Hero = Annotated[
  str,
  config_lib.Requirement(
    "'@', or the first three letters of role, race, alignment and gender, "
    'separated by -',
    lambda hero: bool(re.fullmatch(f'{_WORD}(-{_WORD})*', hero)),
  ),
]


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.nethack.'):
  """Preprocessing of NetHack; the defaults are those of Kuettler et al. (2020).

  Menus are declined, and so are all questions except those about eating,
  praying, attacking and directions. Games are not recorded.

  The task 'challenge' has its own rules, and only uses the frame stack: heroes
  are random, there are all 121 keys, nothing is declined, rewards are only
  differences of the game's score, and episodes are truncated after a million
  steps, or after 10,000 in which no time passes.

  Attributes:
    character: role, race, alignment and gender of the hero; '@': a random one
      in every episode.
    max_episode_steps: time limit, a truncation.
    has_all_actions: offers all useful keys, not only the 23 for moving,
      kicking, eating and searching.
    idle_penalty: number that is added to the reward of a step in which no time
      passes in the game.
    frame_stack: S, the number of screens in an observation; 4 in the paper.
  """

  character: _Hero = 'mon-hum-neu-mal'
  max_episode_steps: config_lib.Count = 5_000
  has_all_actions: bool = False
  idle_penalty: config_lib.Finite = -0.01
  frame_stack: config_lib.Count = 4


BENCHMARK = Preprocessing()


def make(
  task: str,
  num_environments: int,
  seed: int,
  preprocessing: Preprocessing = BENCHMARK,
  can_render: bool = False,
) -> base.HostEnvironment:
  """Makes games of a task of `TASKS`, which step sequentially.

  The arguments are those of `registry.make`. Equal seeds and actions give equal
  games on any day: the phase of the moon and the time of day, which affect
  NetHack, are drawn from the seed.

  Returns:
    The batch, with observations {'glyphs': [21, 79, S] int16, the map;
    'blstats': [27, S] int32, the bottom line; 'message': [256, S] int16,
    characters}; see `frame_stack.FrameStack`. For S = 1 there is no last axis.

  Raises:
    ImportError: A package is not installed.
    ValueError: The challenge would ignore a setting.
  """
  tasks = import_package()
  describe = _challenge if task == CHALLENGE else _task
  rules, limits = describe(tasks, preprocessing)
  make_env = functools.partial(
    getattr(tasks, TASKS[task]),
    **rules,
    penalty_mode='constant',
    observation_keys=(*OBSERVATION_TYPES, *(_TERMINAL if can_render else ())),
    save_ttyrec_every=0,
    fix_moon_phase=True,
    # The package would report its own limit as a termination, and return an
    # observation after the end of the game.
    max_episode_steps=sys.maxsize,
  )
  envs = [make_env() for _ in range(num_environments)]
  games = [
    _Game(env, limits, sub_seed)
    for env, sub_seed in zip(envs, adapters.sub_seeds(seed, num_environments))
  ]
  spec = types.EnvironmentSpec(
    observation={
      key: jax.ShapeDtypeStruct(envs[0].observation_space[key].shape, dtype)
      for key, dtype in OBSERVATION_TYPES.items()
    },
    num_actions=len(rules['actions']),
  )
  environment = sequential.SequentialEnvironment(
    games, spec, f'nethack/{task}', seed, longest=limits.steps
  )
  return frame_stack.stack(environment, preprocessing.frame_stack)


def import_package() -> ModuleType:
  """Returns nle.env.tasks; raises ImportError if it is not installed."""
  return packages.load(
    'nle.env.tasks',
    "'nethack/...'",
    'the package nle (1.3.0 or later)',
    extras.install('nethack'),
  )


@dataclasses.dataclass(frozen=True)
class _Limits:
  """The limits of steps, and of consecutive steps without time passing."""

  steps: int
  idle_steps: int = sys.maxsize


def _task(
  tasks: ModuleType, preprocessing: Preprocessing
) -> tuple[dict[str, Any], _Limits]:
  """Returns the arguments of a task's class, and the limits of episodes."""
  actions = tasks.nethack.USEFUL_ACTIONS
  if not preprocessing.has_all_actions:
    actions = tasks.TASK_ACTIONS
  rules = {
    'character': preprocessing.character,
    'actions': actions,
    'penalty_step': preprocessing.idle_penalty,
  }
  return rules, _Limits(preprocessing.max_episode_steps)


def _challenge(
  tasks: ModuleType, preprocessing: Preprocessing
) -> tuple[dict[str, Any], _Limits]:
  """Returns the same as `_task` for the challenge; see `Preprocessing`."""
  taken = dataclasses.replace(BENCHMARK, frame_stack=preprocessing.frame_stack)
  if preprocessing != taken:
    raise ValueError(
      "'nethack/challenge' has its own rules, and would ignore all settings "
      'of preprocessing.nethack except frame_stack: leave them out, or '
      "choose 'nethack/score'."
    )
  rules = {
    'character': '@',
    'actions': tasks.nethack.ACTIONS,
    'penalty_step': 0.0,
    'allow_all_yn_questions': True,
    'allow_all_modes': True,
  }
  return rules, _Limits(steps=1_000_000, idle_steps=10_000)


class _Game(sequential.Simulator):
  """One task, as `sequential.Simulator`."""

  def __init__(self, env: Any, limits: _Limits, seed: int):
    self._env = env
    self._limits = limits
    self._num_steps = self._num_idle_steps = 0
    # At the end of an episode the game forgets its seeds, and would draw new
    # ones from the operating system.
    self._seed = seed
    self._rng = np.random.default_rng(seed)
    self._observation: Mapping[str, np.ndarray] = {}

  def reset(self) -> Mapping[str, np.ndarray]:
    core, display = self._draw_seeds()
    self._env.seed(core, display, reseed=False)
    self._num_steps = self._num_idle_steps = 0
    self._observation, _ = self._env.reset()
    return self._observation

  def skip_to(self, episode: int) -> None:
    self._rng = np.random.default_rng(self._seed)
    for _ in range(episode):
      self._draw_seeds()

  def _draw_seeds(self) -> list[int]:
    return self._rng.integers(2**31, size=2).tolist()

  def step(
    self, action: int
  ) -> tuple[Mapping[str, np.ndarray], float, bool, bool]:
    # The game overwrites its observations.
    before = int(self._observation['blstats'][_TIME])
    observation, reward, is_terminated, _, _ = self._env.step(action)
    self._observation = observation
    self._num_steps += 1
    has_moved = observation['blstats'][_TIME] != before
    self._num_idle_steps = 0 if has_moved else self._num_idle_steps + 1
    is_out_of_time = (
      self._num_steps >= self._limits.steps
      or self._num_idle_steps >= self._limits.idle_steps
    )
    is_truncated = is_out_of_time and not is_terminated
    return observation, reward, is_terminated, is_truncated

  def render(self) -> np.ndarray:
    return terminal.draw(*self._terminal())

  def screen(self) -> str:
    return terminal.to_text(self._terminal()[0])

  def close(self) -> None:
    self._env.close()

  def _terminal(self) -> list[np.ndarray]:
    """Returns characters and colors, [24, 80] each."""
    if _TERMINAL[0] not in self._observation:
      raise base.RenderError('NetHack was made without can_render=True.')
    return [self._observation[key] for key in _TERMINAL]


FAMILIES = {
  'nethack': family.Family(
    form='nethack/TASK (nethack/score)',
    kind='host',
    names=lambda: (f'nethack/{task}' for task in TASKS),
    find=family.listed(TASKS, make, import_package),
    preprocessing=Preprocessing,
    takes_can_render=True,
  )
}
