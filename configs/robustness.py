"""The dependence of rules on the settings of agents (Extended Data Fig. 1).

Each panel of the figure is one sweep, here with the rule `general` and Disco103
on Catch 6x5. Panel c has 36 combinations of the optimizer's settings:

  disco-rl sweep --config=robustness \
    --grid=rule=general,disco103 --grid=optimizer=adam,rmsprop \
    --grid=learning_rate=3e-3,1e-2,3e-2 --grid=weight_decay=0,0.01,0.1 \
    --grid=max_abs_update=0.3,1 --workdir=runs/optimizers

Panel a varies the sizes of the agents' network, and panel b the fraction of
replay in a batch:

  disco-rl sweep --config=robustness \
    --grid=rule=general,disco103 \
    --variants=width_16,width_32,width_64,width_128,width_256 \
    --workdir=runs/widths
  disco-rl sweep --config=robustness \
    --grid=rule=general,disco103 \
    --variants=replay_0,replay_50,replay_75,replay_88,replay_96 \
    --workdir=runs/replay

The paper does not state the values, so we chose them. It used Ms Pacman and the
agents of its evaluation, as --config=robustness:ms_pacman and variants such as
ms_pacman_replay_50 do.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections

from configs import benchmarks
from configs import evaluate
from configs import records
from disco_rl.agent import sizes

_CATCH = {
  'environment': 'catch/6x5',
  'rule': 'general',
  'seeds': 2,
  'updates': 200,
  # Each rule has its own learning rate.
  **{x: value for x, value in sizes.SMALL.items() if x != 'learning_rate'},
  'unroll_length': 12,
  'updates_per_rollout': 1,
  'num_environments': 6,
  'on_policy_share': 0.25,
  'replay_capacity': 600,
}
_MS_PACMAN = {
  **benchmarks.settings('atari'),
  'environment': 'atari/ms_pacman',
}
# Settings that count updates.
_UPDATES = ('updates', 'warm_up_updates', 'decay_updates')


def _with_replay(base: Mapping[str, Any], percent: int) -> dict[str, Any]:
  """Changes the fraction of replay in a batch; environment steps stay equal.

  The rest of the batch is the whole newest rollout.
  """
  batch_size, before = base['batch_size'], base['num_environments']
  number = max(1, round(batch_size * (100 - percent) / 100))

  def scale(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
      name: round(value * before / number) if name in _UPDATES else value
      for name, value in settings.items()
    }

  by_rule = base.get('by_rule', {})
  return {
    **scale(base),
    'num_environments': number,
    'on_policy_share': number / batch_size,
    'replay_capacity': max(1, base['replay_capacity'] // number) * number,
    'by_rule': {rule: scale(own) for rule, own in by_rule.items()},
  }


def _with_width(base: Mapping[str, Any], width: int) -> dict[str, Any]:
  """Changes all layers; those of the action model are half as wide."""
  return {
    **base,
    'hidden_sizes': (width, width),
    'action_model_lstm': width // 2,
    'action_model_head': width // 2,
  }


_PERCENT = (0, 50, 75, 88, 96)
# Name after the colon -> changes of the defaults in configs/evaluate.py.
VARIANTS: dict[str, dict[str, Any]] = {
  'catch': _CATCH,
  **{f'width_{x}': _with_width(_CATCH, x) for x in (16, 32, 64, 128, 256)},
  **{f'replay_{x}': _with_replay(_CATCH, x) for x in _PERCENT},
  'ms_pacman': _MS_PACMAN,
  **{f'ms_pacman_replay_{x}': _with_replay(_MS_PACMAN, x) for x in _PERCENT},
}


def get_config(variant: str = 'catch') -> ml_collections.ConfigDict:
  """Returns the settings of a variant by name."""
  changes = records.variant('robustness', VARIANTS, variant)
  config = evaluate.base()
  config.update(changes)
  return config
