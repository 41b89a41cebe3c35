"""Packs trajectories into rows of bytes, with each frame of a stack once.

Neighboring stacks share all frames but one: a trajectory of T+1 stacks of S
frames consists of T+S frames, and of a code for each transition, because the
first stack of an episode has padding (see `environments.host.frame_stack`). The
codes are derived from the stacks: `stack_frames` restores exactly every stack
that `split_frames` accepts.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types

# Codes of the stack after a transition: its oldest frame was dropped; or it
# begins an episode, and all but its newest frame are zeros, or copies of the
# newest.
SHIFTED, BLANK, COPIED = range(3)

# Unsigned integers by size in bytes, for `_interleave`.
_WORDS = {2: jnp.uint16, 4: jnp.uint32}

_CODES = 'codes of frames'


@dataclasses.dataclass(frozen=True)
class RowFormat:
  """The layout of a row, made by `make_format`.

  Attributes:
    example: A rollout of one trajectory, of `jax.ShapeDtypeStruct`.
    frame_stack: S, the number of frames in a stack.
  """

  example: types.Rollout
  frame_stack: int

  @functools.cached_property
  def dtype(self) -> np.dtype:
    """The fields: every leaf without its batch axis, and the codes."""
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
    """Converts E trajectories to rows [E, bytes] uint8, on the host.

    Raises:
      ValueError: Shapes, types or frame stacks do not match the format.
    """
    rollout = jax.tree.map(np.asarray, rollout)
    self._check(rollout)
    tree: types.PyTree = jax.tree.structure(rollout.observation)
    leaves, codes = split_frames(
      jax.tree.leaves(rollout.observation), self.frame_stack
    )
    single = dataclasses.replace(rollout, observation=tree.unflatten(leaves))
    rows = np.zeros(codes.shape[1], self.dtype)
    for name, leaf in [*_named(single), (_CODES, codes)]:
      rows[name] = np.moveaxis(leaf, 1, 0)
    return rows.view(np.uint8).reshape(len(rows), -1)

  def unpack(self, rows: types.Array) -> types.Rollout:
    """Converts rows [B, bytes] to a batch [T or T+1, B, ...].

    This is the inverse of `pack`, for compiled programs: frames are stacked on
    the device, which receives each frame once. On CPUs most of the time is
    spent on new memory: donate the previous batch if it is no longer needed.
    """
    tree: types.PyTree = jax.tree.structure(self.example)
    single: types.Rollout = tree.unflatten(
      self._field(rows, name) for name, _ in _named(self.example)
    )
    codes = self._field(rows, _CODES)
    return dataclasses.replace(
      single,
      observation=jax.tree.map(
        lambda leaf: stack_frames(leaf, codes, self.frame_stack),
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
    """Extracts a field of every row, [time, B, ...]."""
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
          f'holds {want.dtype}{list(shape)}: the environment returns a '
          'shape or type that differs from its spec.'
        )


def make_format(
  spec: types.EnvironmentSpec, core_state: types.PyTree, length: int
) -> RowFormat:
  """Makes the format of an agent's trajectories.

  Args:
    spec: The specification of its environment.
    core_state: The state of the core for one trajectory, a tree of [1, ...].
    length: T.
  """
  example = jax.eval_shape(
    lambda: types.empty_rollout(spec, core_state, length, 1)
  )
  return RowFormat(example, spec.frame_stack)


def _named(tree: types.PyTree) -> list[tuple[str, types.PyTree]]:
  """Returns the leaves with their paths."""
  return [
    (jax.tree_util.keystr(path), leaf)
    for path, leaf in jax.tree.leaves_with_path(tree)
  ]


# Frames.


def split_frames(
  stacks: Sequence[np.ndarray], num_frames: int
) -> tuple[list[np.ndarray], np.ndarray]:
  """Splits the stacks of E trajectories.

  Args:
    stacks: The leaves of the observation, each [T+1, E, ..., S * C], the newest
      frame last.
    num_frames: S; if 1, the leaves [T+1, E, ...] are frames.

  Returns:
    The leaves' frames, each [T+S, E, ..., C], in the order of time; and the
    codes of the transitions, [T, E] uint8.

  Raises:
    ValueError: The leaves are not stacks of S frames.
  """
  length, batch_size = stacks[0].shape[0] - 1, stacks[0].shape[1]
  codes = np.full((length, batch_size), SHIFTED, np.uint8)
  if num_frames == 1:
    return list(stacks), codes
  as_bytes = [_as_bytes(leaf, num_frames) for leaf in stacks]
  is_shifted = np.all([_is_shifted(leaf) for leaf in as_bytes], axis=0)
  for t, e in np.argwhere(~is_shifted).tolist():
    codes[t, e] = _restart([leaf[t + 1, e] for leaf in as_bytes], t)
  return [_single(leaf, num_frames) for leaf in stacks], codes


def stack_frames(
  frames: types.Array, codes: types.Array, num_frames: int
) -> types.Array:
  """Restores the stacks of one leaf, for compiled programs.

  Args:
    frames: The frames, [T+S, B, ..., C]; for S = 1, [T+1, B, ...].
    codes: The codes of transitions, [T, B] uint8.
    num_frames: S.

  Returns:
    [T+1, B, ..., S * C]; for S = 1 the frames.
  """
  if num_frames == 1:
    return frames
  length = codes.shape[0]
  codes = jnp.pad(codes, ((num_frames - 1, 0), (0, 0)))
  axes = tuple(range(2, frames.ndim))
  newer = frames[num_frames - 1 :]
  stacked = [newer]
  # The code where the newest episode of a stack begins; SHIFTED if none does.
  code = jnp.zeros_like(codes[: length + 1])
  for place in range(num_frames - 2, -1, -1):
    # Once an episode begins, all older frames of the stack are its padding.
    code = jnp.where(
      code == SHIFTED, codes[place : place + length + 1], jnp.uint8(COPIED)
    )
    by_frame = jnp.expand_dims(code, axes)
    older = frames[place : place + length + 1]
    newer = jnp.where(
      by_frame == SHIFTED,
      older,
      jnp.where(by_frame == COPIED, newer, jnp.zeros_like(newer)),
    )
    stacked.insert(0, newer)
  return _interleave(stacked)


def _interleave(leaves: Sequence[types.Array]) -> types.Array:
  """Concatenates S leaves [..., C] along the last axis."""
  dtype = leaves[0].dtype
  word = _WORDS.get(len(leaves))
  if dtype != jnp.uint8 or leaves[0].shape[-1] != 1 or word is None:
    return jnp.concatenate(leaves, axis=-1)
  # Pixels of S bytes: CPUs are several times faster if they write one word.
  words = [
    leaf[..., 0].astype(word) << jnp.array(8 * i, word)
    for i, leaf in enumerate(leaves)
  ]
  return jax.lax.bitcast_convert_type(sum(words[1:], words[0]), dtype)


def _as_bytes(leaf: np.ndarray, num_frames: int) -> np.ndarray:
  """[T+1, E, ..., S * C] -> [T+1, E, pixels, S, bytes of a frame's pixel]."""
  leaf = np.ascontiguousarray(leaf)
  return leaf.view(np.uint8).reshape(
    *leaf.shape[:2],
    -1,
    num_frames,
    leaf.shape[-1] * leaf.itemsize // num_frames,
  )


def _is_shifted(leaf: np.ndarray) -> np.ndarray:
  """Compares stacks with those one step before.

  Args:
    leaf: [T+1, E, pixels, S, bytes].

  Returns:
    [T, E] bool, whether stack t+1 is stack t shifted by one frame.
  """
  num_bytes = leaf.shape[-1]
  is_older = np.ones(leaf.shape[2:], bool)
  is_older[:, -1] = False
  is_older = is_older.reshape(-1)[:-num_bytes]
  flat = leaf.reshape(*leaf.shape[:2], -1)
  # All bytes of a step at once: comparing many short runs takes much longer.
  differs = [
    np.any((after[:, :-num_bytes] != before[:, num_bytes:]) & is_older, axis=-1)
    for before, after in zip(flat, flat[1:])
  ]
  return ~np.array(differs)


def _restart(stacks: Sequence[np.ndarray], t: int) -> int:
  """Returns the code of leaves [pixels, S, bytes] that begin an episode."""
  if not any(stack[:, :-1].any() for stack in stacks):
    return BLANK
  if all((stack == stack[:, -1:]).all() for stack in stacks):
    return COPIED
  raise ValueError(
    f'The observation after step {t} of a rollout neither continues the stack '
    'of frames before it nor begins an episode, with zeros or copies of its '
    'newest frame instead of older ones. Is the frame_stack of the '
    "environment's spec the number of frames of every leaf, the newest last?"
  )


def _single(leaf: np.ndarray, num_frames: int) -> np.ndarray:
  """[T+1, E, ..., S * C] -> [T+S, E, ..., C]."""
  *shape, channels = leaf.shape
  leaf = leaf.reshape(*shape, num_frames, channels // num_frames)
  earlier = np.moveaxis(leaf[0], -2, 0)[:-1]
  return np.concatenate([earlier, leaf[..., -1, :]])
