"""An agent of configs/disco57.py, and its programs, for benchmarks.

A residual torso on 84 x 84 x 4 bytes, 18 actions, N = 20 updates of 96
trajectories of 29 observations.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
from jax.sharding import PartitionSpec
import numpy as np

from configs import disco57
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.meta_training import build
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import resets
from disco_rl.runtime import compilation
from disco_rl.runtime import costs
from disco_rl.runtime import sharding
from launch import to_records

ATARI = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((84, 84, 4), np.uint8), num_actions=18, frame_stack=4
)
_REPLICATED = sharding.REPLICATED
_BATCH = PartitionSpec(None, sharding.BATCH)  # Of [T, B, ...].


@dataclasses.dataclass(frozen=True)
class Agent:
  """An agent of a discovery, by the shapes of its arrays.

  Attributes:
    settings: that it was made from.
    estimator: of the meta-gradient; holds the agent.
    rule_params: eta.
    member: of the population, without replay and eta's optimiser.
    update: its entry of the trajectory.
    validation: trajectories of a meta-step.
  """

  settings: Mapping[str, Any]
  estimator: meta_gradient.MetaGradient
  rule_params: types.Params
  member: inner_loop_lib.Member
  update: inner_loop_lib.Trajectory
  validation: types.Rollout


def make_agent(settings: Mapping[str, Any], variant: str = '') -> Agent:
  """The agent; `settings` replace those of configs/disco57.py:variant."""
  settings = {
    **disco57.get_config(variant).to_dict(),
    'torso_chunk_size': 32,  # In float32 on a CPU an update then takes 2 GiB.
    **settings,
  }
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
    settings,
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
    """The program of a device, and the seconds of compiling."""
    program, arguments = self._call(mesh)
    return program.compile(*arguments), program.compile_seconds

  def cost(self, mesh: jax.sharding.Mesh) -> costs.Cost:
    """Of a device, loops multiplied out."""
    program, arguments = self._call(mesh)
    return costs.of_program(program.trace(*arguments).jaxpr)

  def _call(self, mesh: jax.sharding.Mesh) -> compilation.Call:
    """The program for these devices, and the shapes of its arguments."""
    arguments = [
      jax.tree.map(
        lambda spec, tree: sharding.shapes(tree, mesh, spec),
        spec,
        tree,
        is_leaf=lambda x: isinstance(x, PartitionSpec),
      )
      for spec, tree in zip(self.specs, self.arguments)
    ]
    mapped = sharding.per_device(self.call, mesh, self.specs, _REPLICATED)
    return compilation.Program(mapped), tuple(arguments)


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
