"""Discovers a rule from nothing, on two CPU cores."""

import ml_collections

from configs import meta_training


def get_config() -> ml_collections.ConfigDict:
  """Eight agents on Catch; small networks."""
  config = meta_training.base()
  config.environments = 'catch/4x3'
  config.agents = 8
  config.meta_steps = 450
  config.checkpoint_every = 50

  config.rule_prediction_size = 32
  config.rule_lstm_size = 64
  config.rule_meta_rnn_size = 32
  config.num_bins = 41
  config.max_abs_value = 2.0
  config.q_cost = 0.5
  config.discount = 0.97

  config.inner_updates = 5
  config.validation_trajectories = 24
  config.chunk_size = 8
  config.meta_learning_rate = 2e-3
  config.policy_entropy_cost = 3e-3
  config.target_kl_cost = 1e-3
  config.meta_value_torso = (64, 64)
  config.meta_value_learning_rate = 1e-3
  config.meta_value_on_inner_batches = True

  config.budgets = (100_000,)  # Some 290 updates.
  config.stagger = True
  config.unroll_length = 12
  config.batch_size = 24
  config.replay_ratio = 1.0
  config.on_policy_share = 1.0
  config.replay_capacity = 24
  config.learning_rate = 5e-3
  config.torso = (64, 64)
  config.action_model_lstm = 32
  config.action_model_head = 32

  config.held_out_environments = 'catch/4x4,catch/6x5'
  config.held_out_every = 150
  config.held_out_updates = 300
  return config
