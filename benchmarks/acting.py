"""Times acting: steps per second in environments of either kind.

  python -m benchmarks.acting --json=acting.json
  python -m benchmarks.acting --environments=procgen/coinrun --frame_stack=1

One agent acts in 96 environments, with the default MLP on the device and with a
linear policy on the host.
"""

from collections.abc import Callable
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp

from benchmarks import timing
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_actor
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.update_rules import actor_critic

_ENVIRONMENTS = flags.DEFINE_list(
  'environments',
  [
    *('catch', 'gridworld/00', 'gridworld/43', 'minatar/asterix'),
    *('minatar/breakout', 'minatar/freeway', 'minatar/space_invaders'),
    *('bsuite/memory_chain', 'gymnax/CartPole-v1', 'sokoban'),
    *('craftax/classic_symbolic', 'craftax/classic_pixels'),
    *('gymnasium/CartPole-v1', 'atari/breakout', 'procgen/coinrun'),
    *('crafter', 'nethack/score'),
  ],
  'Names; launch.list_environments prints them.',
)
_BATCH = flags.DEFINE_integer('batch', 96, 'Environments.', lower_bound=1)
_LENGTH = flags.DEFINE_integer('length', 28, 'Steps of a rollout.')
_FRAME_STACK = flags.DEFINE_integer(
  'frame_stack',
  None,
  "Frames in one observation; by default each environment's own number.",
)
_REPEATS = flags.DEFINE_integer('repeats', 7, 'Timings; the median is shown.')

# The seed of the environments.
_SEED = 0

# Takes _LENGTH steps in _BATCH environments.
Act = Callable[[], object]


def measure(name: str) -> dict[str, Any]:
  """Times one environment; returns a row of the table."""
  environment = registry.make(name, _BATCH.value, _SEED, preprocessing(name))
  if isinstance(environment, base.HostEnvironment):
    act = on_host(environment)
  else:
    act = on_device(environment)
  seconds = timing.median_seconds(act, _REPEATS.value)
  steps_per_second = _BATCH.value * _LENGTH.value / seconds
  return {'environment': name, 'steps_per_second': steps_per_second}


def preprocessing(name: str) -> registry.Preprocessing:
  """Returns the settings that --frame_stack changes."""
  if _FRAME_STACK.value is None:
    return {}
  return {name.partition('/')[0]: {'frame_stack': _FRAME_STACK.value}}


def make_agent(
  spec: types.EnvironmentSpec, torso: torsos.TorsoConfig
) -> agent_lib.Agent:
  """Makes an agent, of which only the policy is used."""
  network = agent_network.AgentNetworkConfig(torso=torso)
  config = agent_lib.AgentConfig(network=network)
  return agent_lib.make(config, spec, actor_critic.ActorCritic())


def on_device(environment: base.JaxEnvironment) -> Act:
  """Returns a function that acts with an MLP; calls continue the last state."""
  agent = make_agent(environment.spec, torsos.TorsoConfig())
  params = jax.jit(agent.network.init)(jax.random.key(0))
  state = jax.jit(
    lambda key: actor.init(key, agent.network, environment, _BATCH.value)
  )(jax.random.key(1))

  @jax.jit
  def unroll(state: actor.ActorState, key: types.Array) -> Any:
    return actor.unroll(
      agent.network, environment, params, state, key, _LENGTH.value
    )

  keys = iter(jax.random.split(jax.random.key(2), 10_000))

  def act() -> Any:
    nonlocal state
    state, *rest = unroll(state, next(keys))
    return state, rest

  return act


def on_host(environment: base.HostEnvironment) -> Act:
  """Returns a function that acts by `HostActor`, with a linear policy."""
  agent = make_agent(environment.spec, torsos.TorsoConfig(kind=flat))
  keys = jax.random.split(jax.random.key(0), 1)
  params = jax.vmap(agent.network.init)(keys)
  actor = host_actor.HostActor(agent.network, environment, num_agents=1)
  keys = iter(jax.random.split(jax.random.key(2), 10_000))
  return lambda: actor.unroll(params, next(keys)[None], _LENGTH.value)


def flat(observation: types.PyTree) -> types.Array:
  """Flattens observations: without a torso, heads are linear in them."""
  leaves = [
    leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(observation)
  ]
  return jnp.concatenate([x.astype(jnp.float32) for x in leaves], axis=-1)


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  rows = []
  for name in _ENVIRONMENTS.value:
    rows.append(measure(name))
    row = '{environment:26} {steps_per_second:12,.0f} steps/s'
    print(row.format(**rows[-1]), flush=True)
  timing.write(rows)


if __name__ == '__main__':
  app.run(main)
