"""Compares the planner's times with measured ones, on this machine.

  python -m benchmarks.plans --json=plans.json

The planner is calibrated once, on configs/quickstart.py and an update of a wide
agent, as by `python -m launch.plan --calibrate`. Each run below is then planned
and measured: meta-steps of discovery, and updates of training. Nothing else
should be running.
"""

from collections.abc import Sequence
from typing import Any

from absl import app
from disco_rl.planning import calibration
from disco_rl.planning import cluster as cluster_lib
from disco_rl.planning import discovery as discovery_plan
from disco_rl.planning import training as training_plan
import jax

from benchmarks import timing
from configs import evaluate
from configs import general
from configs import quickstart
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import registry as environment_registry
from disco_rl.evaluation import runner
from disco_rl.evaluation import training
from disco_rl.meta_training import config as config_lib
from disco_rl.runtime import memory
from disco_rl.update_rules import registry as rule_registry
from launch import to_records

_REPEATS = 5
# Updates of a call.
_UPDATES = 10
BATCH = 48
DISCOVERIES: dict[str, tuple[Any, dict[str, Any]]] = {
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
  cluster = calibrated()
  rows = []
  for name, (module, changes) in DISCOVERIES.items():
    record = discovery_record(module, changes)
    planned = discovery_plan.make(record, cluster).seconds.total
    _, measured = calibration.meta_step_of(record)
    rows.append(compared(name, planned, measured))
  for environment, variant in TRAININGS.items():
    config = evaluate.get_config(variant)
    config.update(environment=environment, rule='general')
    settings = to_records.of_one_run(config.to_dict())
    record = to_records.evaluation(settings)
    planned = training_plan.make(record, cluster).seconds.total
    rows.append(compared(environment, planned, measured_training(record)))
  timing.write(rows)


def discovery_record(
  module: Any, changes: dict[str, Any]
) -> config_lib.MetaTrainingConfig:
  """Settings of a module of configs/, on one device."""
  config = module.get_config()
  config.update({**changes, 'cpu_devices': 1})
  return to_records.meta_training(config.to_dict())


def calibrated() -> cluster_lib.Cluster:
  """This machine as the planner sees it."""
  rate, launch = calibration.rates_of_this_machine(
    discovery_record(quickstart, {})
  )
  print(f'{rate / 1e9:.0f} GFLOP/s, {1e6 * launch:.2f} us for an operation')
  flops = dict.fromkeys(('float32', 'bfloat16'), rate)
  device = cluster_lib.Device(memory.total_bytes(), flops, float('inf'))
  return cluster_lib.Cluster(
    device,
    devices=1,
    per_machine=1,
    host_memory=memory.host_bytes(),
    memory_fraction=1.0,
    efficiency=1.0,
    seconds_per_operation=launch,
    steps_per_second=1e5,
  )


def measured_training(config: runner.EvaluationConfig) -> float:
  """Seconds of an update of all agents."""
  rule, rule_params = rule_registry.load(config.rule, **config.rule_settings)
  environment = environment_registry.make(
    config.environment, 1, config.seed, config.preprocessing
  )
  agent = agent_lib.make(config.agent, environment.spec, rule)
  agents = training.make(agent, environment, config.seeds)
  state = agents.init(jax.random.split(jax.random.key(0), config.seeds))

  def update() -> Any:
    nonlocal state
    state, logs = agents.advance(rule_params, state, _UPDATES)
    return logs

  return calibration.median_seconds(update, _REPEATS) / _UPDATES


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
