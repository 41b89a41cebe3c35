"""A reset agent whose environments step on the host: what it acts from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_actor
from disco_rl.environments import base
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import meta_value as meta_value_lib
from disco_rl.meta_training import population
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.update_rules import actor_critic

pytestmark = pytest.mark.usefixtures('quick_compilation')

AGENTS, EACH, LENGTH, CORE = 3, 2, 2, 4
# An update and a rollout of validation trajectories.
STEPS = 2 * LENGTH
SETTINGS = {
  'environments': 'catch/4x3',
  'agents': AGENTS,
  'inner_updates': 1,
  'validation_trajectories': EACH,
  'unroll_length': LENGTH,
  'batch_size': EACH,
  'num_environments': EACH,
  'on_policy_share': 1.0,
  'replay_capacity': EACH,
  'hidden_sizes': (3,),
  'core_lstm': CORE,
  'meta_value_hidden_sizes': (2,),
}


class Counting(base.HostEnvironment):
  """Observes its agent's number, its resets and the steps since; never ends."""

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((3,), jnp.float32), num_actions=2
  )
  num_environments = EACH

  def __init__(self, agent: int):
    self._agent = agent
    self._resets = 0

  def reset(self) -> types.PyTree:
    self._resets += 1
    self._steps = 0
    return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    del action
    self._steps += 1
    nothing: Any = np.zeros(EACH, bool)
    return types.TimeStep(
      observation=self._observe(),
      reward=nothing.astype(np.float32),
      is_terminal=nothing,
      is_last=nothing,
      mask=~nothing,
    )

  def close(self) -> None:
    pass

  def _observe(self) -> np.ndarray:
    counts = [self._agent, self._resets, self._steps]
    return np.tile(np.float32(counts), (EACH, 1))


class NoGradient:
  """An estimator that costs nothing."""

  def outer_gradient(
    self, rule_params: types.Params, member: inner_loop_lib.Member, *_: Any
  ) -> tuple[Any, inner_loop_lib.Member, types.Logs]:
    return ((), jax.tree.map(jnp.zeros_like, rule_params)), member, {}

  def backward(
    self, rule_params: types.Params, cotangents: Any, *_: Any
  ) -> tuple[Any, types.Logs]:
    del rule_params
    return cotangents, {}


RULE_PARAMS = {'module': {'w': jnp.zeros((2,))}}


def make_group() -> host_group.HostGroup:
  settings = {**quickstart.get_config().to_dict(), **SETTINGS}
  config = meta_trainer.config_of(settings)
  rule = actor_critic.ActorCritic(num_bins=3)
  estimator: Any = NoGradient()
  return host_group.HostGroup(
    population.GroupConfig(
      names=AGENTS * ('counting',),
      inner_loop=inner_loop_lib.InnerLoop(
        config.inner_loop,
        agent_lib.make(config.agent, Counting.spec, rule),
        meta_value_lib.MetaValue(config.meta_value, Counting.spec),
      ),
      optimizer=meta_update.per_agent_adam(0.1, 1.0),
      chunk_size=AGENTS,
    ),
    lambda _: [Counting(i) for i in range(AGENTS)],
    estimator,
  )


@pytest.fixture(scope='module')
def rollouts() -> list[types.Rollout]:
  """Of all agents, [S, T or T+1, E, ...]; agent 1 is reset after the second."""
  group = make_group()
  unroll = host_actor.HostActor.unroll
  recorded = []

  def record(self: Any, actor_params: Any, length: int) -> Any:
    rollout, is_last = unroll(self, actor_params, length)
    recorded.append(jax.device_get(rollout))
    return rollout, is_last

  keys = jax.random.split(jax.random.key(0), AGENTS)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(host_actor.HostActor, 'unroll', record)
    members = group.init(keys, RULE_PARAMS)
    _, members, _ = group.step(RULE_PARAMS, members)
    members = group.reset_expired(keys, members, np.array([False, True, False]))
    group.step(RULE_PARAMS, members)
  assert len(recorded) == 4
  return recorded


def test_a_reset_agent_sees_the_observation_of_the_reset(
  rollouts: list[types.Rollout],
) -> None:
  """Its number, two resets, and the steps since; others go on."""
  after = rollouts[2].observation
  assert after.shape == (AGENTS, LENGTH + 1, EACH, 3)
  for agent, (resets, steps) in enumerate([(1, STEPS), (2, 0), (1, STEPS)]):
    for t in range(LENGTH + 1):
      expected = np.tile([agent, resets, steps + t], (EACH, 1))
      np.testing.assert_array_equal(after[agent, t], expected)


def test_a_reset_agent_begins_with_a_zeroed_core_state(
  rollouts: list[types.Rollout],
) -> None:
  leaves = jax.tree.leaves(rollouts[2].core_state)
  assert len(leaves) == 2  # Of an LSTM.
  for leaf in leaves:
    assert leaf.shape == (AGENTS, 1, EACH, CORE)
    assert (leaf[1] == 0).all()
    # Those of the others go on.
    assert (leaf[[0, 2]] != 0).all()


def test_all_agents_begin_with_a_zeroed_core_state(
  rollouts: list[types.Rollout],
) -> None:
  for leaf in jax.tree.leaves(rollouts[0].core_state):
    assert (leaf == 0).all()
  for leaf in jax.tree.leaves(rollouts[1].core_state):
    assert (leaf != 0).all()


@pytest.mark.parametrize('is_distributed', [False, True])
def test_an_agent_is_reset_after_a_resumption(
  is_distributed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Members are the same as before, bit for bit, and their keys are keys."""
  monkeypatch.setattr(distributed, 'is_distributed', lambda: is_distributed)
  group = make_group()
  keys = jax.random.split(jax.random.key(0), AGENTS)
  before = group.init(keys, RULE_PARAMS)
  like = group.to_checkpoint(before)
  saved = jax.tree.map(files.to_data, like)
  members = group.resume(jax.tree.map(files.from_data, saved, like), 1)
  assert jax.tree.map(lambda x: x.dtype, members) == jax.tree.map(
    lambda x: x.dtype, before
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_array_equal(
      files.to_data(x), files.to_data(y)
    ),
    members,
    before,
  )
  new_keys = jax.random.split(jax.random.key(1), AGENTS)
  members = group.reset_expired(
    new_keys, members, np.array([False, True, False])
  )
  is_same = members.agent.key == before.agent.key
  np.testing.assert_array_equal(is_same, [True, False, True])
