"""Recordings of the actions and predictions of agents."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_actor
from disco_rl.agent import learner
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import registry as environment_registry
from disco_rl.networks import agent_network
from disco_rl.runtime import files
from disco_rl.training import config as training_config
from disco_rl.training import parallel
from disco_rl.training import stored
from disco_rl.update_rules import disco

# The number in Fig. 4d of the paper.
NUM_TRAJECTORIES = 16


@dataclasses.dataclass(frozen=True)
class Subject:
  """A discovered rule, and an agent that it has trained.

  Attributes:
    config: The settings of the run that trained the agent.
    rule: The rule.
    rule_params: The parameters of the rule (eta).
    agent: The kind of agent.
    learner: The agent's state after its last update.
  """

  config: training_config.TrainingConfig
  rule: disco.Disco
  rule_params: types.Params
  agent: agent_lib.Agent
  learner: learner.LearnerState

  def environments(self, number: int) -> family.Environment:
    """Makes environments like the run's; `number` of them on the host."""
    return environment_registry.make(
      self.config.environment,
      number,
      self.config.seed,
      self.config.preprocessing,
    )


def load(
  workdir: files.PathLike, seed: int | None = None
) -> dict[int, Subject]:
  """Loads a rule and its agents from a run; changes nothing in its folder.

  Args:
    workdir: The folder of a run of disco-rl train, which may still be
      running.
    seed: The seed of an agent; None: all agents of the run.

  Returns:
    The agents in the newest checkpoint, with their rule, by their seeds.

  Raises:
    ValueError: The folder does not contain a run, the run has no such agent, or
      its rule is hand-designed.
    checkpointing.CheckpointError: The run has no checkpoint that can be read.
    FileNotFoundError: The file of its rule no longer exists.
    ImportError: A package that the environment needs is not installed.
  """
  if seed is None:
    agents = stored.read_all(workdir)
  else:
    agents = [stored.read(workdir, seed)]
  rule = agents[0].rule.rule
  if not isinstance(rule, disco.Disco):
    raise ValueError(
      f'The rule of {workdir}, {agents[0].config.rule}, is hand-designed: it '
      'has no meta-network to analyze. Choose a run with a discovered rule.'
    )
  rule_params = jax.device_put(agents[0].rule.params)
  return {
    one.seed: Subject(
      one.config,
      rule,
      rule_params,
      one.agent,
      jax.tree.map(lambda x: jnp.asarray(x[0]), one.train_state.learner),
    )
    for one in agents
  }


@dataclasses.dataclass(frozen=True)
class Age:
  """New agents at one time of their lives.

  Attributes:
    update: The number of updates so far.
    environment_steps: The environment steps of each agent so far.
    agents: Their states, with a leading axis of agents; valid until the next
      age.
  """

  update: int
  environment_steps: int
  agents: agent_lib.AgentState


def lives(
  subject: Subject, rule: disco.Disco, updates: int, number: int
) -> Iterator[Age]:
  """Trains new agents like those of the run, with the same seeds.

  Args:
    subject: The run, whose rule's parameters are used.
    rule: The rule, or a variant of it with the same parameters.
    updates: The number of updates of each agent.
    number: The number of ages, equally far apart; more if updates are few.

  Yields:
    The agents at each age.
  """
  config = subject.config
  environment = subject.environments(
    config.seeds * config.agent.num_environments
  )
  agent = agent_lib.make(config.agent, environment.spec, rule)
  every = agent.config.whole(max(1, updates // number))
  with contextlib.closing(environment):
    trained = parallel.make(agent, environment, config.seeds)
    seeds = jnp.arange(config.seed, config.seed + config.seeds)
    state = trained.init(jax.vmap(jax.random.key)(seeds))
    for update in range(every, max(updates, every) + 1, every):
      state, _ = trained.advance(subject.rule_params, state, every)
      yield Age(update, agent.environment_steps(update), state)


def record(subject: Subject, seed: int, length: int) -> scenes.Scene:
  """Lets an agent act without learning, from the beginning of episodes.

  Args:
    subject: The agent and its rule.
    seed: The seed of actions; environments have the seed of the run.
    length: The number of steps, in each of NUM_TRAJECTORIES environments.
  """
  environment = subject.environments(NUM_TRAJECTORIES)
  network, state = subject.agent.network, subject.learner
  with contextlib.closing(environment):
    rollout = play(
      network, environment, state.params, jax.random.key(seed), length
    )
  return jax.jit(scenes.from_agent, static_argnums=0)(network, state, rollout)


def play(
  network: agent_network.AgentNetwork,
  environment: base.JaxEnvironment | base.HostEnvironment,
  params: types.Params,
  key: types.Array,
  length: int,
) -> types.Rollout:
  """Acts for T = length steps; see `player`."""
  return player(network, environment, length)(params, key)


def player(
  network: agent_network.AgentNetwork,
  environment: base.JaxEnvironment | base.HostEnvironment,
  length: int,
) -> Callable[[types.Params, types.Array], types.Rollout]:
  """Makes a function that acts for T = length steps, compiled once.

  Returns:
    A function from the agent's parameters and a key to T transitions in the B
    environments on the host, or in NUM_TRAJECTORIES JAX-native ones.
  """
  if isinstance(environment, base.HostEnvironment):
    on_host = host_actor.HostActor(network, environment, num_agents=1)

    def act(params: types.Params, key: types.Array) -> types.Rollout:
      params, key = jax.tree.map(lambda x: x[None], (params, key))
      rollout, _ = on_host.unroll(params, key, length)
      return jax.tree.map(lambda x: jnp.asarray(x[0]), rollout)

    return act

  return functools.partial(_play_on_device, network, length, environment)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _play_on_device(
  network: agent_network.AgentNetwork,
  length: int,
  environment: base.JaxEnvironment,
  params: types.Params,
  key: types.Array,
) -> types.Rollout:
  """Acts in JAX-native environments; compiled once for agents of one kind."""
  key, act_key = jax.random.split(key)
  state = actor.init(key, network, environment, NUM_TRAJECTORIES)
  return actor.unroll(network, environment, params, state, act_key, length)[1]
