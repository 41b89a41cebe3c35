"""Frame stacks split into single frames, and restored on the device."""

from typing import Any

import jax
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import trajectory_rows
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import sequential

RESTORE = jax.jit(trajectory_rows.stack_frames, static_argnums=2)


def stacked_first(
  single: np.ndarray, is_first: np.ndarray, num_frames: int, is_blank: bool
) -> np.ndarray:
  """Stacks frames [n, E, ...] one by one; `is_first` [n, E], where n starts."""
  stacks = np.zeros((*single.shape[:-1], num_frames * single.shape[-1]))
  stacks = stacks.astype(single.dtype)
  for e in range(single.shape[1]):
    recent: list[np.ndarray] = []
    for n in range(len(single)):
      newest = single[n, e]
      if is_first[n, e] or not recent:
        padding = np.zeros_like(newest) if is_blank else newest
        recent = [padding] * num_frames
      recent = [*recent[1:], newest]
      stacks[n, e] = np.concatenate(recent, axis=-1)
  return stacks


def restored(stacks: list[np.ndarray], num_frames: int) -> list[np.ndarray]:
  """The stacks after a round trip, of which the middle is single frames."""
  single, codes = trajectory_rows.split_frames(stacks, num_frames)
  for leaf, frame in zip(stacks, single):
    length, batch_size, *shape, channels = leaf.shape
    assert frame.shape == (
      *(length + num_frames - 1, batch_size, *shape),
      channels // num_frames,
    )
    assert frame.dtype == leaf.dtype
  return [np.asarray(RESTORE(frame, codes, num_frames)) for frame in single]


@pytest.mark.parametrize('is_blank', [True, False])
@pytest.mark.parametrize('num_frames', [1, 2, 3, 4])
@pytest.mark.parametrize('levels', [2, 256])
def test_resets_at_all_places(
  num_frames: int, is_blank: bool, levels: int
) -> None:
  """In each of 2^n ways, also before the rollout, with pixels that coincide."""
  length = 4
  steps = num_frames - 1 + length
  ways = np.arange(2**steps)
  is_first = (ways[None] >> np.arange(steps)[:, None]) % 2 == 1
  is_first = np.concatenate([np.ones((1, len(ways)), bool), is_first])
  rng = np.random.default_rng(0)
  single = rng.integers(0, levels, (steps + 1, len(ways), 2, 1)).astype('u1')
  stacks = stacked_first(single, is_first, num_frames, is_blank)
  rollout = stacks[num_frames - 1 :]
  np.testing.assert_array_equal(restored([rollout], num_frames)[0], rollout)


@pytest.mark.parametrize('is_blank', [True, False])
@pytest.mark.parametrize(
  'dtype, shape',
  [
    (np.uint8, (3, 2, 3)),
    (np.int16, (5, 1)),
    (np.float32, (4,)),
    (bool, (6, 2)),
  ],
)
def test_all_types_and_shapes(dtype: Any, shape: Any, is_blank: bool) -> None:
  rng = np.random.default_rng(1)
  single = rng.integers(0, 200, (30, 6, *shape)).astype(dtype)
  if dtype == np.float32:
    single[single > 150] = np.nan
    single[single < 50] = -0.0
  stacks = stacked_first(single, rng.random((30, 6)) < 0.2, 4, is_blank)
  got = restored([stacks[7:]], 4)[0]
  assert got.dtype == stacks.dtype
  assert got.tobytes() == stacks[7:].tobytes()


class Counter:
  """Shows 10 times its episode plus its step, in two leaves."""

  def __init__(self, shape: Any, length: int, is_terminated: bool):
    self._shape = shape
    self._length = length
    self._is_terminated = is_terminated
    self._episode = 0

  def reset(self) -> Any:
    self._episode += 1
    self._step = 0
    return self._observe()

  def step(self, action: int) -> tuple[Any, float, bool, bool]:
    del action
    self._step += 1
    is_last = self._step == self._length
    is_over = is_last and self._is_terminated
    return self._observe(), 0.0, is_over, is_last and not is_over

  def close(self) -> None:
    pass

  def _observe(self) -> Any:
    value = 10 * self._episode + self._step
    return {
      'count': np.full(self._shape, value),
      'map': np.full((2, 3), value, np.uint8),
    }


@pytest.mark.parametrize('is_image', [True, False])
def test_environments_that_stack(is_image: bool) -> None:
  """Terminations and time limits, also after one step, and resets by hand."""
  shape = (1,) if is_image else ()
  kinds = [(1, True), (1, False), (3, True), (4, False), (100, True)]
  observation: Any = {
    'count': jax.ShapeDtypeStruct(shape, np.int32),
    'map': jax.ShapeDtypeStruct((2, 3), np.uint8),
  }
  counters = sequential.SequentialEnvironment(
    [Counter(shape, *kind) for kind in kinds],
    types.EnvironmentSpec(observation, num_actions=2),
    'counters',
    seed=0,
  )
  environment = frame_stack.FrameStack(counters, 3, is_image)
  assert environment.spec.frame_stack == 3
  observation = environment.reset()
  for length in (1, 2, 5, 9):
    rollout = [observation]
    for _ in range(length):
      action = np.zeros(len(kinds), np.int32)
      rollout.append(environment.step(action).observation)
    observation = rollout[-1] if length != 5 else environment.reset()
    leaves = jax.tree.leaves(jax.tree.map(lambda *x: np.stack(x), *rollout))
    for got, want in zip(restored(leaves, 3), leaves):
      np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
  'stacks',
  [
    # The oldest frame first; a gap of two steps; frames in the first axis.
    [[[3, 2, 1]], [[4, 3, 2]]],
    [[[1, 2, 3]], [[3, 4, 5]]],
    [[[1, 5], [2, 6], [3, 7]], [[2, 6], [3, 7], [4, 8]]],
  ],
)
def test_what_is_no_stack_is_refused(stacks: Any) -> None:
  leaf = np.array(stacks, np.uint8)[:, None]
  other = np.zeros((2, 1, leaf.shape[-1]), np.uint8)
  with pytest.raises(ValueError, match='after step 0 .* frame_stack'):
    trajectory_rows.split_frames([other, leaf], leaf.shape[-1])


def test_leaves_must_begin_an_episode_together() -> None:
  shifted = np.array([[[1, 2, 3]], [[2, 3, 4]]], np.uint8)
  restarted = np.array([[[1, 2, 3]], [[0, 0, 4]]], np.uint8)
  trajectory_rows.split_frames([shifted], 3)
  assert trajectory_rows.split_frames([restarted], 3)[1].tolist() == [
    [trajectory_rows.BLANK]
  ]
  with pytest.raises(ValueError, match='after step 0'):
    trajectory_rows.split_frames([shifted, restarted], 3)
