"""Environments of the dm_env API."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import dm_env
from dm_env import specs
import numpy as np

from disco_rl import types
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import sequential


class DmEnvEnvironment(sequential.SequentialEnvironment):
  """Any dm_env environments with discrete actions, which step sequentially.

  Observations have the structure and types of their spec, except that 64-bit
  types are narrowed to 32 bits, large boards of uint8 become float32, because
  they are no pictures, and sequences become tuples.

  A last step with discount 0 is a termination, any other a truncation. Other
  discounts are ignored, because agents have their own.
  """

  def __init__(self, envs: Sequence[dm_env.Environment], seed: int):
    """Wraps environments.

    Args:
      envs: The B environments with equal specs, which only this object uses
        from now on.
      seed: The seed of the batch, for messages, because environments of this
        API are seeded when they are made.

    Raises:
      ValueError: Their specs differ, or are not supported.
    """
    name = type(envs[0]).__name__
    all_specs = [_environment_spec(env, name) for env in envs]
    differing = [i for i, x in enumerate(all_specs) if x != all_specs[0]]
    if differing:
      i = differing[0]
      raise ValueError(
        f'The specs of environments 0 and {i} differ: {all_specs[0]} and '
        f'{all_specs[i]}. Environments of one batch must have equal specs.'
      )
    super().__init__(
      [_Simulator(env) for env in envs], all_specs[0], name, seed
    )

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Implements `HostEnvironment.encode`."""
    return data_checks.select(
      self.spec.observation, observation, lambda _, entry, __: entry
    )


class _Simulator(sequential.Simulator):
  """One environment, as `sequential.Simulator`."""

  def __init__(self, env: dm_env.Environment):
    self._env = env
    self._as_action = env.action_spec().dtype.type

  def reset(self) -> types.PyTree:
    return self._env.reset().observation

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    timestep = self._env.step(self._as_action(action))
    if timestep.first():
      raise ValueError(
        'an episode began, but no LAST step had ended the previous one'
      )
    is_terminated = timestep.last() and float(timestep.discount) == 0.0
    is_truncated = timestep.last() and not is_terminated
    return timestep.observation, timestep.reward, is_terminated, is_truncated

  def close(self) -> None:
    self._env.close()


def _environment_spec(
  env: dm_env.Environment, name: str
) -> types.EnvironmentSpec:
  action_spec = env.action_spec()
  if not isinstance(action_spec, specs.DiscreteArray):
    raise ValueError(
      f'{name} has the action spec {action_spec}: only DiscreteArray is '
      'supported. Wrap the environment so that it numbers its actions.'
    )
  for what in ('reward', 'discount'):
    spec = getattr(env, f'{what}_spec')()
    if not isinstance(spec, specs.Array) or spec.shape:
      raise ValueError(
        f'{name} has the {what} spec {spec}: only a single number is supported.'
      )
  return types.EnvironmentSpec(
    observation=_observation_spec(env.observation_spec(), name),
    num_actions=action_spec.num_values,
  )


def _observation_spec(spec: Any, path: str) -> types.PyTree:
  """Converts a spec to a tree of `jax.ShapeDtypeStruct`; `path` names it."""
  if isinstance(spec, Mapping):
    return {k: _observation_spec(s, f'{path}[{k!r}]') for k, s in spec.items()}
  if isinstance(spec, (list, tuple)):
    return tuple(
      _observation_spec(s, f'{path}[{i}]') for i, s in enumerate(spec)
    )
  if (
    not isinstance(spec, specs.Array) or np.dtype(spec.dtype).kind not in 'biuf'
  ):
    raise ValueError(
      f'{path} has the observation spec {spec}: only Array of numbers, and '
      'mappings and sequences of these, are supported.'
    )
  largest = getattr(spec, 'maximum', None)
  return data_checks.array_spec(spec.shape, spec.dtype, largest, path)
