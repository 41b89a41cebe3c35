"""Replay on the host holds and samples what replay on the device does."""

import dataclasses
import pathlib
import types as types_lib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import cohort
from disco_rl.agent import host_replay
from disco_rl.agent import replay
from disco_rl.agent import trajectory_rows
from disco_rl.runtime import memory
from disco_rl.runtime import row_log

LENGTH = 5
ENVIRONMENTS = 4
CAPACITY = 12
BATCH = 16
NUM_FRAMES = 3
SPEC = types.EnvironmentSpec(
  observation={
    'glyphs': jax.ShapeDtypeStruct((2, 3, NUM_FRAMES), np.int16),
    'image': jax.ShapeDtypeStruct((4, 2, 2 * NUM_FRAMES), np.uint8),
  },
  num_actions=7,
  frame_stack=NUM_FRAMES,
)
STATUS = pathlib.Path('/proc/self/status')
CORE_STATE = (np.zeros((1, 3), np.float32), np.zeros((1, 2), np.float32))

ADD = jax.jit(replay.add)
DRAW = jax.jit(
  lambda key, added: replay.sample_slots(
    key, added, CAPACITY, BATCH, (0,), ENVIRONMENTS
  )[0]
)
TAKE = jax.jit(replay.gather_slots)

both_kinds = pytest.mark.parametrize('is_mapped', [False, True])


