"""A custom training loop: one compiled program that trains many agents.

  python -m examples.own_loop

The network is plain JAX, the loop acts and learns in `jax.lax.scan`, and
`jax.vmap` trains an agent for each seed. Four agents learn Catch on a board of
6 x 5; 200 updates take seconds.
"""

import argparse
from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import disco_rl
from disco_rl.environments import base
from disco_rl.environments.jax_native import catch

NUM_ENVIRONMENTS = 24
LENGTH = 20  # The steps of a rollout.


# Shown as: network
@dataclasses.dataclass(frozen=True)
class Network:
  """An agent's network as pure functions; `disco_rl.Learner` uses two.

  Attributes:
    init: key -> parameters.
    outputs: (parameters, observation [..., rows, columns]) -> outputs by name:
      [..., A] logits of the policy, and the heads that the rule requires,
      [..., width] of a state and [..., A, width] of its actions.
  """

  init: Callable[[jax.Array], Any]
  outputs: Callable[[Any, jax.Array], dict[str, jax.Array]]

  def policy(self, params: Any, observation: jax.Array) -> jax.Array:
    """Returns only the logits; jax.jit removes the cost of other outputs."""
    return self.outputs(params, observation)['logits']

  def unroll(self, params: Any, rollout: disco_rl.Rollout) -> tuple[Any, Any]:
    """Computes all outputs for a rollout, and those of the taken actions."""
    every = self.outputs(params, rollout.observation)
    action = rollout.action[:-1, :, None, None]
    pick = lambda x: jnp.take_along_axis(x[:-1], action, axis=2)[:, :, 0]
    taken = {name: pick(x) if x.ndim == 4 else x for name, x in every.items()}
    return every, taken


def make_network(
  spec: disco_rl.EnvironmentSpec, rule: Any, width: int = 64
) -> Network:
  """Makes two hidden layers, and a linear head for each output."""
  num_actions = spec.num_actions
  heads = rule.output_spec(num_actions)
  sizes = {
    'hidden_0': (math.prod(spec.observation.shape), width),
    'hidden_1': (width, width),
    'logits': (width, num_actions),
    **{name: (width, size) for name, size in heads.state.items()},
    **{
      name: (width, num_actions * size) for name, size in heads.action.items()
    },
  }

  def init(key: jax.Array) -> Any:
    keys = jax.random.split(key, len(sizes))
    # Small heads: all actions are about equally likely at first.
    scale = lambda name, inputs: inputs**-0.5 if 'hidden' in name else 0.01
    return {
      name: {
        'w': scale(name, size[0]) * jax.random.normal(key, size),
        'b': jnp.zeros(size[1]),
      }
      for key, (name, size) in zip(keys, sizes.items())
    }

  def outputs(params: Any, observation: jax.Array) -> dict[str, jax.Array]:
    linear = lambda name, x: x @ params[name]['w'] + params[name]['b']
    leading = observation.shape[:-2]
    x = observation.reshape(*leading, -1)
    x = jax.nn.relu(linear('hidden_0', x))
    x = jax.nn.relu(linear('hidden_1', x))
    of_actions = {
      name: linear(name, x).reshape(*leading, num_actions, size)
      for name, size in heads.action.items()
    }
    of_state = {name: linear(name, x) for name in ('logits', *heads.state)}
    return of_state | of_actions

  return Network(init, outputs)
  # End of: network


# Shown as: train
def train(
  key: jax.Array,
  env: base.JaxEnvironment,
  network: Network,
  learner: disco_rl.Learner,
  updates: int,
) -> tuple[Any, jax.Array]:
  """Trains one agent; returns its parameters, and its return by update."""

  def act(carry: Any, key: jax.Array) -> Any:
    params, states, observation = carry
    action_key, step_key = jax.random.split(key)
    logits = network.policy(params, observation)
    action = jax.random.categorical(action_key, logits).astype(jnp.int32)
    states, step = jax.vmap(env.step_autoreset)(
      states, action, jax.random.split(step_key, NUM_ENVIRONMENTS)
    )
    return (params, states, step.observation), (
      observation,
      action,
      logits,
      step,
    )

  def update(carry: Any, key: jax.Array) -> Any:
    state, states, first = carry
    (_, states, last), (observation, action, logits, step) = jax.lax.scan(
      act, (state.params, states, first), jax.random.split(key, LENGTH)
    )
    # A rollout has one more state than transitions. The action in the last one
    # is not learned from.
    later = network.policy(state.params, last)
    add = lambda x, y: jnp.concatenate([x, y[None]])
    rollout = disco_rl.Rollout(
      observation=add(observation, last),
      action=add(action, jnp.zeros_like(action[0])),
      logits=add(logits, later),
      reward=step.reward,
      is_terminal=step.is_terminal,
      mask=step.mask,
    )
    state, _ = learner.update(state, rollout)
    episodes = jnp.maximum(jnp.sum(step.is_last), 1)
    return (state, states, last), jnp.sum(step.reward) / episodes

  init_key, reset_key, key = jax.random.split(key, 3)
  states, first = jax.vmap(env.reset)(
    jax.random.split(reset_key, NUM_ENVIRONMENTS)
  )
  (state, _, _), returns = jax.lax.scan(
    update,
    (learner.init(init_key), states, first),
    jax.random.split(key, updates),
  )
  return state.params, returns


def train_agents(
  env: base.JaxEnvironment,
  network: Network,
  learner: disco_rl.Learner,
  updates: int,
  seeds: int,
) -> tuple[Any, np.ndarray]:
  """Trains S agents in parallel; returns parameters, and [S, updates]."""
  keys = jax.vmap(jax.random.key)(jnp.arange(seeds))
  program = jax.jit(
    jax.vmap(lambda key: train(key, env, network, learner, updates))
  )
  params, returns = program(keys)
  return params, np.asarray(returns)
  # End of: train


def main() -> None:
  """Trains four agents, and prints how their returns grow."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rule', default='general')
  parser.add_argument('--updates', type=int, default=200)
  parser.add_argument('--seeds', type=int, default=4)
  flags = parser.parse_args()

  env = catch.Catch(6, 5)
  rule = disco_rl.load_rule(flags.rule)
  network = make_network(env.spec, rule)
  learner = disco_rl.Learner(network, env.spec, rule, learning_rate=1e-2)
  start = time.monotonic()
  _, returns = train_agents(env, network, learner, flags.updates, flags.seeds)
  print(f'{time.monotonic() - start:.0f} s, compiling included')
  for end in range(20, flags.updates + 1, 20):
    means = np.mean(returns[:, end - 20 : end], axis=1)
    print(f'updates to {end}: mean return of each agent', np.round(means, 2))


if __name__ == '__main__':
  main()
