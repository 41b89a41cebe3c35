"""Masks of legal actions outside the observations of Gymnasium."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from disco_rl import types
from disco_rl.environments.host import data_checks
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
    self._sizes = np.ravel(sizes).tolist()
    self._env = env
    self._is_in_info = is_in_info
    self._is_dict = isinstance(observations, spaces.Dict)
    entries = observations.spaces if self._is_dict else {}
    self.observation_space = spaces.Dict(
      {
        **(entries or {'observation': observations}),
        types.ACTION_MASK: spaces.MultiBinary(sum(self._sizes)),
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
    if not self._is_in_info:
      source, mask = _METHOD, self._env.get_wrapper_attr(_METHOD)
      mask = mask() if callable(mask) else mask
    elif isinstance(info, Mapping) and types.ACTION_MASK in info:
      source, mask = f'info[{types.ACTION_MASK!r}]', info[types.ACTION_MASK]
    else:
      raise data_checks.SimulatorError(
        f'info lacks {types.ACTION_MASK!r}, which masks_in_info=True asks for: '
        f'it is a {data_checks.entries_of(info)}'
      )
    entries = observation if self._is_dict else {'observation': observation}
    return {**entries, types.ACTION_MASK: _as_mask(mask, self._sizes, source)}

  def __getattr__(self, name: str) -> Any:
    """Returns other attributes of the environment, except private ones."""
    if name.startswith('_'):  # Copies have no `_env` at first.
      raise AttributeError(name)
    return getattr(self._env, name)


def _as_mask(mask: Any, sizes: list[int], source: str) -> np.ndarray:
  """Converts a mask to whether each action is legal, [sum(sizes)] int8.

  Args:
    mask: One number for each action, or a mask for each component of an action.
    sizes: The numbers of values of the components.
    source: The origin of the mask, for messages.

  Raises:
    SimulatorError: The mask has another form.
  """
  try:
    parts = [np.asarray(part) for part in mask]
    if [part.shape for part in parts] == [(size,) for size in sizes]:
      mask = np.concatenate(parts)
    array = np.asarray(mask)
  except (TypeError, ValueError):  # It is no sequence, or a ragged one.
    array = np.asarray(None)
  if array.shape != (sum(sizes),) or array.dtype.kind not in 'biuf':
    components = f', or one mask for each of {sizes}' if len(sizes) > 1 else ''
    raise data_checks.SimulatorError(
      f'{source} is {mask!r}, expected {sum(sizes)} numbers, one for each '
      f'action{components}: 1 if it is legal, 0 if not'
    )
  data_checks.check_mask(array, source)
  return (array != 0).astype(np.int8)


def add(env: Any, is_in_info: bool = False) -> Any:
  """Adds masks to observations, if an environment has them elsewhere.

  Args:
    env: An environment of Gymnasium, which is returned unchanged if it has
      neither masks in infos nor a method or an attribute `action_masks`.
    is_in_info: Whether `info['action_mask']` is the mask, not `action_masks`.
  """
  is_masked = is_in_info or env.has_wrapper_attr(_METHOD)
  space = env.observation_space
  if not is_masked or types.has_action_mask(getattr(space, 'spaces', None)):
    return env
  return _MaskedEnvironment(env, is_in_info)
