"""Training several agents of one kind side by side with a fixed rule.

Agents differ by their keys alone and share nothing but the compiled program:
everything has a leading axis S, one entry for each agent. They are spread over
as many devices as share them out equally.
"""

from collections.abc import Callable
import dataclasses
import functools
import time
from typing import Any
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_actor
from disco_rl.agent import learner
from disco_rl.environments import base
from disco_rl.runtime import compilation
from disco_rl.runtime import sharding


@types.record
class TrainState:
  """S agents, and their environments if these live on the device.

  Attributes:
    agents: leading axis S.
    actors: leading axis S; None where environments live on the host.
  """

  agents: agent_lib.AgentState
  actors: actor.ActorState | None


class Driver(Protocol):
  """How agents live, by the kind of their environment."""

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    ...

  def init(self, keys: types.Array) -> TrainState:
    """Newborn agents from PRNG keys [S]."""
    ...

  def resume(self, train_state: TrainState) -> TrainState:
    """Takes up lives from a checkpoint."""
    ...

  def advance(
    self, rule_params: types.Params, train_state: TrainState, num_updates: int
  ) -> tuple[TrainState, types.Logs]:
    """Makes updates; returns logs [S], means over these updates.

    The lives that are passed in are used up: their buffers are donated.
    """
    ...


class DeviceDriver:
  """JAX-native environments: acting, replay and learning are one program."""

  def __init__(
    self,
    agent: agent_lib.Agent,
    environment: base.JaxEnvironment,
    num_agents: int = 1,
  ):
    self._agent = agent
    self._environment = environment
    self._mesh = sharding.mesh_for(num_agents)
    agents, common = sharding.SPLIT, sharding.REPLICATED
    # Made once: a new one would compile again for every generation of agents.
    self._init = jax.jit(
      sharding.per_device(
        jax.vmap(self._init_one), self._mesh, (agents,), agents
      )
    )
    self._advance = compilation.Program(
      sharding.per_device(
        self._advance_all, self._mesh, (common, agents, common), agents
      ),
      donate_argnums=1,
    )
    self._init_seconds = 0.0

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self._init_seconds + self._advance.compile_seconds

  def init(self, keys: types.Array) -> TrainState:
    """Newborn agents in fresh environments; see `Driver.init`."""
    keys = sharding.put(keys, self._mesh, sharding.SPLIT)
    train_state, seconds = _timed(
      lambda: jax.block_until_ready(self._init(keys))
    )
    self._init_seconds += seconds
    return train_state

  def resume(self, train_state: TrainState) -> TrainState:
    """They hold all there is; see `Driver.resume`."""
    return train_state

  def advance(
    self, rule_params: types.Params, train_state: TrainState, num_updates: int
  ) -> tuple[TrainState, types.Logs]:
    """One call of the compiled program; see `Driver.advance`."""
    common = sharding.put(
      (rule_params, np.asarray(num_updates)), self._mesh, sharding.REPLICATED
    )
    return self._advance(common[0], train_state, common[1])

  def _init_one(self, key: types.Array) -> TrainState:
    agent_key, environment_key = jax.random.split(key)
    return TrainState(
      agents=self._agent.init(agent_key),
      actors=actor.init(
        environment_key,
        self._agent.network,
        self._environment,
        self._agent.config.num_environments,
      ),
    )

  def _advance_all(
    self,
    rule_params: types.Params,
    train_state: TrainState,
    num_updates: types.Array,
  ) -> tuple[TrainState, types.Logs]:
    """The program for all agents."""
    return _for_each_agent(
      lambda life: self._advance_one(rule_params, life, num_updates),
      train_state,
    )

  def _advance_one(
    self,
    rule_params: types.Params,
    train_state: TrainState,
    num_updates: types.Array,
  ) -> tuple[TrainState, types.Logs]:
    """The program for one agent; any number of updates, compiled once."""

    def live(train_state: TrainState) -> tuple[TrainState, types.Logs]:
      assert train_state.actors is not None
      agents, actors, logs = self._agent.live(
        self._environment, rule_params, train_state.agents, train_state.actors
      )
      return TrainState(agents=agents, actors=actors), logs

    def body(
      _: types.Array, carry: tuple[TrainState, types.Logs]
    ) -> tuple[TrainState, types.Logs]:
      train_state, sums = carry
      train_state, logs = live(train_state)
      return train_state, jax.tree.map(jnp.add, sums, logs)

    zeros = jax.tree.map(
      lambda x: jnp.zeros(x.shape, x.dtype),
      jax.eval_shape(live, train_state)[1],
    )
    train_state, sums = jax.lax.fori_loop(
      0, num_updates, body, (train_state, zeros)
    )
    return train_state, jax.tree.map(lambda x: x / num_updates, sums)


