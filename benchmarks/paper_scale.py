"""Measures the memory of an agent of the paper's runs by compiling programs.

  python -m benchmarks.paper_scale --json=paper_scale.json
  python -m benchmarks.paper_scale --topology=v5p:2x2x1 --dtype=bfloat16
  python -m benchmarks.paper_scale --topology=v3:2x2x1 --batch_devices=8
  python -m benchmarks.paper_scale --variant=large
  python -m benchmarks.paper_scale --device=h100 --torso_chunk_size=512

The agent is that of configs/disco57.py, or of a variant of it. XLA compiles for
this machine's CPU, or ahead of time for a topology of TPUs, which need not be
attached. The latter requires `pip install libtpu==0.0.41`, the version for JAX
0.10.1. Compiling a program takes up to a minute and a half and some GB of
memory. With --optimization_level=UNKNOWN, XLA's default, it takes up to four
minutes, and the program's memory on the device is the same within 2%.

  update      one update of the agent
  validation  the outer loss, its gradient, and the meta-value function
  vjp         one vector-Jacobian product of the backward sweep

All figures are for one device. `agent_meta_step_gib` is its memory while it
computes one agent: the agent's state, the states, batches and gradients of N
updates, and the arguments, results and temporaries of the largest program.
Replay is in the host's memory.

With --device, the programs are compiled for this machine's device, and also run
there; their milliseconds are printed next to those that launch.plan estimates
for a device of that name.

Arithmetic is counted in the traced program, with all iterations of loops. For
TPUs, two estimates of a program's milliseconds are printed: that of XLA, which
counts loops once, and that of launch.plan.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import os
from typing import Any

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
from jax.sharding import PartitionSpec
import numpy as np

from benchmarks import timing
from configs import disco57
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import resets
from disco_rl.planning import clusters
from disco_rl.planning import costs
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding

_TOPOLOGY = flags.DEFINE_string(
  'topology', '', "TPUs, such as 'v5p:2x2x1'; empty: this machine's CPU."
)
_LEVEL = flags.DEFINE_enum(
  'optimization_level',
  'O1',
  ['UNKNOWN', 'O0', 'O1', 'O2', 'O3'],
  "XLA's level for a topology; UNKNOWN: its default.",
)
_DEVICE = flags.DEFINE_enum(
  'device',
  None,
  list(clusters.DEVICES),
  "This machine's device, to run the programs on it.",
)
_VARIANT = flags.DEFINE_string('variant', '', 'Variant of configs/disco57.py.')
_DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], "Type of the agent's arrays."
)
# In float32 on a CPU an update then takes 2 GiB.
_CHUNK = flags.DEFINE_integer(
  'torso_chunk_size', 32, 'Observations that the torso computes at a time.'
)
_BATCH_DEVICES = flags.DEFINE_integer(
  'batch_devices', 1, 'Devices that share the batches of the agent.'
)
_PARTS = flags.DEFINE_list(
  'parts', ['update', 'validation', 'vjp'], 'Programs to measure.'
)

Row = tuple[str, float]

ATARI = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18, frame_stack=4
)
_REPLICATED = sharding.REPLICATED
_BATCH = PartitionSpec(None, sharding.BATCH)  # For [T, B, ...].


@dataclasses.dataclass(frozen=True)
class Agent:
  """An agent of a discovery, by the shapes of its arrays.

  Attributes:
    problem: The inner problem; holds the agent.
    estimator: The estimator of the meta-gradient.
    rule_params: eta.
    member: A member of the population, without replay and eta's optimizer.
    update: Its entry of the trajectory.
    validation: The trajectories of a meta-step for the outer loss.
  """

  problem: inner_problem.AgentProblem
  estimator: meta_gradient.MetaGradient
  rule_params: types.Params
  member: inner_loop_lib.Member
  update: inner_loop_lib.Trajectory
  validation: types.Rollout


def make_agent() -> Agent:
  """Makes an agent of configs/disco57.py, changed by the flags."""
  settings = {
    **disco57.get_config(_VARIANT.value).to_dict(),
    'torso_chunk_size': _CHUNK.value,
    'compute_dtype': _DTYPE.value,
  }
  config = meta_trainer.config_of(settings)
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
  state = member.learner
  batch = jax.eval_shape(lambda: rollout(config.agent.batch_size))
  problem = inner_problem.AgentProblem(inner_loop, config.loss)
  return Agent(
    problem,
    meta_gradient.MetaGradient(problem, config.estimators.differentiation),
    rule_params,
    member,
    inner_loop_lib.Trajectory(state, batch, state.params),
    jax.eval_shape(lambda: rollout(config.inner_loop.validation_trajectories)),
  )


def call_on(
  mesh: jax.sharding.Mesh,
  function: Callable[..., Any],
  arguments: tuple[Any, ...],
  specs: tuple[Any, ...],
) -> compilation.Call:
  """Makes a program, and the shapes of its arguments, for some devices.

  Args:
    mesh: The devices.
    function: A function of the arguments of one device; returns whole arrays.
    arguments: The shapes of the arguments of all devices together.
    specs: The division of each argument among the devices.
  """
  placed = jax.tree.map(
    lambda spec, tree: sharding.shapes(tree, mesh, spec),
    specs,
    arguments,
    is_leaf=lambda x: isinstance(x, PartitionSpec),
  )
  mapped = sharding.per_device(function, mesh, specs, _REPLICATED)
  return compilation.Program(mapped), placed


def update(agent: Agent, mesh: jax.sharding.Mesh) -> compilation.Call:
  """One update of the agent."""

  def learn(
    rule_params: types.Params, state: Any, batch: types.Rollout
  ) -> tuple[Any, types.Params]:
    state, update = agent.problem.inner_loop.agent.learn(
      rule_params, state, batch
    )
    return state, update.gradient

  return call_on(
    mesh,
    learn,
    (agent.rule_params, agent.update.states, agent.update.batches),
    (_REPLICATED, _REPLICATED, _BATCH),
  )


def validation(agent: Agent, mesh: jax.sharding.Mesh) -> compilation.Call:
  """The outer loss, its gradient, and the meta-value function."""
  # Devices that share batches cut their shards out of the trajectories.
  return call_on(
    mesh,
    agent.estimator.outer_gradient,
    (agent.rule_params, agent.member, agent.validation),
    3 * (_REPLICATED,),
  )


def vjp(agent: Agent, mesh: jax.sharding.Mesh) -> compilation.Call:
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
  return call_on(
    mesh,
    agent.estimator.backward,
    (agent.rule_params, cotangents, segment),
    (
      _REPLICATED,
      _REPLICATED,
      inner_loop_lib.Trajectory(*trajectory),
    ),
  )


PROGRAMS = {'update': update, 'validation': validation, 'vjp': vjp}


def program_rows(names: list[str], mesh: jax.sharding.Mesh) -> Iterator[Row]:
  """Compiles programs, and yields figures with their names."""
  agent = make_agent()
  held = []
  for name in names:
    program, arguments = call = PROGRAMS[name](agent, mesh)
    start = compilation.seconds()
    compiled: Any = program.compile(*arguments)
    seconds = compilation.seconds() - start
    usage = compiled.memory_analysis()
    temporaries = usage.temp_size_in_bytes
    held.append(
      temporaries + usage.argument_size_in_bytes + usage.output_size_in_bytes
    )
    yield f'{name}_temporaries_gib', temporaries / 2**30
    yield f'{name}_compile_seconds', seconds
    cost = costs.cost(call)
    yield f'{name}_tflop', cost.flop / 1e12
    if _TOPOLOGY.value:
      estimate = compiled.cost_analysis()['optimal_seconds']
      yield f'{name}_ms_by_xla', 1e3 * estimate
    if planned := _DEVICE.value or tpu():
      yield f'{name}_ms_planned', 1e3 * planned_seconds(cost, planned)
    if _DEVICE.value:
      run = functools.partial(compiled, *jax.tree.map(random_array, arguments))
      yield f'{name}_ms_measured', 1e3 * timing.median_seconds(run)
  if set(names) == set(PROGRAMS):
    kept = kept_bytes(agent, mesh.shape[sharding.BATCH])
    yield 'agent_meta_step_gib', (kept + max(held)) / 2**30


def tpu() -> str:
  """Returns the name of the topology's TPUs; empty without a topology."""
  version, _, shape = _TOPOLOGY.value.partition(':')
  return f'tpu_{version}' if shape else ''


