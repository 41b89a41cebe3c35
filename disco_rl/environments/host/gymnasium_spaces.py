"""Converts spaces of Gymnasium to specs, and observations to arrays.

Actions may be

  Discrete       counted from 0, whatever the `start` of the space is;
  MultiDiscrete  all combinations of its numbers, at most 1,000, the last number
                 varying fastest.

Observations may be

  Box            unchanged, with 64-bit types narrowed to 32 bits, and large
                 boards of uint8 as float32, because they are no pictures;
  Discrete       one-hot float32;
  MultiDiscrete  one-hot float32 of each number, concatenated;
  MultiBinary    float32;

and `Dict` and `Tuple` of these. The entry 'action_mask' of a `Dict` has a
number for each action; for MultiDiscrete actions, it has concatenated numbers
for each value of each component.
"""

import dataclasses
import math
from types import ModuleType
from typing import TYPE_CHECKING

import jax
import numpy as np

from disco_rl import extras
from disco_rl import types
from disco_rl.environments import packages
from disco_rl.environments.host import data_checks

if TYPE_CHECKING:
  import gymnasium

# The maximal numbers of actions and of discrete observations; more would take
# gigabytes.
_MOST_VALUES = 10**6
# A rule computes about 1,200 numbers for each action and step.
_MAX_COMBINATIONS = 1000


@dataclasses.dataclass(frozen=True)
class _Leaf:
  """One array of an observation.

  Attributes:
    raw: The array that environments return.
    spec: The array that agents see.
    column: The component that each entry of a one-hot encoding refers to,
      [width]; None without an encoding.
    value: The value for which the entry is 1, [width].
  """

  raw: jax.ShapeDtypeStruct
  spec: jax.ShapeDtypeStruct
  column: np.ndarray | None = None
  value: np.ndarray | None = None

  def encode(self, observation: types.PyTree) -> np.ndarray:
    """Encodes [..., *raw.shape] as [..., *spec.shape].

    If there is an encoding, floats have been encoded already.
    """
    array = np.asarray(observation)
    if self.column is None or array.dtype.kind == 'f':
      return data_checks.narrowed(array, self.spec.dtype)
    leading = array.shape[: array.ndim - len(self.raw.shape)]
    numbers = array.reshape(*leading, -1)
    one_hot = numbers[..., self.column] == self.value
    is_inside = one_hot.sum(axis=-1) == numbers.shape[-1]
    if not is_inside.all():
      index = tuple(np.argwhere(~is_inside)[0].tolist())
      raise data_checks.SimulatorError(
        f'environment {index[0] if index else 0} returned the observation '
        f'{array[index]}, outside of its space'
      )
    return one_hot.astype(self.spec.dtype)


@dataclasses.dataclass(frozen=True)
class _ProductMask(_Leaf):
  """The mask of combinations of numbers, legal if all values are legal."""

  def encode(self, observation: types.PyTree) -> np.ndarray:
    """Encodes a mask, [..., sum of the numbers of values] -> [..., A]."""
    array = np.asarray(observation)
    if array.dtype.kind == 'f':
      return data_checks.narrowed(array, self.spec.dtype)
    return array[..., self.column].all(axis=-1).astype(self.spec.dtype)


@dataclasses.dataclass(frozen=True)
class Spaces:
  """The spaces of one environment.

  Attributes:
    spec: The spec of observations and actions, as agents see them.
    raw: The observations that are returned, a tree of `jax.ShapeDtypeStruct`.
    actions: The actions of the environment, [num_actions] or [num_actions, n].
    leaves: A tree of `_Leaf`.
  """

  spec: types.EnvironmentSpec
  raw: types.PyTree
  actions: np.ndarray
  leaves: types.PyTree

  def encode(self, observation: types.PyTree) -> types.PyTree:
    """Converts an observation, or a batch, to the arrays of the spec.

    Raises:
      ValueError: An entry is missing, or a number is outside its space.
    """
    return data_checks.select(
      self.leaves, observation, lambda leaf, entry, _: leaf.encode(entry)
    )

  def decode(self, action: np.ndarray) -> np.ndarray:
    """Converts actions [...] to those of the space, [...] or [..., n]."""
    return self.actions[action]


def make(
  observation_space: 'gymnasium.Space',
  action_space: 'gymnasium.Space',
  name: str,
) -> Spaces:
  """Describes the spaces of one environment; the name is for messages.

  Raises:
    ImportError: gymnasium is not installed.
    ValueError: A space is not supported.
  """
  actions = _actions(action_space, name)
  leaves = _leaves(observation_space, name)
  if types.has_action_mask(leaves):
    mask = _mask(leaves[types.ACTION_MASK], action_space)
    leaves = {**leaves, types.ACTION_MASK: mask}
  return Spaces(
    spec=types.EnvironmentSpec(
      observation=jax.tree.map(lambda leaf: leaf.spec, leaves),
      num_actions=len(actions),
    ),
    raw=jax.tree.map(lambda leaf: leaf.raw, leaves),
    actions=actions,
    leaves=leaves,
  )


