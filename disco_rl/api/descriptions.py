"""How an agent was made, as files of agents hold it."""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.api import rules
from disco_rl.environments import registry

# The array of a file that holds the description, as JSON in UTF-8.
KEY = 'description'


@dataclasses.dataclass(frozen=True)
class Description:
  """How an agent was made.

  Attributes:
    environment: its name; None: an object of the user's own.
    preprocessing: changes of it; see `environments.registry.make`.
    rule: its name or path; None: an object of the user's own.
    rule_settings: fields of the rule's class.
    seed: of the agent.
    settings: flat ones of `AgentConfig`; torso is None where it is a function.
    state_outputs: see `types.OutputSpec`.
    action_outputs: likewise.
  """

  environment: str | None
  preprocessing: Mapping[str, Any]
  rule: str | None
  rule_settings: Mapping[str, Any]
  seed: int
  settings: Mapping[str, Any]
  state_outputs: Mapping[str, int]
  action_outputs: Mapping[str, int]

  @property
  def output_spec(self) -> types.OutputSpec:
    """Heads of the network."""
    return types.OutputSpec(self.state_outputs, self.action_outputs)

  def config(self, torso: Any = None) -> agent_lib.AgentConfig:
    """Settings of the agent.

    Args:
      torso: in place of the described one; required where that is a function.

    Raises:
      ValueError: a setting is not valid, or no torso is given where one has to.
    """
    settings = {
      name: tuple(value) if isinstance(value, list) else value
      for name, value in self.settings.items()
    }
    settings['torso'] = settings['torso'] if torso is None else torso
    if settings['torso'] is None:
      raise ValueError(
        'The agent has a torso of your own, which no file can hold: pass the '
        'function as torso=... to disco_rl.load_policy or disco_rl.Trainer.'
      )
    return config_lib.build(agent_lib.AgentConfig, settings)


def describe(
  environment: Any,
  preprocessing: registry.Preprocessing,
  rule: rules.LoadedRule,
  seed: int,
  config: agent_lib.AgentConfig,
  spec: types.EnvironmentSpec,
) -> Description:
  """Describes an agent, as far as a file can hold it.

  Args:
    environment: its name, or an object.
    preprocessing: of an environment by name.
    rule: of the agent.
    seed: of the agent.
    config: of the agent.
    spec: of the environment.

  Returns:
    The description.
  """
  outputs = rule.output_spec(spec.num_actions)
  settings = settings_of(config)
  if not isinstance(settings['torso'], str):
    settings['torso'] = None
  return Description(
    environment=environment if isinstance(environment, str) else None,
    preprocessing=preprocessing,
    rule=rule.name,
    rule_settings=rule.settings,
    seed=seed,
    settings=settings,
    state_outputs=outputs.state,
    action_outputs=outputs.action,
  )


def settings_of(config: agent_lib.AgentConfig) -> dict[str, Any]:
  """Flat settings of an agent, as keyword arguments of `Trainer`."""
  return {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in config_lib.flatten(config).items()
  }


def to_array(description: Description) -> np.ndarray:
  """[bytes] uint8."""
  text = json.dumps(dataclasses.asdict(description), default=dict)
  return np.frombuffer(text.encode(), np.uint8)


def from_array(array: np.ndarray) -> Description:
  """Inverse of `to_array`.

  Raises:
    ValueError: it holds no description that this version knows.
  """
  try:
    return Description(**json.loads(bytes(array)))
  except (TypeError, ValueError) as error:
    raise ValueError(
      f'The description of the agent is damaged, or of another version of the '
      f'program: {error}'
    ) from error
