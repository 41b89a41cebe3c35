"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any


def evaluation(settings: Mapping[str, Any]) -> Any:
  """Sorts flat settings into an `EvaluationConfig`: run, agent and rule."""
  from disco_rl import agent
  from disco_rl.evaluation import runner
  from disco_rl.networks import agent_network

  settings = dict(settings)
  network = agent_network.AgentNetworkConfig(
    **take(settings, agent_network.AgentNetworkConfig)
  )
  agent_config = agent.AgentConfig(
    **take(settings, agent.AgentConfig), network=network
  )
  return runner.EvaluationConfig(
    **take(settings, runner.EvaluationConfig),
    agent=agent_config,
    rule_settings=settings,
  )


def meta_training(settings: Mapping[str, Any]) -> Any:
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
  """Environments, from names of theirs and of suites with commas between."""
  from disco_rl.environments import suites

  names = (name.strip() for name in text.split(','))
  return tuple(e for name in names if name for e in suites.expand(name))


def take(
  settings: dict[str, Any], record: type, prefix: str = ''
) -> dict[str, Any]:
  """Removes the settings that are fields of a record; returns them.

  Args:
    settings: flat; changed.
    record: a dataclass.
    prefix: of the settings' names, not of the fields'.

  Returns:
    Field -> value.
  """
  fields = (field.name for field in dataclasses.fields(record))
  return {
    name: settings.pop(prefix + name)
    for name in fields
    if prefix + name in settings
  }
