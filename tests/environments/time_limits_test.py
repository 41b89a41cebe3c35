"""Time limits are no terminations: values, in environments of every kind.

Each step pays 1, for ever; episodes are truncated after ten steps. So the value
is 1 / (1 - gamma), wherever the limit is, and in an environment that ends after
ten steps by itself it is less.
"""

from collections.abc import Callable
import functools
from typing import Any

import conformance
import dm_env
from dm_env import specs
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import dm_env_adapter
from disco_rl.environments.host import dmlab
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import on_host
from disco_rl.maths import masked
from disco_rl.maths import value_targets

LIMIT, DISCOUNT = 10, 0.9
T, B = 33, 4


class Gym(gymnasium.Env):
  """Terminates after `life` steps, if at all."""

  observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self, life: int = 0):
    self._life = life

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    super().reset(seed=seed, options=options)
    self._time = 0
    return np.ones(1, np.float32), {}

  def step(self, action: Any) -> Any:
    del action
    self._time += 1
    is_over = self._time == self._life
    return np.ones(1, np.float32), 1.0, is_over, False, {}


class DmEnv(dm_env.Environment):
  def observation_spec(self) -> Any:
    return specs.Array((1,), np.float32)

  def action_spec(self) -> Any:
    return specs.DiscreteArray(2)

  def reset(self) -> dm_env.TimeStep:
    self._time = 0
    return dm_env.restart(np.ones(1, np.float32))

  def step(self, action: Any) -> dm_env.TimeStep:
    del action
    self._time += 1
    make = dm_env.truncation if self._time == LIMIT else dm_env.transition
    return make(1.0, np.ones(1, np.float32))


class Lab:
  """What `DMLabEnvironment` uses of `deepmind_lab.Lab`."""

  def reset(self, seed: int) -> None:
    del seed
    self._time = 0

  def is_running(self) -> bool:
    return self._time < LIMIT

  def step(self, action: Any, num_steps: int) -> float:
    del action, num_steps
    self._time += 1
    return 1.0

  def observations(self) -> dict[str, Any]:
    return {'RGB_INTERLEAVED': np.ones((28, 28, 3), np.uint8), 'INSTR': ''}

  def close(self) -> None:
    pass


def grid_world() -> base.JaxEnvironment:
  """Without objects; what the agent does is of no consequence."""
  return gridworld.build(
    '@. ..',
    kinds=(),
    step_limit=LIMIT,
    size=(2, 2),
    num_slots=1,
    num_kinds=1,
    step_reward=1.0,
  )


def limited(life: int = 0) -> gymnasium.Env:
  return gymnasium.wrappers.TimeLimit(Gym(life), LIMIT)


def vector(mode: str) -> base.HostEnvironment:
  make = [limited] * B
  autoreset = gymnasium.vector.AutoresetMode[mode]
  env = gymnasium.vector.SyncVectorEnv(make, autoreset_mode=autoreset)
  return gymnasium_adapter.GymnasiumEnvironment(env, 0)


KINDS: dict[str, Callable[[], base.JaxEnvironment | base.HostEnvironment]] = {
  'JAX': grid_world,
  'JAX on the host': lambda: on_host.OnHost(grid_world(), B, 0),
  'Gymnasium': lambda: gymnasium_adapter.SingleEnvironments(
    [limited() for _ in range(B)], 0, 'Endless'
  ),
  'Gymnasium, next step': lambda: vector('NEXT_STEP'),
  'Gymnasium, same step': lambda: vector('SAME_STEP'),
  'DeepMind Lab': lambda: dmlab.DMLabEnvironment(
    [Lab() for _ in range(B)], 'Endless', 0, dmlab.Preprocessing(2, 28, 28)
  ),
  'dm_env': lambda: dm_env_adapter.DmEnvEnvironment(
    [DmEnv() for _ in range(B)], 0
  ),
}


def play(environment: Any) -> types.TimeStep:
  """Outcomes of T steps, [T, B]."""
  if isinstance(environment, base.JaxEnvironment):
    action = np.zeros((T, B), np.int32)
    rollout = jax.jit(conformance.jax_rollout(environment))
    return jax.device_get(rollout(jax.random.key(0), action)[1])
  environment.reset()
  steps = [environment.step(np.zeros(B, np.int32)) for _ in range(T)]
  environment.close()
  return jax.tree.map(lambda *x: np.stack(x), *steps)


@functools.cache
def _improve() -> Any:
  """(value, rollout) -> the mean return by Retrace of its real steps."""

  def improve(value: jax.Array, rollout: types.Rollout) -> jax.Array:
    # A distribution over bins whose transformed mean is the value.
    transformed = value_targets.TRANSFORM.apply(value)
    share = (transformed + 10.0) / 20.0
    logits = jnp.stack([jnp.log1p(-share), jnp.log(share)])
    q_logits = jnp.broadcast_to(logits, (T + 1, B, 2, 2))
    estimates, _ = value_targets.retrace(
      value_targets.init_moments(),
      rollout,
      rollout.logits,
      q_logits,
      q_logits,
      discount=DISCOUNT,
      lambda_=0.95,
      max_abs_value=10.0,
      moments_decay=0.99,
    )
    return masked.mean(estimates.q_target, rollout.mask)

  return jax.jit(improve)


def learned_value(timestep: types.TimeStep) -> float:
  """The value that predicts its own returns, where all states look alike."""
  rollout = types.Rollout(
    observation=(),
    action=np.zeros((T + 1, B), np.int32),
    logits=np.zeros((T + 1, B, 2), np.float32),
    reward=timestep.reward,
    is_terminal=timestep.is_terminal,
    mask=timestep.mask,
  )
  value = jnp.float32(0.0)
  for _ in range(60):
    value = _improve()(value, rollout)
  return float(value)


@pytest.mark.parametrize('kind', KINDS)
def test_values_do_not_know_the_limit(kind: str) -> None:
  timestep = play(KINDS[kind]())
  assert timestep.is_last.sum() == B * 3
  assert learned_value(timestep) == pytest.approx(1 / (1 - DISCOUNT), rel=0.01)


def test_values_know_a_death() -> None:
  """After the mean remaining life of a state, 5.5 of 10 steps."""
  environment = gymnasium_adapter.SingleEnvironments(
    [limited(LIMIT) for _ in range(B)], 0, 'Mortal'
  )
  assert learned_value(play(environment)) < 0.7 / (1 - DISCOUNT)
