"""Held-out trials in an environment whose returns tell what agents did."""

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

UPDATES = 3
LENGTH = 2
SEEDS = 3


@types.record
class Draw(base.JaxEnvironment):
  """Pays a random number, drawn at reset, when all updates have been made.

  Its only episode takes as many steps as an agent that makes all its updates:
  with one update fewer there is no return.
  """

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
  )

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


@pytest.fixture(scope='module')
def returns() -> list[np.ndarray]:
  """Of the agents, in two trials; [SEEDS] each."""

  def make(name: str, num_environments: int, *_: Any) -> Draw:
    assert (name, num_environments) == ('draw', SEEDS)
    return Draw()

  config = agent_lib.AgentConfig(
    network=agent_network.AgentNetworkConfig(
      torso=torsos.TorsoConfig(hidden_sizes=(2,))
    ),
    unroll_length=LENGTH,
    batch_size=1,
    num_environments=1,
    on_policy_share=1.0,
    replay_capacity=1,
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(registry, 'make', make)
    trials = held_out.HeldOut(
      held_out.HeldOutConfig(('draw',), updates=UPDATES, seeds=SEEDS),
      config,
      actor_critic.ActorCritic(num_bins=3),
      seed=5,
      preprocessing={},
    )
    results = [trials.evaluate({}) for _ in range(2)]
  assert [list(result) for result in results] == [['draw']] * 2
  return [result['draw'] for result in results]


def test_agents_make_all_their_updates(returns: list[np.ndarray]) -> None:
  for trial in returns:
    assert trial.shape == (SEEDS,)
    assert np.isfinite(trial).all()


def test_agents_have_seeds_of_their_own(returns: list[np.ndarray]) -> None:
  assert len(np.unique(returns[0])) == SEEDS


def test_each_trial_begins_with_the_same_fresh_agents(
  returns: list[np.ndarray],
) -> None:
  np.testing.assert_array_equal(returns[0], returns[1])


def test_rows_of_metrics_are_means_and_ranges() -> None:
  rows = held_out.rows(
    7, {'one': np.array([1.0, 4.0, -2.0]), 'other': np.array([3.0])}
  )
  assert rows == [
    {
      'meta_step': 7,
      'environment': 'one',
      'return': 1.0,
      'return_min': -2.0,
      'return_max': 4.0,
    },
    {
      'meta_step': 7,
      'environment': 'other',
      'return': 3.0,
      'return_min': 3.0,
      'return_max': 3.0,
    },
  ]
