"""An agent: acting, replay and learning put together, over one record."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import episodes
from disco_rl.agent import learner
from disco_rl.agent import replay
from disco_rl.environments import base as environment_base
from disco_rl.maths import optimizers
from disco_rl.networks import agent_network
from disco_rl.runtime import config_checks
from disco_rl.update_rules import base as rule_base


@dataclasses.dataclass(frozen=True)
class AgentConfig:
  """How an agent lives; one update follows each rollout.

  Attributes:
    network: sizes of its network.
    unroll_length: T, transitions in a rollout.
    batch_size: trajectories in an update.
    replay_ratio: how often a trajectory is learnt from on average; the agent
      acts in batch_size / replay_ratio environments.
    on_policy_share: share of each batch that is taken from the newest rollout,
      the rest comes from replay.
    replay_capacity: trajectories that replay holds.
    learning_rate: of Adam.
    max_abs_update: bound of each entry of Adam's update, before the step size.
    warm_up_updates: over which the learning rate rises from zero.
    decay_updates: at which a cosine has brought it back to zero; 0: it stays.
    weight_decay: of decoupled weight decay.
  """

  network: agent_network.AgentNetworkConfig = agent_network.AgentNetworkConfig()
  unroll_length: int = 28
  batch_size: int = 96
  replay_ratio: float = 9.6
  on_policy_share: float = 0.1
  replay_capacity: int = 1000
  learning_rate: float = 3e-4
  max_abs_update: float = 1.0
  warm_up_updates: int = 0
  decay_updates: int = 0
  weight_decay: float = 0.0

  def __post_init__(self) -> None:
    config_checks.check_types(AgentConfig, vars(self))
    for name in ('unroll_length', 'batch_size', 'replay_capacity'):
      _check(getattr(self, name) >= 1, name, getattr(self, name), 'at least 1')
    for name in ('learning_rate', 'max_abs_update'):
      _check(getattr(self, name) > 0, name, getattr(self, name), 'positive')
    # Infinite bounds are none.
    config_checks.check_finite(self, ('learning_rate', 'weight_decay'))
    for name in ('warm_up_updates', 'decay_updates', 'weight_decay'):
      _check(getattr(self, name) >= 0, name, getattr(self, name), 'at least 0')
    _check(self.replay_ratio > 0, 'replay_ratio', self.replay_ratio, 'positive')
    _check(
      0 <= self.on_policy_share <= 1,
      'on_policy_share',
      self.on_policy_share,
      'between 0 and 1',
    )
    exact = self.batch_size / self.replay_ratio
    _check(
      exact < config_checks.WHOLE_LIMIT,
      'replay_ratio',
      self.replay_ratio,
      f'larger: batch_size={self.batch_size} divided by it is the number of '
      'environments',
    )
    _check(
      self.num_environments >= 1
      and abs(exact - self.num_environments) < 1e-3 * exact,
      'replay_ratio',
      self.replay_ratio,
      f'batch_size={self.batch_size} divided by a whole number of environments,'
      f' for example {self.batch_size / max(1, round(exact)):g}',
    )
    _check(
      self.num_on_policy <= self.num_environments,
      'on_policy_share',
      self.on_policy_share,
      f'at most {self.num_environments / self.batch_size:g}, as the newest '
      f'rollout has {self.num_environments} trajectories (batch_size / '
      f'replay_ratio) and the batch {self.batch_size}',
    )

  @property
  def num_environments(self) -> int:
    """E, environments that the agent acts in."""
    return round(self.batch_size / self.replay_ratio)

  @property
  def num_on_policy(self) -> int:
    """Trajectories of a batch that come from the newest rollout."""
    return round(self.batch_size * self.on_policy_share)


def _check(is_valid: bool, name: str, value: object, expected: str) -> None:
  if not is_valid:
    raise ValueError(f'{name}={value} is not possible: it must be {expected}.')


@types.record
class AgentState:
  """An agent's life but for its environments.

  Attributes:
    learner: parameters, optimiser, the rule's share.
    replay: what it remembers.
    episodes: what it was paid.
    key: PRNG key of all that is to come.
  """

  learner: learner.LearnerState
  replay: replay.ReplayState
  episodes: episodes.EpisodeStatistics
  key: types.Array


@dataclasses.dataclass(frozen=True)
class Agent:
  """Pure functions over `AgentState` for one kind of agent.

  Attributes:
    config: how it lives.
    environment_spec: of the environments that it lives in.
    rule: what it learns from.
    network: its network.
    optimizer: its optimiser.
  """

  config: AgentConfig
  environment_spec: types.EnvironmentSpec
  rule: rule_base.UpdateRule
  network: agent_network.AgentNetwork
  optimizer: optax.GradientTransformation

  def init(self, key: types.Array) -> AgentState:
    """A newborn agent."""
    params_key, life_key = jax.random.split(key)
    del key
    return AgentState(
      learner=learner.init(params_key, self.network, self.rule, self.optimizer),
      replay=self.empty_replay(),
      episodes=episodes.init(self.config.num_environments),
      key=life_key,
    )

  def act(
    self,
    environment: environment_base.JaxEnvironment,
    state: AgentState,
    actor_state: actor.ActorState,
  ) -> tuple[AgentState, actor.ActorState, types.Rollout]:
    """Acts for T steps in E JAX-native environments."""
    key, act_key = jax.random.split(state.key)
    actor_state, rollout, is_last = actor.unroll(
      self.network,
      environment,
      state.learner.params,
      actor_state,
      act_key,
      self.config.unroll_length,
    )
    state = self.count_episodes(state, rollout, is_last)
    return dataclasses.replace(state, key=key), actor_state, rollout

  def count_episodes(
    self, state: AgentState, rollout: types.Rollout, is_last: types.Array
  ) -> AgentState:
    """Adds what a rollout paid.

    Args:
      state: before.
      rollout: T transitions of E trajectories.
      is_last: [T, E] bool, which steps ended an episode.

    Returns:
      The state with its statistics brought up to date.
    """
    return dataclasses.replace(
      state,
      episodes=episodes.update(state.episodes, rollout.reward, is_last),
    )

  def add_and_sample(
    self, state: AgentState, rollout: types.Rollout
  ) -> tuple[AgentState, types.Rollout]:
    """Stores the newest rollout, and draws the batch of the next update."""
    key, sample_key = jax.random.split(state.key)
    memory = replay.add(state.replay, rollout)
    num_on_policy = self.config.num_on_policy
    replayed = replay.sample(
      memory, sample_key, self.config.batch_size - num_on_policy
    )
    batch = jax.tree.map(
      lambda new, old: jnp.concatenate([new[:, :num_on_policy], old], axis=1),
      rollout,
      replayed,
    )
    return dataclasses.replace(state, replay=memory, key=key), batch

  def learn(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    batch: types.Rollout,
  ) -> tuple[learner.LearnerState, learner.Update]:
    """Makes one update; see `learner.update`."""
    return learner.update(
      self.network, self.rule, self.optimizer, rule_params, state, batch
    )

  def live(
    self,
    environment: environment_base.JaxEnvironment,
    rule_params: types.Params,
    state: AgentState,
    actor_state: actor.ActorState,
  ) -> tuple[AgentState, actor.ActorState, types.Logs]:
    """Acts for one rollout in JAX-native environments, then learns."""
    state, actor_state, rollout = self.act(environment, state, actor_state)
    state, batch = self.add_and_sample(state, rollout)
    learner_state, update = self.learn(rule_params, state.learner, batch)
    state = dataclasses.replace(state, learner=learner_state)
    return state, actor_state, update.logs

  def empty_replay(self) -> replay.ReplayState:
    """A newborn's."""
    batch_size = self.config.num_environments
    rollout = types.empty_rollout(
      self.environment_spec,
      self.network.initial_state(batch_size),
      self.config.unroll_length,
      batch_size,
    )
    return replay.init(rollout, self.config.replay_capacity)


def make(
  config: AgentConfig,
  environment_spec: types.EnvironmentSpec,
  rule: rule_base.UpdateRule,
) -> Agent:
  """Builds an agent for an environment and a rule."""
  return Agent(
    config=config,
    environment_spec=environment_spec,
    rule=rule,
    network=agent_network.make(
      environment_spec,
      rule.output_spec(environment_spec.num_actions),
      config.network,
    ),
    optimizer=optimizers.agent_optimizer(
      config.learning_rate,
      config.max_abs_update,
      config.warm_up_updates,
      config.decay_updates,
      config.weight_decay,
    ),
  )
