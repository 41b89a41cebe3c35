"""From the keyword arguments of a `Trainer` to the records of an agent."""

from collections.abc import Mapping
import dataclasses
from typing import Any

from disco_rl.agent import agent
from disco_rl.networks import agent_network
from disco_rl.networks import torsos
from disco_rl.runtime import config_checks

_DEFAULT = agent.AgentConfig()


def agent_config(
  torso: str | torsos.Torso,
  settings: Mapping[str, Any],
  num_environments: int | None,
) -> agent.AgentConfig:
  """Sorts flat settings into records.

  Args:
    torso: see `TorsoConfig.kind`.
    settings: fields of `AgentConfig`, `AgentNetworkConfig` and `TorsoConfig`.
      What depends on the number of environments has defaults that fit it.
    num_environments: E; None: batch_size / replay_ratio, made whole where the
      latter is not given.

  Returns:
    The record.

  Raises:
    ValueError: a name is unknown, a value is not possible, or two do not go
      together.
  """
  names = {
    record: {field.name for field in dataclasses.fields(record)} - {*omitted}
    for record, omitted in (
      (agent.AgentConfig, ('network',)),
      (agent_network.AgentNetworkConfig, ('torso',)),
      (torsos.TorsoConfig, ('kind',)),
    )
  }
  config_checks.check_names(settings, set().union(*names.values()), 'Trainer')
  of_agent, of_network, of_torso = (
    {name: value for name, value in settings.items() if name in fields}
    for fields in names.values()
  )
  network = agent_network.AgentNetworkConfig(
    torso=torsos.TorsoConfig(kind=torso, **of_torso), **of_network
  )
  return agent.AgentConfig(
    network=network, **_sizes(of_agent, num_environments)
  )


def _sizes(
  settings: Mapping[str, Any], num_environments: int | None
) -> dict[str, Any]:
  """Adds defaults that go with the number of environments."""
  if num_environments is not None and num_environments < 1:
    raise ValueError(f'num_environments={num_environments} must be at least 1.')
  batch_size = settings.get('batch_size', _DEFAULT.batch_size)
  ratio = settings.get('replay_ratio', _DEFAULT.replay_ratio)
  if batch_size < 1 or ratio <= 0:
    # The record itself says what is wrong.
    return dict(settings)
  implied = max(1, round(batch_size / ratio))
  if num_environments is None:
    num_environments = implied
  elif 'replay_ratio' in settings and implied != num_environments:
    raise ValueError(
      f'replay_ratio={ratio} and batch_size={batch_size} make {implied} '
      f'environments, but there are {num_environments}: leave replay_ratio out.'
    )
  capacity = max(1, round(_DEFAULT.replay_capacity / num_environments))
  return {
    'replay_ratio': batch_size / num_environments,
    'on_policy_share': min(
      _DEFAULT.on_policy_share, num_environments / batch_size
    ),
    'replay_capacity': capacity * num_environments,
    **settings,
  }
