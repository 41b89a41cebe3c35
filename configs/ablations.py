"""Variants of the method (Fig. 3, Extended Data Fig. 3), at a small size.

  disco-rl sweep --config=ablations \
    --variants=full,no_q,no_y_and_z --seeds=3 --workdir=runs/ablations

This command runs each variant with several seeds and compares held-out returns.
These commands run one variant, and evaluate its rule, which needs no further
settings:

  disco-rl meta-train --config=ablations:no_q \
    --workdir=runs/no_q
  disco-rl train --config=quickstart \
    --config.rule=runs/no_q/rule.npz --workdir=runs/no_q_6x5

The name after the colon selects the variant; the default, `full`, is the whole
method. The quick start is `no_y_and_z`. If a variant omits a part, it is also
omitted from the networks of the rule and the agents, and from the losses.
"""

from typing import Any

import ml_collections

from configs import meta_training
from configs import quickstart
from configs import records

# Tabular 5x5 tasks that an agent solves within a short lifetime.
_GRID_WORLDS = tuple(f'gridworld/{i:02d}' for i in (0, 1, 3, 5, 9, 10, 14, 20))
# Name after the colon -> changes of the full method.
VARIANTS: dict[str, dict[str, Any]] = {
  'full': {},
  'no_y_and_z': {'rule_prediction_size': 0},
  'no_q': {'rule_has_q': False},
  'no_aux_pi': {'aux_pi_cost': 0.0},
  'no_meta_rnn': {'rule_meta_rnn_size': 0},
  'lstm_16': {'rule_lstm_size': 16},
  'lstm_128': {'rule_lstm_size': 128},
  'transformer': {'rule_transformer_layers': 2},
  'shared_adam': {'adam_per_agent': False},
  'evolution': {'estimator': 'evolution', **meta_training.REWARD_ALONE},
  'persistent_evolution': {
    'estimator': 'persistent_evolution',
    **meta_training.REWARD_ALONE,
  },
  'bootstrapping': {'estimator': 'bootstrapping'},
  'outer_losses_5': {'outer_losses': 5},
  'small_agents': {
    'hidden_sizes': (16, 16),
    'action_model_lstm': 8,
    'action_model_head': 8,
  },
  **{f'inner_{n}': {'inner_updates': n} for n in (1, 10, 20)},
  'gridworlds': {'environments': ','.join(_GRID_WORLDS)},
  'catch_and_gridworlds': {
    'environments': ','.join(f'{x},catch/4x3' for x in _GRID_WORLDS),
    'agents': 2 * len(_GRID_WORLDS),
  },
}


def get_config(variant: str = 'full') -> ml_collections.ConfigDict:
  """Returns the settings of a variant by name."""
  changes = records.variant('ablations', VARIANTS, variant)
  config = quickstart.get_config()
  config.rule_prediction_size = 32
  config.update(changes)
  return config
