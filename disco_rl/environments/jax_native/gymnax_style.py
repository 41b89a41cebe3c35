"""The user's environments with the interface of gymnax."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.jax_native import other_styles
from disco_rl.environments.jax_native import trees

# Required methods; `is_truncated` and `observation_space` are optional.
METHODS = ('reset_env', 'step_env', 'action_space')


@types.record
class GymnaxStyleEnvironment(base.JaxEnvironment):
  """An object of pure functions, with its parameters.

  Observations in spaces of `n` values are one-hot float32, and large boards of
  uint8 are float32, because they are no pictures. Without a method
  `is_truncated`, every end of an episode is a termination.

  Attributes:
    params: The parameters, a tree of arrays.
    env: The object, which is only equal to itself.
  """

  params: types.PyTree
  env: Any = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of one environment."""
    return infer_spec(self)

  def reset(self, key: types.Array) -> tuple[types.PyTree, types.PyTree]:
    """Implements `JaxEnvironment.reset`."""
    observation, state = self.env.reset_env(key, self.params)
    return trees.strong_types(state), self.encode(observation)

  def step(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Takes one action; a step at a time limit is not terminal."""
    observation, state, reward, is_terminal, _ = self.env.step_env(
      key, state, action, self.params
    )
    is_terminal = jnp.asarray(is_terminal, bool)
    is_last = is_terminal
    if hasattr(self.env, 'is_truncated'):
      is_last = is_terminal | self.env.is_truncated(state, self.params)
    return trees.strong_types(state), types.TimeStep(
      observation=self.encode(observation),
      reward=jnp.asarray(reward, jnp.float32),
      is_terminal=is_terminal,
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `JaxEnvironment.encode`."""
    return read(self.env, self.params, observation)


def infer_spec(environment: GymnaxStyleEnvironment) -> types.EnvironmentSpec:
  """Infers the spec by tracing a reset of an environment, not stacked."""
  _, observation = jax.eval_shape(environment.reset, jax.random.key(0))
  space = environment.env.action_space(environment.params)
  return types.EnvironmentSpec(observation, num_actions=int(space.n))


def read(
  env: Any, params: types.PyTree, observation: types.PyTree
) -> types.PyTree:
  """Converts an observation to arrays; see `GymnaxStyleEnvironment`."""
  if hasattr(env, 'observation_space'):
    space = env.observation_space(params)
    if hasattr(space, 'n') and not _is_one_hot(observation, space.n):
      return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)
    if _is_large_board(observation, getattr(space, 'high', None)):
      return observation.astype(jnp.float32)
  return trees.strong_types(observation)


def _is_one_hot(observation: types.PyTree, size: int) -> bool:
  return jnp.shape(observation)[-1:] == (size,) and jnp.issubdtype(
    jnp.result_type(observation), jnp.floating
  )


def _is_large_board(observation: types.PyTree, largest: object) -> bool:
  """Returns whether bounds tell a board of uint8 from a picture."""
  return (
    isinstance(observation, jax.Array)
    and types.is_picture(observation.shape, observation.dtype)
    and isinstance(largest, int | float | np.ndarray | jax.Array)
    and not isinstance(largest, jax.core.Tracer)
    and bool(np.max(largest) <= types.LARGEST_CODE)
  )


def is_known(env: object) -> bool:
  """Returns whether an object, not a class, can be an argument of `make`.

  Raises:
    ValueError: The environment is not supported, as in `make`.
  """
  is_of_gymnax = all(hasattr(env, method) for method in METHODS)
  return not isinstance(env, type) and (
    is_of_gymnax or other_styles.adapt(env, None) is not None
  )


def make(env: Any, params: types.PyTree) -> GymnaxStyleEnvironment:
  """Wraps an environment and its parameters.

  Args:
    env: An object with the methods `METHODS`, as in gymnax: `reset_env`
      (key, params) -> observation, state; `step_env` (key, state, action,
      params) -> observation, state, reward, is_terminal, info, without a reset;
      `action_space` (params) -> a space with the number of actions `n`. Or an
      environment of a library in `other_styles`.
    params: The parameters, a tree of numbers and arrays; None: the
      environment's `default_params`.

  Returns:
    The environment.

  Raises:
    ValueError: A method is missing, the actions are not discrete, there are
      several players, or episodes are over before they begin.
  """
  name = type(env).__name__
  env, params = other_styles.adapt(env, params) or (env, params)
  if isinstance(env, other_styles.Adapted):
    try:
      env.check_resets(params)
    except ValueError as error:
      raise ValueError(f'{name}: {error}') from error
  missing = [method for method in METHODS if not hasattr(env, method)]
  if missing:
    raise ValueError(
      f'{name} lacks {", ".join(missing)}: an environment in the style of '
      f'gymnax has the methods {", ".join(METHODS)}. Environments of navix, '
      'xminigrid, pgx and jumanji are also accepted.'
    )
  params = env.default_params if params is None else params
  space = env.action_space(params)
  if not hasattr(space, 'n'):
    raise ValueError(
      f'{name} has actions {space}: only discrete actions are supported, in '
      'a space with their number `n`. Let the environment number its actions.'
    )
  return GymnaxStyleEnvironment(params=trees.strong_types(params), env=env)
