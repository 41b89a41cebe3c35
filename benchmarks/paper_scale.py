"""Memory of an agent of the paper's runs, from programs that are only compiled.

  python -m benchmarks.paper_scale --json=paper_scale.json
  python -m benchmarks.paper_scale --topology=v5p:2x2x1 --dtype=bfloat16
  python -m benchmarks.paper_scale --topology=v3:2x2x1 --batch_devices=8
  python -m benchmarks.paper_scale --variant=large

The agent is that of configs/disco57.py, or of a variant of it. XLA compiles for
this machine's CPU, or ahead of time for TPUs of a topology, which need not be
here: that requires `pip install libtpu==0.0.41`, the version that goes with JAX
0.10.1. Each program takes up to a minute and a half and some GB of memory to
compile; with --optimization_level=UNKNOWN, XLA's default, up to four, and takes
the same memory on the device within 2%.

  update      one update of the agent
  validation  the outer loss, its gradient, and the meta-value function
  vjp         one vector-Jacobian product of the backward sweep

All figures are of one device. `agent_meta_step_gib` is what it holds while it
computes one agent: the agent's state, states, batches and gradients of N
updates, and the arguments, results and temporaries of the largest program.
Replay is in the host's memory; its batches are timed by benchmarks.host_replay.

Arithmetic is counted in the traced program, loops multiplied out. For TPUs the
milliseconds of a program are printed as XLA estimates them, which counts loops
once, and as launch.plan does.
"""

from collections.abc import Iterator
import os
from typing import Any

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
import numpy as np

from benchmarks import host_replay as host_replay_benchmark
from benchmarks import paper_agent
from benchmarks import timing
from disco_rl import planning
from disco_rl.agent import host_replay
from disco_rl.runtime import backend
from disco_rl.runtime import costs
from disco_rl.runtime import memory
from disco_rl.runtime import sharding

_TOPOLOGY = flags.DEFINE_string(
  'topology', '', "Of TPUs, such as 'v5p:2x2x1'; empty: this machine's CPU."
)
_LEVEL = flags.DEFINE_enum(
  'optimization_level',
  'O1',
  ['UNKNOWN', 'O0', 'O1', 'O2', 'O3'],
  "Of XLA, where it compiles for a topology; UNKNOWN: XLA's default.",
)
_VARIANT = flags.DEFINE_string('variant', '', 'Of configs/disco57.py.')
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], 'Of the agent.'
)
_CHUNK = flags.DEFINE_integer(
  'torso_chunk_size', None, 'See configs/meta_training.py; default: its own.'
)
_BATCH_DEVICES = flags.DEFINE_integer(
  'batch_devices', 1, 'Devices that share the batches of the agent.'
)
_PARTS = flags.DEFINE_list(
  'parts', ['update', 'validation', 'vjp', 'replay'], 'Which to measure.'
)

Row = tuple[str, float]


def _make_agent() -> paper_agent.Agent:
  settings: dict[str, Any] = {'compute_dtype': _DTYPE.value}
  if _CHUNK.value is not None:
    settings['torso_chunk_size'] = _CHUNK.value
  return paper_agent.make_agent(settings, _VARIANT.value)


def program_rows(names: list[str], mesh: jax.sharding.Mesh) -> Iterator[Row]:
  """Compiles programs; figures by name."""
  agent = _make_agent()
  held = []
  for name in names:
    program = paper_agent.PROGRAMS[name](agent)
    compiled, seconds = program.compile(mesh)
    usage = compiled.memory_analysis()
    temporaries = usage.temp_size_in_bytes
    held.append(
      temporaries + usage.argument_size_in_bytes + usage.output_size_in_bytes
    )
    yield f'{name}_temporaries_gib', temporaries / 2**30
    yield f'{name}_compile_seconds', seconds
    cost = program.cost(mesh)
    yield f'{name}_tflop', cost.flop / 1e12
    if _TOPOLOGY.value:
      estimate = compiled.cost_analysis()['optimal_seconds']
      yield f'{name}_ms_by_xla', 1e3 * estimate
      yield f'{name}_ms_planned', 1e3 * planned_seconds(cost)
  if set(names) == set(paper_agent.PROGRAMS):
    kept = kept_bytes(agent, mesh.shape[sharding.BATCH])
    yield 'agent_meta_step_gib', (kept + max(held)) / 2**30


def planned_seconds(cost: costs.Cost) -> float:
  """As launch.plan computes it, with its defaults, for the topology's TPUs."""
  cluster = planning.Cluster(
    planning.DEVICES[f'tpu_{_TOPOLOGY.value.split(":")[0]}'],
    devices=1,
    per_machine=1,
    host_memory=0,
    memory_fraction=1,
    efficiency=0.4,
    seconds_per_operation=1e-6,
    steps_per_second=1,
  )
  return float(cluster.seconds(cost, _DTYPE.value).sum())


def kept_bytes(agent: paper_agent.Agent, batch_devices: int) -> int:
  """Of the member and its N updates, as if no program held one of them."""
  batch = memory.tree_bytes(agent.update.batches)
  update = memory.tree_bytes(agent.update) - batch + batch // batch_devices
  updates = agent.estimator.inner_loop.config.inner_updates
  return memory.tree_bytes(agent.member) + updates * update


def replay_rows() -> Iterator[Row]:
  """Replay of one agent, and a batch of it."""
  agent = _make_agent()
  config = agent.estimator.inner_loop.agent.config
  footprint = host_replay.footprint(
    paper_agent.ATARI, (), config.unroll_length, config.replay_capacity
  )
  yield 'replay_host_gib_per_agent', footprint.memory / 2**30
  on_device = memory.tree_bytes(agent.member.agent.replay)
  yield 'replay_device_gib_per_agent', on_device / 2**30
  yield 'sample_batch_ms', host_replay_benchmark.measure()['sample_batch_ms']


def make_mesh() -> jax.sharding.Mesh:
  """One row of devices, of the topology or of this machine."""
  count = _BATCH_DEVICES.value
  sharding.divide_cpu(count)
  devices = jax.devices()
  if _TOPOLOGY.value:
    # libtpu would look for the machine that it runs on.
    os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
    os.environ.setdefault('TPU_WORKER_HOSTNAMES', 'localhost')
    jax.config.update('jax_optimization_level', _LEVEL.value)
    devices = topologies.get_topology_desc(
      platform='tpu', topology_name=_TOPOLOGY.value
    ).devices
  row = np.array(devices[:count]).reshape(1, count)
  return jax.sharding.Mesh(row, (sharding.AGENTS, sharding.BATCH))


def rows() -> Iterator[Row]:
  """All figures that were chosen."""
  mesh = make_mesh()
  programs = [name for name in paper_agent.PROGRAMS if name in _PARTS.value]
  with backend.making_programs_for('tpu' if _TOPOLOGY.value else 'cpu'):
    yield from program_rows(programs, mesh)
  if 'replay' in _PARTS.value:
    yield from replay_rows()


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  table = {}
  for name, value in rows():
    print(f'{name:28} {value:10.4g}', flush=True)
    table[name] = value
  timing.write(table)


if __name__ == '__main__':
  app.run(main)
