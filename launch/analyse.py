"""Draws what a rule has learnt: the analyses of the paper's Fig. 4.

  python -m launch.analyse --config=configs/evaluate.py:general \
    --config.environment=catch/6x5 --workdir=runs/analysis

Writes targets.png, the targets in a scene made up by hand; trace.png, rewards,
confidence of y and entropy along episodes of an agent; horizon.png, how far
ahead the rule looks; and without_predictions.png, learning curves with the rule
and with y and z hidden from it. The config says which rule, and which agents in
which environment, which must be JAX-native.
"""

import pathlib
from typing import Any

from configs import evaluate
from launch import common
from launch import to_records
from launch.errors import in_one_line


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Draws all pictures."""
  # Imported late: a mistyped flag should not wait for JAX to load.
  import jax

  from disco_rl.analysis import pictures
  from disco_rl.environments import base
  from disco_rl.environments import registry as environment_registry
  from disco_rl.runtime import plotting
  from disco_rl.runtime import workdirs
  from disco_rl.update_rules import disco
  from disco_rl.update_rules import registry

  with in_one_line(ValueError):
    to_records.refuse_lists(
      settings, 'look at one rule, by --config.rule and --config.environment'
    )
  with in_one_line(ValueError, ImportError), workdirs.locked(workdir):
    config = to_records.evaluation(settings)
    rule, params = registry.load(config.rule, **config.rule_settings)
    if not isinstance(rule, disco.Disco):
      raise ValueError(
        f'rule={config.rule} is made by hand: there are no targets of a '
        'meta-network to look at. Choose a discovered rule.'
      )
    rule_params = jax.device_put(params)
    environment = environment_registry.make(
      config.environment,
      config.agent.num_environments,
      config.seed,
      config.preprocessing,
    )
    if not isinstance(environment, base.JaxEnvironment):
      raise ValueError(
        f'environment={config.environment} steps on the host: choose one that '
        'is JAX-native, such as catch/6x5 or gridworld/00.'
      )

    def save(name: str, drawn: Any) -> None:
      plotting.save(drawn, workdir / f'{name}.png')
      print(workdir / f'{name}.png', flush=True)

    save('targets', pictures.targets(rule, rule_params))
    shared = (rule, rule_params, config.agent, environment, config.updates)
    for name, drawn in pictures.of_an_agent(*shared, config.seed).items():
      save(name, drawn)
    if rule.network.prediction_size:
      seeds = range(config.seed, config.seed + config.seeds)
      save(
        'without_predictions',
        pictures.without_predictions(*shared, seeds, config.environment),
      )


if __name__ == '__main__':
  common.run(main, base=evaluate)
