"""Calls of launch.evaluate, for its tests."""

import pathlib
import sys

from absl.testing import flagsaver
import launching
import pytest

from launch import common
from launch import evaluate

CONFIG = f'--config={launching.REPOSITORY}/configs/evaluate.py'
CATCH = (
  f'{CONFIG}:catch',
  '--config.environment=catch/4x3',
  '--config.rule=actor_critic',
  '--config.seeds=2',
  '--config.updates=20',
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
  'checkpoints',
  'config.json',
  'curves.png',
  'metrics.csv',
  'summary.json',
  'tensorboard',
}


def launch(workdir: pathlib.Path, *arguments: str) -> None:
  """Calls the command, in this process."""
  argv = ['evaluate', f'--workdir={workdir}', *arguments]
  with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
    # ml_collections reads the settings from there.
    patch.setattr(sys, 'argv', argv)
    common.parse_flags(argv)
    evaluate.main(
      common.CONFIG.value.to_dict(), pathlib.Path(common.WORKDIR.value)
    )


def error(workdir: pathlib.Path, *arguments: str) -> str:
  """Calls the command; returns the error message that it ends with."""
  with pytest.raises(SystemExit) as caught:
    launch(workdir, *arguments)
  message = caught.value.code
  # A message is printed to stderr, and the exit status is 1.
  assert isinstance(message, str)
  assert message.startswith('error: ')
  assert '\n' not in message
  return message
