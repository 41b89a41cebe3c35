"""Acting in environments that step on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import actor
from disco_rl import types
from disco_rl.environments import base
from disco_rl.networks import agent_network


class HostActor:
  """Several agents of one kind act side by side, each in E environments.

  What `actor.unroll` is for JAX-native environments, with a leading axis S for
  the agents. The environments' states live on the host and are part of no
  checkpoint: after a resumption episodes begin anew.
  """

  def __init__(
    self,
    network: agent_network.AgentNetwork,
    environment: base.HostEnvironment,
    num_agents: int,
  ):
    """Begins an episode in every environment.

    Args:
      network: the agents'.
      environment: S * E environments, those of an agent next to one another.
      num_agents: S.
    """
    self._environment = environment
    self._num_agents = num_agents
    self._act = jax.jit(
      jax.vmap(
        lambda params, observation, noise, t: actor.act(
          network, params, observation, noise[t]
        ),
        in_axes=(0, 0, 0, None),
      )
    )
    self._noise = jax.jit(
      jax.vmap(actor.policy_noise, in_axes=(0, None, None, None)),
      static_argnums=(1, 2, 3),
    )
    self._observation = self._by_agent(environment.reset())

  def unroll(
    self, params: types.Params, keys: types.Array, length: int
  ) -> tuple[types.Rollout, Any]:
    """Acts for T steps.

    Args:
      params: theta of each agent, leading axis S.
      keys: [S] PRNG keys.
      length: T.

    Returns:
      Rollout with leading axes [S, T or T+1, E], and which steps ended an
      episode, [S, T, E].
    """
    noise = self._noise(
      keys,
      self._environment.spec.num_actions,
      length,
      self._environment.num_environments // self._num_agents,
    )
    observations, decisions, timesteps = [self._observation], [], []
    for t in range(length):
      decisions.append(self._act(params, self._observation, noise, t))
      action = np.asarray(decisions[-1][1]).reshape(-1)
      timestep = jax.tree.map(self._by_agent, self._environment.step(action))
      self._observation = timestep.observation
      timesteps.append(timestep)
      observations.append(self._observation)
    decisions.append(self._act(params, self._observation, noise, length))

    logits, action = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *decisions)
    stack = lambda *x: np.stack(x, axis=1)
    steps = jax.tree.map(stack, *timesteps)
    rollout = types.Rollout(
      observation=jax.tree.map(stack, *observations),
      action=action,
      logits=logits,
      reward=steps.reward,
      is_terminal=steps.is_terminal,
      mask=steps.mask,
    )
    return rollout, steps.is_last

  def replace_observation(self, index: int, observation: types.PyTree) -> None:
    """The environments of one agent were reset: it sees this [E, ...] next."""

    def replace(kept: Any, new: Any) -> Any:
      kept = np.array(kept)
      kept[index] = new
      return kept

    self._observation = jax.tree.map(replace, self._observation, observation)

  def _by_agent(self, tree: Any) -> Any:
    """[S * E, ...] -> [S, E, ...]."""
    return jax.tree.map(
      lambda x: x.reshape(self._num_agents, -1, *x.shape[1:]), tree
    )
