"""Defaults of discovery: those of the paper where it states them.

Not a config of its own: disco103.py, disco57.py, quickstart.py,
meta_gridworld.py and general.py start from here.
"""

import ml_collections

from configs import agents
from configs import preprocessing


def base() -> ml_collections.ConfigDict:
  """All settings of launch.meta_train."""
  config = ml_collections.ConfigDict()
  for section in SECTIONS:
    section(config)
  return config


def _run(config: ml_collections.ConfigDict) -> None:
  """The run."""
  # Environments and suites of the population, with commas between.
  config.environments = ''
  config.preprocessing = preprocessing.benchmarks()
  # Agents in the population; they cycle through the environments.
  config.agents = 1
  config.meta_steps = 1000  # Updates of the rule.
  config.seed = 0  # Seed of all that is random.
  config.checkpoint_every = 100  # Meta-steps between checkpoints.
  config.keep_checkpoints = 2  # Newest checkpoints that are kept.
  # Loggers beside metrics.csv and TensorBoard, with commas between: 'wandb',
  # 'mlflow' or your own.
  config.loggers = ''


def _rule(config: ml_collections.ConfigDict) -> None:
  """The rule's network."""
  # Start: 'random', the name of a discovered rule, a path or a hf:// address.
  config.rule = 'random'
  # Width of the predictions y and z; 0: agents have neither.
  config.rule_prediction_size = 600
  # Layers of the embeddings of y and z.
  config.rule_prediction_embedding = (16, 1)
  # Channels of the blocks of the policy embedding.
  config.rule_policy_channels = (16, 2)
  # Channels of the blocks that emit pi_hat.
  config.rule_policy_target_channels = (16,)
  # Whether agents predict action values, q, and the rule reads them.
  config.rule_has_q = True
  # Weight of the loss of aux_pi, the prediction of the next step's policy; 0:
  # agents lack it.
  config.aux_pi_cost = 1.0
  config.rule_lstm_size = 256  # Size of the LSTM along the trajectory.
  # Blocks of a transformer of that width in its place; 0: the LSTM.
  config.rule_transformer_layers = 0
  # Heads of its attention, a divisor of its width.
  config.rule_transformer_heads = 4
  # Width of the layer before the meta-RNN.
  config.rule_meta_rnn_input_size = 16
  # Size of the meta-RNN, along the lifetime; 0: there is none.
  config.rule_meta_rnn_size = 128


def _meta_gradient(config: ml_collections.ConfigDict) -> None:
  """The meta-gradient."""
  config.inner_updates = 20  # N, agent updates that it differentiates through.
  # Fresh trajectories of an agent for the outer loss.
  config.validation_trajectories = 48
  # Of the gradient: 'differentiation' or 'evolution'.
  config.estimator = 'differentiation'
  # 'mixed', 'checkpointed' or 'plain': the same gradient. 'plain' holds the
  # activations of save_every updates at a time, the others those of one.
  config.mode = 'mixed'
  config.save_every = 1  # Keeps every k-th learner state; k divides N.
  config.offload = False  # Whether kept states wait in the host's memory.
  # Antithetic pairs of perturbed rules, of 'evolution'.
  config.evolution_pairs = 8
  config.evolution_std = 0.01  # Standard deviation of the perturbations.
  config.chunk_size = 1  # Agents of a group that a device computes at a time.
  config.batch_devices = 1  # Devices that share the batches of an agent.
  config.cpu_devices = 1  # Devices that a CPU counts as.
  # Spare agents fill each group up to a multiple of it, so that devices can
  # divide the group; their updates of the rule do not count.
  config.group_multiple = 1
  # Whether each agent has its own Adam over the rule; if not, one takes the
  # mean of their gradients.
  config.adam_per_agent = True
  config.meta_learning_rate = 1e-3  # Learning rate of Adam over the rule.
  # Meta-steps until a cosine brings that rate to 0; 0: never.
  config.meta_decay_steps = 0
  # Whether the rule that is evaluated and saved is the mean of the rules after
  # all meta-steps, weighted by about the square of their number.
  config.average_rule = False
  # Largest norm of the gradient that Adam takes.
  config.max_meta_gradient_norm = 1.0


