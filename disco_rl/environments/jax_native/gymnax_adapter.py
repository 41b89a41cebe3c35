"""Environments of gymnax, an optional extra of this package."""

from collections.abc import Mapping
import dataclasses
import functools
import itertools
from types import ModuleType
from typing import Any

import jax
import numpy as np

from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments import scores
from disco_rl.environments.jax_native import gymnax_style
from disco_rl.environments.jax_native import trees

# Our names -> ids in gymnax.
MINATAR = {
  'asterix': 'Asterix-MinAtar',
  'breakout': 'Breakout-MinAtar',
  'freeway': 'Freeway-MinAtar',
  'seaquest': 'Seaquest-MinAtar',
  'space_invaders': 'SpaceInvaders-MinAtar',
}
# Game -> random play, PPO. Random play, measured here, is the mean over 1,000
# (Freeway) to 98,000 episodes, with standard errors up to 0.025; PPO is the
# return of the checkpoints in the README of gymnax (Lange, 2022), which lacks
# Seaquest.
MINATAR_RETURNS: Mapping[str, tuple[float, float]] = {
  'asterix': (0.50, 15.0),
  'breakout': (0.41, 28.0),
  'freeway': (0.36, 58.0),
  'space_invaders': (4.13, 131.0),
}
BSUITE = {
  'catch': 'Catch-bsuite',
  'deep_sea': 'DeepSea-bsuite',
  'discounting_chain': 'DiscountingChain-bsuite',
  'memory_chain': 'MemoryChain-bsuite',
  'umbrella_chain': 'UmbrellaChain-bsuite',
}
# Further ids with discrete actions.
OTHERS = (
  'Acrobot-v1',
  'BernoulliBandit-misc',
  'CartPole-v1',
  'FourRooms-misc',
  'FrozenLake-misc',
  'GaussianBandit-misc',
  'MetaMaze-misc',
  'MountainCar-v0',
  'Pong-misc',
)
_REFUSED = {
  'MNISTBandit-bsuite': 'it downloads its images when it is made',
  'SimpleBandit-bsuite': (
    'it draws new arms after every step, so that there is nothing to learn'
  ),
}


# Classes of gymnax with the time in observations: their time limits are part of
# the task, and count as terminations.
_TIMED = ('BernoulliBandit', 'DiscountingChain', 'GaussianBandit', 'MetaMaze')


@types.record
class GymnaxEnvironment(gymnax_style.GymnaxStyleEnvironment):
  """One environment of gymnax, with gymnax's own dynamics.

  Its MinAtar differs from the first publication: actions are not sticky, only
  those with an effect are offered, and episodes are truncated after 1,000 steps
  (Freeway: 2,500). MinAtar's observations, [10, 10, C] of zeros and ones, are
  bool here: exact, and a quarter of the memory.

  Attributes:
    params: A record of arrays, the parameters of the environment that can be
      changed without recompilation.
    env: The environment of the package, from a cache: equal names give equal
      objects, so that tasks with one name stack.
  """

  frames_per_second = 10.0

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of one environment, even if several are stacked."""
    return _spec(self.env)

  def step(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Takes one action; a time limit that agents observe is terminal."""
    state, timestep = super().step(state, action, key)
    if type(self.env).__name__ in _TIMED:
      timestep = dataclasses.replace(timestep, is_terminal=timestep.is_last)
    return state, timestep

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `JaxEnvironment.encode`."""
    if self.env.name in MINATAR.values():
      return observation != 0
    return gymnax_style.read(self.env, self.env.default_params, observation)

  def render(self, state: types.PyTree) -> np.ndarray:
    """Draws boards, and only those, with a color for each channel."""
    # Boards do not need random numbers.
    key = jax.random.key(0)
    board = np.asarray(
      self.env.get_obs(state=state, params=self.params, key=key)
    )
    if board.ndim not in (2, 3):
      raise base.RenderError(
        f'There are no pictures of {self.env.name} of gymnax: only boards are '
        f'drawn, and its observation has the shape {board.shape}.'
      )
    channels = np.moveaxis(board, -1, 0) if board.ndim == 3 else board[None]
    return boards.paint(*zip(channels != 0, itertools.cycle(boards.COLORS)))


def make(env_id: str) -> GymnaxEnvironment:
  """Makes an environment that gymnax registers, with its default parameters.

  Raises:
    ImportError: gymnax is not installed.
    ValueError: The environment is not supported.
  """
  if env_id in _REFUSED:
    raise ValueError(
      f'{env_id} of gymnax is not supported: {_REFUSED[env_id]}.'
    )
  env = _package_env(env_id)
  space = env.action_space(env.default_params)
  if not hasattr(space, 'n'):
    raise ValueError(
      f'{env_id} of gymnax has actions {space}: only Discrete is supported, '
      f'which {", ".join(OTHERS)} and all of MinAtar have.'
    )
  params = trees.strong_types(env.default_params)
  return GymnaxEnvironment(params=params, env=env)


def is_registered(env_id: str) -> bool:
  """Returns whether gymnax has an environment.

  Raises:
    ImportError: gymnax is not installed.
  """
  return env_id in import_package().registered_envs


def import_package() -> ModuleType:
  """Returns the module gymnax; raises ImportError if it is not installed."""
  return packages.load(
    'gymnax',
    "'minatar/...', 'bsuite/...' or 'gymnax/...'",
    'the package gymnax (1.0.1 or later)',
    extras.install('gymnax'),
  )


@functools.cache
def _package_env(env_id: str) -> Any:
  # Environments hold arrays, which must not become part of a traced program.
  with jax.ensure_compile_time_eval():
    return import_package().make(env_id)[0]


@functools.cache
def _spec(env: Any) -> types.EnvironmentSpec:
  single = GymnaxEnvironment(params=env.default_params, env=env)
  return gymnax_style.infer_spec(single)


def _find(env_id: str | None) -> family.Builder | None:
  """Returns the builder of an id in gymnax."""
  if env_id is None or not is_registered(env_id):
    return None
  return lambda *_: make(env_id)


_MINATAR_BENCHMARK = scores.Benchmark(
  'minatar',
  'MinAtar, normalized',
  '0 is random play as measured here, 1 the checkpoints of PPO whose returns '
  'the authors of gymnax publish (Lange, 2022). They publish none for '
  'Seaquest.',
)
_MINATAR_SUITE = tuple(f'minatar/{game}' for game in MINATAR)
_BSUITE_SUITE = tuple(f'bsuite/{task}' for task in BSUITE)
FAMILIES = {
  'minatar': family.Family(
    form='minatar/GAME (minatar/breakout)',
    kind='device',
    names=lambda: _MINATAR_SUITE,
    find=lambda variant, _: _find(MINATAR.get(variant or '')),
    suites={'minatar': _MINATAR_SUITE},
    find_scale=scores.scales(
      _MINATAR_BENCHMARK, MINATAR_RETURNS, 'minatar/'
    ).get,
  ),
  'bsuite': family.Family(
    form='bsuite/TASK (bsuite/memory_chain)',
    kind='device',
    names=lambda: _BSUITE_SUITE,
    find=lambda variant, _: _find(BSUITE.get(variant or '')),
    suites={'bsuite': _BSUITE_SUITE},
  ),
  'gymnax': family.Family(
    form='gymnax/ID (gymnax/CartPole-v1)',
    kind='device',
    names=lambda: (f'gymnax/{env_id}' for env_id in OTHERS),
    find=lambda variant, _: _find(variant),
  ),
}
