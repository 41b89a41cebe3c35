"""Preprocessing of observations, actions and rewards, of each benchmark.

Not a config of its own: all configs hold these settings, by family of
environments: --config.preprocessing.atari.frame_stack=1. The class
`Preprocessing` in the module of each family documents them.
"""

import ml_collections

_BENCHMARKS = {
  'atari': {
    'frame_skip': 4,
    'max_over_frames': True,
    'height': 84,
    'width': 84,
    'is_grayscale': True,
    'frame_stack': 4,
    'sticky_action_probability': 0.25,
    'max_no_ops': 0,
    'fires_on_reset': False,
    'has_all_actions': True,
    'max_episode_frames': 108_000,
    'max_abs_reward': 0.0,  # 0: rewards are not clipped.
  },
  'crafter': {
    'height': 64,
    'width': 64,
    'frame_stack': 1,
    'action_repeat': 1,
    'max_episode_steps': 10_000,
  },
  'dmlab': {
    'action_repeat': 4,
    'height': 72,
    'width': 96,
    'num_words': 16,
    'renderer': 'software',
  },
  'nethack': {
    'character': 'mon-hum-neu-mal',
    'max_episode_steps': 5_000,
    'has_all_actions': False,
    'idle_penalty': -0.01,
    'frame_stack': 4,
  },
  'procgen': {'num_levels': 500, 'start_level': 0, 'frame_stack': 4},
  'sokoban': {'frame_stack': 4, 'time_limit': 120},
}


def benchmarks() -> ml_collections.ConfigDict:
  """Family of names -> settings."""
  return ml_collections.ConfigDict(_BENCHMARKS)
