"""Memory of an agent of the paper's size, from programs that are only compiled.

  python -m benchmarks.paper_scale --json=paper_scale.json
  python -m benchmarks.paper_scale --topology=v5p:2x2x1 --dtype=bfloat16
  python -m benchmarks.paper_scale --topology=v3:2x2x1 --batch_devices=8

An agent of configs/disco57.py: a residual torso on 84 x 84 x 4 bytes, 18
actions, N = 20 updates of 96 trajectories of 29 observations. XLA compiles for
this machine's CPU, or ahead of time for TPUs of a topology, which need not be
here: that requires `pip install libtpu==0.0.41`, the version that goes with JAX
0.10.1. Each program takes a minute or two and some GB of memory to compile.

  update      one update of the agent
  validation  the outer loss, its gradient, and the meta-value function
  vjp         one vector-Jacobian product of the backward sweep

All figures are of one device. `agent_meta_step_gib` is what it holds while it
computes one agent: the agent's state, states, batches and gradients of N
updates, and the arguments, results and temporaries of the largest program.
Replay is in the host's memory; its batches are timed by benchmarks.host_replay.

Arithmetic is that of one device with the whole batch, before optimisation. XLA
counts the body of a loop once. Of the torso's loop over chunks all turns are
added: by the difference to a program with chunks of half the size. Of loops
over time, of recurrent networks and value targets, one step is counted.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import os
from typing import Any

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
from jax.sharding import PartitionSpec
import numpy as np

from benchmarks import host_replay as host_replay_benchmark
from benchmarks import timing
from configs import disco57
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_replay
from disco_rl.meta_training import build
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import resets
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding
from launch import to_records

_TOPOLOGY = flags.DEFINE_string(
  'topology', '', "Of TPUs, such as 'v5p:2x2x1'; empty: this machine's CPU."
)
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

ATARI = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18, frame_stack=4
)
_REPLICATED = sharding.REPLICATED
_BATCH = PartitionSpec(None, sharding.BATCH)  # Of [T, B, ...].

Row = tuple[str, float]


@dataclasses.dataclass(frozen=True)
class Agent:
  """An agent of the paper's size, by the shapes of its arrays.

  Attributes:
    estimator: of the meta-gradient; holds the agent.
    rule_params: eta.
    member: of the population, without replay and eta's optimiser.
    update: its entry of the trajectory.
    validation: trajectories of a meta-step.
  """

  estimator: meta_gradient.MetaGradient
  rule_params: types.Params
  member: inner_loop_lib.Member
  update: inner_loop_lib.Trajectory
  validation: types.Rollout


def make_agent(chunk_size: int | None) -> Agent:
  """The agent; None: in chunks of the config's size."""
  settings = disco57.get_config().to_dict()
  settings['compute_dtype'] = _DTYPE.value
  if chunk_size is not None:
    settings['torso_chunk_size'] = chunk_size
  config = to_records.meta_training(settings)
  rule, rule_params = build.make_rule(config)
  agent = agent_lib.make(config.agent, ATARI, rule)
  inner_loop = inner_loop_lib.InnerLoop(
    config.inner_loop,
    agent,
    meta_value.MetaValue(config.meta_value, ATARI, config.agent.network.torso),
  )
  rollout = lambda size: types.empty_rollout(
    ATARI, agent.network.initial_state(size), config.agent.unroll_length, size
  )
  member = jax.eval_shape(
    lambda: resets.initial_member(inner_loop, jax.random.key(0))
  )
  state = member.agent.learner
  batch = jax.eval_shape(lambda: rollout(config.agent.batch_size))
  return Agent(
    meta_gradient.MetaGradient(inner_loop, config.loss, config.mode),
    rule_params,
    member,
    inner_loop_lib.Trajectory(state, batch, state.params),
    jax.eval_shape(lambda: rollout(config.inner_loop.validation_trajectories)),
  )


@dataclasses.dataclass(frozen=True)
class Program:
  """What is compiled.

  Attributes:
    call: of the arguments of one device; returns whole arrays.
    arguments: their shapes, of all devices together.
    specs: how each argument is divided among the devices.
  """

  call: Callable[..., Any]
  arguments: tuple[Any, ...]
  specs: tuple[Any, ...]

  def compile(self, mesh: jax.sharding.Mesh) -> tuple[Any, float]:
    """The memory of the program on a device, and the seconds of compiling."""
    arguments = [
      jax.tree.map(
        lambda spec, tree: sharding.shapes(tree, mesh, spec),
        spec,
        tree,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
      )
      for spec, tree in zip(self.specs, self.arguments)
    ]
    program = compilation.Program(
      sharding.per_device(self.call, mesh, self.specs, _REPLICATED)
    )
    usage = program.compile(*arguments).memory_analysis()
    return usage, program.compile_seconds

  def tflop(self) -> float:
    """Arithmetic as XLA counts it, loop bodies once."""
    cost: Any = jax.jit(self.call).lower(*self.arguments).cost_analysis()
    return cost['flops'] / 1e12


