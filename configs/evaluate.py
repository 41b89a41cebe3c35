"""Trains agents with a fixed rule: the settings of disco-rl train.

  disco-rl train --config=catch \
    --config.rule=disco103 --workdir=runs/catch_disco103

Every setting is a flag, such as --config.learning_rate=1e-3. This command makes
many runs and writes a report:

  disco-rl sweep --config=evaluate:quickstart \
    --grid=environment=catch/4x4,catch/6x5 --grid=rule=disco103,actor_critic \
    --grid=learning_rate=1e-3,5e-3 --workdir=runs/sweep

The name after the colon selects a starting point: a task, and what agents need
there. What suits a rule comes from its card; `by_rule` has settings that were
chosen for one rule in this task.

  catch      Catch 8x8; Disco103 has the settings of the published small-scale
             recipe, and general its replay.
  cartpole   CartPole-v1 by Gymnasium, on the host.
  quickstart Catch 6x5, with agents that suit the rule.
  general    The rule `general`, in a grid world that its discovery did not use.
  minatar    MinAtar's Breakout with an MLP, small enough for two CPU cores.
  asterix    MinAtar's Asterix with convolutions, also small.
  atari42    Atari's Breakout in frames of 42 x 42, also small.
  gridworld  A grid world, also small.
  atari      An Atari game. This and the following benchmarks have the settings
             of the paper, for accelerators.
  crafter    Crafter.
  dmlab      A level of DMLab-30.
  nethack    The NetHack Challenge.
  procgen    A ProcGen game.
  procgen_50m The same until 50M steps, where the paper has a table of scores.
  sokoban    Sokoban.
"""

from typing import Any

import ml_collections

from configs import benchmarks
from configs import records
from disco_rl import config as config_lib
from disco_rl.agent import sizes


def get_config(name: str = 'catch') -> ml_collections.ConfigDict:
  """Returns the settings of a starting point by its name."""
  changes = records.variant('evaluate', VARIANTS, name)
  config = base()
  config.update(changes)
  return config


def base() -> ml_collections.ConfigDict:
  """Returns all settings of disco-rl train, at their defaults.

  Settings of agents and rules are None; see disco_rl/agent/resolution.py.
  """
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.agent import agent
  from disco_rl.update_rules import registry

  of_agents = config_lib.names(agent.AgentConfig)
  return records.defaults(
    sections(), unset={*of_agents, *registry.setting_names(), 'sizes'}
  )


def sections() -> records.Sections:
  """Returns these settings with their meanings."""
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.training import config as training_config
  from disco_rl.update_rules import registry

  return {
    **config_lib.sections(
      training_config.TrainingConfig,
      training_config.Budget,
      training_config.StartingPoint,
    ),
    **config_lib.sections(*registry.classes(), nested=False),
  }


# Agents of configs/general.py, with a quarter of its environments.
SMALL_AGENT = {
  **{
    name: value
    for name, value in sizes.SMALL.items()
    if name not in ('learning_rate', 'on_policy_share')
  },
  'batch_size': 6,
  'num_environments': 6,
  'replay_capacity': 6,
  'torso': 'mlp',
}
# Half of a batch is new, the rest is from replay.
_REPLAY = {
  'unroll_length': 28,
  'batch_size': 32,
  'num_environments': 16,
  'replay_capacity': 4096,
}
_MINATAR = {
  'environment': 'minatar/breakout',
  'seeds': 1,
  'updates': 3000,
  'log_every': 20,
  'torso': 'mlp',
  'channels': (16,),
  'hidden_sizes': (256, 256),
  'action_model_lstm': 64,
  'action_model_head': 64,
  'by_rule': {'disco103': {**_REPLAY, 'reward_scale': 1.0}},
}
_CATCH_REPLAY = {
  'unroll_length': 28,
  'batch_size': 64,
  'num_environments': 2,
  'on_policy_share': 0.0,
  'replay_capacity': 1024,
}
# Name after the colon -> changes of the defaults.
VARIANTS: dict[str, dict[str, Any]] = {
  'catch': {
    'by_rule': {
      'disco103': {'sizes': 'paper', 'learning_rate': 1e-2, **_CATCH_REPLAY},
      # With new rollouts alone, one of three agents did not learn it.
      'general': _CATCH_REPLAY,
    },
  },
  'cartpole': {
    'environment': 'gymnasium/CartPole-v1',
    'seeds': 1,
    'by_rule': {
      'disco103': {
        'hidden_sizes': (512, 512),
        'action_model_lstm': 128,
        'action_model_head': 128,
        'unroll_length': 28,
        'batch_size': 64,
        'num_environments': 8,
        'on_policy_share': 0.1,
        'replay_capacity': 1000,
        'reward_scale': 1.0,
      },
    },
  },
  'quickstart': {'environment': 'catch/6x5', 'updates': 500},
  'general': {
    'environment': 'gridworld/held_out_00',
    'rule': 'general',
    'updates': 500,
    **SMALL_AGENT,
  },
  'minatar': _MINATAR,
  'asterix': {
    **_MINATAR,
    'environment': 'minatar/asterix',
    'updates': 4500,
    'torso': 'impala',
    'hidden_sizes': (256,),
    'by_rule': {'disco103': _REPLAY},
  },
  'atari42': {
    **_MINATAR,
    'environment': 'atari/breakout',
    'updates': 8120,
    'by_rule': {
      'disco103': {**_REPLAY, 'learning_rate': 5e-4, 'reward_scale': 1.0}
    },
    'preprocessing': {
      'atari': {
        'height': 42,
        'width': 42,
        'has_all_actions': False,
        'fires_on_reset': True,
      }
    },
  },
  'gridworld': {
    **_MINATAR,
    'environment': 'gridworld/00',
    'updates': 1000,
    'torso': 'impala',
    'hidden_sizes': (128,),
    'by_rule': {'disco103': {**_REPLAY, 'learning_rate': 3e-3}},
  },
  **{name: benchmarks.settings(name) for name in benchmarks.BENCHMARKS},
  # The paper tabulates scores at 50M steps, a quarter of its runs.
  'procgen_50m': {
    **benchmarks.settings('procgen', until=5e7),
    'environment': 'procgen/bigfish',
  },
}