def _outer_loss(config: ml_collections.ConfigDict) -> None:
  """The outer loss beside the policy gradient."""
  config.policy_entropy_cost = 1e-2  # Weight of the entropy of the policy.
  config.y_entropy_cost = 1e-3  # Weight of the entropy of y.
  config.z_entropy_cost = 1e-3  # Weight of the entropy of z.
  # Weight of KL(target network's policy || pi_hat).
  config.target_kl_cost = 1e-2
  # Weight of the squared means of the targets' logits.
  config.target_mean_cost = 1e-3


def _meta_value(config: ml_collections.ConfigDict) -> None:
  """The meta-value function."""
  # Dense layers, after the agent's torso.
  config.meta_value_hidden_sizes = (512, 512)
  config.meta_value_learning_rate = 3e-4  # Learning rate of its Adam.
  # Whether it also learns from the batches of the inner updates.
  config.meta_value_on_inner_batches = False


def _lifetimes(config: ml_collections.ConfigDict) -> None:
  """Lifetimes of the agents, in environment steps."""
  # Lengths to draw from.
  config.budgets = (200_000_000, 100_000_000, 50_000_000, 20_000_000)
  config.stagger = False  # Whether the first agents start at various ages.


def _variation(config: ml_collections.ConfigDict) -> None:
  """How the agents differ."""
  # Bounds of the learning rate that each agent draws, log-uniformly; (): all
  # have learning_rate.
  config.learning_rate_range = ()
  # Bounds of the fraction of hidden_sizes that it draws; (): all have 1.
  config.width_range = ()


def _held_out(config: ml_collections.ConfigDict) -> None:
  """Evaluation of the rule by agents outside the population."""
  config.held_out_environments = ''  # Environments, with commas between.
  config.held_out_every = 100  # Meta-steps between evaluations.
  config.held_out_updates = 100  # Updates of each agent.
  config.held_out_seeds = 3  # Agents in each environment.


# Each is a table of docs/settings.md.
SECTIONS = (
  _run,
  _rule,
  agents.discovered_rule,
  agents.rule,
  _meta_gradient,
  _outer_loss,
  _meta_value,
  _lifetimes,
  _variation,
  agents.data,
  agents.network,
  _held_out,
)


def paper(
  agents: int, num_environments: int, environments: str
) -> ml_collections.ConfigDict:
  """The paper's large runs; docs/faithfulness.md says what is inferred.

  Args:
    agents: in the population.
    num_environments: among which they are divided.
    environments: their names and those of suites.

  Returns:
    The config.
  """
  config = base()
  config.update(
    environments=environments,
    agents=agents,
    # 600M frames of each game, which its agents share. In a meta-step an agent
    # acts in 20 rollouts for its updates and in 5 for validation, of 10 times
    # 28 actions, each for 4 frames.
    meta_steps=round(
      600e6 * num_environments / agents / ((20 + 5) * 10 * 28 * 4)
    ),
    num_environments=10,
    torso='resnet',
    channels=(128, 256, 256, 128),
    hidden_sizes=(512,),
    torso_chunk_size=-1,
    action_model_lstm=512,
    action_model_head=512,
    meta_value_hidden_sizes=(512,),
    replay_capacity=60_000,  # About 1.7M actions.
    held_out_every=1000,
  )
  return config


def variant_of(
  config: ml_collections.ConfigDict, variant: str, tiny_environments: str
) -> ml_collections.ConfigDict:
  """Returns the config with the sizes of a variant.

  Args:
    config: of full size; changed in place.
    variant: '', 'large' or 'tiny'.
    tiny_environments: environments of the small config.

  Returns:
    The config.

  Raises:
    ValueError: there is no such variant.
  """
  if variant not in ('', 'large', 'tiny'):
    raise ValueError(
      f'There is no variant {variant!r}; choose large, tiny, or none.'
    )
  if variant == 'large':
    config.update(_LARGE)
  if variant == 'tiny':
    config.update(_TINY)
    config.environments = tiny_environments
    config.agents = 2 * (tiny_environments.count(',') + 1)
  return config


# The agents of the paper's evaluations.
_LARGE = {
  'channels': (256, 384, 384, 256),
  'hidden_sizes': (768,),
  'action_model_lstm': 1024,
  'action_model_head': 1024,
  'meta_value_hidden_sizes': (768,),
}
_TINY = {
  'torso_chunk_size': 0,
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
