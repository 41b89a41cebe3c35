"""Lowers programs of discovery and training for eight accelerators.

Arguments are cases such as `discovery:resnet:4:still/image`, with a torso, the
size of a core, and environments. Prints the cases that were lowered.
"""

import itertools
import sys
from typing import Any

import footprints
import jax
import numpy as np

from benchmarks import small_runs
from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import base
from disco_rl.environments import families
from disco_rl.environments import family
from disco_rl.environments import registry
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_trainer
from disco_rl.networks import meta_network
from disco_rl.runtime import backend
from disco_rl.runtime import compilation
from disco_rl.runtime import compilation_cache
from disco_rl.training import parallel
from disco_rl.update_rules import registry as rule_registry

PLATFORMS = ('cuda', 'tpu')
SETTINGS = {
  **quickstart.get_config().to_dict(),
  **small_runs.SETTINGS,
  **small_runs.SMALL_RULE,
  'agents': 8,
  'chunk_size': 2,
  'inner_updates': 2,
  'batch_devices': 2,
  'channels': (2,),
  'rule_prediction_embedding': (3, 1),
  'rule_policy_channels': (3,),
  'rule_policy_target_channels': (3,),
}
OBSERVATIONS = {
  'vector': jax.ShapeDtypeStruct((3,), np.float32),
  'image': jax.ShapeDtypeStruct((6, 5, 2), np.uint8),
  'nethack': footprints.nethack_observation(4),
}


class StillEnvironment(base.HostEnvironment):
  """An environment that only resets: programs are lowered, not run."""

  def __init__(self, observation: str, num_environments: int):
    self.spec = types.EnvironmentSpec(OBSERVATIONS[observation], num_actions=3)
    self.num_environments = num_environments

  def reset(self) -> types.PyTree:
    return jax.tree.map(
      lambda x: np.zeros((self.num_environments, *x.shape), x.dtype),
      self.spec.observation,
    )

  def step(self, action: object) -> types.TimeStep:
    raise NotImplementedError

  def close(self) -> None:
    pass


families.FAMILIES['still'] = family.Family(
  form='still/OBSERVATION',
  kind='host',
  names=lambda: [f'still/{name}' for name in OBSERVATIONS],
  find=lambda name, _: (
    lambda num_environments, _: StillEnvironment(str(name), num_environments)
  ),
)


def of_discovery(config: Any) -> list[compilation.Call]:
  """Returns all programs of a group of members."""
  rule = config.rule_settings
  params = jax.eval_shape(
    lambda: meta_network.init(jax.random.key(0), config.rule_settings.network)
  )
  (group,) = build.make_groups(config, rule)
  return list(group.named_calls(params).values())


def of_training(config: Any) -> list[compilation.Call]:
  """Returns all programs of agents that are trained with a fixed rule."""
  (name,) = config.environments
  size = config.agents * config.agent.num_environments
  environment = registry.make(name, size, seed=0)
  rule, params = rule_registry.load('actor_critic')
  agent = agent_lib.make(config.agent, environment.spec, rule)
  return parallel.make(agent, environment, config.agents).calls(params)


def main() -> None:
  """Lowers each argument, a case WHAT:TORSO:CORE:ENVIRONMENT."""
  compilation_cache.collect_garbage_rarely()
  for case in sys.argv[1:]:
    what, torso, core, name = case.split(':')
    config = meta_trainer.config_of(
      {**SETTINGS, 'torso': torso, 'core_lstm': int(core), 'environments': name}
    )
    # Accelerators share traces.
    with backend.making_programs_for('tpu'):
      calls = {'discovery': of_discovery, 'training': of_training}[what](config)
    for platform, (program, arguments) in itertools.product(PLATFORMS, calls):
      with backend.making_programs_for(platform):
        traced = program.trace(*arguments)
        lowered = traced.lower(lowering_platforms=(platform,))
      assert 'num_partitions = 8' in lowered.as_text(), case
    print(case)


if __name__ == '__main__':
  main()
