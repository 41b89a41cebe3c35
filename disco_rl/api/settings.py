"""Builds the config of an agent from the keyword arguments of a `Trainer`."""

from collections.abc import Mapping
from typing import Any

from disco_rl import config as config_lib
from disco_rl.agent import agent
from disco_rl.networks import torsos

_DEFAULT = agent.AgentConfig()


def agent_config(
  torso: str | torsos.Torso,
  settings: Mapping[str, Any],
  num_environments: int | None,
) -> agent.AgentConfig:
  """Builds the config of an agent.

  Args:
    torso: see `TorsoConfig.kind`.
    settings: fields of `AgentConfig`, `AgentNetworkConfig` and `TorsoConfig`.
      Some defaults depend on the number of environments.
    num_environments: E; None: by default, about batch_size / 8.

  Returns:
    The config.

  Raises:
    ValueError: a name is unknown, a value is not valid, or two do not go
      together.
  """
  known = {*config_lib.names(agent.AgentConfig)}
  config_lib.check_names(settings, known - {'torso'}, 'Trainer')
  settings = {'batch_size': _DEFAULT.batch_size, **settings, 'torso': torso}
  if num_environments is not None:
    settings['num_environments'] = num_environments
  batch_size = settings['batch_size']
  config_lib.check('batch_size', batch_size, config_lib.Count)
  number = settings.setdefault(
    'num_environments', max(1, round(batch_size / _DEFAULT.replay_ratio))
  )
  config_lib.check('num_environments', number, config_lib.Count)
  updates_per_rollout = settings.get('updates_per_rollout', 1)
  config_lib.check('updates_per_rollout', updates_per_rollout, config_lib.Count)
  defaults = {
    'on_policy_share': min(
      _DEFAULT.on_policy_share, number / batch_size / updates_per_rollout
    ),
    'replay_capacity': max(1, round(_DEFAULT.replay_capacity / number))
    * number,
  }
  return config_lib.build(agent.AgentConfig, {**defaults, **settings})
