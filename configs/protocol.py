"""The protocol that judges rules, on tasks that were not used for choices.

  disco-rl protocol --config=protocol \
    --rules=runs/general/rule.npz --workdir=runs/protocol

The protocol declares three disjoint sets of tasks, candidate settings, and
budgets. All contenders choose among equally many combinations of settings, of
which the one with the highest IQM over the validation tasks is kept for the
tests. Two kinds of tests have their own settings and validation tasks: the
games of MinAtar, with convolutional networks, and chains, with longer rollouts.

The same command continues with the remaining runs. With
--tasks=random_grid,catch/5x6 it runs only some of the tests. See
docs/protocol.md for details.
"""

import ml_collections

from configs import evaluate
from configs import general
from configs import records
from disco_rl import config as config_lib

# Settings of training that the protocol sets for each run, or does not have.
_OF_RUNS = (
  *('environment', 'rule', 'steps', 'updates', 'by_rule'),
  *('evaluate_every', 'evaluate_episodes'),
)


def get_config() -> ml_collections.ConfigDict:
  """Returns the declarations, and the settings that all runs share."""
  config = evaluate.base()
  # The same data and layers for all. The rest comes from each rule's card, such
  # as a torso for the values of hand-designed rules.
  config.update(evaluate.SMALL_AGENT)
  for name in _OF_RUNS:
    del config[name]
  config.update(
    training_tasks=','.join(
      dict.fromkeys((*general.TASKS, *general.UNTRAINED_TASKS))
    ),
    validation_tasks=','.join(VALIDATION),
    validation_seeds=2,
    validation_updates=500,
    test_tasks=','.join(TESTS),
    score_after=(200, 500),
    by_family=ml_collections.ConfigDict(BY_FAMILY),
    candidates=15,
    growth=4,
    grids=ml_collections.ConfigDict(GRIDS),
    # Recipe -> the rules that it discovered with different seeds.
    recipes=ml_collections.ConfigDict(),
  )
  return config


base = get_config


def sections() -> records.Sections:
  """Returns these settings with their meanings."""
  # Imported late: launchers set JAX up before it loads.
  from disco_rl.evaluation import protocol

  return {**config_lib.sections(protocol.Protocol), **evaluate.sections()}


VALIDATION = (
  *(f'random_grid/{i}' for i in range(40, 45)),
  'catch/5x5',
)
# The levels of the earlier versions were known when this one was declared.
TESTS = (
  *(f'random_grid/{i}' for i in range(100, 116)),
  *(f'random_chain/{i}' for i in range(50, 54)),
  'catch/7x5',
  'catch/6x8',
  'catch/12x4',
  'bsuite/discounting_chain',
  'bsuite/umbrella_chain',
  'gymnax/FrozenLake-misc',
  'gymnax/MetaMaze-misc',
  'minatar/asterix',
  'minatar/breakout',
  'minatar/freeway',
  'minatar/space_invaders',
)
BY_FAMILY = {
  # The reward is at the end of up to 50 steps, all of which are in a rollout.
  # With 20 steps, values would learn of it only by bootstrapping, too late if
  # another reward is near.
  'random_chain': {
    'validation_tasks': tuple(f'random_chain/{i}' for i in range(40, 43)),
    'validation_updates': 200,  # After 500 they hardly distinguish settings.
    'unroll_length': 64,
    'lambda_': 1.0,
  },
  'minatar': {
    'validation_tasks': ('minatar/seaquest',),
    'validation_updates': 1000,
    'score_after': (1000, 3000),
    'log_every': 50,
    'channels': (16,),
    'hidden_sizes': (128,),
    'torso': 'impala',
  },
}
_OF_ALL = {
  'learning_rate': (1e-3, 2e-3, 5e-3, 1e-2, 2e-2),
  'updates_per_rollout': (1, 4, 8),
}
_HAND_DESIGNED = {
  **_OF_ALL,
  'entropy_cost': (0.01, 0.05, 0.2),
  'normalize_advantage': (True, False),
}
GRIDS = {
  'given': _OF_ALL,
  # A policy gradient computed by the rule's network, without discovery.
  'imitation': _OF_ALL,
  # What `imitation` was fitted to, in closed form.
  'policy_gradient': _HAND_DESIGNED,
  'actor_critic': _HAND_DESIGNED,
  'ppo': _HAND_DESIGNED,
  # As all others without replay, which its discovery had.
  'disco103': {
    **_OF_ALL,
    'reward_scale': (1.0, 30.0),
    'lambda_': (0.95,),  # As in its discovery, also in chains.
  },
  # The loss is only the entropy, so the policy soon becomes uniform.
  'uniform': {
    'rule': ('actor_critic',),
    'policy_cost': (0.0,),
    'value_cost': (0.0,),
    'entropy_cost': (1.0,),
  },
}
