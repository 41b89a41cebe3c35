"""Acts in environments that step on the host."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.environments import base
from disco_rl.networks import agent_network
from disco_rl.runtime import compilation


class Programs:
  """Compiled functions of one network, with a leading axis S of agents."""

  def __init__(self, network: agent_network.AgentNetwork):
    """Compiles nothing yet."""
    self.act = jax.jit(
      jax.vmap(
        lambda params, observation, core_state, noise, t: actor.act(
          network, params, observation, core_state, noise[t]
        ),
        in_axes=(0, 0, 0, 0, None),
      ),
      compiler_options=compilation.small_batch_options(),
    )
    self.reset_core = jax.jit(jax.vmap(actor.reset_core))
    self.stack = jax.jit(
      lambda steps: jax.tree.map(lambda *x: jnp.stack(x, axis=1), *steps)
    )
    self.noise = jax.jit(
      jax.vmap(actor.policy_noise, in_axes=(0, None, None, None)),
      static_argnums=(1, 2, 3),
    )


class HostActor:
  """S agents of one kind that act in parallel, each in E environments.

  The counterpart of `actor.unroll`, with a leading axis S for the agents.

  Attributes:
    must_restart: Whether all episodes begin again before the next rollout.
  """

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    environment: base.HostEnvironment,
    num_agents: int,
    programs: Programs | None = None,
  ):
    """Starts an episode in every environment.

    Args:
      network: The network of the agents.
      environment: The S * E environments, contiguous for each agent.
      num_agents: S.
      programs: The programs of the network, if several actors share them.
    """
    self._network = network
    self._environment = environment
    self._num_agents = num_agents
    self._programs = programs or Programs(network)
    self.restart()

  def restart(self) -> None:
    """Begins an episode in every environment."""
    self._observation = jax.tree.map(self._by_agent, self._environment.reset())
    self._core_state = jax.tree.map(
      self._by_agent,
      self._network.initial_state(self._environment.num_environments),
    )
    self.must_restart = self._has_acted = False

  def end_episodes(self) -> None:
    """Lets all episodes begin again, unless they have just begun."""
    self.must_restart |= self._has_acted

  def save(self) -> types.PyTree | None:
    """Returns the state for a checkpoint; None if it cannot be saved."""
    state = None if self.must_restart else self._environment.save_state()
    if state is None:
      return None
    return {
      'environment': state,
      'observation': self._observation,
      'core_state': jax.tree.map(np.asarray, self._core_state),
    }

  def restore(self, saved: types.PyTree) -> None:
    """Continues from what `save` returned."""
    saved = jax.tree.map(np.asarray, saved)
    self._environment.restore_state(saved['environment'])
    self._observation = saved['observation']
    self._core_state = saved['core_state']
    self.must_restart, self._has_acted = False, True

  def replace_environment(self, environment: base.HostEnvironment) -> None:
    """Begins episodes in other environments with an equal spec."""
    self._environment = environment
    self.restart()

  def unroll(
    self, params: types.Params, keys: types.Array, length: int
  ) -> tuple[types.Rollout, types.Array]:
    """Acts for T = length steps.

    Args:
      params: The parameters theta, [S, ...]; learning must not donate them.
      keys: The PRNG keys, [S].
      length: T.

    Returns:
      The rollout with leading axes [S, T or T+1, E], and which steps ended an
      episode, [S, T, E].
    """
    self._has_acted = True
    noise = self._programs.noise(
      keys,
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
      logits, action, core_state = self._decide(params, noise, t)
      self._environment.start(np.asarray(action).reshape(-1))
      # Copied while environments step: frames are large.
      self._record(observations, t)
      decisions.append((logits, action))
      timestep = jax.tree.map(self._by_agent, self._environment.finish())
      self._observation = timestep.observation
      if jax.tree.leaves(core_state):
        core_state = self._programs.reset_core(core_state, timestep)
      self._core_state = core_state
      timesteps.append(dataclasses.replace(timestep, observation=None))
    self._record(observations, length)
    decisions.append(self._decide(params, noise, length)[:2])

    logits, action = self._programs.stack(decisions)
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

    def replace(kept: types.PyTree, new: types.PyTree) -> types.PyTree:
      kept = np.array(kept)
      kept[index] = new
      return kept

    self._observation = jax.tree.map(replace, self._observation, observation)
    self._core_state = jax.tree.map(
      lambda kept: replace(kept, 0.0), self._core_state
    )

  def of_one(
    self, index: int, environment: base.HostEnvironment
  ) -> 'HostActor':
    """Returns an actor of one agent, which continues in its environments."""
    self._has_acted = True
    one = copy.copy(self)
    one._environment, one._num_agents = environment, 1
    one._observation, one._core_state = jax.tree.map(
      lambda x: x[index : index + 1], (self._observation, self._core_state)
    )
    return one

  def continue_from(self, index: int, one: 'HostActor') -> None:
    """Continues with an agent where its own actor, by `of_one`, has stopped."""

    def replace(kept: types.PyTree, new: types.PyTree) -> types.PyTree:
      kept = np.array(kept)
      kept[index] = new[0]
      return kept

    self._observation, self._core_state = jax.tree.map(
      replace,
      (self._observation, self._core_state),
      (one._observation, one._core_state),
    )

  def _record(self, observations: types.PyTree, t: int) -> None:
    """Writes the current observation into [S, T+1, E, ...]."""

    def write(record: np.ndarray, now: types.PyTree) -> None:
      record[:, t] = now

    jax.tree.map(write, observations, self._observation)

  def _decide(
    self, params: types.Params, noise: types.Array, t: int
  ) -> tuple[types.Array, types.Array, types.PyTree]:
    return self._programs.act(
      params, self._observation, self._core_state, noise, t
    )

  def _by_agent(self, x: types.PyTree) -> types.PyTree:
    """[S * E, ...] -> [S, E, ...]."""
    return x.reshape(self._num_agents, -1, *x.shape[1:])
