"""A reset agent whose environments step on the host: what it acts from."""

from typing import Any

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import host_actor
from disco_rl.meta_training import host_group
from disco_rl.runtime import distributed
from disco_rl.runtime import files
from disco_rl.update_rules import actor_critic

AGENTS, EACH, LENGTH, CORE = 3, 2, 2, 4
# An update and a rollout of validation trajectories.
STEPS = 2 * LENGTH
RULE_PARAMS = {'module': {'w': jnp.zeros((2,))}}


def make_group() -> host_group.HostGroup:
  config = discovering.config_of(
    agents=AGENTS,
    chunk_size=AGENTS,
    inner_updates=1,
    unroll_length=LENGTH,
    core_lstm=CORE,
  )
  group = discovering.group_config(
    config, actor_critic.ActorCritic(num_bins=3), discovering.counting_spec()
  )
  return host_group.HostGroup(
    group,
    lambda _: [discovering.Counting(i) for i in range(AGENTS)],
    discovering.MeanReward(group.inner_loop),
  )


@pytest.fixture(scope='module')
def rollouts() -> list[types.Rollout]:
  """Rollouts of all agents, [S, T or T+1, E, ...]; agent 1 is reset after 2."""
  group = make_group()
  unroll = host_actor.HostActor.unroll
  recorded = []

  def record(*arguments: Any) -> Any:
    rollout, is_last = unroll(*arguments)
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


def test_agents_begin_with_a_zeroed_core_state(
  rollouts: list[types.Rollout],
) -> None:
  """All of them at first, the one that is reset again."""
  for rollout, is_zero in zip(
    rollouts, [[True] * 3, [False] * 3, [False, True, False]]
  ):
    leaves = jax.tree.leaves(rollout.core_state)
    assert len(leaves) == 2  # Of an LSTM.
    for leaf in leaves:
      assert leaf.shape == (AGENTS, 1, EACH, CORE)
      for agent, zero in zip(leaf, is_zero, strict=True):
        assert ((agent == 0) == zero).all()


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
  is_same = members.acting.key == before.acting.key
  np.testing.assert_array_equal(is_same, [True, False, True])
