"""Rules to learn from, with their parameters."""

import dataclasses
from typing import Any

from disco_rl import types
from disco_rl.runtime import config_checks
from disco_rl.update_rules import base
from disco_rl.update_rules import registry


@dataclasses.dataclass(frozen=True)
class LoadedRule:
  """A rule, ready to learn from.

  Attributes:
    rule: its functions.
    params: its parameters eta; {} for a hand-made rule.
  """

  rule: base.UpdateRule
  params: types.Params

  def output_spec(self, num_actions: int) -> types.OutputSpec:
    """Heads that the agent's network must have."""
    return self.rule.output_spec(num_actions)


def load_rule(name_or_path: str, **settings: Any) -> LoadedRule:
  """Loads a rule.

  Args:
    name_or_path: 'disco103', 'actor_critic', 'policy_gradient', or the path of
      an npz file of weights.
    **settings: fields of the rule's class in place of their defaults, such as
      `discount=0.99`; see `update_rules`.

  Returns:
    The rule and its parameters.

  Raises:
    ValueError: the name is unknown, the rule has no such setting, or the file
      holds no rule.
    FileNotFoundError: there is no such file.
    OSError: the download of a published rule failed.
  """
  rule, params = registry.load(name_or_path, **settings)
  fields = {field.name for field in dataclasses.fields(type(rule))}  # type: ignore[arg-type]
  # The weights decide the sizes of the network.
  config_checks.check_names(
    settings, fields - {'network'}, f'The rule {name_or_path!r}'
  )
  return LoadedRule(rule, params)
