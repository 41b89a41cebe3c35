"""Resolves the settings of an agent, for launchers and for Python.

The first source that has a value takes precedence, in this order: the user (a
flag or an argument, then a file of configs/), the card of the rule, the size of
the task, the default of the record. With `sizes='paper'` the paper's sizes come
before what the card says of small agents. From a flag to the optimizer:
  read flags over a file of configs/       `launch.common.settings`
  divide them; load the rule               `training.config.resolve`
  choose what is unset                     `resolve`
  make the agent and its optimizer         `agent.make`, `make_optimizer`
Settings of a rule have the defaults of its class, such as `disco.Disco`; above
these are those of its discovery, from its file and its card, what the card
recommends, and what the user gives (`registry.load_with_card`).

So a setting whose resolved value is given explicitly changes no other setting,
and a value that is given is the one that is used.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Annotated
from typing import Any
from typing import NamedTuple

import jax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import sizes as sizes_lib
from disco_rl.environments import base as environment_base
from disco_rl.maths import action_masks
from disco_rl.networks import agent_network
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry

_Environment = (
  environment_base.JaxEnvironment | environment_base.HostEnvironment
)
# A setting: agents that suit the rule and the task, or those of the paper.
Sizes = Annotated[str, config_lib.one_of('task', 'paper')]

# Settings never read from cards: they depend on the task or the machine.
MACHINE_SETTINGS = {
  *('core_lstm', 'torso_chunk_size', 'compute_dtype', 'replay_on_disk')
}
# Settings read from a card only if its discovery and the task have images.
_CONVOLUTIONS = {'torso', 'channels', 'stride', 'final_relu'}
# Settings of the agent that its rule also has, if it is a field of the rule.
_SHARED = {'updates_per_rollout'}
# Settings by which the card of a stranger could ask for any memory.
_COUNTS = {
  *('unroll_length', 'batch_size', 'num_environments'),
  *('updates_per_rollout', 'replay_capacity'),
}
_COUNT_OF_CARD = Annotated[int, config_lib.between(1, 2**16)]
# What `sizes` names: networks, batches, replay, and their learning rate. With
# 'paper', what a card says of them for small agents does not apply.
_SIZED = {
  *config_lib.names(agent_network.AgentNetworkConfig),
  *sizes_lib.SMALL,
}


class _Settings(NamedTuple):
  """Resolved settings, before they are checked.

  Attributes:
    agent: All settings of the agent.
    rule: The fields of the rule that its card changes.
  """

  agent: dict[str, Any]
  rule: dict[str, Any]


def resolve(
  rule: registry.LoadedRule,
  given: Mapping[str, Any],
  make_spec: Callable[[int], types.EnvironmentSpec],
  sizes: str = 'task',
) -> tuple[registry.LoadedRule, agent_lib.AgentConfig]:
  """Resolves the settings of an agent and its rule.

  Args:
    rule: The rule that the agent learns with, which has its own settings. The
      user's own object is used as it was built, but for a field
      `updates_per_rollout`, which is always that of the agent.
    given: The flat settings of `AgentConfig` from the user; None: unset.
    make_spec: A function from the number of environments to their spec, called
      at most once, if a setting depends on whether observations are images. If
      the number depends on that as well, it is the one without images.
    sizes: 'task', or 'paper' for agents of the paper's sizes, whatever the card
      says.

  Returns:
    The rule, with the settings that its card recommends unless they were given,
    and those of the agent that it also has; and the settings of the agent.

  Raises:
    ValueError: A value is not valid, or two are incompatible.
  """
  given = {name: value for name, value in given.items() if value is not None}
  for name in _SHARED & rule.settings.keys():
    own = rule.settings[name]
    if given.setdefault(name, own) != own:
      raise ValueError(
        f'{name}={given[name]} of the agent differs from {name}={own}, with '
        f'which {rule.name} was loaded: leave out one of the two.'
      )
  settings = _settings(rule, given, sizes, is_image=False)
  for_images = _settings(rule, given, sizes, is_image=True)
  if for_images != settings:
    spec = make_spec(settings.agent['num_environments'])
    settings = for_images if _is_image(spec) else settings
  config = config_lib.build(agent_lib.AgentConfig, settings.agent)
  same = {x: settings.agent[x] for x in _SHARED if hasattr(rule.rule, x)}
  return _with_settings(rule, {**settings.rule, **same}), config


def resolve_and_make(
  rule: registry.LoadedRule,
  given: Mapping[str, Any],
  make: Callable[[int], _Environment],
  sizes: str = 'task',
) -> tuple[registry.LoadedRule, agent_lib.AgentConfig, _Environment]:
  """Resolves settings by `resolve`, and makes the environment of the agent.

  Args:
    rule: The rule that the agent learns with.
    given: The flat settings of `AgentConfig` from the user; None: unset.
    make: A function from the number of environments to their batch, which is
      called twice only if that number depends on the observations.
    sizes: 'task' or 'paper'.

  Returns:
    The rule and the settings of the agent, as `resolve` does; the environment.
  """
  made: dict[int, _Environment] = {}

  def make_spec(number: int) -> types.EnvironmentSpec:
    made[number] = make(number)
    return made[number].spec

  rule, config = resolve(rule, given, make_spec, sizes)
  number = config.num_environments
  environment = made.pop(number) if number in made else make(number)
  for other in made.values():
    other.close()
  return rule, config, environment


def _settings(
  rule: registry.LoadedRule,
  given: Mapping[str, Any],
  sizes: str,
  is_image: bool,
) -> _Settings:
  """Resolves all settings, for images or for other observations."""
  card = rule.card or cards.Card('')
  recommended = card.recommended_for(is_image, is_paper=sizes == 'paper')
  from_card = _from_card(rule, recommended, is_image)
  below = config_lib.flatten(agent_lib.AgentConfig())
  if sizes == 'paper':
    from_paper = card.recommended.get('paper', {})
    named = {x for x in from_card if x not in _SIZED or x in from_paper}
    below |= sizes_lib.PAPER_IMAGES if is_image else {}
    below |= {name: from_card[name] for name in named}
  else:
    below |= sizes_lib.SMALL
    below |= sizes_lib.SMALL_IMAGES if is_image else {}
    below |= from_card
  return _Settings(
    agent={**below, **_fit(given, below), **given},
    rule=_of_rule(rule, recommended),
  )


def _from_card(
  rule: registry.LoadedRule, recommended: Mapping[str, Any], is_image: bool
) -> dict[str, Any]:
  """Returns the settings of agents on the card of a rule."""
  if rule.card is None:
    return {}
  named = {*config_lib.names(agent_lib.AgentConfig)} - MACHINE_SETTINGS
  settings = {**rule.card.settings, **recommended}
  if not is_image or settings.get('torso', 'mlp') == 'mlp':
    named -= _CONVOLUTIONS
  for name in _COUNTS & settings.keys():
    where = f'The card of {rule.name}: {name}'
    config_lib.check(where, settings[name], _COUNT_OF_CARD)
  return {name: x for name, x in settings.items() if name in named}


def _of_rule(
  rule: registry.LoadedRule, recommended: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the recommended fields of a rule by name, unless given."""
  if rule.name is None or not dataclasses.is_dataclass(rule.rule):
    return {}
  fields = {x.name for x in dataclasses.fields(rule.rule)} - {*rule.settings}
  return {name: x for name, x in recommended.items() if name in fields}


