"""Calls launch.train, for its tests."""

import functools

import launching

from launch import train

CONFIG = f'--config={launching.REPOSITORY}/configs/evaluate.py'
CATCH = (
  f'{CONFIG}:catch',
  '--config.environment=catch/4x3',
  '--config.rule=actor_critic',
  '--config.seeds=2',
  '--config.updates=20',
  '--config.learning_rate=0.01',
  '--config.log_every=5',
  '--config.checkpoint_every=10',
  '--config.unroll_length=6',
  '--config.batch_size=8',
  '--config.num_environments=2',
  '--config.replay_capacity=16',
  '--config.hidden_sizes=16',
  '--config.action_model_lstm=8',
  '--config.action_model_head=8',
  '--config.num_bins=41',
  '--config.max_abs_value=3',
)
FILES = {
  '.lock',
  '.owner',
  '.newest_checkpoint',
  'checkpoints',
  'config.json',
  'curves.png',
  'metrics.csv',
  'summary.json',
  'tensorboard',
}

launch = functools.partial(launching.call, train)
error = functools.partial(launching.error, train)
