"""Checks data of host environments, before agents learn from them."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
from typing import Any
from typing import SupportsFloat
import warnings

import jax
import numpy as np
from numpy import typing as npt

from disco_rl import types

# Larger numbers become infinite in float32. The type matters: a plain float
# would become infinite itself beside float16, and nothing exceeds that.
_LARGEST = np.finfo(np.float32).max
# The squares of larger observations become infinite, such as in gradients.
LARGEST_OBSERVATION = 1e18
# After so many lost changes of a number in a row there is a warning.
_LOST_IN_A_ROW = 10
# The smallest relative change that is no error of rounding.
_NOISE = 1e-13
# From here on, float32 does not hold all whole numbers.
_INEXACT = 2.0**24


class SimulatorError(ValueError):
  """Raised if one environment of a batch fails; the message has its index."""


class MissingEntryError(SimulatorError, LookupError):
  """Raised if an observation lacks an entry; the message locates it."""


def select(
  spec: types.PyTree,
  observation: types.PyTree,
  function: Callable[[types.PyTree, types.PyTree, str], types.PyTree],
  path: str = 'observation',
) -> types.PyTree:
  """Converts an observation to the structure of its spec.

  Args:
    spec: A tree of dictionaries and tuples.
    observation: An observation of any mappings, sequences, named tuples and
      dataclasses, which may have further entries.
    function: (leaf of the spec, entry of the observation, its path) -> entry.
    path: The path of the observation, for messages.

  Raises:
    MissingEntryError: An entry is missing.
  """
  if isinstance(spec, dict):
    return {
      key: select(
        leaf, _entry(observation, key, path), function, f'{path}[{key!r}]'
      )
      for key, leaf in spec.items()
    }
  if isinstance(spec, tuple):
    return tuple(
      select(leaf, _entry(observation, i, path), function, f'{path}[{i}]')
      for i, leaf in enumerate(spec)
    )
  return function(spec, observation, path)


def _entry(
  observation: types.PyTree, key: str | int, path: str
) -> types.PyTree:
  """Returns an entry of an observation, or a field by name or number."""
  try:
    if isinstance(observation, dict):
      return observation[key]
    fields = fields_of(observation)
    if key in fields:
      return getattr(observation, key)
    if isinstance(key, int) and dataclasses.is_dataclass(observation):
      return getattr(observation, fields[key])
    return observation[key]
  except (LookupError, TypeError) as error:
    raise MissingEntryError(
      f'{path} lacks {key!r}: it is a {entries_of(observation)}'
    ) from error


def entries_of(observation: types.PyTree) -> str:
  """Describes the structure of an observation, for messages."""
  kind = type(observation).__name__
  if isinstance(observation, Mapping):
    return f'{kind} with {", ".join(map(repr, observation)) or "nothing"}'
  if fields := fields_of(observation):
    return f'{kind} with the fields {", ".join(fields)}'
  if isinstance(observation, (list, tuple)):
    return f'{kind} of {len(observation)}'
  return f'{kind} of shape {list(np.shape(observation))}'


def fields_of(observation: types.PyTree) -> tuple[str, ...]:
  """Returns the fields of a named tuple or a dataclass; () otherwise."""
  if dataclasses.is_dataclass(observation):
    return tuple(field.name for field in dataclasses.fields(observation))
  return tuple(getattr(observation, '_fields', ()))


def array_spec(
  shape: Sequence[int],
  dtype: np.dtype,
  largest: npt.ArrayLike | None,
  name: str,
) -> jax.ShapeDtypeStruct:
  """Makes the spec of an array of a space, as agents see it.

  64-bit types are narrowed to 32 bits. Of uint8, what the bounds tell from a
  picture becomes float32, so that it is not scaled; see `types.is_picture`.

  Args:
    shape: The shape in one observation.
    dtype: The type of the numbers in the space.
    largest: The upper bounds of the numbers; None: they have none.
    name: The name of the array, for a warning if bounds and shape disagree.
  """
  # JAX would narrow the type anyway, so that the spec would be wrong.
  dtype = jax.dtypes.canonicalize_dtype(dtype)
  if dtype == np.uint8 and largest is not None and np.size(largest):
    is_picture = types.is_picture(shape, dtype)
    if is_picture and np.max(largest) <= types.LARGEST_CODE:
      dtype = np.dtype(np.float32)
    if not is_picture and np.max(largest) == 255:
      warnings.warn(
        f'{name} is uint8{list(shape)} up to 255, but no picture, as it lacks '
        f'two neighboring axes of at least {types.PICTURE_SIDE}: agents read '
        'its numbers unscaled. If they fill that range, scale them to [0, 1] '
        'in the environment; if they are codes, give the space their bound.',
        stacklevel=2,
      )
  return jax.ShapeDtypeStruct(tuple(shape), dtype)


def checked(
  observation: types.PyTree, spec: types.PyTree, is_last: np.ndarray
) -> types.PyTree:
  """Checks a batch of observations.

  Args:
    observation: A tree of [B, ...].
    spec: A tree of `jax.ShapeDtypeStruct`, for one environment.
    is_last: [B] bool, whether an episode ended with this observation.

  Returns:
    The observation; see `fill_masks`.

  Raises:
    ValueError: The structure, a shape or a type does not match the spec.
    SimulatorError: A number is not finite or too large, or no action is legal.
  """
  num_environments = len(is_last)
  wanted: Any = jax.tree.structure(spec)
  if jax.tree.structure(observation) != wanted:
    raise ValueError(
      f'the observation has the structure {jax.tree.structure(observation)}, '
      f'expected {wanted}, as in the spec'
    )
  if types.has_action_mask(observation):
    name = f'observation[{types.ACTION_MASK!r}]'
    check_mask(np.asarray(observation[types.ACTION_MASK]), name)
  for i, (found, leaf) in enumerate(
    zip(jax.tree.leaves(observation), jax.tree.leaves(spec))
  ):
    found = np.asarray(found)
    shape = (num_environments, *leaf.shape)
    if found.shape != shape or found.dtype != leaf.dtype:
      raise ValueError(
        f'{_path(spec, i)} is {found.dtype}{list(found.shape)}, expected '
        f'{np.dtype(leaf.dtype)}{list(shape)}, as in the spec'
      )
    if found.dtype.kind == 'f':
      _check_size(found, _path(spec, i))
  return fill_masks(observation, is_last)


def _check_size(found: np.ndarray, path: str) -> None:
  """Checks the floats [B, ...] of an array of observations.

  Raises:
    SimulatorError: A number is not finite, or too large.
  """
  size = np.abs(found)
  largest = np.float32(LARGEST_OBSERVATION)  # See _LARGEST.
  if np.max(size, initial=0) <= largest:  # False for NaN.
    return
  is_wrong = ~(size <= largest)
  index = int(np.argmax(is_wrong.reshape(len(found), -1).any(axis=1)))
  wrong = found[index][is_wrong[index]]
  if np.isfinite(wrong).all():
    problem = (
      f'{wrong[0]:g} in its {path}, whose square float32 cannot hold: scale or '
      'clip it in the environment'
    )
  else:
    problem = f'NaN or infinity in its {path}'
  raise SimulatorError(
    f'environment {index} of {len(found)} returned {problem}'
  )


def check_mask(mask: np.ndarray, source: str) -> None:
  """Checks the numbers of a mask of legal actions; `source` names it.

  Raises:
    SimulatorError: A number is negative or not finite, as in masks that others
      add to logits.
  """
  if mask.dtype.kind in 'if':
    is_valid = (mask >= 0) & (mask < np.inf)  # False for NaN.
    if not is_valid.all():
      raise SimulatorError(
        f'{source} holds {mask[~is_valid][0]}: 1 stands for legal actions, 0 '
        'for illegal ones, and nothing is added to logits'
      )


def fill_masks(observation: types.PyTree, is_last: np.ndarray) -> types.PyTree:
  """Makes all actions legal after the end of an episode, if none is legal.

  Arguments are those of `checked`.

  Raises:
    SimulatorError: No action is legal, and the episode has not ended.
  """
  if not types.has_action_mask(observation):
    return observation
  legal = observation[types.ACTION_MASK]
  is_dead_end = ~np.any(legal, axis=-1)
  if not is_dead_end.any():
    return observation
  if (stuck := is_dead_end & ~is_last).any():
    raise SimulatorError(
      f'environment {int(np.argmax(stuck))} of {len(stuck)} returned an '
      f'observation[{types.ACTION_MASK!r}] in which no action is legal, and '
      'the episode has not ended'
    )
  filled = np.where(is_dead_end[:, None], 1, legal).astype(legal.dtype)
  return {**observation, types.ACTION_MASK: filled}


def narrowed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
  """Converts numbers to the type of a spec, with at most 32 bits.

  Raises:
    SimulatorError: An integer is out of the range of the type, or a float is so
      large that float32 does not tell it from the next whole number, such as
      the seconds since 1970. `checked` detects those that are even larger.
  """
  kind, is_wider = array.dtype.kind, array.dtype.itemsize > dtype.itemsize
  # Only floats overflow with a warning, and entering this context takes longer
  # than converting the few numbers of most observations.
  with np.errstate(over='ignore') if kind == 'f' else contextlib.nullcontext():
    converted = array.astype(dtype, copy=False)
  if kind == 'f' and is_wider:
    size = np.abs(array)
    is_rounded = (size > _INEXACT) & (size <= LARGEST_OBSERVATION)
    if np.any(is_rounded):
      is_rounded &= converted != array
    if np.any(is_rounded):
      lost, found = float(array[is_rounded][0]), float(converted[is_rounded][0])
      raise SimulatorError(
        f'an observation holds {lost}, which {converted.dtype} rounds to '
        f'{found}, and agents compute with 32 bits: '
        'subtract its start or scale it in the environment, or, if that is '
        f'exact enough, convert it to {converted.dtype} there'
      )
  if kind in 'iu' and is_wider:
    lost = array[converted != array]
    if lost.size:
      raise SimulatorError(
        f'an observation holds {lost.flat[0]}, which {converted.dtype} cannot '
        'hold, and agents compute with 32 bits: scale it in the environment, '
        'or observe it as float32'
      )
  return converted


class StandstillCheck:
  """Warns of a number that changes, but in a type with fewer bits stands still.

  An example is a date in days: float32 does not tell its minutes apart.
  """

  def __init__(self) -> None:
    """Has seen nothing yet."""
    # By what the number belongs to: its last value, and how often in a row its
    # changes were lost.
    self._seen: dict[object, tuple[np.ndarray, np.ndarray]] = {}

  def check(
    self, owner: object, array: np.ndarray, converted: np.ndarray, path: str
  ) -> None:
    """Looks at the next observation.

    Args:
      owner: What tells the series of observations from others.
      array: The numbers, with more bits than agents see.
      converted: The numbers that agents see, in the same shape.
      path: The name of the array, for the warning.
    """
    before, lost = self._seen.get(owner, (array, np.zeros(array.shape, int)))
    # `checked` refuses numbers that are not finite.
    with np.errstate(over='ignore', invalid='ignore'):
      # Smaller changes are likely errors of rounding.
      has_changed = np.abs(array - before) > _NOISE * np.abs(array)
      is_same = converted == before.astype(converted.dtype)
    lost = np.where(is_same, lost + has_changed, 0)
    self._seen[owner] = array.copy(), lost
    if np.any(lost == _LOST_IN_A_ROW):
      index = tuple(np.argwhere(lost == _LOST_IN_A_ROW)[0])
      warnings.warn(
        f'{path} holds a number that went on from {float(before[index])} to '
        f'{float(array[index])}, among others, but agents always saw '
        f'{float(converted[index])}, as {converted.dtype} has no numbers '
        'between. If that matters, as in a clock, subtract its start or scale '
        'it in the environment.',
        stacklevel=2,
      )


def numbers(what: str, values: object, num_environments: int) -> np.ndarray:
  """Returns one number from each of B environments, [B].

  Args:
    what: The name of the numbers, for messages.
    values: Numbers of Python, NumPy or JAX, which keep their type, or objects
      that `float` takes, such as fractions.
    num_environments: B.

  Raises:
    SimulatorError: A value is not a single number, or not finite in float32.
  """
  try:
    array = np.asarray(values)
  except ValueError:  # Their shapes differ.
    array = np.asarray(None)
  if array.dtype.kind == 'O' and array.shape == (num_environments,):
    array = _floats(array)
  if array.shape == (num_environments,) and _are_finite(array):
    return array
  for i, value in enumerate(values if np.iterable(values) else ()):
    if not _is_number(value):
      raise SimulatorError(
        f'environment {i} of {num_environments} returned the {what} {value!r}, '
        'expected a finite number'
      )
  raise ValueError(f'{what} is {values!r}, expected {num_environments} numbers')


def _is_number(value: object) -> bool:
  try:
    array = np.asarray(value)
  except ValueError:
    return False
  return not array.shape and _are_finite(
    _floats(array) if array.dtype.kind == 'O' else array
  )


def _floats(objects: np.ndarray) -> np.ndarray:
  """Converts objects to float64, or returns them if one is no real number."""
  if not all(isinstance(x, SupportsFloat) for x in objects.flat):
    return objects
  try:
    return objects.astype(np.float64)
  except Exception:  # Their own, or a number out of range.
    return objects


def _are_finite(array: np.ndarray) -> bool:
  """Returns whether all are numbers that are finite in float32."""
  kind = array.dtype.kind
  return kind == 'b' or (
    kind in 'iuf' and bool((np.abs(array) <= _LARGEST).all())
  )


def _path(spec: types.PyTree, i: int) -> str:
  """Returns the name of the i-th array of an observation."""
  path, _ = jax.tree.leaves_with_path(spec)[i]
  return f'observation{jax.tree_util.keystr(path)}'
