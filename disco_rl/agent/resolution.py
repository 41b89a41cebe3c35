"""Resolves the settings of an agent, for launchers and for Python.

The first source that has a value takes precedence, in this order: the user (a
flag or an argument, then a file of configs/), the card of the rule, the size of
the task, the default of the record.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Annotated
from typing import Any

import jax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import sizes as sizes_lib
from disco_rl.maths import action_masks
from disco_rl.update_rules import registry

# A setting: agents that suit the rule and the task, or those of the paper.
Sizes = Annotated[str, config_lib.one_of('task', 'paper')]

# Settings never read from cards: they depend on the task or the machine.
NOT_OF_CARDS = {
  *('core_lstm', 'torso_chunk_size', 'compute_dtype', 'replay_on_disk')
}
# Settings read from a card only if its discovery and the task have images.
_CONVOLUTIONS = {'torso', 'channels', 'stride'}
# Settings by which the card of a stranger could ask for any memory.
_COUNTS = {
  *('unroll_length', 'batch_size', 'num_environments'),
  *('updates_per_rollout', 'replay_capacity'),
}
_COUNT_OF_CARD = Annotated[int, config_lib.between(1, 2**16)]
# Settings that depend on whether observations are images.
_OF_KIND = {*sizes_lib.SMALL_IMAGES, *sizes_lib.PAPER_IMAGES}


def resolve(
  rule: registry.LoadedRule,
  given: Mapping[str, Any],
  make_spec: Callable[[int], types.EnvironmentSpec],
  sizes: str = 'task',
) -> tuple[registry.LoadedRule, agent_lib.AgentConfig]:
  """Resolves the settings of an agent and its rule.

  Args:
    rule: The rule that the agent learns with, which has its own settings.
    given: The flat settings of `AgentConfig` from the user; None: unset.
    make_spec: A function from the number of environments to their spec, called
      at most once, if a setting depends on the task.
    sizes: 'task', or 'paper' for the agents of the paper, regardless of the
      rule and the task.

  Returns:
    The rule, with the settings that its card recommends unless they were given;
    and the settings of the agent.

  Raises:
    ValueError: A value is not valid, or two are incompatible.
  """
  given = {name: value for name, value in given.items() if value is not None}
  is_paper = sizes == 'paper'
  below = config_lib.flatten(agent_lib.AgentConfig())
  if not is_paper:
    below |= {**sizes_lib.SMALL, **_of_card(rule, is_image=False)}
  data = _fit(given, below)
  is_image = not given.keys() >= _OF_KIND and _is_image(
    make_spec(data['num_environments'])
  )
  if is_image and is_paper:
    below |= sizes_lib.PAPER_IMAGES
  elif is_image:
    below |= {**sizes_lib.SMALL_IMAGES, **_of_card(rule, is_image=True)}
  config = config_lib.build(agent_lib.AgentConfig, {**below, **data, **given})
  return (rule if is_paper else _suited(rule, is_image)), config


def _of_card(rule: registry.LoadedRule, is_image: bool) -> dict[str, object]:
  """Returns the settings of agents on the card of a rule."""
  if rule.card is None:
    return {}
  named = {*config_lib.names(agent_lib.AgentConfig)} - NOT_OF_CARDS
  settings = {**rule.card.settings, **rule.card.recommended_for(is_image)}
  if not is_image or settings.get('torso', 'mlp') == 'mlp':
    named -= _CONVOLUTIONS
  for name in _COUNTS & settings.keys():
    where = f'The card of {rule.name}: {name}'
    config_lib.check(where, settings[name], _COUNT_OF_CARD)
  return {name: x for name, x in settings.items() if name in named}


def _suited(rule: registry.LoadedRule, is_image: bool) -> registry.LoadedRule:
  """Applies the card's recommendations for the rule, unless given."""
  if rule.card is None or not dataclasses.is_dataclass(rule.rule):
    return rule
  fields = dataclasses.fields(rule.rule)
  given = {*rule.settings}
  if rule.name is None:  # An object made by hand.
    given |= {x.name for x in fields if getattr(rule.rule, x.name) != x.default}
  recommended = rule.card.recommended_for(is_image)
  changes = {
    x.name: recommended[x.name]
    for x in fields
    if x.name in recommended and x.name not in given
  }
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
