"""An agent: pure functions that act, replay and learn, over one state.

From a JAX-native environment to an update:
  step the environments                    `base.JaxEnvironment.step_batch`
  act; record a rollout                    `actor.unroll`
  store it; draw slots of batches          `Agent.add_and_sample`
  read a batch                             `replay.gather_slots`
  normalize rewards, in training           `Agent.normalize_rewards`
  learn                                    `learner.update`
Training does this in `Agent.train_step`, discovery in `InnerLoop._update`.
`host_collector` has the steps with environments on the host.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
from typing import Annotated
from typing import Generic
from typing import TypeVar

import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import episodes
from disco_rl.agent import learner
from disco_rl.agent import replay
from disco_rl.agent import reward_moments
from disco_rl.environments import base as environment_base
from disco_rl.maths import optimizers
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import base as rule_base

# The discount of returns for rewards' statistics, if the rule has none.
_DISCOUNT = 0.99


@dataclasses.dataclass(frozen=True)
class AgentConfig(config_lib.Settings):
  """Settings of an agent, which alternates rollouts and updates.

  In training, the rule and the task replace several of these defaults; see
  `resolution`.

  Attributes:
    network: sizes of its network.
    unroll_length: T, transitions of a trajectory, which has T + 1 observations.
    batch_size: B, trajectories in an update.
    num_environments: E, environments that the agent acts in.
    updates_per_rollout: K, updates after each rollout, with a batch each; the
      replay ratio is K * batch_size / E.
    on_policy_share: fraction of these K batches that is taken from the newest
      rollout; the rest is drawn from replay. If that is more than E
      trajectories, the batches go through the newest rollout in several epochs,
      each in a new random order.
    replay_capacity: trajectories in replay, a multiple of E.
    min_replay_batches: batches that replay holds before the first update, if it
      is large enough; until then the agent acts with its initial parameters. 0:
      the first update follows the first rollout, on copies of its trajectories.
    replay_on_disk: whether replay of environments on the host is in
      memory-mapped files in the run's folder; if False, it is there only if the
      machine's memory is too small.
    normalize_rewards: whether the rewards that the agent learns from are
      divided by the running standard deviation of discounted returns, and
      clipped to [-10, 10]; the discount is the rule's, or 0.99 without one.
      Reported returns are those of the environment.
    optimizer: optimizer of the agent, 'adam' or 'rmsprop'.
    learning_rate: step size of the optimizer.
    max_gradient_norm: bound of the norm of the gradient of all parameters,
      to which it is scaled down before the optimizer; 0: no bound.
    max_abs_update: bound of each entry of its update, before the step size.
    warm_up_updates: updates in which the learning rate rises from zero.
    decay_updates: updates after which a cosine schedule reaches zero; 0: the
      learning rate is constant.
    weight_decay: weight of decoupled weight decay.
  """

  network: agent_network.AgentNetworkConfig = agent_network.AgentNetworkConfig()
  unroll_length: config_lib.Count = 28
  batch_size: config_lib.Count = 96
  num_environments: config_lib.Count = 10
  updates_per_rollout: config_lib.Count = 1
  on_policy_share: config_lib.Fraction = 0.1
  replay_capacity: config_lib.Count = 1200
  min_replay_batches: config_lib.FiniteOrZero = 0.0
  replay_on_disk: bool = False
  normalize_rewards: bool = False
  optimizer: Annotated[str, config_lib.one_of(*optimizers.OPTIMIZERS)] = 'adam'
  learning_rate: config_lib.Positive = 3e-4
  max_gradient_norm: config_lib.FiniteOrZero = 0.0
  max_abs_update: config_lib.Bound = 1.0
  warm_up_updates: config_lib.CountOrZero = 0
  decay_updates: config_lib.CountOrZero = 0
  weight_decay: config_lib.FiniteOrZero = 0.0

  def conflicts(self) -> Iterator[str]:
    """Yields errors about sizes of replay, rollouts and batches."""
    number = self.num_environments
    if self.replay_capacity % number:
      nearest = max(1, round(self.replay_capacity / number)) * number
      yield (
        f'replay_capacity={self.replay_capacity} must be a multiple of '
        f'num_environments={number}, the trajectories that are added at a '
        f'time; the nearest is {nearest}.'
      )
    if max(self.num_on_policy) > number:
      yield (
        f'on_policy_share={self.on_policy_share} must be at most '
        f'{number / self.batch_size:g}: a batch has '
        f'batch_size={self.batch_size} trajectories, and the newest rollout '
        f'num_environments={number}.'
      )
    if number * self.unroll_length % self.updates_per_rollout:
      yield (
        f'updates_per_rollout={self.updates_per_rollout} must divide '
        f'num_environments={number} * unroll_length={self.unroll_length}, the '
        'actions of a rollout.'
      )

  def rollouts(self, updates: int) -> int:
    """Returns the rollouts of some updates; raises ValueError if not whole."""
    number = self.updates_per_rollout
    if updates % number:
      raise ValueError(
        f'updates={updates} must be a multiple of '
        f'updates_per_rollout={number}: the next is {self.whole(updates)}.'
      )
    return updates // number

  @property
  def first_rollouts(self) -> int:
    """The number of rollouts before the first update, at least one."""
    least = math.ceil(self.min_replay_batches * self.batch_size)
    return max(1, -(-min(least, self.replay_capacity) // self.num_environments))

  def fill_rollouts(self, trajectories: int) -> int:
    """Counts the rollouts that only fill replay, before the next update's.

    Args:
      trajectories: The number of trajectories that have been added to it.
    """
    added = trajectories // self.num_environments
    return max(0, self.first_rollouts - 1 - added)

  def actions(self, updates: int) -> int:
    """Returns the actions in all environments until some updates are made."""
    actions = updates * self.actions_per_update
    if updates:
      rollout = self.num_environments * self.unroll_length
      actions += (self.first_rollouts - 1) * rollout
    return actions

  def environment_steps(self, updates: int, action_repeat: int) -> int:
    """Returns the environment steps of `actions`, a number for each action."""
    return self.actions(updates) * action_repeat

  def updates_for(
    self, environment_steps: int, action_repeat: int, fill_rollouts: int
  ) -> int:
    """Returns the updates until at least some further steps are made.

    Args:
      environment_steps: The number of further steps, in all environments.
      action_repeat: The environment steps per action.
      fill_rollouts: The number of rollouts among them that only fill replay.

    Returns:
      The number of further updates, those of whole rollouts, at least one.
    """
    rollout = self.num_environments * self.unroll_length * action_repeat
    rollouts = -(-environment_steps // rollout) - fill_rollouts
    return self.updates(max(1, rollouts))

  def updates(self, rollouts: int) -> int:
    """Returns the updates that follow some rollouts."""
    return rollouts * self.updates_per_rollout

  def whole(self, updates: int) -> int:
    """Rounds a number of updates up to a whole number of rollouts."""
    return -(-updates // self.updates_per_rollout) * self.updates_per_rollout

  def chunk_size_candidates(self) -> Iterator['AgentConfig']:
    """Yields this config, or one per chunk size if the size is automatic."""
    torso = self.network.torso
    sizes: Sequence[int] = (torso.chunk_size,)
    if torso.chunk_size == config_lib.AUTOMATIC:
      sizes = torsos.CHUNK_SIZES
    for size in sizes:
      chunked = dataclasses.replace(torso, chunk_size=size)
      network = dataclasses.replace(self.network, torso=chunked)
      yield dataclasses.replace(self, network=network)

  @property
  def automatic_choices(self) -> dict[str, int]:
    """The settings that a run may choose so that it fits into memory."""
    return {
      'torso_chunk_size': self.network.torso.chunk_size,
      'replay_on_disk': self.replay_on_disk,
    }

  @property
  def actions_per_update(self) -> int:
    """The number of actions between two updates, in all environments."""
    actions = self.num_environments * self.unroll_length
    return actions // self.updates_per_rollout

  @property
  def num_on_policy(self) -> tuple[int, ...]:
    """The trajectories from the newest rollout in each of the K batches."""
    number = self.updates_per_rollout
    total = round(number * self.batch_size * self.on_policy_share)
    return tuple((total + number - 1 - i) // number for i in range(number))


_Acting = TypeVar('_Acting', bound=actor.Acting)
_Replay = TypeVar('_Replay')


@types.record
class AgentState(Generic[_Acting, _Replay]):
  """The state of an agent: what learns, what acts, and replay.

  The last two depend on where the agent's environments step; see `DeviceState`
  and `host_collector.HostState`.

  Attributes:
    learner: The parameters, optimizer state and rule state.
    acting: The random numbers, statistics and environments.
    replay: The past trajectories.
  """

  learner: learner.LearnerState
  acting: _Acting
  replay: _Replay


# With JAX-native environments, the state has all there is of an agent.
DeviceState = AgentState[actor.DeviceActing, replay.ReplayState]


@dataclasses.dataclass(frozen=True)
class Agent:
  """Pure functions over the parts of an `AgentState`, for equal settings.

  Attributes:
    config: The settings of the agents.
    environment_spec: The observations and actions of the environments.
    rule: The update rule that the agents learn with.
    network: The network of the agents.
    optimizer: The optimizer of the agents.
  """

  config: AgentConfig
  environment_spec: types.EnvironmentSpec
  rule: rule_base.UpdateRule
  network: agent_network.AgentNetwork
  optimizer: optax.GradientTransformation

  @property
  def steps_per_update(self) -> int:
    """The environment steps between two updates; an action may take several."""
    return self.config.actions_per_update * self.environment_spec.action_repeat

  def environment_steps(self, updates: int) -> int:
    """Returns the environment steps until some updates are made."""
    return self.config.environment_steps(
      updates, self.environment_spec.action_repeat
    )

  def updates_for(self, environment_steps: int, fill_rollouts: int) -> int:
    """Returns the updates for further steps; see `AgentConfig.updates_for`."""
    return self.config.updates_for(
      environment_steps, self.environment_spec.action_repeat, fill_rollouts
    )

  def init(
    self,
    key: types.Array,
    environment_key: types.Array,
    environment: environment_base.JaxEnvironment,
  ) -> DeviceState:
    """Makes the initial state of an agent in E JAX-native environments."""
    params_key, key = jax.random.split(key)
    return AgentState(
      learner=self.init_learner(params_key),
      acting=actor.DeviceActing(
        **vars(self.init_acting(key)),
        actor=actor.init(
          environment_key,
          self.network,
          environment,
          self.config.num_environments,
        ),
      ),
      replay=self.empty_replay(),
    )

  def init_learner(self, params_key: types.Array) -> learner.LearnerState:
    """Makes the part that learns, with random parameters."""
    params = self.network.init(params_key)
    return learner.init(params, self.rule, self.optimizer)

  def init_acting(self, key: types.Array) -> actor.Acting:
    """Makes the part that acts, without its environments."""
    number = self.config.num_environments
    return actor.Acting(
      key=key,
      episodes=episodes.init(number),
      rewards=(
        reward_moments.init(number) if self.config.normalize_rewards else None
      ),
    )

  def act(
    self,
    environment: environment_base.JaxEnvironment,
    params: types.Params,
    acting: actor.DeviceActing,
  ) -> tuple[actor.DeviceActing, types.Rollout]:
    """Acts for T steps in E JAX-native environments."""
    key, act_key = jax.random.split(acting.key)
    actor_state, rollout, is_last = actor.unroll(
      self.network,
      environment,
      params,
      acting.actor,
      act_key,
      self.config.unroll_length,
    )
    statistics, rewards = self.count(
      acting.episodes, acting.rewards, rollout.reward, is_last
    )
    acting = actor.DeviceActing(key, statistics, rewards, actor_state)
    return acting, rollout

  def count(
    self,
    statistics: episodes.EpisodeStatistics,
    rewards: reward_moments.RewardMoments | None,
    reward: types.Array,
    is_last: types.Array,
  ) -> tuple[episodes.EpisodeStatistics, reward_moments.RewardMoments | None]:
    """Adds the rewards [T, E] of a rollout to the statistics of an agent."""
    if rewards is not None:
      discount = getattr(self.rule, 'discount', _DISCOUNT)
      rewards = reward_moments.update(rewards, reward, is_last, discount)
    return episodes.update(statistics, reward, is_last), rewards

  def normalize_rewards(
    self, rewards: reward_moments.RewardMoments | None, batch: types.Rollout
  ) -> types.Rollout:
    """Normalizes the rewards of a batch by the statistics, if there are any."""
    if rewards is None:
      return batch
    reward = reward_moments.normalize(rewards, batch.reward)
    return dataclasses.replace(batch, reward=reward)

  def fill_replay(
    self,
    environment: environment_base.JaxEnvironment,
    params: types.Params,
    acting: actor.DeviceActing,
    memory: replay.ReplayState,
  ) -> tuple[actor.DeviceActing, replay.ReplayState]:
    """Acts and adds to replay until the first update needs one more rollout.

    After an update, everything is returned as it is. The shapes of programs and
    the number of updates do not depend on it, as they would if updates were
    left out.
    """
    least = self.config.first_rollouts * self.config.num_environments

    def act(
      carry: tuple[actor.DeviceActing, replay.ReplayState],
    ) -> tuple[actor.DeviceActing, replay.ReplayState]:
      acting, memory = carry
      acting, rollout = self.act(environment, params, acting)
      return acting, replay.add(memory, rollout)

    if self.config.first_rollouts == 1:
      return acting, memory
    return jax.lax.while_loop(
      lambda carry: carry[1].added + self.config.num_environments < least,
      act,
      (acting, memory),
    )

  def add_and_sample(
    self,
    acting: actor.DeviceActing,
    memory: replay.ReplayState,
    rollout: types.Rollout,
  ) -> tuple[actor.DeviceActing, replay.ReplayState, types.Array]:
    """Adds the newest rollout to replay; samples slots [K, B] of batches."""
    key, draw_key = jax.random.split(acting.key)
    memory = replay.add(memory, rollout)
    slots = self.sample_slots(draw_key, memory.added)
    return dataclasses.replace(acting, key=key), memory, slots

  def sample_slots(self, key: types.Array, added: types.Array) -> types.Array:
    """Samples slots of the K batches after a rollout."""
    return replay.sample_slots(
      key,
      added,
      self.config.replay_capacity,
      self.config.batch_size,
      self.config.num_on_policy,
      self.config.num_environments,
    )

  def learn(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    batch: types.Rollout,
    known_gradient: types.Params | None = None,
  ) -> tuple[learner.LearnerState, learner.Update]:
    """Makes one update by `learner.update`."""
    return learner.update(
      self.network,
      self.rule,
      self.optimizer,
      rule_params,
      state,
      batch,
      known_gradient,
    )

  def train_step(
    self,
    environment: environment_base.JaxEnvironment,
    rule_params: types.Params,
    state: DeviceState,
  ) -> tuple[DeviceState, types.Logs]:
    """Acts for one rollout in JAX-native environments, then updates K times.

    A new agent acts for as many rollouts as its first update needs.

    Returns:
      The next state of the agent and its environments, and means to log.
    """
    params = state.learner.params
    acting, memory = self.fill_replay(
      environment, params, state.acting, state.replay
    )
    acting, rollout = self.act(environment, params, acting)
    acting, memory, slots = self.add_and_sample(acting, memory, rollout)

    def update(
      learner_state: learner.LearnerState, slots: types.Array
    ) -> tuple[learner.LearnerState, types.Logs]:
      batch = replay.gather_slots(memory, slots)
      batch = self.normalize_rewards(acting.rewards, batch)
      learner_state, update = self.learn(rule_params, learner_state, batch)
      return learner_state, update.logs

    if len(slots) == 1:  # A loop would only take longer to compile.
      learner_state, logs = update(state.learner, slots[0])
    else:
      learner_state, logs = jax.lax.scan(update, state.learner, slots)
      logs = jax.tree.map(lambda x: jnp.mean(x, axis=0), logs)
    return AgentState(learner_state, acting, memory), logs

  def empty_replay(self) -> replay.ReplayState:
    """Makes the replay of an initial agent."""
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
  """Makes an agent for an environment and a rule."""
  return Agent(
    config=config,
    environment_spec=environment_spec,
    rule=rule,
    network=agent_network.make(
      environment_spec,
      rule.output_spec(environment_spec.num_actions),
      config.network,
    ),
    optimizer=make_optimizer(config, config.learning_rate),
  )


def make_optimizer(
  config: AgentConfig, learning_rate: float
) -> optax.GradientTransformation:
  """Makes the optimizer of agents, with this learning rate."""
  return optimizers.agent_optimizer(
    learning_rate,
    config.max_abs_update,
    config.warm_up_updates,
    config.decay_updates,
    config.weight_decay,
    config.optimizer,
    config.max_gradient_norm,
  )
