"""Tests of launch.meta_train --from."""

import pathlib

import launching
import pytest

from benchmarks import small_runs
from disco_rl.runtime import metrics
from launch import meta_train

pytestmark = pytest.mark.usefixtures('quick_compilation')

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
    ('rule_lstm_size=9', 'rule_lstm_size=9 (there 8)'),
    ('environments=catch/5x3', "environments='catch/5x3' (there 'catch/4x3')"),
  ],
)
def test_what_does_not_fit_is_named(
  tmp_path: pathlib.Path, change: str, named: str
) -> None:
  source = tmp_path / 'source'
  (source / 'checkpoints' / '1').mkdir(parents=True)
  with launching.parsed(*TINY, f'--workdir={source}') as settings:
    metrics.write_json(source / 'config.json', settings)
  answer = launching.error(
    meta_train,
    tmp_path / 'fork',
    *TINY,
    '--config.meta_learning_rate=0.1',
    f'--config.{change}',
    f'--from={source}',
  )
  assert f'The state of {source} does not fit {named}: a fork' in answer
