"""Masks of legal actions outside the observations of Gymnasium."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.environments.host import gymnasium_spaces

_METHOD = 'action_masks'  # The name in sb3-contrib.


class _MaskedEnvironment:
  """An environment that adds the mask of legal actions to its observations.

  An observation that is not a dictionary becomes the entry 'observation'.
  """

  def __init__(self, env: Any, is_in_info: bool):
    spaces = gymnasium_spaces.import_gymnasium().spaces
    actions, observations = env.action_space, env.observation_space
    # Spaces of other actions are refused later.
    sizes = getattr(actions, 'nvec', getattr(actions, 'n', 1))
    self._env = env
    self._is_in_info = is_in_info
    self._is_dict = isinstance(observations, spaces.Dict)
    entries = observations.spaces if self._is_dict else {}
    self.observation_space = spaces.Dict(
      {
        **(entries or {'observation': observations}),
        types.ACTION_MASK: spaces.MultiBinary(int(np.sum(sizes))),
      }
    )

  def reset(self, **arguments: object) -> tuple[types.PyTree, ...]:
    """Implements `gymnasium.Env.reset`."""
    observation, info = self._env.reset(**arguments)
    return self._add(observation, info), info

  def step(self, action: object) -> tuple[types.PyTree, ...]:
    """Implements `gymnasium.Env.step`."""
    observation, *outcome, info = self._env.step(action)
    return self._add(observation, info), *outcome, info

  def _add(
    self, observation: types.PyTree, info: Mapping[str, object]
  ) -> Mapping[str, types.PyTree]:
    if self._is_in_info:
      mask = info[types.ACTION_MASK]
    else:
      mask = self._env.get_wrapper_attr(_METHOD)()
    entries = observation if self._is_dict else {'observation': observation}
    return {**entries, types.ACTION_MASK: mask}

  def __getattr__(self, name: str) -> Any:
    """Returns other attributes of the environment."""
    return getattr(self._env, name)


def add(env: Any, is_in_info: bool = False) -> Any:
  """Adds masks to observations, if an environment has them elsewhere.

  Args:
    env: An environment of Gymnasium, which is returned unchanged if it has
      neither masks in infos nor a method `action_masks`.
    is_in_info: Whether `info['action_mask']` is the mask, not the result of the
      method.
  """
  is_masked = is_in_info or env.has_wrapper_attr(_METHOD)
  space = env.observation_space
  if not is_masked or types.has_action_mask(getattr(space, 'spaces', None)):
    return env
  return _MaskedEnvironment(env, is_in_info)
