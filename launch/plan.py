"""Says what a run takes on devices that need not be here.

  disco-rl plan --config=disco57 --devices=8 --device=h100
  disco-rl plan --config=atari --json

Memory is what XLA reports of the run's programs, compiled for a CPU; arithmetic
is counted in them. The time is a model: each program takes the longer of its
arithmetic and its traffic, at --efficiency of what the device can do at most,
and a moment for each of its operations; environments on the host step at
--steps_per_second. `python -m benchmarks.plans` measures this machine, and
prints the flags that describe it.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
from typing import Any

from absl import app
from absl import flags

from launch import common
from launch.errors import fail
from launch.errors import in_one_line

_CONFIG = common.config_flag()
_JSON = common.json_flag()
_DEVICE = flags.DEFINE_string('device', 'h100', 'By name, such as h100.')
_DEVICES = flags.DEFINE_integer('devices', 1, 'Their number.', lower_bound=1)
_PER_MACHINE = flags.DEFINE_integer(
  'devices_per_machine', None, 'Of them; by default at most 8.', lower_bound=1
)
_MEMORY = flags.DEFINE_float('memory_gib', None, "A device's, in GiB.")
_TFLOPS = flags.DEFINE_float('tflops', None, "A device's, in TFLOP/s.")
_BANDWIDTH = flags.DEFINE_float('bandwidth_gbs', None, "A device's, in GB/s.")
_FRACTION = flags.DEFINE_float(
  'memory_fraction',
  0.75,
  "Of a device's memory for programs; 0.75 is JAX's default on GPUs.",
)
_EFFICIENCY = flags.DEFINE_float(
  'efficiency', 0.4, 'Of TFLOP/s and GB/s that programs reach; assumed.'
)
_OPERATION = flags.DEFINE_float(
  'operation_microseconds',
  1.0,
  'To start an operation of a traced program; assumed.',
)
_HOST = flags.DEFINE_float(
  'host_memory_gib', 1024.0, "Of a machine's own memory."
)
_STEPS = flags.DEFINE_float(
  'steps_per_second',
  50_000.0,
  'Of environments on the host of a machine; see benchmarks/acting.py.',
)


def main(argv: Sequence[str]) -> None:
  """Prints the plan."""
  if _CONFIG.value is None:
    fail('Name the settings of meta-train or evaluate: --config.')
  common.begin(argv, is_cached=None)
  with in_one_line(ValueError, ImportError):
    plan = make_plan(common.settings())
  if _JSON.value:
    print(json.dumps({name: value for name, value, _ in plan.rows()}, indent=2))
  else:
    print('\n'.join(_lines(plan)))


def make_plan(given: dict[str, Any]) -> Any:
  """The plan of a run of discovery, or of training."""
  from disco_rl import planning
  from disco_rl.evaluation import runner
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import sharding

  cluster = make_cluster()
  if 'meta_steps' in given:
    # Devices that share batches are as many CPUs here.
    sharding.divide_cpu(cluster.per_machine)
    return planning.of_discovery(meta_trainer.config_of(given), cluster)
  return planning.of_training(runner.config_of(given), cluster)


def make_cluster() -> Any:
  """The devices that the flags describe."""
  from disco_rl import planning

  if _DEVICE.value not in planning.DEVICES:
    raise ValueError(
      f'--device={_DEVICE.value} is not known; choose one of '
      f'{", ".join(planning.DEVICES)}, or describe it with --memory_gib, '
      '--tflops and --bandwidth_gbs.'
    )
  device = planning.DEVICES[_DEVICE.value]
  if _MEMORY.value is not None:
    device = dataclasses.replace(device, memory=_MEMORY.value * planning.GIB)
  if _TFLOPS.value is not None:
    flops = dict.fromkeys(device.flops, 1e12 * _TFLOPS.value)
    device = dataclasses.replace(device, flops=flops)
  if _BANDWIDTH.value is not None:
    device = dataclasses.replace(device, bandwidth=1e9 * _BANDWIDTH.value)
  return planning.Cluster(
    device,
    _DEVICES.value,
    _PER_MACHINE.value or min(_DEVICES.value, 8),
    _HOST.value * planning.GIB,
    _FRACTION.value,
    _EFFICIENCY.value,
    1e-6 * _OPERATION.value,
    _STEPS.value,
  )


def _lines(plan: Any) -> Iterator[str]:
  """Yields the table."""
  for name, value, unit in plan.rows():
    shown = f'{value:,.4g}' if isinstance(value, float) else f'{value}'
    yield f'{name:32} {shown:>12}  {unit}'.rstrip()


if __name__ == '__main__':
  app.run(main, flags_parser=common.parse_flags)