class Actor:
  """Rollouts one after the other, of random episodes."""

  def __init__(self, seed: int = 0):
    self._rng = np.random.default_rng(seed)
    self._observation = jax.tree.map(
      lambda leaf: np.zeros((ENVIRONMENTS, *leaf.shape), leaf.dtype),
      SPEC.observation,
    )

  def unroll(self) -> types.Rollout:
    rng, count = self._rng, (LENGTH, ENVIRONMENTS)
    observations, masks = [self._observation], []
    for _ in range(LENGTH):
      is_first = rng.random(ENVIRONMENTS) < 0.3
      self._observation = {
        name: self._next(leaf, is_first)
        for name, leaf in self._observation.items()
      }
      observations.append(self._observation)
      masks.append(~is_first)
    return types.Rollout(
      observation=jax.tree.map(lambda *x: np.stack(x), *observations),
      action=rng.integers(7, size=(LENGTH + 1, ENVIRONMENTS), dtype=np.int32),
      logits=rng.normal(size=(LENGTH + 1, ENVIRONMENTS, 7)).astype('f4'),
      reward=rng.normal(size=count).astype('f4'),
      is_terminal=rng.random(count) < 0.2,
      mask=np.stack(masks),
      core_state=tuple(
        rng.normal(size=(1, ENVIRONMENTS, n)).astype('f4') for n in (3, 2)
      ),
    )

  def _next(self, stack: np.ndarray, is_first: np.ndarray) -> np.ndarray:
    frame = stack[..., : stack.shape[-1] // NUM_FRAMES]
    frame = self._rng.integers(0, 256, frame.shape).astype(stack.dtype)
    shifted = np.concatenate([stack[..., frame.shape[-1] :], frame], axis=-1)
    blank = np.concatenate(
      [np.zeros_like(frame)] * (NUM_FRAMES - 1) + [frame], axis=-1
    )
    which = is_first.reshape(-1, *[1] * (stack.ndim - 1))
    return np.where(which, blank, shifted)


FORMAT = trajectory_rows.make_format(SPEC, CORE_STATE, LENGTH)
UNPACK = jax.jit(FORMAT.unpack)


def make(
  directory: pathlib.Path | None = None, is_mapped: bool = False
) -> host_replay.HostReplay:
  return host_replay.HostReplay(FORMAT, CAPACITY, directory, is_mapped)


def sample(buffer: host_replay.HostReplay, seed: int) -> types.Rollout:
  slots = DRAW(jax.random.key(seed), buffer.added - buffer.start)
  return UNPACK(buffer.gather(np.asarray(slots)))


def check_equal(got: Any, want: Any) -> None:
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@both_kinds
def test_batches_are_those_of_replay_on_the_device(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  """Beyond the capacity, and in each of three lifetimes of the agent."""
  buffer, actor = make(tmp_path, is_mapped), Actor()
  for seed, lifetime in enumerate([1, 8, 3]):
    buffer.reset()
    assert buffer.filled == 0
    on_device = replay.init(actor.unroll(), CAPACITY)
    for _ in range(lifetime):
      rollout = actor.unroll()
      on_device = ADD(on_device, rollout)
      buffer.add(rollout)
      assert buffer.filled == min(int(on_device.added), CAPACITY)
      check_equal(
        sample(buffer, seed),
        TAKE(on_device, DRAW(jax.random.key(seed), on_device.added)),
      )
  assert buffer.added == 12 * ENVIRONMENTS


def test_observations_without_frames() -> None:
  """Rollouts may be arrays of a device."""
  observation = np.random.default_rng(0).normal(size=(LENGTH + 1, 4, 6))
  rollout = dataclasses.replace(
    Actor().unroll(), observation=observation.astype('f4'), core_state=()
  )
  spec = types.EnvironmentSpec(jax.ShapeDtypeStruct((6,), np.float32), 7)
  row_format = trajectory_rows.make_format(spec, (), LENGTH)
  buffer = host_replay.HostReplay(row_format, CAPACITY)
  buffer.add(jax.tree.map(jnp.asarray, rollout))
  slots = np.array([3, 0, 3])
  check_equal(
    jax.jit(row_format.unpack)(buffer.gather(slots)),
    jax.tree.map(lambda x: x[:, slots], rollout),
  )


@both_kinds
def test_each_checkpoint_gives_its_batches_again(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  """After a kill: the buffer that made them is never closed."""
  buffer, actor = make(tmp_path, is_mapped), Actor()
  checkpoints = []
  for updates in (2, 5, 1, 1):
    for _ in range(updates):
      buffer.add(actor.unroll())
    buffer.save()
    checkpoints.append((buffer.start, buffer.added, sample(buffer, 0)))
    if updates == 5:
      buffer.reset()
  buffer.add(actor.unroll())
  assert [c[:2] for c in checkpoints] == [(0, 8), (0, 28), (28, 32), (28, 36)]
  for start, added, batch in checkpoints:
    restored = make(tmp_path, is_mapped)
    restored.restore(start, added)
    assert (restored.start, restored.added) == (start, added)
    check_equal(sample(restored, 0), batch)


@both_kinds
def test_a_resumed_run_goes_on_equally(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  """From the older of two checkpoints, as the newer one is damaged."""
  buffer, actor = make(tmp_path, is_mapped), Actor()
  for _ in range(4):
    buffer.add(actor.unroll())
  buffer.save()
  older = (buffer.start, buffer.added)
  rollouts = [actor.unroll() for _ in range(3)]
  for rollout in rollouts:
    buffer.add(rollout)
  buffer.save()
  newer = (buffer.start, buffer.added)
  want = sample(buffer, 1)
  path = max(path for path in tmp_path.iterdir())
  path.write_bytes(path.read_bytes()[:-1])

  resumed = make(tmp_path, is_mapped)
  with pytest.raises(row_log.RowLogError, match=str(path)):
    resumed.restore(*newer)
  resumed.restore(*older)
  for rollout in rollouts:
    resumed.add(rollout)
  check_equal(sample(resumed, 1), want)
  resumed.save()
  again = make(tmp_path, is_mapped)
  again.restore(*newer)
  check_equal(sample(again, 1), want)


@both_kinds
def test_files_that_no_checkpoint_needs_are_deleted(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  buffer, actor = make(tmp_path, is_mapped), Actor()
  counters = []
  for _ in range(9):
    buffer.add(actor.unroll())
    buffer.save()
    counters.append((buffer.start, buffer.added))
    buffer.delete_unneeded(*counters[-2:][0])
  batch = sample(buffer, 0)
  # Files of one trajectory each: the window, and one rollout before it.
  assert len(list(tmp_path.iterdir())) == CAPACITY + ENVIRONMENTS
  for start, added in counters[-2:]:
    make(tmp_path, is_mapped).restore(start, added)
  with pytest.raises(row_log.RowLogError, match='is missing'):
    make(tmp_path, is_mapped).restore(*counters[-3])
  check_equal(sample(buffer, 0), batch)


@both_kinds
def test_a_reset_agent_needs_no_older_files(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  buffer, actor = make(tmp_path, is_mapped), Actor()
  for _ in range(2):
    buffer.add(actor.unroll())
  buffer.reset()
  buffer.add(actor.unroll())
  buffer.save()
  buffer.delete_unneeded(buffer.start, buffer.added)
  assert len(list(tmp_path.iterdir())) == ENVIRONMENTS
  restored = make(tmp_path, is_mapped)
  restored.restore(buffer.start, buffer.added)
  check_equal(sample(restored, 0), sample(buffer, 0))


def test_all_checkpoints_that_are_kept_can_be_restored(
  tmp_path: pathlib.Path,
) -> None:
  """And no more files are left than these need."""

  def alone() -> cohort.Cohort:
    nothing: Any = None
    made, own = cohort.Cohort(nothing), np.array([0])
    collector: Any = types_lib.SimpleNamespace(replays=[make(tmp_path)])
    made.micro_batches = [cohort.MicroBatch(own, own, collector)]
    return made

  keep, first, actor = 2, alone(), Actor()
  counters, contents, files = [], [], []
  for _ in range(12):
    first.micro_batches[0].collector.replays[0].add(actor.unroll())
    first.save_replays(keep)
    counters.append(first.counters)
    contents.append(first.contents())
    files.append(len([*tmp_path.iterdir()]))
  # The checkpoint that is being written may be lost.
  for i in (-1, -2, -3):
    again = alone()
    again.restore_replays(counters[i])
    np.testing.assert_array_equal(again.contents(), contents[i])
  assert files[-1] == files[6]


@pytest.mark.parametrize('lifetime', [2, 4, 8])
def test_contents_of_a_file_keep_their_slots(lifetime: int) -> None:
  """Also of a buffer that has been full, and of an agent that was reset."""
  buffer, other, actor = make(), make(), Actor()
  buffer.add(actor.unroll())
  buffer.reset()
  for _ in range(lifetime):
    buffer.add(actor.unroll())
  other.replace_contents(buffer.contents(), buffer.start, buffer.added)
  for _ in range(2):
    np.testing.assert_array_equal(other.contents(), buffer.contents())
    check_equal(sample(other, 1), sample(buffer, 1))
    for replay_ in (buffer, other):
      replay_.add(Actor(seed=lifetime).unroll())


def test_rollouts_of_other_shapes_are_refused() -> None:
  buffer, rollout = make(), Actor().unroll()
  glyphs = rollout.observation['glyphs']
  wrong = {**rollout.observation, 'glyphs': glyphs.astype(np.int32)}
  with pytest.raises(ValueError, match=r"observation\['glyphs'\] is int32"):
    buffer.add(dataclasses.replace(rollout, observation=wrong))
  with pytest.raises(ValueError, match=r'reward is float32\[4, 4\]'):
    buffer.add(dataclasses.replace(rollout, reward=rollout.reward[1:]))
  assert buffer.added == 0


def test_empty_slots_are_refused() -> None:
  buffer = make()
  buffer.add(Actor().unroll())
  with pytest.raises(IndexError, match='only 4 are filled'):
    buffer.gather(np.array([3, 4]))


def test_each_frame_is_held_once() -> None:
  """At the paper's sizes: a third of what the device would hold."""
  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18, frame_stack=4
  )
  length, capacity = 28, 60_000
  on_device = jax.eval_shape(
    lambda: replay.init(types.empty_rollout(spec, (), length, 1), capacity)
  )
  row_format = trajectory_rows.make_format(spec, (), length)
  estimate = host_replay.footprint(row_format, capacity)
  assert estimate.memory < 13 * 2**30
  assert estimate.memory < 0.28 * memory.tree_bytes(on_device)
  assert estimate.memory < estimate.disk < 1.07 * estimate.memory
  mapped = host_replay.footprint(row_format, capacity, is_mapped=True)
  assert mapped == (0, estimate.disk)


@pytest.mark.skipif(not STATUS.exists(), reason='memory is not counted')
@both_kinds
def test_the_footprint_is_what_is_allocated(
  tmp_path: pathlib.Path, is_mapped: bool
) -> None:
  """Sizes in memory, by the system's own count, and on disk, by the files."""
  spec = types.EnvironmentSpec(
    jax.ShapeDtypeStruct((64, 64, 4), np.uint8), num_actions=2, frame_stack=4
  )
  capacity = 1024
  rollout = jax.tree.map(np.asarray, types.empty_rollout(spec, (), LENGTH, 32))
  row_format = trajectory_rows.make_format(spec, (), LENGTH)
  buffer = host_replay.HostReplay(row_format, capacity, tmp_path, is_mapped)
  before = anonymous_bytes()
  for _ in range(32):
    buffer.add(rollout)
  used = anonymous_bytes() - before
  estimate = host_replay.footprint(row_format, capacity, is_mapped)
  assert abs(used - estimate.memory) < 0.25 * estimate.disk
  buffer.save()
  buffer.delete_unneeded(buffer.start, buffer.added)
  on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
  assert 0.9 * estimate.disk < on_disk <= estimate.disk
  # Sixteen blocks and another one, of rows with four bytes of checksum.
  row_bytes = row_format.dtype.itemsize + 4
  assert estimate.disk == 17 * (capacity // 16) * row_bytes


def anonymous_bytes() -> int:
  """Memory of this process that no file backs."""
  status = STATUS.read_text(encoding='ascii')
  return 1024 * int(status.partition('RssAnon:')[2].split()[0])
