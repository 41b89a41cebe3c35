"""The training of several agents of one kind: its state and its interface."""

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import Any
from typing import TypeVar

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import cohort as cohort_lib
from disco_rl.runtime import compilation
from disco_rl.runtime import sharding

_Tree = TypeVar('_Tree')


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The outcome of `Training.attempt`.

  Attributes:
    train_state: The state after the updates.
    num_updates: The number of updates made; may be fewer than required, or 0.
    logs: Means over these updates, [S]; empty without any.
    failure: The exception of an environment that ended the updates early.
  """

  train_state: agent_lib.AgentState
  num_updates: int
  logs: types.Logs
  failure: BaseException | None = None


class Training(abc.ABC):
  """The training of S agents; made by `parallel.make`.

  Attributes:
    agent: The kind of agent.
    environment: The JAX-native environment, or S * E environments on the host.
    num_agents: S.
    mesh: The devices.
    cohort: Their environments and replay on the host.
    is_compiled: Whether `compile` has been called.
  """

  is_compiled: bool = False

  def __init__(
    self,
    agent: agent_lib.Agent,
    environment: Any,
    num_agents: int = 1,
    mesh: jax.sharding.Mesh | None = None,
  ):
    """Compiles nothing yet, and begins no episode.

    Args:
      agent: The kind of agent.
      environment: One JAX-native environment, or num_agents * E on the host.
      num_agents: S.
      mesh: The devices; None: the largest number of this machine's devices
        that divides the agents.
    """
    self.agent = agent
    self.cohort = cohort_lib.Cohort(agent)
    self.environment = environment
    self.num_agents = num_agents
    self.mesh = mesh or sharding.mesh_for(num_agents)
    self._programs = sharding.Programs(self.mesh)
    self._task, self._to_environment = _as_argument(environment)
    self._init = self._programs.make(
      jax.vmap(self._init_one, in_axes=(0, None)),
      (sharding.SPLIT, sharding.REPLICATED),
      runs_often=False,
    )
    self._make_programs()

  @abc.abstractmethod
  def _make_programs(self) -> None:
    """Makes the programs that act and learn, without compiling them."""

  def calls(self, rule_params: types.Params) -> list[compilation.Call]:
    """Returns all programs and the shapes of their arguments, longest first.

    They can be compiled in parallel, before the first agent is made.
    """
    keys = jax.eval_shape(
      lambda: jax.random.split(jax.random.key(0), self.num_agents)
    )
    keys = sharding.shapes(keys, self.mesh, sharding.SPLIT)
    task = sharding.shapes(self._task, self.mesh, sharding.REPLICATED)
    initial = self._init.shapes(keys, task)
    return [
      self._update_call(
        sharding.shapes(rule_params, self.mesh, sharding.REPLICATED),
        sharding.shapes(initial, self.mesh, sharding.SPLIT),
      ),
      (self._init, (keys, task)),
    ]

  def compile(
    self, rule_params: types.Params, train_state: agent_lib.AgentState
  ) -> None:
    """Compiles the program that learns, unless it has been compiled."""
    program, arguments = self._update_call(
      self._replicate(rule_params), train_state
    )
    program.compile(*arguments)
    self.is_compiled = True

  @abc.abstractmethod
  def _update_call(
    self, rule_params: types.Params, train_state: agent_lib.AgentState
  ) -> compilation.Call:
    """Returns the program that learns, and its arguments or their shapes."""

  def init(self, keys: types.Array) -> agent_lib.AgentState:
    """Makes initial agents from PRNG keys [S], in new episodes."""
    agents = self._init(self._split(keys), self._replicate(self._task))
    return self.cohort.renew(agents)

  def advance(
    self,
    rule_params: types.Params,
    train_state: agent_lib.AgentState,
    num_updates: int,
  ) -> tuple[agent_lib.AgentState, types.Logs]:
    """Makes all updates; raises what environments raise. Logs are [S]."""
    advanced = self.attempt(
      rule_params, train_state, num_updates, should_stop=lambda: False
    )
    if advanced.failure is not None:
      raise advanced.failure
    return advanced.train_state, advanced.logs

  @abc.abstractmethod
  def attempt(
    self,
    rule_params: types.Params,
    train_state: agent_lib.AgentState,
    num_updates: int,
    should_stop: Callable[[], bool],
  ) -> Outcome:
    """Makes updates, at least one unless an environment fails first.

    Args:
      rule_params: The rule's parameters.
      train_state: The state before; donated.
      num_updates: A multiple of the agents' `updates_per_rollout`.
      should_stop: Called before each further rollout with environments on the
        host, and about once a second with JAX-native ones; True ends the
        updates.

    Returns:
      The state after the last complete update.
    """

  def fill_rollouts(self, train_state: agent_lib.AgentState) -> int:
    """Counts the rollouts that only fill replay, before the next update's.

    Not only new agents fill it: with environments on the host, it may not be
    kept; see `Cohort.resume`.
    """
    # All agents fill theirs at the same time.
    added = self._added(train_state)
    return self.agent.config.fill_rollouts(int(np.max(added)))

  @abc.abstractmethod
  def _added(self, train_state: agent_lib.AgentState) -> np.ndarray:
    """Returns how many trajectories each replay got since it was empty, [S]."""

  @abc.abstractmethod
  def _init_one(
    self, key: types.Array, task: types.PyTree
  ) -> agent_lib.AgentState:
    """Makes the initial state of an agent in `self._to_environment(task)`."""

  def _split(self, tree: _Tree) -> _Tree:
    return sharding.to_devices(tree, self.mesh, sharding.SPLIT)

  def _replicate(self, tree: _Tree) -> _Tree:
    return sharding.to_devices(tree, self.mesh, sharding.REPLICATED)


def _as_argument(
  environment: object,
) -> tuple[types.PyTree, Callable[[types.PyTree], types.PyTree]]:
  """Splits an environment, so that one program serves all of equal shapes.

  Returns:
    The arrays in which they differ, and a function from these to the
    environment. Environments on the host, or that are not trees, are constants.
  """
  leaves, structure = jax.tree.flatten(environment)
  if any(leaf is environment for leaf in leaves):
    return (), lambda _: environment
  return leaves, functools.partial(jax.tree.unflatten, structure)
