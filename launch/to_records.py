"""From the flat settings of a config to the records that disco_rl takes.

Imports are inside the functions: a mistyped flag should not wait for JAX.
"""

from collections.abc import Mapping
import dataclasses
import difflib
from typing import Any

# Setting of a sweep -> the setting of one run that takes its values in turn.
SWEPT = {
  'environments': 'environment',
  'rules': 'rule',
  'learning_rates': 'learning_rate',
}


def evaluation(settings: Mapping[str, Any]) -> Any:
  """Sorts flat settings into an `EvaluationConfig`: run, agent and rule.

  Raises:
    ValueError: a setting is lacking, unknown or not possible.
  """
  from disco_rl.evaluation import runner
  from disco_rl.update_rules import actor_critic
  from disco_rl.update_rules import disco

  given = settings
  settings = of_one_run(settings)
  agent_config = _agent(settings)
  config = _build(
    runner.EvaluationConfig,
    settings,
    agent=agent_config,
    rule_settings=settings,
  )
  _check_all_used(settings, given, disco.Disco, actor_critic.ActorCritic)
  return config


def of_one_run(settings: Mapping[str, Any]) -> dict[str, Any]:
  """The settings without those that hold lists."""
  return {name: v for name, v in settings.items() if name not in SWEPT}


def swept(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
  """The lists of a sweep; a list that is not given holds the one of a run.

  Raises:
    ValueError: a list is no text, or a learning rate is no number.
  """
  settings = {**dict.fromkeys(SWEPT, ''), **settings}
  lists = {
    'environments': _names(settings, 'environments'),
    'rules': _split(settings, 'rules'),
    'learning_rates': tuple(map(_rate, _split(settings, 'learning_rates'))),
  }
  return {
    name: values if settings[name] else (_get(settings, SWEPT[name]),)
    for name, values in lists.items()
  }


def meta_training(settings: Mapping[str, Any]) -> Any:
  """Sorts flat settings into a `MetaTrainingConfig`.

  Raises:
    ValueError: a setting is lacking, unknown or not possible.
  """
  from disco_rl.meta_training import config as config_lib
  from disco_rl.meta_training import held_out
  from disco_rl.meta_training import inner_loop
  from disco_rl.meta_training import lifetimes
  from disco_rl.meta_training import meta_value
  from disco_rl.meta_training import outer_loss
  from disco_rl.networks import meta_network
  from disco_rl.update_rules import disco

  given = settings
  settings = dict(settings)
  for name in ('environments', 'held_out_environments'):
    settings[name] = _names(settings, name)
  agent = _agent(settings)
  value_torso = _value_torso(settings, agent.network.torso)
  shared = {name: _get(settings, name) for name in ('discount', 'lambda_')}
  records: dict[str, Any] = {
    'agent': agent,
    'meta_value': _build(
      meta_value.MetaValueConfig,
      settings,
      'meta_value_',
      **shared,
      torso=value_torso,
    ),
    'inner_loop': _build(inner_loop.InnerLoopConfig, settings),
    'loss': _build(outer_loss.OuterLossConfig, settings),
    'lifetimes': _build(lifetimes.LifetimeConfig, settings),
    'held_out': _build(held_out.HeldOutConfig, settings, 'held_out_'),
    'rule_network': _build(meta_network.MetaNetworkConfig, settings, 'rule_'),
  }
  config = _build(
    config_lib.MetaTrainingConfig, settings, **records, rule_settings=settings
  )
  _check_all_used(settings, given, disco.Disco)
  return config


def _agent(settings: dict[str, Any]) -> Any:
  """Removes an agent's settings; returns its `AgentConfig`."""
  from disco_rl.agent import agent
  from disco_rl.networks import agent_network
  from disco_rl.networks import torsos

  torso = _build(torsos.TorsoConfig, settings, kind=_pop(settings, 'torso'))
  network = _build(agent_network.AgentNetworkConfig, settings, torso=torso)
  return _build(agent.AgentConfig, settings, network=network)


def _value_torso(settings: dict[str, Any], like: Any) -> Any:
  """A torso like the agent's, but for its dense layers."""
  name = 'meta_value_hidden_sizes'
  try:
    return dataclasses.replace(like, hidden_sizes=_pop(settings, name))
  except ValueError as error:
    raise ValueError(f'{name}: {error}') from error


def _names(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """Environments, from names of theirs and of suites with commas between."""
  from disco_rl.environments import suites

  return tuple(e for n in _split(settings, name) for e in suites.expand(n))


def _split(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
  """What stands between the commas of a setting."""
  text = _get(settings, name)
  if not isinstance(text, str):
    raise ValueError(
      f'{name}={text!r} must be text, with commas between its entries.'
    )
  return tuple(item.strip() for item in text.split(',') if item.strip())


def _rate(text: str) -> float:
  try:
    return float(text)
  except ValueError as error:
    raise ValueError(
      f'learning_rates has {text!r}, which is no number; write them with '
      'commas between, as in 1e-4,3e-4.'
    ) from error


def _build(
  record: type, settings: dict[str, Any], prefix: str = '', **others: Any
) -> Any:
  """Removes the settings that are fields of a record; returns the record.

  Args:
    record: a dataclass.
    settings: flat; changed.
    prefix: of the settings' names, not of the fields'.
    **others: values of the other fields.

  Returns:
    The record.

  Raises:
    ValueError: a setting is lacking or not possible.
  """
  from disco_rl.runtime import config_checks

  fields = [f for f in dataclasses.fields(record) if f.name not in others]
  values = {
    field.name: settings.pop(prefix + field.name)
    for field in fields
    if prefix + field.name in settings
  }
  for field in fields:
    has_default = field.default is not dataclasses.MISSING
    if field.name not in values and not has_default:
      _get(settings, prefix + field.name)
  config_checks.check_types(record, values, prefix)
  return record(**values, **others)


def _pop(settings: dict[str, Any], name: str) -> Any:
  value = _get(settings, name)
  del settings[name]
  return value


def _get(settings: Mapping[str, Any], name: str) -> Any:
  if name not in settings:
    raise ValueError(
      f'The config lacks the setting {name!r}. Likely misspelt there: start '
      'from a config of configs/, which has all of them.'
    )
  return settings[name]


def _check_all_used(
  left: Mapping[str, Any], given: Mapping[str, Any], *rules: type
) -> None:
  """Raises ValueError for a setting that no record and no rule has.

  Args:
    left: settings that no record has.
    given: all settings.
    *rules: classes whose fields may be among them.
  """
  of_rules = {
    field.name for rule in rules for field in dataclasses.fields(rule)
  }
  for name in left:
    if name not in of_rules:
      known = [*(given.keys() - left.keys()), *of_rules]
      nearest = difflib.get_close_matches(str(name), known)
      raise ValueError(
        f'There is no setting {name!r}. Nearest: '
        f'{", ".join(nearest) or "none"}. Likely misspelt in the config.'
      )
