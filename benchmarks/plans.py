"""Compares the planner's times with measured ones, on this machine.

  python -m benchmarks.plans --json=plans.json

The two rates of the machine are measured first, by configs/quickstart.py and an
update of a wide agent, and are printed as flags of launch.plan.
Each run below is then planned and measured: meta-steps of discovery, and
updates of training. Nothing else should be running.
"""

from collections.abc import Sequence
import json
import subprocess
import sys
from types import ModuleType
from typing import Any

from absl import app
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import timing
from configs import evaluate
from configs import general
from configs import quickstart
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import meta_trainer
from disco_rl.networks import meta_network
from disco_rl.planning import costs
from disco_rl.runtime import compilation
from disco_rl.training import config as training_config
from disco_rl.training import parallel
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry as rule_registry

_REPEATS = 5
_SPEC = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((8, 8, 1), jnp.float32), num_actions=3
)
# A program's cost, and its seconds.
Timed = tuple[costs.Cost, float]
# The number of updates per call.
_UPDATES = 10
BATCH = 48
DISCOVERIES: dict[str, tuple[ModuleType, dict[str, Any]]] = {
  'quickstart, with y and z': (quickstart, {'rule_prediction_size': 32}),
  'quickstart, 4 agents and 20 updates': (
    quickstart,
    {'agents': 4, 'inner_updates': 20},
  ),
  'quickstart, 2 wide agents': (
    quickstart,
    {
      'agents': 2,
      'hidden_sizes': (256, 256),
      'batch_size': BATCH,
      'num_environments': BATCH,
      'validation_trajectories': BATCH,
      'replay_capacity': BATCH,
    },
  ),
  'general': (general, {}),
}
TRAININGS = {
  'catch/6x5': 'quickstart',
  'minatar/breakout': 'minatar',
}


def main(argv: Sequence[str]) -> None:
  """Prints a line for each run, and writes them to --json."""
  del argv
  machine = calibrated()
  rows = []
  for name, (module, changes) in DISCOVERIES.items():
    config = module.__name__.removeprefix('configs.')
    seconds = planned(config, changes, machine)
    _, measured = meta_step_of(discovery_record(module, changes))
    rows.append(compared(name, seconds, measured))
  for environment, variant in TRAININGS.items():
    changes = {'environment': environment, 'rule': 'general'}
    seconds = planned(f'evaluate:{variant}', changes, machine)
    config = evaluate.get_config(variant)
    config.update(changes)
    measured = measured_training(*training_config.resolve(config.to_dict()))
    rows.append(compared(environment, seconds, measured))
  timing.write(rows)


def planned(
  config: str, changes: dict[str, Any], machine: Sequence[str]
) -> float:
  """Returns the seconds of a step that launch.plan estimates."""
  given = [f'--config.{name}={value}' for name, value in changes.items()]
  command = [sys.executable, '-m', 'launch.plan', '--json', *machine]
  plan = subprocess.run(
    [*command, f'--config={config}', *given],
    check=True,
    stdout=subprocess.PIPE,
  )
  table = json.loads(plan.stdout)
  return next(x for name, x in table.items() if name.startswith('seconds_per'))


def discovery_record(
  module: ModuleType, changes: dict[str, Any]
) -> meta_config.MetaTrainingConfig:
  """Returns the settings of a module of configs/, on one device."""
  config = module.get_config()
  config.update({**changes, 'cpu_devices': 1})
  return meta_trainer.config_of(config.to_dict())


def calibrated() -> list[str]:
  """Prints and returns the flags that describe this machine to launch.plan.

  The measured rates include waits for memory, so efficiency is 1 and bandwidth
  is unlimited.
  """
  programs = (
    update_of_a_wide_agent(),
    meta_step_of(discovery_record(quickstart, {})),
  )
  counts = np.array([(cost.flop, cost.operations) for cost, _ in programs])
  times = np.array([seconds for _, seconds in programs])
  per_flop, launch = np.linalg.solve(counts, times).tolist()
  machine = [
    f'--tflops={1e-12 / per_flop:.4g}',
    '--efficiency=1',
    '--bandwidth_gbs=inf',
    f'--operation_microseconds={1e6 * launch:.4g}',
  ]
  print(' '.join(machine), flush=True)
  return machine


def update_of_a_wide_agent() -> Timed:
  """Times a program of large operations."""
  network = meta_network.MetaNetworkConfig()
  rule = disco.Disco(network=network)
  agent = agent_lib.make(
    agent_lib.AgentConfig(batch_size=32, on_policy_share=0.0), _SPEC, rule
  )
  arguments = (
    meta_network.init(jax.random.key(0), network),
    jax.jit(agent.init_learner)(jax.random.key(0)),
    types.empty_rollout(_SPEC, agent.network.initial_state(32), 28, 32),
  )
  program = compilation.Program(
    lambda *arguments: agent.learn(*arguments)[0]  # Without logs.
  )
  seconds = timing.median_seconds(lambda: program(*arguments))
  return costs.cost((program, arguments)), seconds


def meta_step_of(config: meta_config.MetaTrainingConfig) -> Timed:
  """Times a meta-step of agents in JAX-native environments."""
  rule, rule_params = build.make_rule(config)
  cost, seconds = costs.Cost(), 0.0
  for group in build.make_groups(config, rule):
    cost += costs.cost(group.named_calls(rule_params)['step'])
    keys = jax.random.split(jax.random.key(0), group.config.num_members)
    members = [group.init(keys, rule_params)]

    def step(group: Any = group, members: Any = members) -> Any:
      results = group.step(rule_params, members.pop())  # Donates them.
      members.append(results[1])
      return results

    seconds += timing.median_seconds(step)
  return cost, seconds


def measured_training(
  config: training_config.TrainingConfig, rule: rule_registry.LoadedRule
) -> float:
  """Returns the seconds of an update of all agents."""
  environment = environment_registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  agent = agent_lib.make(config.agent, environment.spec, rule.rule)
  agents = parallel.make(agent, environment, config.seeds)
  state = agents.init(jax.random.split(jax.random.key(0), config.seeds))

  def update() -> Any:
    nonlocal state
    state, logs = agents.advance(rule.params, state, _UPDATES)
    return logs

  return timing.median_seconds(update, _REPEATS) / _UPDATES


def compared(name: str, planned: float, measured: float) -> dict[str, Any]:
  """Prints and returns a row."""
  ratio = planned / measured
  print(
    f'{name}: planned {planned:.4f} s, measured {measured:.4f} s, ratio '
    f'{ratio:.2f}',
    flush=True,
  )
  return {
    'run': name,
    'planned_seconds': planned,
    'measured_seconds': measured,
    'ratio': ratio,
  }


if __name__ == '__main__':
  app.run(main)
