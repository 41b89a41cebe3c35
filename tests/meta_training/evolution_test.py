"""Tests of disco_rl/meta_training/evolution.py: rewards with known slopes."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.meta_training import build
from disco_rl.meta_training import evolution
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import resets
from disco_rl.update_rules import policy_gradient

SLOPE = {'a': {'w': np.float32([1.0, -2.0])}, 'b': {'w': np.float32(0.5)}}
RULE = {'a': {'w': jnp.array([0.3, -0.7])}, 'b': {'w': jnp.array(1.5)}}
initial_member = functools.partial(discovering.stub_member, RULE)


def linear(rule_params: types.Params) -> jax.Array:
  return optax.tree.vdot(SLOPE, rule_params)


def quadratic(rule_params: types.Params) -> jax.Array:
  return linear(rule_params) - 2.0 * optax.tree.vdot(rule_params, rule_params)


@functools.partial(
  jax.jit, static_argnames=('reward', 'num_pairs', 'std', 'noise')
)
def estimate(
  reward: discovering.Reward,
  seed: int | jax.Array = 0,
  num_pairs: int = 1,
  std: float = 0.25,
  noise: float = 0.0,
) -> Any:
  """The estimated gradient, the member afterwards, and logs."""
  strategies = evolution.EvolutionStrategies(
    discovering.StubProblem(reward, noise), evolution.Evolution(num_pairs, std)
  )
  return strategies(RULE, initial_member(seed), None)


def distance(a: types.Params, b: types.Params) -> float:
  """Norm of the difference over the norm of b."""
  return float(optax.tree.norm(optax.tree.sub(a, b)) / optax.tree.norm(b))


@pytest.mark.parametrize('reward', [linear, quadratic])
def test_it_approaches_the_gradient_of_minus_the_reward(
  reward: discovering.Reward,
) -> None:
  expected = jax.grad(lambda rule: -reward(rule))(RULE)
  # The error of n pairs in d dimensions is about sqrt((d + 1) / n) of the norm.
  gradient, _, _ = estimate(reward, num_pairs=4000)
  assert distance(gradient, expected) < 0.1


def test_a_pair_measures_the_slope_along_its_direction() -> None:
  """Of one pair along e it is -(c . e) e, and c . e is in the logs."""
  std = 0.25
  for seed in range(3):
    gradient, _, logs = estimate(linear, seed, std=std)
    along = logs['reward_difference'] / (2.0 * std)
    assert along > 1e-2
    assert optax.tree.vdot(SLOPE, gradient) == pytest.approx(
      -(float(along) ** 2), rel=1e-4
    )


def test_pairs_cancel_even_terms() -> None:
  """So a parabola's slope is exact at any distance."""
  near, _, _ = estimate(quadratic, num_pairs=3, std=0.1)
  far, _, _ = estimate(quadratic, num_pairs=3, std=10.0)
  assert distance(near, far) < 1e-3


def test_a_pair_shares_its_random_numbers() -> None:
  noisy, _, _ = estimate(linear, num_pairs=3, noise=10.0)
  plain, _, _ = estimate(linear, num_pairs=3)
  assert distance(noisy, plain) < 1e-4


def test_the_member_continues_with_the_unperturbed_rule() -> None:
  before = initial_member(0)
  _, member, logs = estimate(linear, num_pairs=3)
  jax.tree.map(np.testing.assert_array_equal, member.rule, RULE)
  assert logs['reward'] == pytest.approx(float(linear(RULE)))
  # Once, from its state before: the perturbed runs leave no trace.
  assert member.runs == 1
  assert member.validations == 0
  data = jax.random.key_data
  assert np.any(data(member.key) != data(before.key))


def test_perturbations_depend_on_the_key_of_the_member() -> None:
  directions = [estimate(linear, seed, std=0.25)[0] for seed in range(2)]
  assert distance(*directions) > 1e-2


@types.record
class Counting(base.JaxEnvironment):
  """Calls the host at each step of each environment."""

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
  )
  count: Callable[[Any], None] = dataclasses.field(metadata={'static': True})

  def reset(self, key: types.Array) -> tuple[types.Array, types.Array]:
    del key
    return jnp.zeros((1,)), jnp.zeros((1,))

  def step(self, state: Any, action: types.Array, key: types.Array) -> Any:
    del key
    jax.debug.callback(self.count, action)
    no = jnp.bool_(False)
    return state, types.TimeStep(state, jnp.float32(0.0), no, no, ~no)


def test_all_environment_steps_are_counted() -> None:
  """In 4 runs of 3 updates and 2 validation rollouts, and those of the member.

  Each update follows a rollout of 5 steps in 2 environments.
  """
  config = discovering.config_of(
    inner_updates=3, validation_trajectories=4, unroll_length=5
  )
  inner_loop = build.make_inner_loop(
    config, policy_gradient.PolicyGradient(num_bins=3), Counting.spec
  )
  strategies = evolution.EvolutionStrategies(
    inner_problem.AgentProblem(inner_loop), evolution.Evolution(pairs=2)
  )
  taken: list[Any] = []
  environment = Counting(taken.append)

  @jax.jit
  def run(key: types.Array) -> Any:
    member = inner_loop_lib.Member(
      **vars(resets.initial_member(inner_loop, key, environment)),
      replay=inner_loop.agent.empty_replay(),
      meta_opt_state=(),
    )
    _, member, _ = strategies(RULE, member, environment)
    return member.learner

  jax.block_until_ready(run(jax.random.key(0)))
  jax.effects_barrier()
  assert len(taken) == (3 + 4 * (3 + 2)) * 5 * 2
  assert strategies.steps == (3 * 5 * 2, len(taken))
