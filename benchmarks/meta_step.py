"""Measures time and memory of a meta-step in each mode of differentiation.

  python -m benchmarks.meta_step --json=meta_step.json

Agents of full size on Catch 8x8 and an untrained rule of Disco103's size, at
the sizes of the published notebook, whose times on an idle machine (470 GFLOP/s
in a matrix product) are compared with ours:

  long    1 agent, 20 updates of 32 trajectories of 29 observations
  short   2 agents, 2 updates of 32 trajectories of 16 observations
  memory  1 agent, 20 updates of 96 trajectories of 29; compiled, not run

Times drift on shared machines: a matrix product is timed next to each.
"""

from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from absl import app
from absl import flags
import jax
import numpy as np

from benchmarks import timing
from configs import meta_training
from disco_rl.meta_training import build
from disco_rl.meta_training import device_group
from disco_rl.meta_training import meta_trainer
from disco_rl.planning import costs
from disco_rl.runtime import memory

_SIZES = flags.DEFINE_list(
  'sizes', ['long', 'short', 'memory'], 'Sizes to measure.'
)
_MODES = flags.DEFINE_list(
  'modes',
  ['mixed', 'checkpointed', 'thinned', 'offloaded', 'plain'],
  'Modes of differentiation; checkpointed is plain for one update at a time, '
  'thinned and offloaded are variants of mixed.',
)
_REPEATS = flags.DEFINE_integer('repeats', 3, 'Timings; the median is shown.')


@dataclasses.dataclass(frozen=True)
class Size:
  """The sizes of a run, and the notebook's seconds per meta-step if known."""

  agents: int
  updates: int
  trajectories: int
  transitions: int
  step_seconds: float | None


SIZES = {
  'long': Size(1, 20, 32, 28, 11.0),
  'short': Size(2, 2, 32, 15, 1.23),
  'memory': Size(1, 20, 96, 28, None),
}


def make_settings(size: Size, mode: str) -> dict[str, Any]:
  """Returns settings of launch.meta_train."""
  config = meta_training.base()
  config.update(
    environments='catch',
    agents=size.agents,
    inner_updates=size.updates,
    unroll_length=size.transitions,
    batch_size=size.trajectories,
    num_environments=4,
    # At most the newest rollout.
    on_policy_share=min(config.on_policy_share, 4 / size.trajectories),
    validation_trajectories=32,
    replay_capacity=320,
    mode='plain' if mode in ('plain', 'checkpointed') else 'mixed',
    offload=mode == 'offloaded',
  )
  config.save_every = {
    'plain': size.updates,
    'thinned': max(k for k in (1, 2, 4) if size.updates % k == 0),
  }.get(mode, 1)
  return config.to_dict()


def measure(size: Size, mode: str) -> dict[str, Any]:
  """Compiles a meta-step; times it where the notebook's time is known."""
  config = meta_trainer.config_of(make_settings(size, mode))
  rule, rule_params = build.make_rule(config)
  (group,) = build.make_groups(config, rule)
  assert isinstance(group, device_group.DeviceGroup)
  keys = jax.random.split(jax.random.key(0), size.agents)
  members = group.init(keys, rule_params)
  program, arguments = group.step_calls(rule_params, members)['step']
  start = time.perf_counter()
  compiled = program.compile(*arguments)
  compile_seconds = time.perf_counter() - start
  usage: Any = compiled.memory_analysis()
  row = {
    'mode': mode,
    'compile_seconds': compile_seconds,
    'temporaries_mib': usage.temp_size_in_bytes / 2**20,
    'bound_mib': costs.cost((program, arguments)).memory / 2**20,
  }
  if size.step_seconds is None:
    return row
  samples = []
  for _ in range(_REPEATS.value + 1):
    start = time.perf_counter()
    _, members, _ = jax.block_until_ready(group.step(rule_params, members))
    samples.append((time.perf_counter() - start, timing.product_gflops()))
  seconds, rate = np.median(samples[1:], axis=0)
  return {
    **row,
    'step_seconds': seconds,
    'gflops': rate,
    'step_over_notebook': seconds
    * rate
    / timing.REFERENCE_GFLOPS
    / size.step_seconds,
    'peak_mib_of_process': memory.peak_bytes() / 2**20,
  }


def main(argv: Sequence[str]) -> None:
  """Prints a line for each measurement, and writes them to --json."""
  del argv
  table: dict[str, list[dict[str, Any]]] = {}
  for name in _SIZES.value:
    for mode in _MODES.value:
      row = measure(SIZES[name], mode)
      table.setdefault(name, []).append(row)
      numbers = (f'{k} {v:.4g}' for k, v in row.items() if k != 'mode')
      print(f'{name} {mode}: {", ".join(numbers)}', flush=True)
  timing.write(table)


if __name__ == '__main__':
  app.run(main)
