"""Defaults of discovery: the paper's figures where it states them.

Not a config of its own: disco103.py, disco57.py, quickstart.py and
meta_gridworld.py start from here.
"""

import ml_collections

from configs import preprocessing


def base() -> ml_collections.ConfigDict:
  """All settings of launch.meta_train."""
  config = ml_collections.ConfigDict()
  config.environments = ''  # Names or suites, with commas between.
  config.preprocessing = preprocessing.benchmarks()
  config.agents = 1  # The population; it cycles through the environments.
  config.meta_steps = 1000  # Changes of the rule.
  config.seed = 0  # Of all that is random.
  config.checkpoint_every = 100  # Meta-steps between checkpoints.
  config.keep_checkpoints = 2  # The newest, which are not deleted.

  # The rule.
  config.rule = 'random'  # Or 'disco103', or the path of an npz file.
  config.rule_prediction_size = 600  # Width of the predictions y and z.
  config.rule_prediction_embedding = (16, 1)  # Layers of E_y and E_z.
  config.rule_policy_channels = (16, 2)  # Blocks of the policy embedding.
  config.rule_policy_target_channels = (16,)  # Blocks that emit pi_hat.
  config.rule_lstm_size = 256  # Of the LSTM along the trajectory.
  config.rule_meta_rnn_input_size = 16  # Of the layer before the meta-RNN.
  config.rule_meta_rnn_size = 128  # Of the LSTM along the agent's lifetime.
  config.num_bins = 601  # Of the categorical q.
  config.max_abs_value = 300.0  # Largest bin, in the transformed space.
  config.q_cost = 0.2  # Weight of q's loss.
  config.reward_scale = 1.0  # Multiplies rewards before the rule sees them.
  config.discount = 0.997  # Of the rule and of the meta-value function.
  config.lambda_ = 0.95  # Of Retrace and of V-trace.

  # The meta-gradient.
  config.inner_updates = 20  # N, agent updates that it differentiates through.
  config.validation_trajectories = 48  # Per agent and meta-step.
  config.estimator = 'differentiation'  # Or 'evolution'.
  config.mode = 'mixed'  # Or 'checkpointed', 'plain': the same gradient.
  config.save_every = 1  # Keeps every k-th learner state; k divides N.
  config.offload = False  # Whether kept states wait in the host's memory.
  config.evolution_pairs = 8  # Antithetic perturbations, of 'evolution'.
  config.evolution_std = 0.01  # Standard deviation of the perturbations.
  config.chunk_size = 1  # Agents of a group that a device computes at a time.
  config.batch_devices = 1  # Devices that share the batches of an agent.
  config.cpu_devices = 1  # Devices that a CPU counts as.
  config.meta_learning_rate = 1e-3  # Of each agent's Adam over the rule.
  config.meta_decay_steps = 0  # By when a cosine has brought it to 0; 0: never.
  config.max_meta_gradient_norm = 1.0  # Of each agent's gradient, before Adam.

  # The outer loss beside the policy gradient.
  config.policy_entropy_cost = 1e-2  # On the validation trajectories.
  config.y_entropy_cost = 1e-3  # Likewise, of the prediction y.
  config.z_entropy_cost = 1e-3  # Likewise, of the prediction z.
  config.target_kl_cost = 1e-2  # KL(target network's policy || pi_hat).
  config.target_mean_cost = 1e-3  # Squared means of the targets' logits.

  # The meta-value function.
  config.meta_value_hidden_sizes = (512, 512)  # After a torso like the agent's.
  config.meta_value_learning_rate = 3e-4  # Of its Adam.
  # Whether it also learns from the batches of the inner updates.
  config.meta_value_on_inner_batches = False

  # Lifetimes of the agents, in environment steps.
  config.budgets = (200_000_000, 100_000_000, 50_000_000, 20_000_000)  # Drawn.
  config.stagger = False  # Whether the first agents start at various ages.

  # The agents.
  config.unroll_length = 28  # Transitions of a trajectory: 29 observations.
  config.batch_size = 96  # Trajectories in an update.
  config.num_environments = 12  # Replay ratio: batch_size / num_environments.
  config.on_policy_share = 0.1  # Of each batch, from the newest rollout.
  config.replay_capacity = 1200  # Trajectories.
  config.learning_rate = 3e-4  # Of the agent's Adam.
  config.max_abs_update = 1.0  # Bound of Adam's update, entry by entry.
  config.torso = 'mlp'  # Or 'impala', 'resnet', 'nethack'.
  config.channels = (16, 32, 32)  # Of the stages of convolutions, if any.
  config.hidden_sizes = (512, 512)  # Of the dense layers after them.
  config.core_lstm = 0  # LSTM for what one observation does not show; 0: none.
  config.action_model_lstm = 128  # Size of the action model's LSTM.
  config.action_model_head = 128  # Width of the hidden layer of its heads.
  config.compute_dtype = 'float32'  # Or 'bfloat16', of the agents' networks.

  # Trials of the rule by fresh agents.
  config.held_out_environments = ''  # Names, with commas between.
  config.held_out_every = 100  # Meta-steps between trials.
  config.held_out_updates = 100  # Of each agent.
  config.held_out_seeds = 3  # Agents per environment.
  return config


def paper() -> ml_collections.ConfigDict:
  """The paper's large runs: one rule for all suites."""
  config = base()
  # 600M steps of each agent, three of the longest lives, at 8,064 a meta-step.
  config.meta_steps = 75_000
  config.torso = 'resnet'
  config.channels = (256, 384, 384, 256)
  config.hidden_sizes = (768,)
  config.action_model_lstm = 1024
  config.action_model_head = 1024
  config.meta_value_hidden_sizes = (768,)
  config.replay_capacity = 60_000  # About 1.7M steps.
  config.held_out_every = 1000
  return config


def variant_of(
  config: ml_collections.ConfigDict, variant: str, tiny_environments: str
) -> ml_collections.ConfigDict:
  """The config itself, or its tiny likeness.

  Args:
    config: full size; changed.
    variant: '' or 'tiny'.
    tiny_environments: what the tiny one lives in.

  Returns:
    The config.

  Raises:
    ValueError: there is no such variant.
  """
  if variant not in ('', 'tiny'):
    raise ValueError(f'There is no variant {variant!r}; choose tiny, or none.')
  if variant == 'tiny':
    config.environments = tiny_environments
    config.agents = 2 * (tiny_environments.count(',') + 1)
    for name, value in _TINY.items():
      config[name] = value
  return config


_TINY = {
  'cpu_devices': 2,
  'meta_steps': 10,
  'checkpoint_every': 5,
  'rule_prediction_size': 16,
  'rule_lstm_size': 16,
  'rule_meta_rnn_size': 8,
  'num_bins': 41,
  'unroll_length': 8,
  'batch_size': 4,
  'num_environments': 2,
  'on_policy_share': 0.25,
  'replay_capacity': 100,
  'validation_trajectories': 4,
  'budgets': (3_000, 2_000, 1_000),  # Some nine, six and three meta-steps.
  'channels': (4, 8, 8, 4),
  'hidden_sizes': (32,),
  'action_model_lstm': 16,
  'action_model_head': 16,
  'meta_value_hidden_sizes': (32,),
  'held_out_environments': 'catch/4x4',
  'held_out_every': 5,
  'held_out_updates': 20,
}