class HostDriver:
  """Host environments: one device call per step, one per update.

  All but the first rollout of each call of `advance` are acted while the device
  learns from the one before; see `host_actor.overlap`.
  """

  def __init__(
    self,
    agent: agent_lib.Agent,
    environment: base.HostEnvironment,
    num_agents: int,
  ):
    self._agent = agent
    self._mesh = sharding.mesh_for(num_agents)
    agents, common = sharding.SPLIT, sharding.REPLICATED
    self._actor = host_actor.HostActor(agent.network, environment, num_agents)
    self._init = jax.jit(
      sharding.per_device(jax.vmap(agent.init), self._mesh, (agents,), agents)
    )
    self._learn = compilation.Program(
      sharding.per_device(
        self._learn_all, self._mesh, (common, agents, agents, agents), agents
      ),
      donate_argnums=1,
    )
    self._init_seconds = 0.0

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return self._init_seconds + self._learn.compile_seconds

  def init(self, keys: types.Array) -> TrainState:
    """Newborn agents; see `Driver.init`."""
    keys = sharding.put(keys, self._mesh, sharding.SPLIT)
    agents, seconds = _timed(lambda: jax.block_until_ready(self._init(keys)))
    self._init_seconds += seconds
    return TrainState(agents=agents, actors=None)

  def resume(self, train_state: TrainState) -> TrainState:
    """See `host_actor.restart_episodes`."""
    return dataclasses.replace(
      train_state, agents=host_actor.restart_episodes(train_state.agents)
    )

  def advance(
    self, rule_params: types.Params, train_state: TrainState, num_updates: int
  ) -> tuple[TrainState, types.Logs]:
    """A loop on the host; see `Driver.advance`."""
    put = functools.partial(sharding.put, mesh=self._mesh)
    rule_params = put(rule_params, spec=sharding.REPLICATED)
    agents, logs = host_actor.overlap(
      train_state.agents,
      num_updates,
      host_actor.prepare_acting,
      lambda actor_params: self._actor.unroll(
        actor_params, self._agent.config.unroll_length
      ),
      lambda agents, acted: self._learn(
        rule_params, agents, *put(acted, spec=sharding.SPLIT)
      ),
    )
    means = jax.tree.map(lambda *x: sum(x) / num_updates, *logs)
    return TrainState(agents=agents, actors=None), means

  def _learn_all(
    self,
    rule_params: types.Params,
    agents: agent_lib.AgentState,
    rollout: types.Rollout,
    is_last: types.Array,
  ) -> tuple[agent_lib.AgentState, types.Logs]:
    """The learning program for all agents."""

    def learn_one(
      one: tuple[learner.LearnerState, types.Rollout],
    ) -> tuple[learner.LearnerState, types.Logs]:
      state, update = self._agent.learn(rule_params, *one)
      return state, update.logs

    agents = jax.vmap(self._agent.count_episodes)(agents, rollout, is_last)
    # All agents' at once, in place: a loop over agents would copy each replay.
    agents, batches = jax.vmap(self._agent.add_and_sample)(agents, rollout)
    learners, logs = _for_each_agent(learn_one, (agents.learner, batches))
    return dataclasses.replace(agents, learner=learners), logs


def make(
  agent: agent_lib.Agent,
  environment: base.JaxEnvironment | base.HostEnvironment,
  num_agents: int,
) -> Driver:
  """Picks the driver for an environment.

  Args:
    agent: what lives.
    environment: one JAX-native environment, or num_agents * E on the host.
    num_agents: S.

  Returns:
    The driver.
  """
  if isinstance(environment, base.HostEnvironment):
    return HostDriver(agent, environment, num_agents)
  return DeviceDriver(agent, environment, num_agents)


def _for_each_agent(function: Callable[[Any], Any], tree: Any) -> Any:
  """Maps over the agents' axis in one program.

  In parallel, but for CPUs: there one agent keeps all cores busy, and products
  with a batch axis take half as long again as one after the other.
  """
  if jax.default_backend() == 'cpu':
    return jax.lax.map(function, tree)
  return jax.vmap(function)(tree)


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
  """Calls a function that compiles; returns its result and its duration."""
  start = time.perf_counter()
  result = function()
  duration = time.perf_counter() - start
  compilation.trim_memory()
  return result, duration
