"""Acting in environments that step on the host."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
from typing import Any
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.networks import agent_network
from disco_rl.runtime import compilation

_State = TypeVar('_State')
_Result = TypeVar('_Result')


@types.record
class ActorParams:
  """Parameters and keys with which S agents act; leading axis S.

  Attributes:
    params: theta; copies, as learning donates the agents' buffers.
    keys: PRNG keys.
  """

  params: types.Params
  keys: types.Array


class HostActor:
  """S agents of one kind that act in parallel, each in E environments.

  The counterpart of `actor.unroll`, with a leading axis S for the agents. The
  environments' states are part of no checkpoint: after a resumption new
  episodes begin.
  """

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    environment: base.HostEnvironment,
    num_agents: int,
  ):
    """Starts an episode in every environment.

    Args:
      network: the agents'.
      environment: S * E environments, those of an agent contiguous.
      num_agents: S.
    """
    self._environment = environment
    self._num_agents = num_agents
    self._act = jax.jit(
      jax.vmap(
        lambda params, observation, core_state, noise, t: actor.act(
          network, params, observation, core_state, noise[t]
        ),
        in_axes=(0, 0, 0, 0, None),
      ),
      compiler_options=compilation.few_rows_options(),
    )
    self._reset_core = jax.jit(jax.vmap(actor.reset_core))
    self._stack = jax.jit(
      lambda steps: jax.tree.map(lambda *x: jnp.stack(x, axis=1), *steps)
    )
    self._noise = jax.jit(
      jax.vmap(actor.policy_noise, in_axes=(0, None, None, None)),
      static_argnums=(1, 2, 3),
    )
    self._observation = jax.tree.map(self._by_agent, environment.reset())
    self._core_state = jax.tree.map(
      self._by_agent, network.initial_state(environment.num_environments)
    )

  def unroll(
    self, actor_params: ActorParams, length: int
  ) -> tuple[types.Rollout, types.Array]:
    """Acts for T steps.

    Args:
      actor_params: of the agents.
      length: T.

    Returns:
      Rollout with leading axes [S, T or T+1, E], and which steps ended an
      episode, [S, T, E].
    """
    noise = self._noise(
      actor_params.keys,
      self._environment.spec.num_actions,
      length,
      self._environment.num_environments // self._num_agents,
    )
    first_core_state = self._core_state
    observations = jax.tree.map(
      lambda x: np.empty((len(x), length + 1, *x.shape[1:]), x.dtype),
      self._observation,
    )
    decisions, timesteps = [], []
    for t in range(length):
      logits, action, core_state = self._decide(actor_params.params, noise, t)
      self._environment.start(np.asarray(action).reshape(-1))
      # Copied while environments step: frames are large.
      self._record(observations, t)
      decisions.append((logits, action))
      timestep = jax.tree.map(self._by_agent, self._environment.finish())
      self._observation = timestep.observation
      if jax.tree.leaves(core_state):
        core_state = self._reset_core(core_state, timestep)
      self._core_state = core_state
      timesteps.append(dataclasses.replace(timestep, observation=None))
    self._record(observations, length)
    decisions.append(self._decide(actor_params.params, noise, length)[:2])

    logits, action = self._stack(decisions)
    steps = jax.tree.map(lambda *x: np.stack(x, axis=1), *timesteps)
    rollout = types.Rollout(
      observation=observations,
      action=action,
      logits=logits,
      reward=steps.reward,
      is_terminal=steps.is_terminal,
      mask=steps.mask,
      core_state=jax.tree.map(lambda x: x[:, None], first_core_state),
    )
    return rollout, steps.is_last

  def replace_observation(self, index: int, observation: types.PyTree) -> None:
    """Sets the first observation [E, ...] of an agent that was reset."""

    def replace(kept: Any, new: Any) -> Any:
      kept = np.array(kept)
      kept[index] = new
      return kept

    self._observation = jax.tree.map(replace, self._observation, observation)
    self._core_state = jax.tree.map(
      lambda kept: replace(kept, 0.0), self._core_state
    )

  def _record(self, observations: types.PyTree, t: int) -> None:
    """Writes the current observation into [S, T+1, E, ...]."""

    def write(record: np.ndarray, now: Any) -> None:
      record[:, t] = now

    jax.tree.map(write, observations, self._observation)

  def _decide(
    self, params: types.Params, noise: types.Array, t: int
  ) -> tuple[types.Array, types.Array, types.PyTree]:
    return self._act(params, self._observation, self._core_state, noise, t)

  def _by_agent(self, x: Any) -> Any:
    """[S * E, ...] -> [S, E, ...]."""
    return x.reshape(self._num_agents, -1, *x.shape[1:])


def empty_acted(
  agent: agent_lib.Agent, num_agents: int
) -> tuple[types.Rollout, types.Array]:
  """Zeros of the shapes of what `HostActor.unroll` returns."""
  size, length = agent.config.num_environments, agent.config.unroll_length
  rollout = types.empty_rollout(
    agent.environment_spec, agent.network.initial_state(size), length, size
  )
  is_last = jnp.zeros((length, size), bool)
  return jax.tree.map(
    lambda x: jnp.broadcast_to(x, (num_agents, *x.shape)), (rollout, is_last)
  )


def restart_episodes(agents: agent_lib.AgentState) -> agent_lib.AgentState:
  """Discards unfinished episodes, as checkpoints hold no host environments."""
  statistics = dataclasses.replace(
    agents.episodes, running=jnp.zeros_like(agents.episodes.running)
  )
  return dataclasses.replace(agents, episodes=statistics)


def prepare_acting(
  agents: agent_lib.AgentState,
) -> tuple[agent_lib.AgentState, ActorParams]:
  """Takes parameters and new keys for acting from S agents.

  Not to be compiled as a whole: the program would copy its unchanged arguments,
  replay included.
  """
  keys, actor_params = _prepare(agents.learner.params, agents.key)
  return dataclasses.replace(agents, key=keys), actor_params


@jax.jit
def _prepare(
  params: types.Params, keys: types.Array
) -> tuple[types.Array, ActorParams]:
  """The agents' next keys, and actor parameters."""
  keys, act_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  return keys, ActorParams(params=jax.tree.map(jnp.copy, params), keys=act_keys)


def overlap(
  state: _State,
  num_updates: int,
  prepare_acting: Callable[[_State], tuple[_State, ActorParams]],
  act: Callable[[ActorParams], _Result],
  learn: Callable[[_State, _Result], tuple[_State, Any]],
) -> tuple[_State, list[Any]]:
  """Alternates acting and learning; environments step while the device learns.

  The first rollout is acted by the current agents, every later one by those of
  one update before: the same in every run, whichever is faster.

  Args:
    state: of the agents.
    num_updates: at least 1.
    prepare_acting: returns actor parameters, which must not share buffers with
      the state, as learning donates these.
    act: acts for one rollout.
    learn: makes one update from that.

  Returns:
    The state afterwards, and the other result of each update.
  """
  state, actor_params = prepare_acting(state)
  rollout, results = act(actor_params), []
  # In another thread, as devices run the programs of one thread in order.
  with futures.ThreadPoolExecutor(1) as learner:
    for _ in range(num_updates - 1):
      state, actor_params = prepare_acting(state)
      learning = learner.submit(
        lambda *args: jax.block_until_ready(learn(*args)), state, rollout
      )
      rollout = act(actor_params)
      state, result = learning.result()
      results.append(result)
  state, result = learn(state, rollout)
  return state, [*results, result]
