"""Settings of tiny discoveries, also for tests."""

import numpy as np

from disco_rl import types

# On top of configs/quickstart.py; most of the time goes into meta-steps and
# checkpoints.
SETTINGS = {
  'environments': 'catch/4x3',
  'cpu_devices': 1,
  'meta_decay_steps': 0,  # The last meta-step is unknown to killed runs.
  'validation_trajectories': 2,
  'unroll_length': 6,
  'batch_size': 4,
  'num_environments': 2,
  'on_policy_share': 0.5,
  'replay_capacity': 8,
  'min_replay_batches': 0.0,
  'hidden_sizes': (8,),
  'action_model_lstm': 8,
  'action_model_head': 8,
  'num_bins': 11,
  'meta_value_hidden_sizes': (8,),
  'rule_prediction_size': 8,
  'rule_lstm_size': 8,
  'rule_meta_rnn_size': 4,
  'held_out_environments': 'catch/4x3',
  'held_out_every': 2,
  'held_out_updates': 4,
  'held_out_seeds': 2,
}
# On top of these: without y, z and aux_pi programs compile in half the time.
# The parts that communicate remain: moments, the meta-RNN and gradients.
SMALL_RULE = {'rule_prediction_size': 0, 'aux_pi_cost': 0.0}


def differing(actual: types.Params, expected: types.Params) -> list[str]:
  """Returns the names of parameters that are not equal bit for bit."""
  flat = lambda params: {
    f'{module}/{name}': np.asarray(array)
    for module, leaves in params.items()
    for name, array in leaves.items()
  }
  got, wanted = flat(actual), flat(expected)
  assert got.keys() == wanted.keys()
  return [key for key in got if not np.array_equal(got[key], wanted[key])]