def random_array(shape: jax.ShapeDtypeStruct) -> jax.Array:
  """Draws floats in [0, 0.01), bytes or keys; other integers are zeros."""
  key = jax.random.key(0)
  if jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
    return jax.random.split(key, shape.shape)
  if shape.dtype == np.uint8:
    return jax.random.bits(key, shape.shape, np.uint8)
  if jax.dtypes.issubdtype(shape.dtype, np.floating):
    return jax.random.uniform(key, shape.shape, shape.dtype, maxval=0.01)
  return jax.numpy.zeros(shape.shape, shape.dtype)


def planned_seconds(cost: costs.Cost, name: str) -> float:
  """Returns the seconds that launch.plan estimates for a device by default."""
  cluster = clusters.DEVICES[name].cluster(
    memory_fraction=1,
    efficiency=0.4,
    seconds_per_operation=1e-6,
    steps_per_second=1,
    host_memory=0,
  )
  return float(cluster.seconds(cost, _DTYPE.value).sum())


def kept_bytes(agent: Agent, batch_devices: int) -> int:
  """Adds up the bytes of the member and of its N updates."""
  batch = memory.tree_bytes(agent.update.batches)
  update = memory.tree_bytes(agent.update) - batch + batch // batch_devices
  updates = agent.problem.inner_loop.config.inner_updates
  return memory.tree_bytes(agent.member) + updates * update


def make_mesh() -> jax.sharding.Mesh:
  """Makes a row of devices, of the topology or of this machine."""
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


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  mesh = make_mesh()
  programs = [name for name in PROGRAMS if name in _PARTS.value]
  # Without --device, programs are made for a CPU, wherever they are compiled.
  platform = jax.devices()[0].platform if _DEVICE.value else 'cpu'
  table = {}
  with backend.making_programs_for('tpu' if _TOPOLOGY.value else platform):
    for name, value in program_rows(programs, mesh):
      print(f'{name:28} {value:10.4g}', flush=True)
      table[name] = value
  timing.write(table)


if __name__ == '__main__':
  app.run(main)
