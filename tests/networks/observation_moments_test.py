"""Normalized observations, and that only batches change the statistics."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.networks import agent_network
from disco_rl.networks import observation_moments
from disco_rl.networks import torsos
from disco_rl.update_rules import actor_critic

SPEC = types.EnvironmentSpec(
  observation={
    'action_mask': jax.ShapeDtypeStruct((2,), jnp.float32),
    'code': jax.ShapeDtypeStruct((1,), jnp.int32),
    'pixels': jax.ShapeDtypeStruct((2, 2), jnp.uint8),
    'speed': jax.ShapeDtypeStruct((3,), jnp.float32),
  },
  num_actions=2,
)
CONFIG = agent_lib.AgentConfig(
  network=agent_network.AgentNetworkConfig(
    torso=torsos.TorsoConfig(hidden_sizes=(8,)), normalize_observations=True
  ),
  unroll_length=4,
  batch_size=3,
  num_environments=3,
  on_policy_share=1.0,
  replay_capacity=3,
  learning_rate=1e-2,
  weight_decay=0.5,
)


def batch(seed: int) -> types.Rollout:
  generator = np.random.default_rng(seed)
  rollout = types.empty_rollout(SPEC, (), 4, 3)
  speed = np.array([1.0, 20.0, 1e-2]) * generator.normal(size=(5, 3, 3))
  observation = {
    **rollout.observation,
    'action_mask': jnp.ones((5, 3, 2)),
    'code': jnp.full((5, 3, 1), 700),
    'speed': jnp.asarray(speed + [5.0, 0.0, -7.0], jnp.float32),
  }
  return dataclasses.replace(
    rollout,
    observation=observation,
    reward=jnp.ones((4, 3)),
    mask=jnp.ones((4, 3), bool),
  )


@pytest.mark.slow
def test_agents_learn_from_observations_of_mean_0_and_deviation_1() -> None:
  """With weight decay, which would also change the statistics."""
  agent = agent_lib.make(
    CONFIG, SPEC, actor_critic.ActorCritic(num_bins=11, max_abs_value=3.0)
  )
  plain = agent_network.make(
    SPEC,
    agent.rule.output_spec(2),
    dataclasses.replace(CONFIG.network, normalize_observations=False),
  )
  state = agent.init_learner(jax.random.split(jax.random.key(0))[0])
  learn = jax.jit(lambda state, batch: agent.learn({}, state, batch))
  for seed in (0, 1):
    state, update = learn(state, batch(seed))
    moments = update.gradient[observation_moments.MODULE]
    assert not any(np.any(x) for x in moments.values())
  seen = np.concatenate(
    [batch(i).observation['speed'][:-1].reshape(-1, 3) for i in (0, 1)]
  ).astype(np.float64)
  moments = state.params[observation_moments.MODULE]
  assert moments['count'] == len(seen) == 24
  np.testing.assert_allclose(moments["mean['speed']"], seen.mean(0), rtol=1e-5)
  np.testing.assert_allclose(
    moments["variance['speed']"], seen.var(0), rtol=1e-4
  )
  assert {*moments} == {'count', "mean['speed']", "variance['speed']"}

  # A network that normalizes equals one that reads what NumPy normalized.
  new = batch(2)
  speed = np.asarray(new.observation['speed'], np.float64)
  speed[0, 0] = 1e4, -1e6, 0.0
  new = with_speed(new, speed)
  normalized = (speed - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8)
  assert np.abs(normalized).max() > 10
  by_hand = with_speed(new, np.clip(normalized, -10, 10))
  weights = {k: x for k, x in state.params.items() if 'moments' not in k}
  close = lambda got, want: np.testing.assert_allclose(got, want, atol=1e-4)
  jax.tree.map(
    close,
    agent.network.unroll(state.params, new),
    plain.unroll(weights, by_hand),
  )
  close(agent.network.policy(state.params, new), plain.policy(weights, by_hand))
  first = lambda rollout: jax.tree.map(lambda x: x[0], rollout.observation)
  close(
    agent.network.step(state.params, first(new), ())[0],
    plain.step(weights, first(by_hand), ())[0],
  )


def with_speed(rollout: types.Rollout, speed: Any) -> types.Rollout:
  """Replaces the observations of floats."""
  observation = {
    **rollout.observation,
    'speed': jnp.asarray(speed, jnp.float32),
  }
  return dataclasses.replace(rollout, observation=observation)
