"""Discovery improves a rule on the smallest task that shows it."""

import discovering
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import small_runs
from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.environments import base
from disco_rl.meta_training import build
from disco_rl.meta_training import device_group
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_step
from disco_rl.runtime import sharding

SETTINGS = {
  **small_runs.SMALL_RULE,
  'agents': 8,
  'chunk_size': 8,
  'batch_size': 8,
  'num_environments': 8,
  'on_policy_share': 1.0,
  'validation_trajectories': 8,
  'learning_rate': 1e-2,
  'meta_learning_rate': 1e-2,
  'inner_updates': 3,
  # Four meta-steps.
  'budgets': (4 * 4 * 8 * 6,),
}


@types.record
class Bandit(base.JaxEnvironment):
  """One action pays 1, the other -1; nothing shows which but the reward.

  Attributes:
    best: [] int32, the action that pays.
  """

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
  )
  best: types.Array

  def reset(self, key: types.Array) -> tuple[tuple[()], types.Array]:
    del key
    return (), jnp.ones((1,))

  def step(
    self, state: tuple[()], action: types.Array, key: types.Array
  ) -> tuple[tuple[()], types.TimeStep]:
    del key
    return state, types.TimeStep(
      observation=jnp.ones((1,)),
      reward=jnp.where(action == self.best, 1.0, -1.0),
      is_terminal=jnp.bool_(True),
      is_last=jnp.bool_(True),
      mask=jnp.bool_(True),
    )


def test_agents_learn_from_the_discovered_rule_alone() -> None:
  """Which action pays differs between agents: the rule must use the rewards."""
  config = discovering.config_of(**SETTINGS)
  rule, initial = build.make_rule(config)
  group_config = discovering.group_config(config, rule, Bandit.spec)
  group = device_group.DeviceGroup(
    group_config,
    [Bandit(jnp.int32(i % 2)) for i in range(config.agents)],
    meta_gradient.MetaGradient(
      inner_problem.AgentProblem(group_config.inner_loop, config.loss)
    ),
  )
  take_step = meta_step.MetaStep(config, [group], sharding.make_mesh())
  state = take_step.init(initial)
  for _ in range(70):
    state, _, _ = take_step(state)

  def returns(rule_params: types.Params) -> np.ndarray:
    """Returns of new agents after some updates by the rule, [agents]."""
    keys = jax.random.split(jax.random.key(1), config.agents)
    members = group.init(keys, rule_params)
    for _ in range(7):
      _, members, _ = group.step(rule_params, members)
    return np.asarray(jax.vmap(episodes.mean_return)(members.acting.episodes))

  assert np.mean(np.abs(returns(initial))) < 0.3
  assert np.min(returns(state.rule_params)) > 0.7
