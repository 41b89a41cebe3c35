"""Held-out trials in an environment on the host, one after the other."""

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

pytestmark = pytest.mark.usefixtures('quick_compilation')

UPDATES, LENGTH, SEEDS, EACH = 4, 2, 2, 2
# A trial ends in the middle of an episode.
EPISODE = 3


class Alternating(base.HostEnvironment):
  """Pays for action 1 in even steps and for action 0 in odd ones."""

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
  )
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


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> held_out.HeldOut:
  """Of agents with a memory, which learn mostly from replay."""

  def make(name: str, num_environments: int, *_: Any) -> Alternating:
    assert (name, num_environments) == ('alternating', SEEDS * EACH)
    return Alternating()

  monkeypatch.setattr(registry, 'make', make)
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
  return held_out.HeldOut(
    held_out.HeldOutConfig(('alternating',), updates=UPDATES, seeds=SEEDS),
    config,
    actor_critic.ActorCritic(num_bins=3),
    seed=5,
    preprocessing={},
  )


def test_a_trial_inherits_nothing_from_the_one_before(
  trials: held_out.HeldOut,
) -> None:
  first, second, third = (trials.evaluate({})['alternating'] for _ in range(3))
  assert first.shape == (SEEDS,)
  assert np.isfinite(first).all()
  np.testing.assert_array_equal(second, first)
  np.testing.assert_array_equal(third, first)