def import_gymnasium() -> ModuleType:
  """Imports the package; raises ImportError with the remedy."""
  return packages.load(
    'gymnasium',
    "'gymnasium/...'",
    'the package gymnasium',
    extras.install('gymnasium'),
  )


def _actions(space: 'gymnasium.Space', name: str) -> np.ndarray:
  """Lists all actions of a space; raises ValueError if it is not supported."""
  spaces = import_gymnasium().spaces
  if isinstance(space, spaces.Discrete):
    _check_number(space.n, f'{name} has the action space {space}')
    return np.arange(space.n, dtype=space.dtype) + space.start
  if not isinstance(space, spaces.MultiDiscrete):
    raise ValueError(
      f'{name} has the action space {space}: only Discrete and MultiDiscrete '
      'are supported. A gymnasium.ActionWrapper can offer a few of its actions '
      'by number.'
    )
  number = math.prod(space.nvec.ravel().tolist())
  if number > _MAX_COMBINATIONS:
    raise ValueError(
      f'{name} has the action space {space} of {number:,} combinations, each '
      f'an action of its own: at most {_MAX_COMBINATIONS:,} are supported. '
      'Choose among fewer actions in a gymnasium.ActionWrapper.'
    )
  numbers = _combinations(space.nvec).reshape(number, *space.shape)
  return (numbers + space.start).astype(space.dtype)


def _combinations(sizes: np.ndarray) -> np.ndarray:
  """Returns all combinations of n numbers below `sizes`, [combinations, n]."""
  return np.indices(sizes.ravel().tolist()).reshape(sizes.size, -1).T


def _mask(leaf: _Leaf, space: 'gymnasium.Space') -> _Leaf:
  """Makes the leaf of a mask, which has a number for each action."""
  if not hasattr(space, 'nvec') or leaf.raw.shape != (space.nvec.sum(),):
    return leaf
  sizes = space.nvec.ravel()
  column = _combinations(sizes) + np.cumsum(sizes) - sizes
  return _ProductMask(
    raw=leaf.raw,
    spec=jax.ShapeDtypeStruct((len(column),), np.float32),
    column=column,
  )


def _leaves(space: 'gymnasium.Space', path: str) -> types.PyTree:
  """Makes the tree of `_Leaf` of an observation space; `path` names it."""
  spaces = import_gymnasium().spaces
  if isinstance(space, spaces.Dict):
    if len({type(key) for key in space.spaces}) > 1:
      raise ValueError(
        f'{path} has the keys {[*space.spaces]}: they must be of one type, as '
        'they are sorted.'
      )
    return {k: _leaves(s, f'{path}[{k!r}]') for k, s in space.spaces.items()}
  if isinstance(space, spaces.Tuple):
    return tuple(_leaves(s, f'{path}[{i}]') for i, s in enumerate(space.spaces))
  if isinstance(space, spaces.Discrete):
    _check_number(space.n, f'{path} has the observation space {space}')
    return _one_hot(np.array(space.n), np.array(space.start))
  if isinstance(space, spaces.MultiDiscrete):
    _check_number(space.nvec.sum(), f'{path} has the observation space {space}')
    return _one_hot(space.nvec, space.start)
  if isinstance(space, spaces.MultiBinary):
    raw = jax.ShapeDtypeStruct(space.shape, space.dtype)
    return _Leaf(raw, jax.ShapeDtypeStruct(space.shape, np.float32))
  if isinstance(space, spaces.Box):
    spec = data_checks.array_spec(space.shape, space.dtype, space.high, path)
    return _Leaf(spec, spec)
  raise ValueError(
    f'{path} has the observation space {space}: only Box, Discrete, '
    'MultiDiscrete, MultiBinary, and Dict and Tuple of these, are supported. '
    'Leave it out by a wrapper, such as gymnasium.wrappers.FilterObservation.'
  )


def _check_number(values: int | np.integer, owner: str) -> None:
  """Raises ValueError for too many values to distinguish."""
  if values > _MOST_VALUES:
    raise ValueError(
      f'{owner}: at most {_MOST_VALUES:,} values are supported, as there is a '
      'number for each. Let the environment observe or take several small '
      'ones, or observe a Box.'
    )


def _one_hot(sizes: np.ndarray, starts: np.ndarray) -> _Leaf:
  """Makes a one-hot leaf of components with `sizes` values from `starts`."""
  flat = sizes.ravel().tolist()
  value = np.concatenate(
    [np.arange(s, s + n) for s, n in zip(starts.ravel().tolist(), flat)]
  )
  return _Leaf(
    raw=jax.ShapeDtypeStruct(sizes.shape, np.int32),
    spec=jax.ShapeDtypeStruct(value.shape, np.float32),
    column=np.repeat(np.arange(len(flat)), flat),
    value=value,
  )
