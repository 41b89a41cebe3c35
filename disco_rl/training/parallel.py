"""Trains several agents of one kind in parallel with a fixed rule.

Agents differ only in their keys and share only the compiled program: all arrays
have a leading axis S, with one entry for each agent. They are sharded over the
largest number of devices that divides S.
"""

from collections.abc import Callable
import dataclasses
import time
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import cohort as cohort_lib
from disco_rl.agent import host_collector
from disco_rl.agent import learner
from disco_rl.environments import base
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import sharding
from disco_rl.training import base as training_base

_Tree = TypeVar('_Tree')
_Result = TypeVar('_Result')

# The intended duration of the rollouts and updates in one call of the program.
# Requests to stop wait for its end.
_CALL_SECONDS = 1.0


class DeviceTraining(training_base.Training):
  """Training in JAX-native environments: one program acts and learns.

  One call of the program makes several updates.
  """

  def _make_programs(self) -> None:
    agents, common = sharding.SPLIT, sharding.REPLICATED
    # Inlined, and traced only once, for the shapes of logs and the program.
    self._step = jax.jit(self._step_one, inline=True)
    self._rollouts_per_call = 1
    self._fixed_seconds: float | None = None  # The time of an empty call.
    self._logs_of_one: types.Logs | None = None  # Their shapes.
    self._advance = self._programs.make(
      self._advance_all,
      (common, agents, agents, common, common),
      (agents, agents),
      donate_argnums=1,
    )

  def attempt(
    self,
    rule_params: types.Params,
    train_state: agent_lib.DeviceState,
    num_updates: int,
    should_stop: Callable[[], bool],
  ) -> training_base.Outcome:
    """Implements `training_base.Training.attempt` by a compiled program.

    The results do not depend on how updates are divided among calls.
    """
    rollouts = self.agent.config.rollouts(num_updates)
    rule_params, task = self._replicate((rule_params, self._task))
    carry = train_state, self._split(self._zeros(rule_params, train_state))

    def call(number: int) -> float:
      """Makes rollouts of all agents; returns the seconds taken."""
      nonlocal carry
      arguments = rule_params, *carry, task, self._replicate(np.asarray(number))
      self._advance.compile(*arguments)
      start = time.perf_counter()
      carry = jax.block_until_ready(self._advance(*arguments))
      return time.perf_counter() - start

    if self._fixed_seconds is None:
      self._fixed_seconds = call(0)
    done = 0
    while done == 0 or (done < rollouts and not should_stop()):
      number = min(rollouts - done, self._rollouts_per_call)
      self._rollouts_per_call = _next_number(
        number, call(number), self._fixed_seconds
      )
      done += number
    train_state, sums = carry
    logs = jax.tree.map(lambda x: x / done, jax.device_get(sums))
    updates = self.agent.config.updates(done)
    return training_base.Outcome(train_state, updates, logs)

  def _update_call(
    self, rule_params: types.Params, train_state: agent_lib.DeviceState
  ) -> compilation.Call:
    sums = self._zeros(rule_params, train_state)
    return self._advance, (
      rule_params,
      train_state,
      sharding.shapes(sums, self.mesh, sharding.SPLIT),
      *sharding.shapes(
        (self._task, np.zeros((), np.int32)), self.mesh, sharding.REPLICATED
      ),
    )

  def _zeros(
    self, rule_params: types.Params, train_state: agent_lib.DeviceState
  ) -> types.Logs:
    """Makes zeros in the shapes of logs [S], on the host."""
    if self._logs_of_one is None:
      one = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), train_state
      )
      _, self._logs_of_one = jax.eval_shape(
        self._step, rule_params, one, self._task
      )
    number = len(train_state.acting.episodes.finished)
    return jax.tree.map(
      lambda x: np.zeros((number, *x.shape), x.dtype), self._logs_of_one
    )

  def _added(self, train_state: agent_lib.DeviceState) -> np.ndarray:
    return np.asarray(train_state.replay.added)

  def _init_one(
    self, key: types.Array, task: types.PyTree
  ) -> agent_lib.DeviceState:
    agent_key, environment_key = jax.random.split(key)
    return self.agent.init(
      agent_key, environment_key, self._to_environment(task)
    )

  def _step_one(
    self,
    rule_params: types.Params,
    train_state: agent_lib.DeviceState,
    task: types.PyTree,
  ) -> tuple[agent_lib.DeviceState, types.Logs]:
    """Makes one rollout of one agent, and the updates that follow."""
    environment = self._to_environment(task)
    return self.agent.train_step(environment, rule_params, train_state)

  def _advance_all(
    self,
    rule_params: types.Params,
    train_state: agent_lib.DeviceState,
    sums: types.Logs,
    task: types.PyTree,
    num_rollouts: types.Array,
  ) -> tuple[agent_lib.DeviceState, types.Logs]:
    """Makes rollouts of all agents, and the updates that follow.

    This is the compiled program. `sums` are those of logs [S] so far.
    """

    def body(
      _: types.Array, carry: tuple[agent_lib.DeviceState, types.Logs]
    ) -> tuple[agent_lib.DeviceState, types.Logs]:
      train_state, sums = carry
      train_state, logs = self._step(rule_params, train_state, task)
      return train_state, jax.tree.map(jnp.add, sums, logs)

    return _for_each_agent(
      lambda one: jax.lax.fori_loop(0, num_rollouts, body, one),
      (train_state, sums),
    )


