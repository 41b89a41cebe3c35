"""Held-out trials in environments whose returns tell what agents did."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.meta_training import held_out
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import actor_critic

UPDATES, LENGTH, SEEDS, EACH = 4, 2, 3, 2
# On the host a trial ends in the middle of an episode.
EPISODE = 3
SPEC = types.EnvironmentSpec(
  observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
)


@types.record
class Draw(base.JaxEnvironment):
  """Pays a random number, drawn at reset, when all updates have been made.

  Its only episode takes as many steps as an agent that makes all its updates:
  with one update fewer there is no return.
  """

  spec = SPEC

  def reset(self, key: types.Array) -> tuple[Any, types.Array]:
    return (jax.random.uniform(key), jnp.int32(0)), jnp.zeros((1,))

  def step(
    self, state: Any, action: types.Array, key: types.Array
  ) -> tuple[Any, types.TimeStep]:
    del action, key
    draw, steps = state
    is_last = steps + 1 == UPDATES * LENGTH
    return (draw, steps + 1), types.TimeStep(
      observation=jnp.zeros((1,)),
      reward=jnp.where(is_last, draw, 0.0),
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )


class Alternating(base.HostEnvironment):
  """Pays for action 1 in even steps and for action 0 in odd ones."""

  spec = SPEC
  num_environments = SEEDS * EACH

  def reset(self) -> types.PyTree:
    self._steps = 0
    return self._observe()

  def step(self, action: Any) -> types.TimeStep:
    reward = (action + self._steps) % 2 * (1.0 + self._steps)
    self._steps = (self._steps + 1) % EPISODE
    is_last = np.full(self.num_environments, self._steps == 0)
    timestep: Any = types.TimeStep(
      observation=self._observe(),
      reward=reward.astype(np.float32),
      is_terminal=is_last,
      is_last=is_last,
      mask=np.ones_like(is_last),
    )
    return timestep

  def close(self) -> None:
    pass

  def _observe(self) -> np.ndarray:
    return np.full((self.num_environments, 1), self._steps, np.float32)


class Rising(Alternating):
  """Pays more from step to step, also after a reset; it can be saved."""

  _all_steps = 0

  def step(self, action: Any) -> types.TimeStep:
    self._all_steps += 1
    timestep = super().step(action)
    return dataclasses.replace(
      timestep, reward=timestep.reward * self._all_steps
    )

  def save_state(self) -> types.PyTree:
    return np.array([self._steps, self._all_steps])

  def restore_state(self, state: types.PyTree) -> None:
    self._steps, self._all_steps = state.tolist()


@pytest.mark.parametrize('make', [Draw, Alternating, Rising])
def test_each_trial_begins_with_the_same_fresh_agents(
  monkeypatch: pytest.MonkeyPatch, make: type[Any]
) -> None:
  """Each of its own seed, with a memory; they learn mostly from replay."""

  def make_own(name: str, num_environments: int, *_: Any) -> Any:
    assert (name, num_environments) == ('own', SEEDS * EACH)
    return make()

  monkeypatch.setattr(registry, 'make', make_own)
  config = agent_lib.AgentConfig(
    network=agent_network.AgentNetworkConfig(
      torso=torsos.TorsoConfig(hidden_sizes=(4,)), core_lstm=3
    ),
    unroll_length=LENGTH,
    batch_size=4,
    num_environments=EACH,
    on_policy_share=0.25,
    replay_capacity=6,
    learning_rate=1.0,
  )
  trials = held_out.HeldOut(
    held_out.HeldOutConfig(('own',), updates=UPDATES, seeds=SEEDS),
    config,
    actor_critic.ActorCritic(num_bins=3),
    seed=5,
    preprocessing={},
  )
  first, second, third = (trials.evaluate({})['own'] for _ in range(3))
  assert first.shape == (SEEDS,)
  assert np.isfinite(first).all()
  assert len(np.unique(first)) > 1
  np.testing.assert_array_equal(second, first)
  np.testing.assert_array_equal(third, first)
