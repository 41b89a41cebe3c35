"""Times acting: steps per second in environments of either kind.

  python -m benchmarks.acting --json=acting.json
  python -m benchmarks.acting --environments=procgen/coinrun --frame_stack=1

One agent acts in 96 environments. In those on the device the MLP of
configs/evaluate.py acts; the same program with random actions measures the
environments' part of the time. In those on the host a linear policy acts; the
package itself, without this project, is stepped with random actions. The two
are timed by turns, as times drift on shared machines.
"""

from collections.abc import Callable
import dataclasses
import statistics
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import timing
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import host_actor
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import atari
from disco_rl.environments.host import crafter_adapter
from disco_rl.environments.host import nethack
from disco_rl.environments.host import procgen
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
  "Frames in one observation; without it each environment's default. The "
  'packages of NetHack and ProcGen show one.',
)
_REPEATS = flags.DEFINE_integer('repeats', 7, 'Timings, of which the median.')

# Of the environments.
_SEED = 0

# Makes _LENGTH steps in _BATCH environments.
Act = Callable[[], object]


def measure(name: str) -> dict[str, Any]:
  """Times one environment: a row of the table."""
  environment = registry.make(name, _BATCH.value, _SEED, preprocessing(name))
  if isinstance(environment, base.HostEnvironment):
    act, at_random = on_host(environment), by_package(name)
    meaning = 'of the rate of random actions in the package'
  else:
    act, at_random = on_device(environment)
    meaning = 'of the time is the environments'
  for function in (act, at_random):  # Compiles.
    timing.seconds(function)
  samples = [
    (timing.seconds(act), timing.seconds(at_random))
    for _ in range(_REPEATS.value)
  ]
  steps = _BATCH.value * _LENGTH.value
  return {
    'environment': name,
    'steps_per_second': steps / statistics.median(a for a, _ in samples),
    'ratio': statistics.median(r / a for a, r in samples),
    'meaning': meaning,
  }


def preprocessing(name: str) -> registry.Preprocessing:
  """Other settings than the defaults."""
  if _FRAME_STACK.value is None:
    return {}
  return {name.partition('/')[0]: {'frame_stack': _FRAME_STACK.value}}


def make_agent(
  spec: types.EnvironmentSpec, torso: torsos.TorsoConfig
) -> agent_lib.Agent:
  """An agent; only its policy is used."""
  network = agent_network.AgentNetworkConfig(torso=torso)
  config = agent_lib.AgentConfig(network=network)
  return agent_lib.make(config, spec, actor_critic.ActorCritic())


def on_device(environment: base.JaxEnvironment) -> tuple[Act, Act]:
  """Acting by an MLP, and at random."""
  agent = make_agent(environment.spec, torsos.TorsoConfig())
  params = jax.jit(agent.init)(jax.random.key(0)).learner.params
  start = jax.jit(
    lambda key: actor.init(key, agent.network, environment, _BATCH.value)
  )(jax.random.key(1))

  @jax.jit
  def by_mlp(state: actor.ActorState, key: types.Array) -> Any:
    return actor.unroll(
      agent.network, environment, params, state, key, _LENGTH.value
    )

  @jax.jit
  def at_random(state: Any, key: types.Array) -> Any:
    action_key, key = jax.random.split(key)
    shape = (_LENGTH.value, _BATCH.value)
    actions = jax.random.randint(
      action_key, shape, 0, environment.spec.num_actions
    )
    return jax.lax.scan(
      lambda state, x: jax.vmap(environment.step_autoreset)(state, *x),
      state,
      (actions, jax.random.split(key, shape)),
    )

  return with_state(by_mlp, start), with_state(at_random, start.environment)


def with_state(function: Callable[[Any, types.Array], Any], state: Any) -> Act:
  """Each call passes on the state that the previous one returned."""
  keys = iter(jax.random.split(jax.random.key(2), 10_000))

  def act() -> Any:
    nonlocal state
    state, *rest = function(state, next(keys))
    return state, rest

  return act


