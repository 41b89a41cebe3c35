"""Trajectories of frame stacks as single frames, and back.

Neighbouring stacks share all frames but one. A trajectory of T+1 stacks of S
frames therefore consists of T+S frames, and a code for each transition, since
an episode that begins with a stack begins with padding (see
`environments.host.frame_stack`). The codes are read from the stacks, not
assumed: what `split` accepts, `stack` restores exactly.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types

# How the stack after a transition follows from the one before it: it lost its
# oldest frame; or it begins an episode, and all but its newest frame are zeros,
# or copies of the newest.
SHIFTED, BLANK, COPIED = range(3)

# Unsigned integers by size in bytes, for `_interleave`.
_WORDS = {2: jnp.uint16, 4: jnp.uint32}


def split(
  stacks: Sequence[np.ndarray], num_frames: int
) -> tuple[list[np.ndarray], np.ndarray]:
  """Splits the stacks of E trajectories.

  Args:
    stacks: the leaves of the observation, each [T+1, E, ..., S * C], the newest
      frame last.
    num_frames: S; 1: the leaves [T+1, E, ...] are frames already.

  Returns:
    The leaves' frames, each [T+S, E, ..., C], in the order of time; and the
    codes of the transitions, [T, E] uint8.

  Raises:
    ValueError: the leaves are no stacks of S frames.
  """
  length, batch_size = stacks[0].shape[0] - 1, stacks[0].shape[1]
  codes = np.full((length, batch_size), SHIFTED, np.uint8)
  if num_frames == 1:
    return list(stacks), codes
  as_bytes = [_as_bytes(leaf, num_frames) for leaf in stacks]
  shifts = [_Shift(leaf) for leaf in as_bytes]
  for t in range(length):
    is_shifted = np.all([shift.follows(t) for shift in shifts], axis=0)
    for e in np.flatnonzero(~is_shifted):
      codes[t, e] = _restart([leaf[t + 1, e] for leaf in as_bytes], t)
  return [_single(leaf, num_frames) for leaf in stacks], codes


def stack(
  frames: types.Array, codes: types.Array, num_frames: int
) -> types.Array:
  """Restores the stacks of one leaf; for use in a compiled program.

  Args:
    frames: [T+S, B, ..., C]; for S = 1 [T+1, B, ...].
    codes: [T, B] uint8.
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
  # Of the newest transition over which the stacks do not reach back, if any.
  code = jnp.zeros_like(codes[: length + 1])
  for place in range(num_frames - 2, -1, -1):
    # Beyond the beginning of the episode, padding repeats.
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
  # Pixels of S bytes: CPUs write them as one word several times faster.
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


class _Shift:
  """Compares the stacks of one leaf with those one step before."""

  def __init__(self, leaf: np.ndarray):
    """Prepares the comparison of [T+1, E, pixels, S, bytes]."""
    length, batch_size = leaf.shape[:2]
    self._bytes = leaf.shape[-1]
    self._flat = leaf.reshape(length, batch_size, -1)
    is_older = np.ones(leaf.shape[2:], bool)
    is_older[:, -1] = False
    self._is_older = is_older.reshape(-1)[: -self._bytes]

  def follows(self, t: int) -> np.ndarray:
    """Whether stack t+1 lacks but the oldest frame of stack t, [E] bool."""
    # Of all bytes at once: a comparison of many short runs takes far longer.
    differs = (
      self._flat[t + 1, :, : -self._bytes] != self._flat[t, :, self._bytes :]
    )
    return ~np.any(differs & self._is_older, axis=-1)


def _restart(stacks: Sequence[np.ndarray], t: int) -> int:
  """The code of leaves [pixels, S, bytes] that begin an episode."""
  if not any(stack[:, :-1].any() for stack in stacks):
    return BLANK
  if all(np.array_equal(stack[:, :-1], _repeated(stack)) for stack in stacks):
    return COPIED
  raise ValueError(
    f'The observation after step {t} of a rollout neither continues the stack '
    'of frames before it nor begins an episode, with zeros or copies of its '
    'newest frame in place of older ones. Is the frame_stack of the '
    "environment's spec the number of frames of every leaf, the newest last?"
  )


def _repeated(stack: np.ndarray) -> np.ndarray:
  """The newest frame, in place of each older one."""
  return np.broadcast_to(stack[:, -1:], stack[:, :-1].shape)


def _single(leaf: np.ndarray, num_frames: int) -> np.ndarray:
  """[T+1, E, ..., S * C] -> [T+S, E, ..., C]."""
  *shape, channels = leaf.shape
  leaf = leaf.reshape(*shape, num_frames, channels // num_frames)
  earlier = np.moveaxis(leaf[0], -2, 0)[:-1]
  return np.concatenate([earlier, leaf[..., -1, :]])
