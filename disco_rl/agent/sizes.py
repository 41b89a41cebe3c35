"""Sizes of agents; configs import them before JAX loads."""

# Agents that learn small tasks within a minute on two cores.
SMALL: dict[str, object] = {
  'unroll_length': 20,
  'batch_size': 24,
  'num_environments': 24,
  'on_policy_share': 1.0,
  'replay_capacity': 24,
  'learning_rate': 5e-3,
  'hidden_sizes': (64, 64),
  'action_model_lstm': 32,
  'action_model_head': 32,
}
SMALL_IMAGES: dict[str, object] = {
  'torso': 'impala',
  'channels': (16,),
  'hidden_sizes': (128,),
  'learning_rate': 1e-3,
}
# The agents of the paper's evaluations (Extended Data Table 6).
PAPER_IMAGES: dict[str, object] = {
  'torso': 'resnet',
  'channels': (256, 384, 384, 256),
  'hidden_sizes': (768,),
  'action_model_lstm': 1024,
  'action_model_head': 1024,
}
