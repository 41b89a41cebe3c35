"""Environments of the dm_env API."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
import warnings

import dm_env
from dm_env import specs
import numpy as np

from disco_rl import types
from disco_rl.environments.host import data_checks
from disco_rl.environments.host import sequential

# Episodes that end where they begin are skipped, but not for ever.
_MOST_EMPTY = 1000


class DmEnvEnvironment(sequential.SequentialEnvironment):
  """Any dm_env environments with discrete actions, which step sequentially.

  Observations have the structure and types of their spec, except that 64-bit
  types are narrowed to 32 bits, large boards of uint8 become float32, because
  they are no pictures, and sequences become tuples.

  A last step with discount 0 is a termination, any other a truncation. Other
  discounts are ignored with a warning, because agents have their own. If a
  reset returns a last step, the episode is empty, and is skipped.
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
    for _ in range(_MOST_EMPTY):
      timestep = self._env.reset()
      if not timestep.last():
        return timestep.observation
    raise data_checks.SimulatorError(
      f'reset returned a LAST step {_MOST_EMPTY} times in a row: episodes are '
      'over before they begin'
    )

  def step(self, action: int) -> tuple[types.PyTree, float, bool, bool]:
    timestep = self._env.step(self._as_action(action))
    if timestep.first():
      raise ValueError(
        'an episode began, but no LAST step had ended the previous one'
      )
    discount = np.asarray(timestep.discount)
    is_number = (
      not discount.shape
      and discount.dtype.kind in 'biuf'
      and bool(np.isfinite(discount))
    )
    if timestep.last() and not is_number:
      raise data_checks.SimulatorError(
        f'a LAST step has the discount {timestep.discount!r}, expected a '
        'number: 0 for a termination, 1 for a truncation'
      )
    if is_number and discount != 1 and not (timestep.last() and discount == 0):
      warnings.warn(
        f'{type(self._env).__name__} returns discounts other than 0 in LAST '
        f'steps and 1, such as {discount}: they are ignored. Agents have the '
        'setting `discount`.',
        stacklevel=2,
      )
    is_terminated = timestep.last() and discount == 0
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