def on_host(environment: base.HostEnvironment) -> Act:
  """Acting by a linear policy, as evaluation and discovery do."""
  agent = make_agent(environment.spec, torsos.TorsoConfig(kind=flat))
  state = jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 1))
  actor = host_actor.HostActor(agent.network, environment, num_agents=1)
  actor_params = host_actor.ActorParams(
    params=state.learner.params, keys=state.key
  )
  keys = iter(jax.random.split(jax.random.key(2), 10_000))
  return lambda: actor.unroll(
    dataclasses.replace(actor_params, keys=next(keys)[None]), _LENGTH.value
  )


def flat(observation: types.PyTree) -> types.Array:
  """No torso: heads are then linear in the observation."""
  leaves = [
    leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(observation)
  ]
  return jnp.concatenate([x.astype(jnp.float32) for x in leaves], axis=-1)


def by_package(name: str) -> Act:
  """Random actions in the environments of a package, without adapters."""
  family, _, variant = name.partition('/')
  if family not in PACKAGES:
    raise ValueError(f'{name}: only {", ".join(PACKAGES)} can be compared.')
  environment = PACKAGES[family](variant)
  environment.reset()
  num_actions = int(environment.single_action_space.n)
  rng = np.random.default_rng(0)

  def act() -> None:
    for _ in range(_LENGTH.value):
      environment.step(rng.integers(num_actions, size=_BATCH.value))

  return act


class OneByOne:
  """Environments of the Gym API, which step one after the other."""

  def __init__(self, environments: list[Any]):
    self._environments = environments
    self.single_action_space = environments[0].action_space

  def reset(self) -> None:
    """Starts an episode in each."""
    for environment in self._environments:
      environment.reset()

  def step(self, actions: np.ndarray) -> None:
    """Takes an action in each; resets those whose episode ended."""
    for environment, action in zip(self._environments, actions.tolist()):
      _, _, *has_ended, _ = environment.step(action)
      if any(has_ended):
        environment.reset()


def _atari(game: str) -> Any:
  # The adapter's settings, but the package stacks the frames.
  return atari.import_package().AtariVectorEnv(
    game,
    _BATCH.value,
    full_action_space=True,
    repeat_action_probability=atari.BENCHMARK.sticky_action_probability,
    noop_max=atari.BENCHMARK.max_no_ops,
    use_fire_reset=atari.BENCHMARK.fires_on_reset,
    reward_clipping=False,
  )


def _procgen(game: str) -> Any:
  return procgen.import_package().make(
    f'{game.capitalize()}Hard-v0',
    env_type='gymnasium',
    num_envs=_BATCH.value,
    channel_first=False,
    # The levels of the adapter's games: some take a tenth longer than others.
    seed=adapters.sub_seeds(_SEED, _BATCH.value).tolist(),
  )


def _gymnasium(env_id: str) -> Any:
  import gymnasium

  return gymnasium.make_vec(env_id, _BATCH.value, vectorization_mode='sync')


def _crafter(_: str) -> Any:
  package = crafter_adapter.import_package()
  return OneByOne([package.Env() for _ in range(_BATCH.value)])


def _nethack(task: str) -> Any:
  tasks = nethack.import_package()
  make = getattr(tasks, nethack.TASKS[task])
  settings = {
    'actions': tasks.TASK_ACTIONS,
    'observation_keys': tuple(nethack.OBSERVATION_TYPES),
    'save_ttyrec_every': 0,
  }
  return OneByOne([make(**settings) for _ in range(_BATCH.value)])


PACKAGES = {
  'atari': _atari,
  'procgen': _procgen,
  'gymnasium': _gymnasium,
  'crafter': _crafter,
  'nethack': _nethack,
}


def main(argv: list[str]) -> None:
  """Prints the table, and writes it to --json."""
  del argv
  rows = []
  for name in _ENVIRONMENTS.value:
    rows.append(measure(name))
    print(
      '{environment:26} {steps_per_second:12,.0f} steps/s  {ratio:6.2f} '
      '{meaning}'.format(**rows[-1]),
      flush=True,
    )
  timing.write(rows)


if __name__ == '__main__':
  app.run(main)
