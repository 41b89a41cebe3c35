"""Environments of gymnax, on the device; an optional extra of this package."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.jax_native import adapters

# Our names -> the ids of gymnax.
MINATAR = {
  'asterix': 'Asterix-MinAtar',
  'breakout': 'Breakout-MinAtar',
  'freeway': 'Freeway-MinAtar',
  'seaquest': 'Seaquest-MinAtar',
  'space_invaders': 'SpaceInvaders-MinAtar',
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


@types.record
class GymnaxEnvironment(base.JaxEnvironment):
  """One environment of gymnax, with the dynamics that gymnax gives it.

  What MinAtar is there differs from its first publication: actions are not
  sticky, only those that matter are offered, and episodes are truncated after
  1,000 steps (Freeway: 2,500). Its observations, [10, 10, C] of zeros and ones,
  are bool here: exact, and a quarter of the memory. Observations that number a
  cell are one-hot float32; all others are as in gymnax.

  Attributes:
    params: record of arrays, those of the environment's parameters that gymnax
      lets one change without compiling anew.
    env_id: of gymnax.
  """

  params: Any
  env_id: str = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """Of one environment, also where several are stacked."""
    return _spec(self.env_id)

  def reset(self, key: types.Array) -> tuple[Any, types.PyTree]:
    """As `JaxEnvironment.reset`; the state is a record of gymnax."""
    observation, state = _package_env(self.env_id).reset_env(key, self.params)
    return adapters.strong_types(state), _observation(self.env_id, observation)

  def step(
    self, state: Any, action: types.Array, key: types.Array
  ) -> tuple[Any, types.TimeStep]:
    """As `JaxEnvironment.step`; a time limit does not make a step terminal."""
    env = _package_env(self.env_id)
    # Its `step` would reset as well, which `step_autoreset` does.
    observation, state, reward, is_terminal, _ = env.step_env(
      key, state, action, self.params
    )
    is_truncated = env.is_truncated(state, self.params)
    return adapters.strong_types(state), types.TimeStep(
      observation=_observation(self.env_id, observation),
      reward=jnp.asarray(reward, jnp.float32),
      is_terminal=is_terminal,
      is_last=is_terminal | is_truncated,
      mask=jnp.bool_(True),
    )


def make(env_id: str) -> GymnaxEnvironment:
  """Makes an environment with the parameters that it has in gymnax.

  Args:
    env_id: registered with gymnax.

  Returns:
    The environment.

  Raises:
    ImportError: if gymnax is not installed.
    ValueError: if the environment is not supported.
  """
  if env_id in _REFUSED:
    raise ValueError(
      f'{env_id} of gymnax is not supported: {_REFUSED[env_id]}.'
    )
  env = _package_env(env_id)
  space = env.action_space(env.default_params)
  if not isinstance(space, _spaces().Discrete):
    raise ValueError(
      f'{env_id} of gymnax has actions {space}: only Discrete is supported, '
      f'which {", ".join(OTHERS)} and all of MinAtar have.'
    )
  params = adapters.strong_types(env.default_params)
  return GymnaxEnvironment(params=params, env_id=env_id)


def is_registered(env_id: str) -> bool:
  """Whether gymnax has an environment.

  Raises:
    ImportError: if gymnax is not installed.
  """
  return env_id in import_package().registered_envs


def import_package() -> Any:
  """Returns the package.

  Raises:
    ImportError: if it is not installed.
  """
  try:
    import gymnax
  except ImportError as error:
    raise ImportError(
      "Environments named 'minatar/...', 'bsuite/...' and 'gymnax/...' need "
      f'the package gymnax (1.0.1 or later), which cannot be imported ({error})'
      ": pip install -e '.[gymnax]'"
    ) from error
  return gymnax


def _spaces() -> Any:
  import_package()
  from gymnax.environments import spaces

  return spaces


@functools.cache
def _package_env(env_id: str) -> Any:
  # They hold arrays, which must not become part of a program being traced.
  with jax.ensure_compile_time_eval():
    return import_package().make(env_id)[0]


@functools.cache
def _spec(env_id: str) -> types.EnvironmentSpec:
  env = _package_env(env_id)

  def first_observation(key: types.Array) -> types.PyTree:
    observation, _ = env.reset_env(key, env.default_params)
    return _observation(env_id, observation)

  return types.EnvironmentSpec(
    observation=jax.eval_shape(first_observation, jax.random.key(0)),
    num_actions=env.num_actions,
  )


def _observation(env_id: str, observation: types.PyTree) -> types.PyTree:
  """From gymnax's observation to ours; see `GymnaxEnvironment`."""
  env = _package_env(env_id)
  space = env.observation_space(env.default_params)
  if isinstance(space, _spaces().Discrete):
    return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
  if env_id in MINATAR.values():
    return observation != 0
  return adapters.strong_types(observation)
