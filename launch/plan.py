"""Estimates memory and time of a run on devices that need not be attached.

  disco-rl plan --config=disco57 --devices=8 --device=h100
  disco-rl plan --config=atari --json

Memory is what XLA reports for the run's programs, compiled for a CPU.
Arithmetic is counted in the programs. Time is a model: each program takes the
longer of the times of its arithmetic and its memory traffic, at the fraction
--efficiency of the device's peak rates, plus a time for each operation.
Environments on the host take --steps_per_second actions.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import json
import math
import operator
from typing import TYPE_CHECKING
from typing import Any

from absl import flags

from launch import common
from launch.errors import fail
from launch.errors import in_one_line

# Other modules are imported late: a mistyped flag should not wait for JAX.
if TYPE_CHECKING:
  import jax

  from disco_rl.meta_training import config as meta_config
  from disco_rl.planning import clusters
  from disco_rl.training import config as training_config
  from disco_rl.update_rules import registry as rule_registry


def _positive(
  name: str, default: float | None, text: str
) -> flags.FlagHolder[Any]:
  """Defines a flag for a number above 0."""
  flag = flags.DEFINE_float(name, default, text)
  flags.register_validator(
    flag, lambda x: x is None or x > 0, 'must be above 0.'
  )
  return flag


_CONFIG = common.config_flag()
_JSON = common.json_flag()
_DEVICE = flags.DEFINE_string(
  'device', 'h100', 'Name of a device, such as h100.'
)
_DEVICES = flags.DEFINE_integer(
  'devices', 1, 'Number of devices.', lower_bound=1
)
_PER_MACHINE = flags.DEFINE_integer(
  'devices_per_machine',
  None,
  'Devices of one machine; by default at most 8.',
  lower_bound=1,
)
_MEMORY = _positive('memory_gib', None, 'Memory of a device, in GiB.')
_TFLOPS = _positive(
  'tflops', None, 'Rate of a device in the precision of the run, in TFLOP/s.'
)
_BANDWIDTH = _positive('bandwidth_gbs', None, 'Bandwidth of a device, in GB/s.')
_FRACTION = _positive(
  'memory_fraction',
  0.75,
  "Fraction of a device's memory for programs; 0.75 is JAX's default on GPUs.",
)
_EFFICIENCY = _positive(
  'efficiency',
  0.4,
  'Fraction of peak rates that programs reach; 0.37 to 0.41 of TFLOP/s were '
  'measured for disco57 on an H100.',
)
_OPERATION = flags.DEFINE_float(
  'operation_microseconds',
  1.0,
  'Time to start an operation of a traced program; assumed.',
  lower_bound=0.0,
)
_HOST = _positive(
  'host_memory_gib', 1024.0, "Size of a machine's own memory, in GiB."
)
_STEPS = _positive(
  'steps_per_second',
  50_000.0,
  'Total actions per second in environments on the host of a machine; one in '
  'Atari lasts four frames.',
)


def main(argv: Sequence[str]) -> None:
  """Prints the plan."""
  if _CONFIG.value is None:
    fail('Name the settings of train or meta-train: --config.')
  common.begin(argv, is_cached=None)
  with in_one_line(ValueError, ImportError):
    table = make_plan(common.settings())
  if _JSON.value:
    print(json.dumps({name: value for name, value, _ in table}, indent=2))
    return
  for name, value, unit in table:
    shown = f'{value:,.4g}' if isinstance(value, float) else f'{value}'
    print(f'{name:32} {shown:>12}  {unit}'.rstrip())


def make_plan(given: dict[str, Any]) -> 'clusters.Table':
  """Plans a discovery run or a training run."""
  from disco_rl.meta_training import meta_trainer
  from disco_rl.runtime import sharding
  from disco_rl.training import config as training_config

  cluster = make_cluster()
  if 'meta_steps' in given:
    # Devices that share batches are represented by CPUs.
    sharding.divide_cpu(cluster.per_machine)
    return of_discovery(meta_trainer.config_of(given), cluster)
  return of_training(*training_config.resolve(given), cluster)


def make_cluster() -> 'clusters.Cluster':
  """Returns the devices that the flags describe."""
  from disco_rl.planning import clusters

  if _DEVICE.value not in clusters.DEVICES:
    raise ValueError(
      f'--device={_DEVICE.value} is not known; choose one of '
      f'{", ".join(clusters.DEVICES)}, or leave out --device and describe it '
      'with --memory_gib, --tflops and --bandwidth_gbs.'
    )
  changes: dict[str, Any] = {
    'gib': _MEMORY.value,
    'bfloat16': _TFLOPS.value,
    'float32': _TFLOPS.value,
    'bandwidth': _BANDWIDTH.value,
  }
  device = clusters.DEVICES[_DEVICE.value]._replace(
    **{name: x for name, x in changes.items() if x is not None}
  )
  return device.cluster(
    _FRACTION.value,
    _EFFICIENCY.value,
    seconds_per_operation=1e-6 * _OPERATION.value,
    steps_per_second=_STEPS.value,
    host_memory=_HOST.value * 2**30,
    devices=_DEVICES.value,
    per_machine=_PER_MACHINE.value or min(_DEVICES.value, 8),
  )


def of_discovery(
  config: 'meta_config.MetaTrainingConfig', cluster: 'clusters.Cluster'
) -> 'clusters.Table':
  """Plans a discovery with settings that fit; only compiles its programs."""
  from disco_rl.meta_training import build
  from disco_rl.meta_training import footprint
  from disco_rl.meta_training import population
  from disco_rl.planning import fitting
  from disco_rl.runtime import backend
  from disco_rl.runtime import reports
  from disco_rl.runtime import sharding

  rule, rule_params = build.make_rule(config)
  first = next(fitting.chunk_size_candidates(config))
  groups = build.make_groups(first, rule, _row(1))
  sizes = [group.config.num_members for group in groups]
  steps = sum(group.config.num_counted * group.steps.total for group in groups)
  shares = choose_batch_devices(config, sizes, cluster)

  def attempt(config: 'meta_config.MetaTrainingConfig') -> 'clusters.Table':
    share = config.batch_devices
    rows = cluster.devices // share
    of_groups = sharding.rows_of_groups(sizes, rows)
    if of_groups is None and any(size % rows for size in sizes):
      config = dataclasses.replace(config, group_multiple=rows)
    row = _row(share)
    rule_shapes = sharding.shapes(rule_params, row, sharding.REPLICATED)
    settings: dict[str, Any] = {
      'batch_devices': share,
      'group_multiple': config.group_multiple,
      'torso_chunk_size': config.agent.network.torso.chunk_size,
      'chunk_size': config.chunk_size,
      'save_every': config.inner_loop.save_every,
      'offload': config.inner_loop.offload,
      'replay_on_disk': config.agent.replay_on_disk,
    }
    reports.note(f'tracing with {settings}')
    # One row of those on which the same groups are; they have equal parts.
    groups = build.make_groups(config, rule, row)
    rows_of_each = of_groups or len(groups) * [rows]
    own = [
      footprint.on_one_row(group, row, group.config.num_members // number)
      for group, number in zip(groups, rows_of_each)
    ]
    parts = [([group], number) for group, number in zip(own, rows_of_each)]
    if of_groups is None:
      parts = [(own, rows)]
    per_machine = rows // cluster.machines

    def needs_of(
      part: Sequence[population.Group], number: int
    ) -> fitting.Needs:
      footprint.check_replay(part, cluster.host_memory / per_machine)
      needs = footprint.needs(part, rule_shapes, config.keep_checkpoints)
      return dataclasses.replace(
        needs, host=needs.host * per_machine, disk=needs.disk * number
      )

    table = cluster.table(
      [(needs_of(part, number), share * number) for part, number in parts],
      config.agent.network.compute_dtype,
      # Each row has an equal part of the machine's processors.
      cluster.steps_per_second * share / cluster.per_machine,
      ('meta_step', config.meta_steps, steps),
    )
    if of_groups:
      settings['rows_of_groups'] = ', '.join(map(str, of_groups))
    return [*table, *((name, x, '') for name, x in settings.items())]

  with backend.making_programs_for(cluster.platform):
    return fitting.first_that_fits(_candidates(config, shares), attempt)


def of_training(
  config: 'training_config.TrainingConfig',
  rule: 'rule_registry.LoadedRule',
  cluster: 'clusters.Cluster',
) -> 'clusters.Table':
  """Plans training with a fixed rule, on devices that divide the agents."""
  from disco_rl.agent import agent as agent_lib
  from disco_rl.environments import registry
  from disco_rl.planning import fitting
  from disco_rl.runtime import backend
  from disco_rl.training import footprint
  from disco_rl.training import parallel

  if cluster.machines > 1:
    raise ValueError(
      f'disco-rl train uses one machine, not {cluster.machines}: lower '
      'devices, or raise devices_per_machine.'
    )
  environment = registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  if close := getattr(environment, 'close', None):
    close()
  devices = max(
    n for n in range(1, cluster.devices + 1) if config.seeds % n == 0
  )

  def attempt(config: 'training_config.TrainingConfig') -> 'clusters.Table':
    agent = agent_lib.make(config.agent, environment.spec, rule.rule)
    training = parallel.make(
      agent, environment, config.seeds // devices, _row(1)
    )
    needs = footprint.needs(training, rule.params)
    needs = dataclasses.replace(
      needs, host=devices * needs.host, disk=devices * needs.disk
    )
    table = cluster.table(
      [(needs, devices)],
      config.agent.network.compute_dtype,
      # All agents share the machine's processors.
      cluster.steps_per_second / devices,
      ('update', config.updates, config.seeds * agent.steps_per_update),
    )
    settings = {**config.agent.automatic_choices, 'devices': devices}
    return [*table, *((name, x, '') for name, x in settings.items())]

  with backend.making_programs_for(cluster.platform):
    return fitting.first_that_fits(
      fitting.chunk_size_candidates(config), attempt
    )


def choose_batch_devices(
  config: 'meta_config.MetaTrainingConfig',
  sizes: Sequence[int],
  cluster: 'clusters.Cluster',
) -> list[int]:
  """Chooses the numbers of devices that share batches to minimize the time.

  In each group, every row of devices takes as long as the row with the most
  agents; groups on rows of their own take as long as the longest.

  Args:
    config: The config of the run; its `batch_devices` are the fewest.
    sizes: The number of agents of each group.
    cluster: The devices.

  Returns:
    All numbers that do equally much work at a time, in ascending order. The
    fewest devices suffice, unless memory forces them to compute more: with more
    devices, each holds a smaller part of an agent's batch.

  Raises:
    ValueError: No number is possible.
  """
  from disco_rl.runtime import sharding

  shared = math.gcd(
    config.agent.batch_size,
    config.inner_loop.validation_trajectories,
    cluster.per_machine,  # Devices that share batches are in the same machine.
  )
  shares = [
    n for n in range(config.batch_devices, shared + 1) if shared % n == 0
  ]
  if not shares:
    raise ValueError(
      f'No number of devices from batch_devices={config.batch_devices} to the '
      f'{cluster.per_machine} of a machine divides these, batch_size and '
      'validation_trajectories: lower batch_devices.'
    )

  def time(share: int) -> float:
    rows = cluster.devices // share
    of_groups = sharding.rows_of_groups(sizes, rows)
    if of_groups is not None:
      return max(map(operator.floordiv, sizes, of_groups)) / share
    return sum(-(-size // rows) for size in sizes) / share

  times = {share: time(share) for share in shares}
  least = min(times.values())
  return [share for share, x in times.items() if math.isclose(x, least)]


def _candidates(
  config: 'meta_config.MetaTrainingConfig', shares: Sequence[int]
) -> 'Iterator[meta_config.MetaTrainingConfig]':
  """Yields settings in the order of their time, as far as it is known.

  More devices for a batch come before settings that compute more.
  """
  for smaller in _smaller(config):
    for share in shares:
      yield dataclasses.replace(smaller, batch_devices=share)


def _smaller(
  config: 'meta_config.MetaTrainingConfig',
) -> 'Iterator[meta_config.MetaTrainingConfig]':
  """Yields settings that need less and less memory, and more time."""
  from disco_rl.planning import fitting

  inner_loop = config.inner_loop
  for chunked in fitting.chunk_size_candidates(config):
    yield (config := chunked)
  while config.chunk_size > 1:
    size = config.chunk_size // 2
    yield (config := dataclasses.replace(config, chunk_size=size))
  for k in range(inner_loop.save_every + 1, inner_loop.inner_updates + 1):
    if inner_loop.inner_updates % k == 0:
      inner_loop = dataclasses.replace(inner_loop, save_every=k)
      yield dataclasses.replace(config, inner_loop=inner_loop)
  if not inner_loop.offload:
    inner_loop = dataclasses.replace(inner_loop, offload=True)
    yield dataclasses.replace(config, inner_loop=inner_loop)


def _row(batch_devices: int) -> 'jax.sharding.Mesh':
  """Returns a row of CPUs for which programs are traced and compiled."""
  import jax
  import numpy as np

  from disco_rl.runtime import sharding

  cpus = jax.local_devices(backend='cpu')
  if len(cpus) < batch_devices:
    raise ValueError(
      f'Planning for batch_devices={batch_devices} requires as many devices '
      f'here: set JAX_NUM_CPU_DEVICES={batch_devices}.'
    )
  row = np.array(cpus[:batch_devices]).reshape(1, batch_devices)
  return jax.sharding.Mesh(row, (sharding.AGENTS, sharding.BATCH))


if __name__ == '__main__':
  common.start(main)
