"""Trajectories as rows of bytes: the host stores them, the device unpacks them.

Of a frame stack each frame is stored and sent once; see `frames`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import frames

_CODES = 'codes of frames'


@dataclasses.dataclass(frozen=True)
class RowFormat:
  """The layout of a row; see `make`.

  Attributes:
    example: a rollout of one trajectory, of `jax.ShapeDtypeStruct`.
    frame_stack: S; see `types.EnvironmentSpec`.
  """

  example: types.Rollout
  frame_stack: int

  @functools.cached_property
  def dtype(self) -> np.dtype:
    """The fields: every leaf without its batch axis, and codes of frames."""
    single = dataclasses.replace(
      self.example,
      observation=jax.tree.map(self._single, self.example.observation),
    )
    fields = [
      (name, leaf.dtype, (leaf.shape[0], *leaf.shape[2:]))
      for name, leaf in _named(single)
    ]
    fields.append((_CODES, np.uint8, self.example.reward.shape[:1]))
    return np.dtype(fields, align=True)

  def pack(self, rollout: types.Rollout) -> np.ndarray:
    """Converts E trajectories; on the host.

    Args:
      rollout: [T or T+1, E, ...].

    Returns:
      [E, bytes of a row] uint8.

    Raises:
      ValueError: shapes, types or frame stacks are not those of the format.
    """
    rollout = jax.tree.map(np.asarray, rollout)
    self._check(rollout)
    tree: Any = jax.tree.structure(rollout.observation)
    leaves, codes = frames.split(
      jax.tree.leaves(rollout.observation), self.frame_stack
    )
    single = dataclasses.replace(rollout, observation=tree.unflatten(leaves))
    rows = np.zeros(codes.shape[1], self.dtype)
    for name, leaf in [*_named(single), (_CODES, codes)]:
      rows[name] = np.moveaxis(leaf, 1, 0)
    return rows.view(np.uint8).reshape(len(rows), -1)

  def unpack(self, rows: types.Array) -> types.Rollout:
    """The inverse of `pack`; for use in a compiled program.

    Args:
      rows: [B, bytes of a row] uint8.

    Returns:
      [T or T+1, B, ...].
    """
    tree: Any = jax.tree.structure(self.example)
    single: types.Rollout = tree.unflatten(
      self._field(rows, name) for name, _ in _named(self.example)
    )
    codes = self._field(rows, _CODES)
    return dataclasses.replace(
      single,
      observation=jax.tree.map(
        lambda leaf: frames.stack(leaf, codes, self.frame_stack),
        single.observation,
      ),
    )

  def _single(self, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """[T+1, 1, ..., S * C] -> [T+S, 1, ..., C]."""
    if self.frame_stack == 1:
      return leaf
    time, *shape, channels = leaf.shape
    return jax.ShapeDtypeStruct(
      (time + self.frame_stack - 1, *shape, channels // self.frame_stack),
      leaf.dtype,
    )

  def _field(self, rows: types.Array, name: str) -> types.Array:
    """A field of every row, [time, B, ...]."""
    fields: Any = self.dtype.fields
    field, offset = fields[name]
    dtype, shape = field.subdtype
    data = rows[:, offset : offset + field.itemsize]
    size = () if dtype.itemsize == 1 else (dtype.itemsize,)
    data = jnp.moveaxis(data.reshape(len(rows), *shape, *size), 0, 1)
    if dtype.kind == 'b':
      return data != 0
    return jax.lax.bitcast_convert_type(data, dtype)

  def _check(self, rollout: types.Rollout) -> None:
    batch_size = rollout.reward.shape[1]
    for (name, want), (_, got) in zip(_named(self.example), _named(rollout)):
      shape = (want.shape[0], batch_size, *want.shape[2:])
      if (got.shape, got.dtype) != (shape, want.dtype):
        raise ValueError(
          f'The rollout{name} is {got.dtype}{list(got.shape)}, where replay '
          f'holds {want.dtype}{list(shape)}: the environment returns another '
          'shape or type than that of its spec.'
        )


def make(
  spec: types.EnvironmentSpec, core_state: types.PyTree, length: int
) -> RowFormat:
  """Makes the format of an agent's trajectories.

  Args:
    spec: of its environment.
    core_state: tree of [1, ...], of one trajectory's core.
    length: T.

  Returns:
    The format.
  """
  example = jax.eval_shape(
    lambda: types.empty_rollout(spec, core_state, length, 1)
  )
  return RowFormat(example, spec.frame_stack)


def _named(tree: types.PyTree) -> list[tuple[str, Any]]:
  """The leaves with their paths."""
  return [
    (jax.tree_util.keystr(path), leaf)
    for path, leaf in jax.tree.leaves_with_path(tree)
  ]
