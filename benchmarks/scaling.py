r"""Time and memory of discovery on more devices, by a small model of its cost.

  python -m benchmarks.scaling --config=configs/meta_gridworld.py \
    --config.agents=2304 --agent_seconds=0.2

A meta-step takes as long as the device with the most agents, which it updates
one after the other, and one all-reduce of the rule's parameters; see
docs/many-devices.md. The memory is estimated from the shapes of an agent's
arrays. The time of one agent is measured beforehand, by benchmarks/meta_step.py
or from the metrics of a run on one device.
"""

from collections.abc import Iterator
import dataclasses
import math

from absl import app
from absl import flags
from ml_collections import config_flags

from disco_rl import types
from disco_rl.meta_training import build
from disco_rl.meta_training import footprint
from disco_rl.meta_training import population
from disco_rl.runtime import memory
from launch import to_records

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'Settings of the run.'
)
flags.mark_flag_as_required('config')
_SECONDS = flags.DEFINE_float(
  'agent_seconds', None, 'Of one agent in a meta-step.', required=True
)
_DEVICES = flags.DEFINE_list('devices', ['1', '8', '64', '1024'], 'Numbers.')
_BANDWIDTH = flags.DEFINE_float(
  'gigabytes_per_second', 10.0, 'Between two devices.'
)
_LATENCY = flags.DEFINE_float('microseconds', 20.0, 'Of one message.')


def all_reduce_seconds(num_bytes: int, devices: int) -> float:
  """Time of a ring of D devices: each sends 2 (D - 1) messages of a D-th."""
  message = num_bytes / devices / (_BANDWIDTH.value * 1e9)
  return 2 * (devices - 1) * (_LATENCY.value * 1e-6 + message)


def memory_of(
  group: population.Group, params: types.Params
) -> tuple[float, float]:
  """Bytes of an agent's state, and those beside while it is computed."""
  ((_, programs),) = footprint.on_device([group], params)
  held = max(program.held().total for program in programs)
  state = footprint.member_bytes(group, group.named_calls(params))
  kept = 0 if group.is_on_host else group.config.num_members * state
  return state, (held - kept) / group.config.chunk


def rows() -> Iterator[tuple[int, int, float, float, float]]:
  """(devices, agents on the fullest, GiB, seconds, efficiency) of each."""
  config = to_records.meta_training(_CONFIG.value.to_dict())
  # Of automatic chunks of the torso, the fastest.
  config = dataclasses.replace(config, agent=next(config.agent.chunkings()))
  rule, params = build.make_rule(config)
  groups = build.make_groups(config, rule)
  agents = [memory_of(group, params) for group in groups]
  rule_bytes = memory.tree_bytes(params)
  alone = config.agents * _SECONDS.value
  for devices in map(int, _DEVICES.value):
    counts = [math.ceil(group.config.num_members / devices) for group in groups]
    kept = sum(n * state for n, (state, _) in zip(counts, agents))
    working = max(
      min(n, config.chunk_size) * working
      for n, (_, working) in zip(counts, agents)
    )
    seconds = sum(counts) * _SECONDS.value
    seconds += all_reduce_seconds(rule_bytes, devices)
    gib = (kept + working) / 2**30
    yield devices, sum(counts), gib, seconds, alone / seconds / devices


def main(argv: list[str]) -> None:
  """Prints the table."""
  del argv
  print('devices  agents on one  GiB on one  seconds a meta-step  efficiency')
  for devices, agents, gib, seconds, efficiency in rows():
    print(
      f'{devices:7}  {agents:13}  {gib:10.2f}  {seconds:19.3f}  '
      f'{efficiency:10.2f}'
    )


if __name__ == '__main__':
  app.run(main)