def _with_settings(
  rule: registry.LoadedRule, changes: Mapping[str, Any]
) -> registry.LoadedRule:
  """Replaces fields of a rule."""
  if not changes or not dataclasses.is_dataclass(rule.rule):
    return rule
  suited = dataclasses.replace(rule.rule, **changes)
  return dataclasses.replace(rule, rule=suited)


def _fit(
  given: Mapping[str, object], below: Mapping[str, Any]
) -> dict[str, Any]:
  """Derives sizes of batches and replay that are not given from the others."""
  known = {
    name: config_lib.converted({**below, **given}[name], int)
    for name in (
      'batch_size',
      'num_environments',
      'unroll_length',
      'updates_per_rollout',
    )
  }
  if 'batch_size' in given and 'num_environments' not in given:
    config_lib.check('batch_size', known['batch_size'], config_lib.Count)
    ratio = below['num_environments'] / below['batch_size']
    known['num_environments'] = max(1, round(ratio * known['batch_size']))
  for name, value in known.items():
    config_lib.check(name, value, config_lib.Count)
  number = known['num_environments']
  if below['updates_per_rollout'] > 1:
    known |= _fit_epochs(given, below, known)
  capacity = below['replay_capacity']
  if known['batch_size'] > number:
    # A batch needs earlier rollouts. Replay has as many batches as the paper's,
    # because a small one would fill batches with copies, not only in the first
    # updates as without `min_replay_batches`.
    paper = agent_lib.AgentConfig()
    ratio = paper.replay_capacity / paper.batch_size
    capacity = max(capacity, ratio * known['batch_size'])
  rollouts = max(1, round(capacity / number))
  return {
    **known,
    'on_policy_share': min(
      below['on_policy_share'], number / known['batch_size']
    ),
    'replay_capacity': rollouts * number,
  }


def _fit_epochs(
  given: Mapping[str, object],
  below: Mapping[str, Any],
  known: Mapping[str, int],
) -> dict[str, int]:
  """Keeps the epochs of a rule that goes through each rollout several times.

  It learns from nothing else, so that a batch is at most a rollout.
  """
  number, size = known['num_environments'], known['batch_size']
  if 'batch_size' not in given:
    size = min(size, number)
  if 'updates_per_rollout' in given:
    return {'batch_size': size}
  epochs = (
    below['updates_per_rollout']
    * below['batch_size']
    / below['num_environments']
  )
  updates = max(1, round(epochs * number / size))
  # They divide the actions of a rollout.
  actions = number * known['unroll_length']
  updates = next(x for x in range(updates, 0, -1) if actions % x == 0)
  return {'batch_size': size, 'updates_per_rollout': updates}


def _is_image(spec: types.EnvironmentSpec) -> bool:
  """Returns whether an observation is one array [height, width, channels]."""
  leaves = jax.tree.leaves(action_masks.without(spec.observation))
  return len(leaves) == 1 and len(leaves[0].shape) == 3
