"""Settings of a discovery run."""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
from typing import Annotated
from typing import Any

from disco_rl import config as config_lib
from disco_rl.agent import agent as agent_lib
from disco_rl.environments import registry
from disco_rl.meta_training import held_out
from disco_rl.meta_training import inner_loop
from disco_rl.meta_training import lifetimes
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import outer_loss
from disco_rl.meta_training import variation as variation_lib
from disco_rl.networks import meta_network
from disco_rl.runtime import loggers as loggers_lib

ESTIMATORS = ('differentiation', 'evolution')
RANDOM = 'random'


@dataclasses.dataclass(frozen=True)
class MetaTrainingConfig(config_lib.Settings):
  """Settings of a discovery run.

  Attributes:
    environments: names; see `environments.registry`.
    agents: size of the population, which cycles through the environments.
    preprocessing: changes for environments, see `environments.registry.make`.
    rule: where discovery starts: 'random', a name or the path of an npz file.
    rule_network: sizes of a random rule.
    rule_settings: other fields of `update_rules.disco.Disco`.
    meta_steps: number of meta-updates.
    seed: seed of everything that is random.
    checkpoint_every: meta-steps between two checkpoints.
    keep_checkpoints: how many of the newest remain.
    agent: settings of each agent.
    meta_value: settings of each agent's meta-value function.
    inner_loop: lengths of the inner loop.
    loss: weights of the outer loss.
    lifetimes: how long the agents learn before they are reset.
    held_out: evaluation on held-out environments.
    variation: how the agents differ.
    estimator: one of `ESTIMATORS`.
    mode: mode of differentiation; see `meta_gradient.MODES`.
    evolution_pairs: antithetic pairs of perturbed rules, of evolution.
    evolution_std: standard deviation of the perturbations.
    adam_per_agent: whether each agent has its own Adam over eta; if not, one
      takes the mean of their meta-gradients.
    meta_learning_rate: step size of Adam over eta.
    meta_decay_steps: meta-steps after which a cosine has brought that learning
      rate to zero; 0: it stays.
    average_rule: whether the rule that is evaluated and saved is a mean over
      the meta-steps, see `meta_update.averaging`; if not, the newest.
    max_meta_gradient_norm: bound of the meta-gradient that Adam takes.
    chunk_size: agents of a group that a device computes at a time.
    batch_devices: devices that share the batches of the same agents.
    cpu_devices: devices that a CPU counts as; see `sharding.divide_cpu`.
    group_multiple: spare agents fill each group up to a multiple of it; they
      learn like the others, but their updates of eta do not count.
    loggers: names, see `runtime.loggers`.
  """

  environments: tuple[str, ...]
  preprocessing: registry.Preprocessing
  agents: config_lib.Count
  rule: str
  rule_network: meta_network.MetaNetworkConfig
  rule_settings: Mapping[str, Any]
  meta_steps: config_lib.Count
  seed: config_lib.CountOrZero
  checkpoint_every: config_lib.Count
  keep_checkpoints: config_lib.Count
  agent: agent_lib.AgentConfig
  meta_value: meta_value.MetaValueConfig
  inner_loop: inner_loop.InnerLoopConfig
  loss: outer_loss.OuterLossConfig
  lifetimes: lifetimes.LifetimeConfig
  held_out: held_out.HeldOutConfig
  variation: variation_lib.VariationConfig = variation_lib.VariationConfig()
  estimator: Annotated[str, config_lib.one_of(*ESTIMATORS)] = 'differentiation'
  mode: meta_gradient.Mode = 'mixed'
  evolution_pairs: config_lib.Count = 8
  evolution_std: config_lib.Positive = 0.01
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
    """The population, its agents and its schedule go together."""
    if not self.environments:
      yield 'environments must name at least one environment.'
    if self.agents < len(self.environments):
      yield (
        f'agents={self.agents} must be at least {len(self.environments)}, one '
        'for each of the environments.'
      )
    if 0 < self.meta_decay_steps < self.meta_steps:
      yield (
        f'meta_steps={self.meta_steps} is above meta_decay_steps='
        f'{self.meta_decay_steps}, after which the rule does not change any '
        'more. Raise both, in a new workdir, or set meta_decay_steps=0.'
      )

  @functools.cached_property
  def members(self) -> tuple[str, ...]:
    """Each agent's environment."""
    environments = self.environments
    return tuple(
      environments[i % len(environments)] for i in range(self.agents)
    )
