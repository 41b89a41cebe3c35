"""Tests of benchmarks/rule_scores.py."""

import pathlib

import numpy as np

from benchmarks import rule_scores
from disco_rl.evaluation import normalization
from disco_rl.training import config as training_config
from disco_rl.training import runner

SETTINGS = {
  'environment': 'catch/3x3',
  'seed': 3,
  'seeds': 2,
  'unroll_length': 6,
  'batch_size': 4,
  'num_environments': 4,
  'replay_capacity': 4,
  'hidden_sizes': (16,),
  'updates_per_rollout': 2,
  'learning_rate': 0.02,
}
ROLLOUTS = 5


def test_rules_that_share_a_program_score_as_by_train(
  tmp_path: pathlib.Path,
) -> None:
  found = dict(rule_scores.scores(['imitation', 'general'], SETTINGS, ROLLOUTS))
  run = runner.TrainingRun(
    *training_config.resolve({**SETTINGS, 'rule': 'general'}, ROLLOUTS)
  )
  summary = run.run(tmp_path)
  run.close()
  scale = normalization.find_scale('catch/3x3')
  assert scale is not None
  np.testing.assert_array_equal(
    found['general'], scale.normalize(summary['return']['per_seed'])
  )
  assert np.any(found['general'] != found['imitation'])
