"""Settings of a discovery run."""

from collections.abc import Iterator
import dataclasses
import functools
from typing import Annotated

from disco_rl import config as config_lib
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import registry
from disco_rl.environments import suites
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import held_out as held_out_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.meta_training import meta_value as meta_value_lib
from disco_rl.meta_training import outer_loss
from disco_rl.meta_training import registry as estimator_registry
from disco_rl.meta_training import variation as variation_lib
from disco_rl.runtime import loggers as loggers_lib
from disco_rl.update_rules import disco
from disco_rl.update_rules import sources

UNTRAINED = 'untrained'


@dataclasses.dataclass(frozen=True)
class MetaTrainingConfig(config_lib.Settings):
  """Settings of a discovery run.

  Attributes:
    environments: environments and suites of the population, separated by
      commas.
    agents: agents in the population, which cycle through the environments.
    preprocessing: changes to environments, see `environments.registry.make`.
    rule: where discovery starts: 'untrained', the name of a discovered rule,
      the path of an npz file, or a hf:// address.
    rule_settings: settings of the rule.
    meta_steps: updates of the rule.
    seed: seed of all random numbers.
    checkpoint_every: meta-steps between two checkpoints.
    keep_checkpoints: number of checkpoints that are kept, the newest ones.
    agent: settings of each agent.
    meta_value: settings of each agent's meta-value function.
    inner_loop: lengths of the inner loop.
    loss: weights of the outer loss.
    lifetimes: lifetimes of the agents until they are reset.
    held_out: evaluation on held-out environments.
    variation: differences between the agents.
    estimator: estimator of the meta-gradient: 'differentiation', 'evolution',
      'persistent_evolution' or 'bootstrapping'.
    estimators: settings of all estimators.
    adam_per_agent: whether each agent has its own Adam over the rule; if not,
      one Adam takes the mean of their meta-gradients.
    meta_learning_rate: step size of Adam over the rule.
    meta_decay_steps: meta-steps after which a cosine schedule of that learning
      rate reaches zero; 0: the learning rate is constant.
    average_rule: whether the rule that is evaluated and saved is a mean over
      the meta-steps, see `meta_update.averaging`, instead of the newest.
    max_meta_gradient_norm: norm to which larger meta-gradients are scaled down
      before Adam.
    chunk_size: maximal number of agents of a group that a device computes at a
      time.
    batch_devices: devices that share the batches of the same agents.
    cpu_devices: devices that a CPU counts as; see `sharding.divide_cpu`.
    group_multiple: each group is padded with agents to a multiple of this
      number, so that devices can divide it; padding does not change the rule.
    loggers: loggers in addition to metrics.csv and TensorBoard, separated by
      commas: 'wandb' or your own.
  """

  environments: suites.Names = ()
  preprocessing: registry.Preprocessing = dataclasses.field(
    default_factory=registry.default_preprocessing
  )
  agents: config_lib.Count = 1
  rule: sources.Name = UNTRAINED
  rule_settings: disco.Disco = disco.Disco()
  meta_steps: config_lib.Count = 1000
  seed: config_lib.CountOrZero = 0
  checkpoint_every: config_lib.Count = 100
  keep_checkpoints: config_lib.Count = 2
  agent: agent_lib.AgentConfig = agent_lib.AgentConfig()
  meta_value: meta_value_lib.MetaValueConfig = meta_value_lib.MetaValueConfig()
  inner_loop: inner_loop_lib.InnerLoopConfig = inner_loop_lib.InnerLoopConfig()
  loss: outer_loss.OuterLossConfig = outer_loss.OuterLossConfig()
  lifetimes: lifetimes_lib.LifetimeConfig = lifetimes_lib.LifetimeConfig()
  held_out: held_out_lib.HeldOutConfig = held_out_lib.HeldOutConfig()
  variation: variation_lib.VariationConfig = variation_lib.VariationConfig()
  estimator: Annotated[str, config_lib.one_of(*estimator_registry.NAMES)] = (
    'differentiation'
  )
  estimators: estimator_registry.Estimators = estimator_registry.Estimators()
  adam_per_agent: bool = True
  meta_learning_rate: config_lib.Positive = 1e-3
  meta_decay_steps: config_lib.CountOrZero = 0
  average_rule: bool = False
  max_meta_gradient_norm: config_lib.Bound = 1.0
  chunk_size: config_lib.Count = 1
  batch_devices: config_lib.Count = 1
  cpu_devices: config_lib.Count = 1
  group_multiple: config_lib.Count = 1
  loggers: loggers_lib.Names = ()

  def conflicts(self) -> Iterator[str]:
    """Yields errors about the population, its agents and its schedule."""
    if not self.environments:
      yield 'environments must name at least one environment.'
    if self.agents < len(self.environments):
      yield (
        f'agents={self.agents} must be at least {len(self.environments)}, one '
        'for each of the environments.'
      )
    for conflict in self.estimator_config.conflicts_with(
      self.inner_loop, self.loss
    ):
      yield f'estimator={self.estimator} {conflict}'
    if 0 < self.meta_decay_steps < self.meta_steps:
      yield (
        f'meta_steps={self.meta_steps} is above meta_decay_steps='
        f'{self.meta_decay_steps}, after which the rule no longer '
        'changes. Raise both, in a new workdir, or set meta_decay_steps=0.'
      )
    if self.agent.updates_per_rollout > 1:
      yield (
        f'updates_per_rollout={self.agent.updates_per_rollout} is for training '
        'with a fixed rule: in discovery each of the inner_updates follows a '
        'rollout of its own, from which the rule is to learn. Set it to 1, and '
        'lower num_environments for a higher replay ratio.'
      )
    agent = config_lib.flatten(self.agent)
    for name in ('normalize_observations', 'normalize_rewards'):
      if agent[name]:
        yield (
          f'{name}=True is for training with a fixed rule: rules are '
          'discovered on rewards and observations as they are. Leave it out.'
        )

  @property
  def estimator_config(self) -> estimator_lib.EstimatorConfig:
    """The settings of the chosen estimator."""
    return self.estimators.named(self.estimator)

  @functools.cached_property
  def members(self) -> tuple[str, ...]:
    """The environment of each agent."""
    environments = self.environments
    return tuple(
      environments[i % len(environments)] for i in range(self.agents)
    )
