"""Tests of launch.meta_train --from."""

import pathlib

import launching
import numpy as np
import pytest

from benchmarks import small_runs
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from launch import meta_train

TINY = (
  f'--config={launching.REPOSITORY}/configs/quickstart.py',
  *(f'--config.{name}={x}' for name, x in small_runs.SETTINGS.items()),
  '--config.environments=catch/4x3',
  '--config.agents=2',
  '--config.chunk_size=2',
  '--config.checkpoint_every=1',
  '--config.inner_updates=2',
  '--config.validation_trajectories=4',
  '--config.unroll_length=5',
  '--config.rule_prediction_embedding=(3, 1)',
  '--config.rule_policy_channels=(3, 2)',
  '--config.rule_policy_target_channels=3',
  '--config.held_out_environments=',
)


@pytest.mark.parametrize(
  ('change', 'named'),
  [
    ('agents=3', 'agents=3 (there 2)'),
    ('unroll_length=6', 'unroll_length=6 (there 5)'),
    ('environments=catch/5x3', "environments='catch/5x3' (there 'catch/4x3')"),
  ],
)
def test_what_does_not_fit_is_named(
  tmp_path: pathlib.Path, change: str, named: str
) -> None:
  source = tmp_path / 'source'
  (source / 'checkpoints' / '1').mkdir(parents=True)
  with launching.parsed(*TINY, f'--workdir={source}') as settings:
    settings = meta_trainer.complete(settings)
    json_files.write(source / 'config.json', settings)
  answer = launching.error(
    meta_train,
    tmp_path / 'fork',
    *TINY,
    '--config.meta_learning_rate=0.1',
    f'--config.{change}',
    f'--from={source}',
  )
  assert f'The state of {source} does not fit {named}: a fork' in answer


@pytest.mark.slow
def test_discovery_is_forked_with_other_settings(
  tmp_path: pathlib.Path,
) -> None:
  source, fork = tmp_path / 'source', tmp_path / 'fork'
  launching.call(meta_train, source, *TINY, '--config.meta_steps=1')
  before = launching.contents(source)
  flags = (*TINY, '--config.meta_steps=2', f'--from={source}')
  changes = ('--config.meta_learning_rate=0.1', '--config.inner_updates=1')
  launching.call(meta_train, fork, *flags, *changes)
  assert launching.contents(source) == before
  origin = json_files.read(fork / 'config.json')['forked_from']
  assert origin == {'workdir': str(source), 'step': 1}
  rows, old = (metrics.read(x / 'metrics.csv') for x in (fork, source))
  np.testing.assert_array_equal(rows['meta_step'], [1, 2])
  assert rows['rule_update_norm'][0] == old['rule_update_norm'][0]
  # Two agents, two environments each: of 2 + 2 rollouts, then of 1 + 2.
  np.testing.assert_array_equal(rows['environment_steps'], [80, 80 + 60])
  # Adam's steps are as large as its learning rate.
  assert rows['rule_update_norm'][1] > 10 * old['rule_update_norm'][0]
