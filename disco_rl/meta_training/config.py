"""Settings of a discovery run."""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from disco_rl.agent import agent as agent_lib
from disco_rl.environments import registry
from disco_rl.meta_training import held_out
from disco_rl.meta_training import inner_loop
from disco_rl.meta_training import lifetimes
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import outer_loss
from disco_rl.networks import meta_network
from disco_rl.runtime import config_checks

ESTIMATORS = ('differentiation', 'evolution')
RANDOM = 'random'


@dataclasses.dataclass(frozen=True)
class MetaTrainingConfig:
  """What is discovered, from what, and for how long.

  Attributes:
    environments: names; see `environments.registry`.
    agents: size of the population, which cycles through the environments.
    preprocessing: of environments, see `environments.registry.make`.
    rule: 'random', or what to go on from: a name or the path of an npz file.
    rule_network: sizes of a random rule.
    rule_settings: other fields of `update_rules.disco.Disco`.
    meta_steps: changes of the rule.
    seed: of everything.
    checkpoint_every: meta-steps between two checkpoints.
    keep_checkpoints: how many of the newest remain.
    agent: how each agent lives.
    meta_value: how each agent is judged.
    inner_loop: what happens between two changes of the rule.
    loss: weights of the outer loss.
    lifetimes: how long agents live.
    held_out: what the rule is tried on.
    estimator: one of `ESTIMATORS`.
    mode: of differentiation; see `meta_gradient.MODES`.
    evolution_pairs: antithetic pairs of perturbed rules, of evolution.
    evolution_std: of the perturbations.
    meta_learning_rate: of each agent's Adam over eta.
    meta_decay_steps: meta-steps after which a cosine has brought that learning
      rate to zero; 0: it stays.
    max_meta_gradient_norm: bound of each agent's meta-gradient, before Adam.
    chunk_size: agents of a group that a device computes at a time.
    batch_devices: that share the batches of the same agents.
    cpu_devices: that a CPU counts as; see `sharding.divide_cpu`.
  """

  environments: tuple[str, ...]
  preprocessing: registry.Preprocessing
  agents: int
  rule: str
  rule_network: meta_network.MetaNetworkConfig
  rule_settings: Mapping[str, Any]
  meta_steps: int
  seed: int
  checkpoint_every: int
  keep_checkpoints: int
  agent: agent_lib.AgentConfig
  meta_value: meta_value.MetaValueConfig
  inner_loop: inner_loop.InnerLoopConfig
  loss: outer_loss.OuterLossConfig
  lifetimes: lifetimes.LifetimeConfig
  held_out: held_out.HeldOutConfig
  estimator: str = 'differentiation'
  mode: str = 'mixed'
  evolution_pairs: int = 8
  evolution_std: float = 0.01
  meta_learning_rate: float = 1e-3
  meta_decay_steps: int = 0
  max_meta_gradient_norm: float = 1.0
  chunk_size: int = 1
  batch_devices: int = 1
  cpu_devices: int = 1

  def __post_init__(self) -> None:
    config_checks.check_types(MetaTrainingConfig, vars(self))
    counts = (
      'agents',
      'meta_steps',
      'checkpoint_every',
      'keep_checkpoints',
      'evolution_pairs',
      'chunk_size',
      'batch_devices',
      'cpu_devices',
    )
    config_checks.check_at_least(self, 1, counts)
    config_checks.check_at_least(self, 0, ('seed', 'meta_decay_steps'))
    if 0 < self.meta_decay_steps < self.meta_steps:
      raise ValueError(
        f'meta_steps={self.meta_steps} is above meta_decay_steps='
        f'{self.meta_decay_steps}, after which the rule does not change any '
        'more. Raise both, in a new workdir, or set meta_decay_steps=0.'
      )
    registry.check_preprocessing(self.preprocessing)
    config_checks.check_positive(self, ('evolution_std', 'meta_learning_rate'))
    # An infinite bound is none.
    config_checks.check_positive(
      self, ('max_meta_gradient_norm',), largest=math.inf
    )
    if not self.environments:
      raise ValueError('environments must name at least one environment.')
    if self.agents < len(self.environments):
      raise ValueError(
        f'agents={self.agents} must be at least {len(self.environments)}, one '
        'for each of the environments.'
      )
    if self.estimator not in ESTIMATORS:
      raise ValueError(
        f'estimator={self.estimator!r} is unknown; choose one of '
        f'{", ".join(ESTIMATORS)}.'
      )
    if self.mode not in meta_gradient.MODES:
      raise ValueError(
        f'mode={self.mode!r} is unknown; choose one of '
        f'{", ".join(meta_gradient.MODES)}.'
      )

  @property
  def members(self) -> tuple[str, ...]:
    """Each agent's environment."""
    environments = self.environments
    return tuple(
      environments[i % len(environments)] for i in range(self.agents)
    )
