"""Stacks of the frames of host environments."""

import copy
from typing import Any

import discovering
import jax
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments.host import frame_stack
from disco_rl.environments.host import sequential

FRAME = {
  'map': jax.ShapeDtypeStruct((2, 3), np.int16),
  'count': jax.ShapeDtypeStruct((), np.int32),
}


class Counter:
  """Counts steps from 1 on, in one array; episodes end after `length` steps."""

  def __init__(self, length: int, is_terminated: bool):
    self._length = length
    self._is_terminated = is_terminated
    self._map = np.zeros((2, 3), np.int16)

  def reset(self) -> Any:
    self._count = 0
    return self._observe()

  def step(self, action: int) -> tuple[Any, float, bool, bool]:
    self._count += 1
    is_last = self._count == self._length
    is_terminated = is_last and self._is_terminated
    is_truncated = is_last and not self._is_terminated
    return self._observe(), float(action), is_terminated, is_truncated

  def close(self) -> None:
    self._length = 0

  def _observe(self) -> Any:
    self._map[:] = 10 * (self._count + 1) + np.arange(6).reshape(2, 3)
    return {'map': self._map, 'count': self._count + 1}


def _make() -> frame_stack.FrameStack:
  counters = [Counter(3, is_terminated=True), Counter(4, is_terminated=False)]
  spec = types.EnvironmentSpec(FRAME, num_actions=2)
  environment = sequential.SequentialEnvironment(counters, spec, 'counters', 0)
  return frame_stack.FrameStack(environment, num_frames=3)


def test_frames_are_stacked_within_episodes() -> None:
  environment = _make()
  got = [environment.reset()]
  steps = [environment.step(np.array([0, 1])) for _ in range(6)]
  got += [step.observation for step in steps]
  # What was returned is not written into later: hence compared only here. The
  # last frames of both episodes are returned, of which one was truncated.
  want = [
    [(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 3, 4), (1, 1, 1), (1, 1, 2)],
    [(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (1, 1, 1)],
  ]
  one = np.arange(6).reshape(2, 3, 1)
  for i, stacks in enumerate(want):
    for observation, counts in zip(got, stacks):
      np.testing.assert_array_equal(observation['count'][i], counts)
      np.testing.assert_array_equal(
        observation['map'][i], 10 * np.array(counts) + one
      )
  assert [step.is_last.tolist() for step in steps[2:4]] == [
    [True, False],
    [False, True],
  ]
  assert steps[0].reward.tolist() == [0, 1]
  # In the midst of an episode.
  assert environment.reset()['count'].tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize('channels, num_frames', [(1, 1), (1, 4), (2, 3)])
def test_pushing_drops_the_oldest(channels: int, num_frames: int) -> None:
  stack = np.arange(5 * num_frames * channels).reshape(5, -1)
  frame = -1 - np.arange(5 * channels).reshape(5, channels)
  before = stack.copy()
  pushed = frame_stack.push(stack, frame)
  np.testing.assert_array_equal(
    pushed, np.concatenate([before[:, channels:], frame], axis=1)
  )
  np.testing.assert_array_equal(stack, before)


def test_wrappers_can_be_copied_and_have_no_private_attributes() -> None:
  """A copy is asked for `__deepcopy__` and others before it has attributes."""
  environment = _make()
  copied = copy.copy(environment)
  assert copied.spec == environment.spec
  assert not hasattr(copied, '_nothing')


def test_a_stack_continues_where_other_frames_were_shown() -> None:
  """The case after a kill, where the first episode has begun again."""
  act = np.array([1, 0])
  saved, other = (
    frame_stack.FrameStack(discovering.Counting(7), num_frames=3)
    for _ in range(2)
  )
  for environment, steps in ((saved, 5), (other, 2)):
    environment.reset()
    for _ in range(steps):
      environment.step(act)
  other.restore_state(saved.save_state())
  for _ in range(2):
    got, want = (x.step(act).observation for x in (other, saved))
    np.testing.assert_array_equal(got, want)
  # Steps 5, 6 and 7.
  assert got[0, 2].tolist() == [5, 6, 7]