def update(agent: Agent) -> Program:
  """One update of the agent."""

  def call(
    rule_params: types.Params, state: Any, batch: types.Rollout
  ) -> tuple[Any, types.Params]:
    state, update = agent.estimator.inner_loop.agent.learn(
      rule_params, state, batch
    )
    return state, update.gradient

  return Program(
    call,
    (agent.rule_params, agent.update.states, agent.update.batches),
    (_REPLICATED, _REPLICATED, _BATCH),
  )


def validation(agent: Agent) -> Program:
  """The outer loss, its gradient, and the meta-value function."""
  # Devices that share batches cut their shards out of the trajectories.
  return Program(
    agent.estimator.begin,
    (agent.rule_params, agent.member, agent.validation),
    3 * (_REPLICATED,),
  )


def vjp(agent: Agent) -> Program:
  """One vector-Jacobian product."""
  update = agent.update
  cotangents = jax.eval_shape(
    meta_gradient.initial_cotangents,
    agent.rule_params,
    update.states,
    update.gradients,
  )
  of_one = lambda tree: jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), tree
  )
  segment = inner_loop_lib.Trajectory(
    update.states, of_one(update.batches), of_one(update.gradients)
  )
  trajectory: Any = (_REPLICATED, PartitionSpec(None, *_BATCH), _REPLICATED)
  return Program(
    agent.estimator.back,
    (agent.rule_params, cotangents, segment),
    (
      _REPLICATED,
      _REPLICATED,
      inner_loop_lib.Trajectory(*trajectory),
    ),
  )


PROGRAMS = {'update': update, 'validation': validation, 'vjp': vjp}


def program_rows(names: list[str], mesh: jax.sharding.Mesh) -> Iterator[Row]:
  """Compiles programs; figures by name."""
  agent = make_agent(_CHUNK.value)
  held = []
  for name in names:
    usage, seconds = PROGRAMS[name](agent).compile(mesh)
    temporaries = usage.temp_size_in_bytes
    held.append(
      temporaries + usage.argument_size_in_bytes + usage.output_size_in_bytes
    )
    yield f'{name}_temporaries_gib', temporaries / 2**30
    yield f'{name}_compile_seconds', seconds
    if name != 'validation':
      yield f'{name}_tflop', tflop(name, agent)
  if set(names) == set(PROGRAMS):
    kept = kept_bytes(agent, mesh.shape[sharding.BATCH])
    yield 'agent_meta_step_gib', (kept + max(held)) / 2**30


def kept_bytes(agent: Agent, batch_devices: int) -> int:
  """Of the member and its N updates, as if no program held one of them."""
  batch = memory.tree_bytes(agent.update.batches)
  update = memory.tree_bytes(agent.update) - batch + batch // batch_devices
  updates = agent.estimator.inner_loop.config.inner_updates
  return memory.tree_bytes(agent.member) + updates * update


def tflop(name: str, agent: Agent) -> float:
  """Arithmetic of a program, with all chunks of the torso; see above."""
  size = agent.estimator.inner_loop.agent.config.network.torso.chunk_size
  rows = agent.update.batches.action.size
  whole = PROGRAMS[name](agent).tflop()
  if not 0 < size < rows:
    return whole
  half = PROGRAMS[name](make_agent(size // 2)).tflop()
  of_rows = lambda size: -(-rows // -(-rows // size))
  slope = (whole - half) / (of_rows(size) - of_rows(size // 2))
  return whole + slope * (rows - of_rows(size))


def replay_rows() -> Iterator[Row]:
  """Replay of one agent, and a batch of it."""
  agent = make_agent(None)
  config = agent.estimator.inner_loop.agent.config
  footprint = host_replay.footprint(
    ATARI, (), config.unroll_length, config.replay_capacity
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
    devices = topologies.get_topology_desc(
      platform='tpu', topology_name=_TOPOLOGY.value
    ).devices
  row = np.array(devices[:count]).reshape(1, count)
  return jax.sharding.Mesh(row, (sharding.AGENTS, sharding.BATCH))


def rows() -> Iterator[Row]:
  """All figures that were chosen."""
  mesh = make_mesh()
  programs = [name for name in PROGRAMS if name in _PARTS.value]
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
