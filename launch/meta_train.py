"""Discovers an update rule from the lives of a population of agents.

  python -m launch.meta_train --config=configs/quickstart.py \
    --workdir=runs/quickstart

Any setting of the config can be given as a flag, --config.meta_steps=100. The
same command again resumes an interrupted run; with more meta_steps it goes on.
"""

import pathlib
from typing import Any

from launch import common


def to_config(settings: dict[str, Any]) -> Any:
  """Sorts flat settings into a `MetaTrainingConfig`."""
  from disco_rl import agent
  from disco_rl.meta_training import config as config_lib
  from disco_rl.meta_training import held_out
  from disco_rl.meta_training import lifetimes
  from disco_rl.meta_training import living
  from disco_rl.meta_training import meta_value
  from disco_rl.meta_training import outer_loss
  from disco_rl.networks import agent_network
  from disco_rl.networks import meta_network

  settings = dict(settings)
  take = common.take
  for name in ('environments', 'held_out_environments'):
    settings[name] = _names(settings[name])
  network = agent_network.AgentNetworkConfig(
    **take(settings, agent_network.AgentNetworkConfig)
  )
  shared = {name: settings[name] for name in ('discount', 'lambda_')}
  records: dict[str, Any] = {
    'agent': agent.AgentConfig(
      **take(settings, agent.AgentConfig), network=network
    ),
    'meta_value': meta_value.MetaValueConfig(
      **take(settings, meta_value.MetaValueConfig, 'meta_value_'), **shared
    ),
    'living': living.LivingConfig(**take(settings, living.LivingConfig)),
    'loss': outer_loss.OuterLossConfig(
      **take(settings, outer_loss.OuterLossConfig)
    ),
    'lifetimes': lifetimes.LifetimeConfig(
      **take(settings, lifetimes.LifetimeConfig)
    ),
    'held_out': held_out.HeldOutConfig(
      **take(settings, held_out.HeldOutConfig, 'held_out_')
    ),
    'rule_network': meta_network.MetaNetworkConfig(
      **take(settings, meta_network.MetaNetworkConfig, 'rule_')
    ),
  }
  return config_lib.MetaTrainingConfig(
    **take(settings, config_lib.MetaTrainingConfig),
    **records,
    rule_settings=settings,
  )


def _names(text: str) -> tuple[str, ...]:
  """Names separated by commas."""
  return tuple(name.strip() for name in text.split(',') if name.strip())


def main(settings: dict[str, Any], workdir: pathlib.Path) -> None:
  """Builds and runs."""
  # Here, not above: a mistyped flag should not wait for JAX to load.
  from disco_rl import metrics
  from disco_rl import workdirs
  from disco_rl.meta_training import trainer

  try:
    meta_training = trainer.MetaTraining(to_config(settings))
  except (ValueError, OSError, ImportError) as error:
    common.fail(error)
  try:
    meta_training.run(workdir, settings)
  except (workdirs.WorkdirError, metrics.NonFiniteError, OSError) as error:
    common.fail(error)
  print((workdir / 'summary.json').read_text(), end='')


if __name__ == '__main__':
  common.run(main)
