"""Times replay in host memory at the paper's sizes for Atari.

  python -m benchmarks.host_replay --json=host_replay.json

A batch of 96 trajectories of 29 stacks of 4 frames, 84 x 84 each, is gathered
on the host and unpacked on the device, in the memory of the batch before or in
new memory. The buffer holds 4,000 trajectories, not the paper's 60,000: less
memory, but far beyond all caches, as that would be.
"""

from collections.abc import Callable
from typing import Any

from absl import app
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import timing
from disco_rl import types
from disco_rl.agent import host_replay

CAPACITY = 60_000
_FILLED = 4_000
_LENGTH = 28
_ENVIRONMENTS = 12
_BATCH = 96
_REPEATS = 21
_SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((84, 84, 4), np.uint8),
  num_actions=18,
  frame_stack=4,
)


def measure() -> dict[str, float]:
  """Milliseconds, medians; and the GiB of the paper's whole buffer."""
  replay = host_replay.HostReplay(_SPEC, (), _LENGTH, _FILLED)
  unpack = jax.jit(replay.unpack)
  unpack_into = jax.jit(
    lambda _, rows: replay.unpack(rows), donate_argnums=0, keep_unused=True
  )
  rollout = make_rollout()
  while replay.filled < _FILLED:
    replay.add(rollout)
  rng = np.random.default_rng(0)
  gather = lambda: replay.gather(rng.integers(0, _FILLED, _BATCH))
  rows = gather()
  batch = jax.tree.map(jnp.copy, unpack(rows))

  def sample_in_place() -> types.Rollout:
    nonlocal batch
    batch = unpack_into(batch, gather())
    return batch

  estimate = host_replay.footprint(_SPEC, (), _LENGTH, CAPACITY)
  return {
    'sample_batch_ms': milliseconds(sample_in_place),
    'sample_new_batch_ms': milliseconds(lambda: unpack(gather())),
    'gather_ms': milliseconds(gather),
    'unpack_ms': milliseconds(lambda: unpack(rows)),
    'add_ms': milliseconds(lambda: replay.add(rollout)),
    'capacity_gib': estimate.memory / 2**30,
    'disk_gib': estimate.disk / 2**30,
  }


def make_rollout() -> types.Rollout:
  """A rollout of noise, without an end of an episode."""
  rng = np.random.default_rng(0)
  height, width, num_frames = _SPEC.observation.shape
  shape = (_LENGTH + num_frames, _ENVIRONMENTS, height, width)
  frames = rng.integers(0, 256, shape, np.uint8)
  stacks = np.stack(
    [frames[i : i + _LENGTH + 1] for i in range(num_frames)], axis=-1
  )
  empty: Any = types.empty_rollout(_SPEC, (), _LENGTH, _ENVIRONMENTS)
  empty = jax.tree.map(np.asarray, empty)
  return types.Rollout(**{**vars(empty), 'observation': stacks})


def milliseconds(function: Callable[[], Any]) -> float:
  """Median duration of a call."""
  return 1e3 * timing.median_seconds(function, _REPEATS)


def main(argv: list[str]) -> None:
  """Prints the times, and writes them to --json."""
  del argv
  row = measure()
  for name, value in row.items():
    print(f'{name:20} {value:8.2f}')
  timing.write(row)


if __name__ == '__main__':
  app.run(main)
