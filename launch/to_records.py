"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

# Setting of a sweep -> the setting of one run that takes its values in turn.
SWEPT = {
  'environments': 'environment',
  'rules': 'rule',
  'learning_rates': 'learning_rate',
}


def evaluation(settings: Mapping[str, Any]) -> Any:
  """Sorts flat settings into an `EvaluationConfig`: run, agent and rule."""
  from disco_rl.evaluation import runner

  settings = of_one_run(settings)
  agent_config = _agent(settings)
  return runner.EvaluationConfig(
    **take(settings, runner.EvaluationConfig),
    agent=agent_config,
    rule_settings=settings,
  )


def of_one_run(settings: Mapping[str, Any]) -> dict[str, Any]:
  """The settings without those that hold lists."""
  return {name: v for name, v in settings.items() if name not in SWEPT}


def swept(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
  """The lists of a sweep; a list that is not given holds the one of a run.

  Raises:
    ValueError: a learning rate is no number.
  """
  lists = {
    'environments': _names(settings['environments']),
    'rules': _split(settings['rules']),
    'learning_rates': tuple(map(_rate, _split(settings['learning_rates']))),
  }
  return {
    name: values if settings[name] else (settings[SWEPT[name]],)
    for name, values in lists.items()
  }


def meta_training(settings: Mapping[str, Any]) -> Any:
  """Sorts flat settings into a `MetaTrainingConfig`."""
  from disco_rl.meta_training import config as config_lib
  from disco_rl.meta_training import held_out
  from disco_rl.meta_training import lifetimes
  from disco_rl.meta_training import living
  from disco_rl.meta_training import meta_value
  from disco_rl.meta_training import outer_loss
  from disco_rl.networks import meta_network

  settings = dict(settings)
  for name in ('environments', 'held_out_environments'):
    settings[name] = _names(settings[name])
  agent = _agent(settings)
  value_torso = dataclasses.replace(
    agent.network.torso, hidden_sizes=settings.pop('meta_value_hidden_sizes')
  )
  shared = {name: settings[name] for name in ('discount', 'lambda_')}
  records: dict[str, Any] = {
    'agent': agent,
    'meta_value': meta_value.MetaValueConfig(
      **take(settings, meta_value.MetaValueConfig, 'meta_value_'),
      **shared,
      torso=value_torso,
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


def _agent(settings: dict[str, Any]) -> Any:
  """Removes an agent's settings; returns its `AgentConfig`."""
  from disco_rl import agent
  from disco_rl.networks import agent_network
  from disco_rl.networks import torsos

  settings['kind'] = settings.pop('torso')
  torso = torsos.TorsoConfig(**take(settings, torsos.TorsoConfig))
  network = agent_network.AgentNetworkConfig(
    **take(settings, agent_network.AgentNetworkConfig), torso=torso
  )
  return agent.AgentConfig(**take(settings, agent.AgentConfig), network=network)


def _names(text: str) -> tuple[str, ...]:
  """Environments, from names of theirs and of suites with commas between."""
  from disco_rl.environments import suites

  return tuple(e for name in _split(text) for e in suites.expand(name))


def _split(text: str) -> tuple[str, ...]:
  """What stands between commas."""
  return tuple(item.strip() for item in text.split(',') if item.strip())


def _rate(text: str) -> float:
  try:
    return float(text)
  except ValueError as error:
    raise ValueError(
      f'learning_rates has {text!r}, which is no number; write them with '
      'commas between, as in 1e-4,3e-4.'
    ) from error


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
