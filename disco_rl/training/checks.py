"""Checks the user's own rollouts and networks, before compilation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types

# NumPy's abbreviation of a kind of type -> its description, its superclass.
_KINDS = {
  'b': ('bool', np.bool_),
  'i': ('an integer type', np.integer),
  'f': ('a floating type', np.floating),
}


def check_rollout(
  rollout: types.Rollout, spec: types.EnvironmentSpec
) -> tuple[int, int]:
  """Checks every field of a rollout.

  Args:
    rollout: The rollout, made by the user.
    spec: The shapes of its observations and actions.

  Returns:
    T and B.

  Raises:
    ValueError: The message names the field, what was found and expected.
  """
  shape = jnp.shape(rollout.reward)
  if len(shape) != 2 or not all(shape):
    raise ValueError(
      f'rollout.reward has shape {shape}, expected [T, B]: at least one '
      'transition of at least one trajectory, time first.'
    )
  length, batch_size = shape
  batch = f'T={length} and B={batch_size} by rollout.reward'
  expected = jax.eval_shape(
    lambda: types.empty_rollout(spec, (), length, batch_size)
  )
  for name in ('reward', 'is_terminal', 'mask', 'action', 'logits'):
    field, like = getattr(rollout, name), getattr(expected, name)
    check_shape(f'rollout.{name}', field, like.shape, batch)
    kind, superclass = _KINDS[like.dtype.kind]
    if not jnp.issubdtype(_dtype(field), superclass):
      raise ValueError(
        f'rollout.{name} is of type {_dtype(field)}, expected {kind}.'
      )
  leading = (length + 1, batch_size)
  check_shapes(
    'rollout.observation', rollout.observation, spec.observation, leading, batch
  )
  jax.tree.map_with_path(_check_type, rollout.observation, spec.observation)
  for path, leaf in jax.tree.leaves_with_path(rollout.core_state):
    if jnp.shape(leaf)[:2] != (1, batch_size):
      raise ValueError(
        f'rollout.core_state{jax.tree_util.keystr(path)} has shape '
        f'{jnp.shape(leaf)}, expected [1, {batch_size}, ...], with {batch}.'
      )
  _check_values(rollout, spec.num_actions)
  _check_legal(rollout)
  return length, batch_size


def _check_values(rollout: types.Rollout, num_actions: int) -> None:
  """Checks rewards, and actions that are learned from, unless traced."""
  fields = (rollout.reward, rollout.action[:-1])
  if any(isinstance(x, jax.core.Tracer) for x in fields):
    return
  reward, action = map(np.asarray, jax.device_get(fields))
  for name, array, is_valid, expected in (
    ('reward', reward, np.isfinite(reward), 'a finite number'),
    (
      'action',
      action,
      (action >= 0) & (action < num_actions),
      f'0 to {num_actions - 1}, as the spec has {num_actions} actions',
    ),
  ):
    if not is_valid.all():
      t, b = np.argwhere(~is_valid)[0]
      raise ValueError(
        f'rollout.{name}[{t}, {b}] is {array[t, b]}, expected {expected}.'
      )


def _check_legal(rollout: types.Rollout) -> None:
  """Checks that actions that are learned from are legal, unless traced."""
  if not types.has_action_mask(rollout.observation):
    return
  fields = (
    rollout.observation[types.ACTION_MASK][:-1],
    rollout.action[:-1],
    rollout.mask,
  )
  if any(isinstance(x, jax.core.Tracer) for x in fields):
    return
  legal, action, mask = map(np.asarray, jax.device_get(fields))
  taken = np.take_along_axis(legal, action[..., None], axis=-1)[..., 0]
  if illegal := np.argwhere((taken == 0) & mask).tolist():
    t, b = illegal[0]
    raise ValueError(
      f'rollout.action[{t}, {b}] is {action[t, b]}, which is illegal by '
      f'rollout.observation[{types.ACTION_MASK!r}].'
    )


def check_dead_ends(observation: types.PyTree) -> None:
  """Raises ValueError if an observation of a batch has no legal action.

  Args:
    observation: A tree of NumPy arrays [B, ...].
  """
  if not types.has_action_mask(observation):
    return
  is_dead_end = ~np.any(observation[types.ACTION_MASK], axis=-1)
  if is_dead_end.any():
    raise ValueError(
      f'observation[{types.ACTION_MASK!r}] has no legal action at index '
      f'{int(np.argmax(is_dead_end))} of the batch.'
    )


def check_outputs(
  outputs: types.PyTree,
  output_spec: types.OutputSpec,
  num_actions: int,
  size: tuple[int, int],
) -> None:
  """Checks the results of a network's `unroll`.

  Args:
    outputs: All outputs, and the outputs of the taken actions.
    output_spec: The heads that the rule requires.
    num_actions: A.
    size: T and B.

  Raises:
    ValueError: The message names the output, what was found and expected.
  """
  length, batch_size = size
  later = (length + 1, batch_size)
  state = {
    name: (*later, width)
    for name, width in {'logits': num_actions, **output_spec.state}.items()
  }
  every, taken = (
    {**state, **{name: (*axes, x) for name, x in output_spec.action.items()}}
    for axes in ((*later, num_actions), size)
  )
  if not isinstance(outputs, tuple) or len(outputs) != 2:
    raise ValueError(
      'The unroll of the network must return two mappings, all outputs and '
      f'the outputs of the taken actions; got {type(outputs).__name__}.'
    )
  for which, found, wanted in zip(
    ('all outputs', 'outputs of the taken actions'), outputs, (every, taken)
  ):
    for name, shape in wanted.items():
      label = f'{name!r} among {which} of the network'
      if name not in found:
        raise ValueError(
          f'There is no {label}, but the rule requires it. There are '
          f'{", ".join(found) or "none"}. disco_rl.Heads makes the required '
          'outputs.'
        )
      check_shape(label, found[name], shape, f'T={length}, B={batch_size}')


def check_shapes(
  name: str,
  tree: types.PyTree,
  spec: types.PyTree,
  leading: tuple[int, ...],
  reason: str,
) -> None:
  """Checks the structure and the shapes of a tree of arrays.

  Args:
    name: The name of the tree, for messages.
    tree: A tree of arrays.
    spec: A tree of `jax.ShapeDtypeStruct`.
    leading: The axes of the arrays in front of the axes of their spec.
    reason: The origin of the leading axes, for messages.

  Raises:
    ValueError: The message names the leaf, what was found and expected.
  """
  found: Any = jax.tree.structure(tree)
  wanted: Any = jax.tree.structure(spec)
  if found != wanted:
    raise ValueError(
      f'{name} has the structure {found}, expected {wanted}, as in the spec.'
    )
  for (path, leaf), leaf_spec in zip(
    jax.tree.leaves_with_path(tree), jax.tree.leaves(spec)
  ):
    shape = (*leading, *leaf_spec.shape)
    check_shape(name + jax.tree_util.keystr(path), leaf, shape, reason)


def check_shape(
  name: str, array: jax.typing.ArrayLike, wanted: tuple[int, ...], reason: str
) -> None:
  """Raises ValueError that names an array with an unexpected shape."""
  if jnp.shape(array) != wanted:
    raise ValueError(
      f'{name} has shape {jnp.shape(array)}, expected {wanted}, with {reason}.'
    )


def leaves(tree: types.PyTree, place: str = '') -> dict[str, types.PyTree]:
  """Returns leaves by path, formatted by `keystr`, with `place` in front."""
  return {
    place + jax.tree_util.keystr(where): leaf
    for where, leaf in jax.tree.leaves_with_path(tree)
  }


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
  """Describes the first difference between arrays; '' if there is none.

  Args:
    found: The arrays by name, or their shapes and types.
    wanted: The expected arrays, or their shapes and types.
  """
  for name in sorted(wanted.keys() ^ found.keys()):
    return f'{"lacks" if name in wanted else "has"} {name}'
  for name, like in wanted.items():
    x = found[name]
    if (x.shape, x.dtype) != (like.shape, like.dtype):
      return (
        f'has {name} of {x.dtype}{list(x.shape)} instead of '
        f'{like.dtype}{list(like.shape)}'
      )
  return ''


def check_finite(name: str, tree: types.PyTree) -> None:
  """Raises ValueError that names a leaf of NumPy arrays with NaN or infinity.

  Numbers that are too large for the type of the spec become infinite.
  """
  for path, leaf in jax.tree.leaves_with_path(tree):
    if leaf.dtype.kind == 'f' and not np.isfinite(leaf).all():
      index = np.argwhere(~np.isfinite(leaf))[0].tolist()
      raise ValueError(
        f'{name}{jax.tree_util.keystr(path)} is {leaf[tuple(index)]} at '
        f'{index}, batch index first: expected finite numbers.'
      )


def _check_type(
  path: jax.tree_util.KeyPath, leaf: types.PyTree, spec: types.PyTree
) -> None:
  dtype = jax.dtypes.canonicalize_dtype(_dtype(leaf))
  if dtype != spec.dtype:
    raise ValueError(
      f'rollout.observation{jax.tree_util.keystr(path)} is of type {dtype}, '
      f'expected {spec.dtype}, as in the spec.'
    )


def _dtype(array: object) -> np.dtype:
  return getattr(array, 'dtype', None) or np.asarray(array).dtype
