"""Defaults of discovery, taken from the paper if it states them.

This is not a config itself; disco103.py, disco57.py, quickstart.py and
general.py start from here.
"""

from typing import Any

import ml_collections

from configs import records
from disco_rl import config as config_lib
from disco_rl.agent import sizes

# For estimators whose objective is the reward alone, evolution strategies.
REWARD_ALONE: dict[str, Any] = {
  'policy_entropy_cost': 0.0,
  'y_entropy_cost': 0.0,
  'z_entropy_cost': 0.0,
  'target_kl_cost': 0.0,
  'target_mean_cost': 0.0,
  # Nothing uses the meta-value function.
  'meta_value_on_inner_batches': False,
}


def base() -> ml_collections.ConfigDict:
  """Returns all settings of disco-rl meta-train, at their defaults.

  Those of the rule, apart from its network, are None: an untrained rule has the
  defaults, and another the settings of its own discovery.
  """
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.update_rules import disco

  of_rules = {*config_lib.names(disco.Disco, nested=False)}
  return records.defaults(sections(), unset=of_rules)


def sections() -> records.Sections:
  """Returns these settings with their meanings."""
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.meta_training import config

  return config_lib.sections(config.MetaTrainingConfig)


def paper(
  agents: int,
  num_environments: int,
  environments: str,
  variant: str,
  tiny_environments: str,
) -> ml_collections.ConfigDict:
  """Makes the paper's large runs; docs/faithfulness.md lists inferred settings.

  Args:
    agents: The number of agents in the population.
    num_environments: The number of environments that they are divided among.
    environments: The names of environments and suites.
    variant: '', 'large' or 'tiny'; others raise ValueError.
    tiny_environments: The environments of the tiny variant.
  """
  config = base()
  config.update(
    environments=environments,
    agents=agents,
    # 600M frames for each game of Atari, which its agents share: the paper
    # states it of Disco57. In a meta-step an agent acts in 20 rollouts for its
    # updates and in 5 for validation, of 10 times 28 actions for 4 frames.
    meta_steps=round(
      600e6 * num_environments / agents / ((20 + 5) * 10 * 28 * 4)
    ),
    # Agents of ProcGen, whose steps are actions, live for as many updates.
    budget_steps_per_action=4,
    torso='resnet',
    channels=(128, 256, 256, 128),
    hidden_sizes=(512,),
    torso_chunk_size=-1,
    action_model_lstm=512,
    action_model_head=512,
    meta_value_hidden_sizes=(512,),
    replay_capacity=60_000,  # About 1.7M actions.
    held_out_every=1000,
  )
  if variant not in ('', 'large', 'tiny'):
    raise ValueError(
      f'There is no variant {variant!r}; choose large, tiny, or none.'
    )
  if variant == 'large':
    config.update(_LARGE)
  if variant == 'tiny':
    config.update(_TINY)
    config.environments = tiny_environments
    config.agents = 2 * (tiny_environments.count(',') + 1)
  return config


# The agents of the paper's evaluations.
_LARGE = {
  **sizes.PAPER_IMAGES,
  'meta_value_hidden_sizes': sizes.PAPER_IMAGES['hidden_sizes'],
}
_TINY = {
  'torso_chunk_size': 0,
  'cpu_devices': 2,
  'meta_steps': 10,
  'checkpoint_every': 5,
  'rule_prediction_size': 16,
  'rule_lstm_size': 16,
  'rule_meta_rnn_size': 8,
  'num_bins': 41,
  'unroll_length': 8,
  'batch_size': 4,
  'num_environments': 2,
  'on_policy_share': 0.25,
  'replay_capacity': 100,
  'validation_trajectories': 4,
  'budgets': (12_000, 8_000, 4_000),  # Nine, six and three meta-steps.
  'channels': (4, 8, 8, 4),
  'hidden_sizes': (32,),
  'action_model_lstm': 16,
  'action_model_head': 16,
  'meta_value_hidden_sizes': (32,),
  'held_out_environments': 'catch/4x4',
  'held_out_every': 5,
  'held_out_updates': 20,
}
