"""Settings that agents of discovery and of training have in common.

Not a config of its own: meta_training.py and evaluate.py start from here. Each
function is a table of docs/settings.md.
"""

import ml_collections


def data(config: ml_collections.ConfigDict) -> None:
  """Data and optimisation."""
  config.unroll_length = 28  # Transitions of a trajectory: 29 observations.
  config.batch_size = 96  # Trajectories in an update.
  # Environments of an agent; the replay ratio is batch_size / num_environments.
  config.num_environments = 12
  # Fraction of a batch that comes from the newest rollout.
  config.on_policy_share = 0.1
  config.replay_capacity = 1200  # Trajectories that replay holds.
  # Whether replay beside environments on the host is in files; False: only
  # where it does not fit into memory.
  config.replay_on_disk = False
  config.optimizer = 'adam'  # 'adam' or 'rmsprop', of the agent.
  config.learning_rate = 3e-4  # Its learning rate.
  config.max_abs_update = 1.0  # Bound of each entry of its update.


def network(config: ml_collections.ConfigDict) -> None:
  """The agent's network."""
  config.torso = 'mlp'  # 'mlp', 'impala', 'resnet' or 'nethack'.
  # Stages of convolutions, of torsos for images.
  config.channels = (16, 32, 32)
  # By which each of them divides height and width; 1 for boards of symbols.
  config.stride = 2
  config.hidden_sizes = (512, 512)  # Dense layers after them.
  # Observations that the torso computes at a time, to save memory; 0: all, -1:
  # the first of all, 512, 128 and 32 that fits into it.
  config.torso_chunk_size = 0
  # Size of an LSTM after the torso, which adds memory; 0: none.
  config.core_lstm = 0
  config.action_model_lstm = 128  # Size of the action model's LSTM.
  config.action_model_head = 128  # Width of the hidden layer of its heads.
  # 'float32' or 'bfloat16', of the agent's network.
  config.compute_dtype = 'float32'


def rule(config: ml_collections.ConfigDict) -> None:
  """What all rules need."""
  config.discount = 0.997  # Discount, gamma.
  config.lambda_ = 0.95  # Lambda of Retrace and of V-trace.
  config.num_bins = 601  # Bins of the categorical value.
  config.max_abs_value = 300.0  # Largest bin, in the transformed space.


def discovered_rule(config: ml_collections.ConfigDict) -> None:
  """Discovered rules."""
  config.q_cost = 0.2  # Weight of q's loss.
  config.reward_scale = 1.0  # Multiplies rewards before the rule sees them.
