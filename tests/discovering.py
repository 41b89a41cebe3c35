"""Makes tiny discoveries, and groups of agents in test environments."""

from collections.abc import Callable
import dataclasses
from typing import Any
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import small_runs
from configs import quickstart
from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population


def config_of(**changes: Any) -> meta_config.MetaTrainingConfig:
  """Returns configs/quickstart.py at a tiny size, with changed settings."""
  settings = {**quickstart.get_config().to_dict(), **small_runs.SETTINGS}
  return meta_trainer.config_of({**settings, **changes})


def group_config(
  config: meta_config.MetaTrainingConfig,
  rule: Any,
  spec: types.EnvironmentSpec,
  **fields: Any,
) -> population.GroupConfig:
  """Puts all agents of a discovery in one group, in environments of a spec."""
  return population.GroupConfig(
    names=config.agents * ('own',),
    numbers=(*range(config.agents),),
    inner_loop=build.make_inner_loop(config, rule, spec),
    optimizer=meta_update.meta_optimizers(config)[0],
    chunk_size=config.chunk_size,
    **fields,
  )


class Counting(base.HostEnvironment):
  """Observes its agent's number, its resets and the steps since; never ends.

  The reward of an action is the number plus the action, 0 or 1.
  """

  def __init__(self, number: int, width: int = 3, num_environments: int = 2):
    self.spec = counting_spec(width)
    self.num_environments = num_environments
    self._number, self._resets, self._steps = number, 0, 0

  def reset(self) -> types.PyTree:
    self._resets += 1
    self._steps = 0
    return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    self._steps += 1
    nothing: Any = np.zeros(self.num_environments, bool)
    return types.TimeStep(
      observation=self._observe(),
      reward=np.float32(self._number + action),
      is_terminal=nothing,
      is_last=nothing,
      mask=~nothing,
    )

  def save_state(self) -> types.PyTree:
    return {'counts': np.array([self._number, self._resets, self._steps])}

  def restore_state(self, state: types.PyTree) -> None:
    self._number, self._resets, self._steps = state['counts'].tolist()

  def close(self) -> None:
    pass

  def _observe(self) -> np.ndarray:
    shape = (self.num_environments, *self.spec.observation.shape)
    observation = np.zeros(shape, np.float32)
    observation[:, :3] = self._number, self._resets, self._steps
    return observation


def in_episodes(record: Any) -> Any:
  """Returns agents [S] whose unfinished episodes have returned something."""
  episodes = dataclasses.replace(
    record.acting.episodes,
    running=record.acting.episodes.running + 3.0,
    finished=record.acting.episodes.finished + 1,
  )
  acting = dataclasses.replace(record.acting, episodes=episodes)
  return dataclasses.replace(record, acting=acting)


def counting_spec(width: int = 3) -> types.EnvironmentSpec:
  """Returns the spec of `Counting`, whose observations are padded by zeros."""
  return types.EnvironmentSpec(jax.ShapeDtypeStruct((width,), jnp.float32), 2)


@dataclasses.dataclass(frozen=True)
class MeanReward(meta_gradient.MetaGradient):
  """A cheap estimator: the gradient is the mean of all rewards."""

  def outer_gradient(
    self, rule_params: types.Params, member: Any, validation: types.Rollout
  ) -> Any:
    gradient = jax.tree.map(
      lambda x: jnp.full_like(x, jnp.mean(validation.reward)), rule_params
    )
    return ((), gradient), member, {}

  def backward(
    self, rule_params: types.Params, cotangents: Any, segment: Any
  ) -> Any:
    del rule_params
    of_state, gradient = cotangents
    reward = jnp.mean(segment.batches.reward)
    return (of_state, jax.tree.map(lambda x: x + reward, gradient)), {}


# A rule's parameters -> the reward of agents.
Reward = Callable[[types.Params], jax.Array]


@types.record
class StubMember:
  """Counts its runs and validations, [], and keeps its rule."""

  key: types.Array
  rule: types.Params
  runs: types.Array
  validations: types.Array


def stub_member(rule_params: types.Params, seed: int | jax.Array) -> StubMember:
  """Makes a member that `StubProblem` has not run yet."""
  return StubMember(
    key=jax.random.key(seed),
    rule=jax.tree.map(jnp.zeros_like, rule_params),
    runs=jnp.int32(0),
    validations=jnp.int32(0),
  )


@dataclasses.dataclass(frozen=True)
class StubProblem:
  """An inner problem whose rewards depend on the rule and on random numbers.

  Attributes:
    reward_of: The function from a rule to its reward.
    noise: The factor of the random part, which the member's key determines.
  """

  reward_of: Reward
  noise: float = 0.0

  num_updates: ClassVar[int] = 1

  def key(self, member: Any) -> types.Array:
    return member.key

  def with_key(self, member: Any, key: types.Array) -> Any:
    return dataclasses.replace(member, key=key)

  def run(
    self,
    environment: None,
    rule_params: types.Params,
    member: Any,
    updates: int,
  ) -> tuple[StubMember, None, types.Logs]:
    del environment, updates
    key, _ = jax.random.split(member.key)
    member = dataclasses.replace(
      member, key=key, rule=rule_params, runs=member.runs + 1
    )
    return member, None, {'reward': self.reward_of(rule_params)}

  def validate(
    self, environment: None, member: Any
  ) -> tuple[StubMember, types.Rollout]:
    del environment
    noise = self.noise * jax.random.normal(member.key)
    rollout = types.Rollout(
      observation=(),
      action=jnp.zeros((3, 2), jnp.int32),
      logits=jnp.zeros((3, 2, 2)),
      # The mean over the real steps is the reward.
      reward=self.reward_of(member.rule)
      + noise
      + jnp.array([[1.0, -1.0], [1e3, 1e3]]),
      is_terminal=jnp.zeros((2, 2), bool),
      mask=jnp.array([[True, True], [False, False]]),
    )
    validations = member.validations + 1
    return dataclasses.replace(member, validations=validations), rollout

  def reward(self, validation: types.Rollout) -> types.Array:
    no_loop: Any = None
    return inner_problem.AgentProblem(no_loop).reward(validation)