class HostTraining(training_base.Training):
  """Training in host environments: one device call per step and per update.

  In each call of `attempt`, every rollout but the first is made while the
  device learns from the previous one. It uses the parameters before that
  learning, so results do not depend on calls; see
  `host_collector.collect_while_learning`.
  """

  cohort: cohort_lib.SharedCohort

  def _make_programs(self) -> None:
    self.cohort = cohort_lib.SharedCohort(
      self.agent, self.environment, self.num_agents
    )
    agents, common = sharding.SPLIT, sharding.REPLICATED
    self._learn = self._programs.make(
      self._learn_all, (common, agents, agents), donate_argnums=1
    )

  def attempt(
    self,
    rule_params: types.Params,
    train_state: host_collector.HostState,
    num_updates: int,
    should_stop: Callable[[], bool],
  ) -> training_base.Outcome:
    """Implements `training_base.Training.attempt` by a loop on the host."""
    rollouts = self.agent.config.rollouts(num_updates)
    rule_params = self._replicate(rule_params)
    complete = _Complete(train_state.learner, train_state.acting)

    def hand_over(
      learners: learner.LearnerState, acting: host_collector.HostActing
    ) -> host_collector.HostActing:
      params = host_collector.copy_params(learners.params)
      complete.acting = dataclasses.replace(acting, params=params)
      return complete.acting

    def collect(
      acting: host_collector.HostActing,
    ) -> tuple[host_collector.HostActing, list[types.Rollout]]:
      try:
        collector = self.cohort.collector
        complete.acting, batches = collector.act_and_sample(acting)
      except BaseException as error:
        self.cohort.end_episodes()
        complete.failure = error
        raise
      return complete.acting, self._split(batches)

    def learn(
      _: learner.LearnerState, batches: list[types.Rollout]
    ) -> learner.LearnerState:
      for batch in batches:
        complete.learners, logs = self._learn(
          rule_params, complete.learners, batch
        )
        complete.logs.append(logs)
      return complete.learners

    try:
      host_collector.collect_while_learning(
        complete.learners,
        complete.acting,
        rollouts,
        hand_over,
        collect,
        learn,
        should_stop,
      )
    except BaseException:
      if complete.failure is None:
        raise
    return self._outcome(complete)

  def _outcome(self, complete: '_Complete') -> training_base.Outcome:
    """Makes the outcome of an attempt."""
    number = len(complete.logs)
    return training_base.Outcome(
      agent_lib.AgentState(
        complete.learners, complete.acting, self.cohort.counters
      ),
      number,
      jax.tree.map(lambda *x: sum(x) / number, *complete.logs)
      if number
      else {},
      complete.failure,
    )

  def _update_call(
    self, rule_params: types.Params, train_state: host_collector.HostState
  ) -> compilation.Call:
    batches = host_collector.rollout_shapes(
      self.agent, self.num_agents, self.agent.config.batch_size
    )
    batches = sharding.shapes(batches, self.mesh, sharding.SPLIT)
    return self._learn, (rule_params, train_state.learner, batches)

  def _added(self, train_state: host_collector.HostState) -> np.ndarray:
    return np.subtract(train_state.replay['added'], train_state.replay['start'])

  def _init_one(
    self, key: types.Array, task: types.PyTree
  ) -> host_collector.HostState:
    del task
    return host_collector.init(self.agent, key)

  def _learn_all(
    self,
    rule_params: types.Params,
    learners: learner.LearnerState,
    batches: types.Rollout,
  ) -> tuple[learner.LearnerState, types.Logs]:
    """Makes one update of all agents; the compiled program."""

    def learn_one(
      one: tuple[learner.LearnerState, types.Rollout],
    ) -> tuple[learner.LearnerState, types.Logs]:
      state, update = self.agent.learn(rule_params, *one)
      return state, update.logs

    return _for_each_agent(learn_one, (learners, batches))


@dataclasses.dataclass
class _Complete:
  """Progress of an attempt: what there is after the last update and rollout."""

  learners: learner.LearnerState
  acting: host_collector.HostActing
  logs: list[types.Logs] = dataclasses.field(default_factory=list)
  failure: BaseException | None = None


def make(
  agent: agent_lib.Agent,
  environment: base.JaxEnvironment | base.HostEnvironment,
  num_agents: int,
  mesh: jax.sharding.Mesh | None = None,
) -> training_base.Training:
  """Prepares training; the arguments are those of `training_base.Training`."""
  if isinstance(environment, base.HostEnvironment):
    return HostTraining(agent, environment, num_agents, mesh)
  return DeviceTraining(agent, environment, num_agents, mesh)


def _next_number(number: int, seconds: float, fixed_seconds: float) -> int:
  """Chooses the number of rollouts in the next call from the last one.

  They should take `_CALL_SECONDS`. The time of a call without rollouts is not
  counted: on CPUs each call copies the replay of several agents, which can take
  seconds, and longer calls would never be chosen.
  """
  # An empty call can take unusually long.
  rollouts_seconds = max(seconds - fixed_seconds, 0.1 * seconds)
  return max(1, int(_CALL_SECONDS * number / rollouts_seconds))


def _for_each_agent(
  function: Callable[[_Tree], _Result], tree: _Tree
) -> _Result:
  """Maps over the agents' axis in one program.

  It maps in parallel except on CPUs, where one agent keeps all cores busy, and
  products with a batch axis take 1.5 times as long as sequential ones.
  """
  if backend.is_cpu():
    return jax.lax.map(function, tree)
  return jax.vmap(function)(tree)
