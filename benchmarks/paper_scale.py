"""Memory of the programs of the paper's sizes, compiled but never run.

  python -m benchmarks.paper_scale --json=paper_scale.json
  python -m benchmarks.paper_scale --topology=v5p:2x2x1 --dtype=bfloat16
  python -m benchmarks.paper_scale --topology=v3:2x2x1 --batch_devices=8

An agent of configs/disco57.py: a residual torso on 84 x 84 x 4 bytes, 18
actions, N = 20 updates of 96 trajectories of 29 observations. XLA compiles for
this machine's CPU, or ahead of time for TPUs of a topology, which need not be
here: that requires `pip install libtpu==0.0.41`, the version that goes with JAX
0.10.1. Each program takes a minute or two and some GB of memory to compile.

  update     one update of the agent
  vjp        one vector-Jacobian product of the backward sweep
  meta_step  what follows the N updates: validation, meta-value function, sweep

Temporaries are those of one device. `agent_meta_step_gib` is all that a device
holds while it computes one agent: arguments (the learner state, the trajectory
of N updates, validation), results and temporaries of `meta_step`. Replay is not
among them.

Arithmetic is that of one device with the whole batch, before optimisation. XLA
counts the body of a loop once. Of the torso's loop over chunks all turns are
added: by the difference to a program with chunks of half the size. Of loops
over time, of recurrent networks and value targets, one step is counted.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import os
from typing import Any
from unittest import mock

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from benchmarks import timing
from configs import disco57
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import resets
from disco_rl.runtime import compilation
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
_PROGRAMS = flags.DEFINE_list(
  'programs', ['update', 'vjp', 'meta_step'], 'Which to compile.'
)

ATARI = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18
)
_REPLICATED = sharding.REPLICATED
_BATCH = PartitionSpec(None, sharding.BATCH)  # Of [T, B, ...].
# Of the updates' batches [N, 1, T, B, ...].
_TRAJECTORY = inner_loop_lib.Trajectory(
  _REPLICATED,
  PartitionSpec(None, None, None, sharding.BATCH),
  _REPLICATED,
)


@dataclasses.dataclass(frozen=True)
class Scale:
  """An agent of the paper's size, by the shapes of its arrays.

  Attributes:
    estimator: of the meta-gradient; holds the agent.
    rule_params: eta.
    member: of the population, without replay and eta's optimiser.
    batch: of an update.
    validation: of a meta-step.
  """

  estimator: meta_gradient.MetaGradient
  rule_params: types.Params
  member: inner_loop_lib.Member
  batch: types.Rollout
  validation: types.Rollout

  @property
  def agent(self) -> agent_lib.Agent:
    """The agent."""
    return self.estimator.inner_loop.agent

  def trajectory(self, updates: int) -> inner_loop_lib.Trajectory:
    """Of so many updates; every state is kept."""
    state = self.member.agent.learner
    stacked = lambda tree, *axes: jax.tree.map(
      lambda x: jax.ShapeDtypeStruct((*axes, *x.shape), x.dtype), tree
    )
    return inner_loop_lib.Trajectory(
      states=stacked(state, updates),
      batches=stacked(self.batch, updates, 1),
      gradients=stacked(state.params, updates, 1),
    )


def make_scale(chunk_size: int | None) -> Scale:
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
  rollout = lambda size: jax.eval_shape(
    lambda: types.empty_rollout(
      ATARI,
      agent.network.initial_state(size),
      config.agent.unroll_length,
      size,
    )
  )
  return Scale(
    meta_gradient.MetaGradient(inner_loop, config.loss, config.mode),
    rule_params,
    jax.eval_shape(
      lambda: resets.initial_member(inner_loop, jax.random.key(0))
    ),
    rollout(config.agent.batch_size),
    rollout(config.inner_loop.validation_trajectories),
  )


@dataclasses.dataclass(frozen=True)
class Function:
  """What is compiled.

  Attributes:
    call: of the arguments of one device.
    arguments: shapes, of all devices together.
    specs: how each argument is divided among the devices.
  """

  call: Callable[..., Any]
  arguments: tuple[Any, ...]
  specs: tuple[Any, ...]

  def compile(self, mesh: jax.sharding.Mesh) -> tuple[Any, float]:
    """The memory of the program on a device, and the seconds of compiling."""
    place = lambda spec, tree: jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=NamedSharding(mesh, spec)
      ),
      tree,
    )
    arguments = [
      jax.tree.map(place, spec, tree, is_leaf=_is_spec)
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


def update(scale: Scale) -> Function:
  """One update of the agent."""

  def call(
    rule_params: types.Params, state: Any, batch: types.Rollout
  ) -> tuple[Any, types.Params]:
    state, update = scale.agent.learn(rule_params, state, batch)
    return state, update.gradient

  return Function(
    call,
    (scale.rule_params, scale.member.agent.learner, scale.batch),
    (_REPLICATED, _REPLICATED, _BATCH),
  )


def vjp(scale: Scale) -> Function:
  """The sweep through two updates, whose loop holds one product at a time.

  Of a single update the compiler would drop the gradient of the state before.
  """
  last = scale.member.agent.learner
  return Function(
    scale.estimator.sweep,
    (scale.rule_params, scale.trajectory(2), last, last.params),
    (_REPLICATED, _TRAJECTORY, _REPLICATED, _REPLICATED),
  )


def meta_step(scale: Scale) -> Function:
  """Validation, the meta-value function and the sweep through N updates."""
  updates = scale.estimator.inner_loop.config.inner_updates
  return Function(
    scale.estimator.differentiate,
    (
      scale.rule_params,
      scale.member,
      scale.trajectory(updates),
      scale.validation,
    ),
    # Devices that share batches cut their shards out of validation themselves.
    (_REPLICATED, _REPLICATED, _TRAJECTORY, _REPLICATED),
  )


PROGRAMS = {'update': update, 'vjp': vjp, 'meta_step': meta_step}


def measure(name: str, mesh: jax.sharding.Mesh) -> dict[str, float]:
  """Compiles a program; figures by name."""
  scale = make_scale(_CHUNK.value)
  usage, seconds = PROGRAMS[name](scale).compile(mesh)
  temporaries = usage.temp_size_in_bytes
  held = temporaries + usage.argument_size_in_bytes + usage.output_size_in_bytes
  row = {
    f'{name}_temporaries_gib': temporaries / 2**30,
    f'{name}_compile_seconds': seconds,
  }
  if name == 'meta_step':
    return {**row, 'agent_meta_step_gib': held / 2**30}
  return {**row, f'{name}_tflop': tflop(name, scale)}


def tflop(name: str, scale: Scale) -> float:
  """Arithmetic of a program, with all chunks of the torso; see above."""
  size = scale.agent.config.network.torso.chunk_size
  rows = scale.batch.action.size
  whole = PROGRAMS[name](scale).tflop()
  if not size:
    return whole
  half = PROGRAMS[name](make_scale(size // 2)).tflop()
  of_rows = lambda size: -(-rows // -(-rows // size))
  slope = (whole - half) / (of_rows(size) - of_rows(size // 2))
  return whole + slope * (rows - of_rows(size))


def _is_spec(x: Any) -> bool:
  return isinstance(x, PartitionSpec)


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


def target() -> contextlib.AbstractContextManager[Any]:
  """Within it, code that depends on the backend is that for TPUs, if chosen."""
  if not _TOPOLOGY.value:
    return contextlib.nullcontext()
  return mock.patch.object(jax, 'default_backend', lambda: 'tpu')


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  mesh = make_mesh()
  table = {}
  with target():
    for name in _PROGRAMS.value:
      for key, value in measure(name, mesh).items():
        print(f'{key:28} {value:10.4g}', flush=True)
        table[key] = value
  timing.write(table)


if __name__ == '__main__':
  app.run(main)
