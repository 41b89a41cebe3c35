"""Acts in JAX-native environments, and records rollouts."""

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.agent import reward_moments
from disco_rl.environments import base
from disco_rl.maths import action_masks
from disco_rl.networks import agent_network


@types.record
class ActorState:
  """The state of an actor in E JAX-native environments.

  Attributes:
    environment: The state of all E environments, from
      `JaxEnvironment.reset_batch`.
    observation: The agent's next input, a tree of [E, ...].
    core_state: The state of the agent's core before that input, [E, ...].
  """

  environment: types.PyTree
  observation: types.PyTree
  core_state: types.PyTree


@types.record
class Acting:
  """The state that changes when an agent acts, wherever environments step.

  Attributes:
    key: The PRNG key for future steps.
    episodes: The statistics of episode returns.
    rewards: The statistics of rewards, if these are normalized.
  """

  key: types.Array
  episodes: episodes.EpisodeStatistics
  rewards: reward_moments.RewardMoments | None


@types.record
class DeviceActing(Acting):
  """The state that acts in JAX-native environments, beside the parameters.

  Attributes:
    actor: The environments, and what the agent sees of them.
  """

  actor: ActorState


def init(
  key: types.Array,
  network: agent_network.AgentNetwork,
  environment: base.JaxEnvironment,
  num_environments: int,
) -> ActorState:
  """Starts an episode in every environment."""
  state, observation = environment.reset_batch(key, num_environments)
  return ActorState(
    environment=state,
    observation=observation,
    core_state=network.initial_state(num_environments),
  )


def unroll(
  network: agent_network.AgentNetwork,
  environment: base.JaxEnvironment,
  params: types.Params,
  state: ActorState,
  key: types.Array,
  length: int,
) -> tuple[ActorState, types.Rollout, types.Array]:
  """Acts for T = length steps in E environments on the device.

  Returns:
    The state after the last step, the rollout of T transitions of E
    trajectories, and which steps ended an episode, [T, E].
  """
  num_environments = jax.tree.leaves(state.observation)[0].shape[0]
  noise_key, environment_key = jax.random.split(key)
  del key
  # All noise at once: many small draws would cost more than the steps.
  noise = policy_noise(
    noise_key, environment.spec.num_actions, length, num_environments
  )
  keys = jax.random.split(environment_key, (length, num_environments))

  def step(
    state: ActorState, x: tuple[types.Array, types.Array]
  ) -> tuple[ActorState, tuple[types.TimeStep, types.Array, types.Array]]:
    noise_t, keys_t = x
    logits, action, core_state = act(
      network, params, state.observation, state.core_state, noise_t
    )
    logits = _refuse_dead_ends(logits, state.observation)
    environment_state, timestep = environment.step_batch(
      state.environment, action, keys_t
    )
    state = ActorState(
      environment=environment_state,
      observation=timestep.observation,
      core_state=reset_core(core_state, timestep),
    )
    return state, (timestep, logits, action)

  last_state, (timesteps, logits, action) = jax.lax.scan(
    step, state, (noise[:-1], keys)
  )
  last_logits, last_action, _ = act(
    network, params, last_state.observation, last_state.core_state, noise[-1]
  )
  rollout = types.Rollout(
    observation=jax.tree.map(
      lambda first, rest: jnp.concatenate([first[None], rest]),
      state.observation,
      timesteps.observation,
    ),
    logits=jnp.concatenate([logits, last_logits[None]]),
    action=jnp.concatenate([action, last_action[None]]),
    reward=timesteps.reward,
    is_terminal=timesteps.is_terminal,
    mask=timesteps.mask,
    core_state=jax.tree.map(lambda x: x[None], state.core_state),
  )
  return last_state, rollout, timesteps.is_last


def _refuse_dead_ends(
  logits: types.Array, observation: types.PyTree
) -> types.Array:
  """Makes logits NaN if no action is legal, which stops the run.

  Only the last state of an episode may have no legal action, and environments
  on the device do not show it.
  """
  if not types.has_action_mask(observation):
    return logits
  return jnp.where(action_masks.has_legal(observation), logits, jnp.nan)


def policy_noise(
  key: types.Array, num_actions: int, length: int, num_environments: int
) -> types.Array:
  """Draws Gumbel noise [T+1, E, A], with which `act` samples actions."""
  return jax.random.gumbel(key, (length + 1, num_environments, num_actions))


def act(
  network: agent_network.AgentNetwork,
  params: types.Params,
  observation: types.PyTree,
  core_state: types.PyTree,
  noise: types.Array,
) -> tuple[types.Array, types.Array, types.PyTree]:
  """Samples actions from the policy by the Gumbel-max trick.

  Args:
    network: The network of the agent.
    params: The parameters theta.
    observation: The observations, a tree of [E, ...].
    core_state: The state of the core, a tree of [E, ...].
    noise: Gumbel noise, [E, A].

  Returns:
    The logits [E, A], actions [E] int32, and the next state of the core.
  """
  logits, core_state = network.step(params, observation, core_state)
  action = jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)
  return logits, action, core_state


def reset_core(
  core_state: types.PyTree, timestep: types.TimeStep
) -> types.PyTree:
  """Zeros the state of the core [E, ...] where the timestep ends an episode."""
  is_over = agent_network.has_ended(timestep.is_terminal, timestep.mask)
  return jax.tree.map(
    lambda x: jnp.where(is_over[:, None], jnp.zeros_like(x), x), core_state
  )
