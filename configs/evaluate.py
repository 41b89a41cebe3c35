"""Training agents with a fixed rule.

  python -m launch.evaluate --config=configs/evaluate.py:catch \
    --config.rule=disco103 --workdir=runs/catch

Every setting is a flag: --config.learning_rate=1e-3. Lists make many runs in
one folder, and a report of them all:

  python -m launch.evaluate --config=configs/evaluate.py:quickstart \
    --config.environments=catch/4x4,catch/6x5 \
    --config.rules=disco103,actor_critic --config.learning_rates=1e-3,5e-3 \
    --workdir=runs/sweep

The name after the colon selects a starting point:

  catch      Catch 8x8 with the settings of the published small-scale recipe.
  cartpole   CartPole-v1 by Gymnasium, on the host.
  quickstart Catch 6x5 with the agents of configs/quickstart.py.
  general    The rule that ships, in a grid world that it has not seen.
  minatar    MinAtar's Breakout, small enough for two CPU cores.
  asterix    MinAtar's Asterix, likewise.
  atari42    Atari's Breakout in frames of 42 x 42, likewise.
  gridworld  A grid world, likewise.
  atari      An Atari game, and below other benchmarks, with the settings of the
             paper, for accelerators.
  crafter    Crafter.
  dmlab      A level of DMLab-30.
  nethack    The NetHack Challenge.
  procgen    A ProcGen game.
  sokoban    Sokoban.
"""

from typing import Any

import ml_collections

from configs import benchmarks
from configs import general
from configs import quickstart
from configs import records
from disco_rl import config as config_lib


def get_config(name: str = 'catch') -> ml_collections.ConfigDict:
  """Settings by the name that follows the colon."""
  if name not in VARIANTS:
    raise ValueError(
      f'configs/evaluate.py has no {name!r}; choose one of '
      f'{", ".join(VARIANTS)}.'
    )
  config = base()
  config.update(VARIANTS[name])
  return config


def base() -> ml_collections.ConfigDict:
  """All settings of launch.evaluate, at the defaults of their records."""
  config = records.defaults(sections())
  # Rule -> settings in place of those below; a flag that sets one still wins.
  config.by_rule = ml_collections.ConfigDict()
  return config


def sections() -> records.Sections:
  """What these settings are and mean."""
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.evaluation import runner
  from disco_rl.evaluation import sweep
  from disco_rl.update_rules import registry

  return {
    **config_lib.sections(sweep.Lists, runner.EvaluationConfig),
    **config_lib.sections(*registry.classes(), nested=False),
  }


# Agents of configs/general.py, with a quarter of its environments.
GENERAL_AGENT = {
  **general.AGENT,
  'batch_size': 6,
  'num_environments': 6,
  'replay_capacity': 6,
}
_MINATAR = {
  'environment': 'minatar/breakout',
  'seeds': 1,
  'updates': 3000,
  'log_every': 20,
  'channels': (16,),
  'hidden_sizes': (256, 256),
  'action_model_lstm': 64,
  'action_model_head': 64,
  'batch_size': 32,
  'num_environments': 16,
  'on_policy_share': 0.5,
  'replay_capacity': 4096,
  'learning_rate': 3e-3,
  'by_rule': {'actor_critic': {'learning_rate': 1e-3}},
}
# Name after the colon -> changes of the defaults.
VARIANTS: dict[str, dict[str, Any]] = {
  'catch': {
    'batch_size': 64,
    'num_environments': 2,
    'on_policy_share': 0.0,
    'replay_capacity': 1024,
    'learning_rate': 1e-2,
    'by_rule': {
      'actor_critic': {
        'learning_rate': 1e-3,
        'entropy_cost': 0.03,
        # With bins up to 300 an untrained network's values are so far off that
        # the first updates end exploration.
        'num_bins': 41,
        'max_abs_value': 2.0,
      },
    },
  },
  'cartpole': {
    'environment': 'gymnasium/CartPole-v1',
    'seeds': 1,
    'batch_size': 64,
    'num_environments': 8,
    'replay_capacity': 1000,
    'learning_rate': 1e-3,
    'by_rule': {'disco103': {'learning_rate': 1e-2}},
  },
  'quickstart': {
    'environment': 'catch/6x5',
    'updates': 500,
    **quickstart.AGENT,
  },
  'general': {
    'environment': 'gridworld/held_out_00',
    'rule': 'general',
    'updates': 500,
    **GENERAL_AGENT,
    # Of 5e-3, 1e-2 and 2e-2 the best in eleven tasks that are not tests of
    # configs/protocol.py, after 500 updates.
    'learning_rate': 1e-2,
    'by_rule': {
      'actor_critic': {'learning_rate': 5e-3, 'entropy_cost': 0.05},
      'disco103': {'learning_rate': 1e-2, 'reward_scale': 30.0},
    },
  },
  'minatar': _MINATAR,
  'asterix': {
    **_MINATAR,
    'environment': 'minatar/asterix',
    'updates': 4500,
    'torso': 'impala',
    'hidden_sizes': (256,),
    'reward_scale': 30.0,
    'by_rule': {
      'actor_critic': {'learning_rate': 1e-3, 'entropy_cost': 0.01},
    },
  },
  'atari42': {
    **_MINATAR,
    'environment': 'atari/breakout',
    'updates': 8120,
    'learning_rate': 5e-4,
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
    'reward_scale': 30.0,  # Disco103 learns sooner: rewards are about 1.
  },
  **{name: benchmarks.settings(name) for name in benchmarks.BENCHMARKS},
}
