"""Evaluates the rule on held-out environments, with new agents.

These environments also choose the rule that is saved; see `selection`.
"""

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.agent import resolution
from disco_rl.environments import registry
from disco_rl.environments import suites
from disco_rl.runtime import compilation
from disco_rl.training import base as training_base
from disco_rl.training import parallel
from disco_rl.update_rules import base
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry as rules


@dataclasses.dataclass(frozen=True)
class HeldOutConfig(config_lib.Settings, prefix='held_out_'):
  """Settings of the evaluation on held-out environments.

  All other settings of the new agents follow from the population's; see
  `HeldOut`. To use others, evaluate the saved rule with disco-rl train.

  Attributes:
    environments: environments and suites, separated by commas; without any
      there is no evaluation.
    every: meta-steps between two evaluations.
    updates: updates of each agent.
    seeds: number of agents in each environment.
    patience: evaluations without a better rule after which discovery ends; 0:
      it never ends early.
  """

  environments: suites.Names = ()
  every: config_lib.Count = 100
  updates: config_lib.Count = 100
  seeds: config_lib.Count = 3
  patience: config_lib.CountOrZero = 0


class HeldOut:
  """The evaluation, with one compiled program for each environment."""

  def __init__(
    self,
    config: HeldOutConfig,
    agent_config: agent_lib.AgentConfig,
    rule: base.UpdateRule,
    seed: int,
    preprocessing: registry.Preprocessing,
  ):
    """Makes agents and environments.

    Args:
      config: The environments and the sizes of the evaluation.
      agent_config: The settings of the population's agents, which the card of
        the rule will contain: the settings of new agents are resolved from it
        by `agent.resolution`, as after discovery.
      rule: The rule that is evaluated.
      seed: The seed of the agents, the same in every evaluation.
      preprocessing: Changes to environments; see `registry.make`.
    """
    self.config = config
    self._keys = jax.vmap(_agent_key)(seed + jnp.arange(config.seeds))
    self._trainings: dict[str, training_base.Training] = {}
    self._environments: dict[str, types.PyTree | None] = {}
    settings = config_lib.flatten(agent_config)
    loaded = rules.LoadedRule(rule, {}, card=cards.Card('', settings=settings))
    of_machine = {x: settings[x] for x in resolution.MACHINE_SETTINGS}

    def make(name: str) -> training_base.Training:
      _, resolved, environment = resolution.resolve_and_make(
        loaded,
        of_machine,
        lambda number: registry.make(
          name, config.seeds * number, seed, preprocessing
        ),
      )
      agent = agent_lib.make(resolved, environment.spec, rule)
      return parallel.make(agent, environment, config.seeds)

    for name in config.environments:
      agents = self._trainings[name] = make(name)
      agents.cohort.begin_episodes()
      self._environments[name] = agents.cohort.save_episodes()

  def calls(self, rule_params: types.Params) -> list[compilation.Call]:
    """Returns all programs, to be compiled in parallel."""
    return [
      call
      for agents in self._trainings.values()
      for call in agents.calls(rule_params)
    ]

  def evaluate(self, rule_params: types.Params) -> dict[str, np.ndarray]:
    """Trains new agents; returns mean returns [seeds] by environment.

    Random numbers are the same in every evaluation, except for environments on
    the host that cannot be saved.
    """
    returns = {}
    for name, agents in self._trainings.items():
      train_state = agents.init(self._keys)
      if (environments := self._environments[name]) is not None:
        train_state = agents.cohort.resume(train_state, environments)
      train_state, _ = agents.advance(
        rule_params, train_state, self.config.updates
      )
      returns[name] = episodes.mean_return_on_host(train_state.acting.episodes)
    return returns


def _agent_key(seed: types.Array) -> types.Array:
  """Makes the key of a held-out agent, which the population does not use.

  Meta-step i folds i into the key of its seed.
  """
  return jax.random.fold_in(jax.random.key(seed), 2**32 - 1)


def rows(
  meta_step: int, returns: dict[str, np.ndarray]
) -> Sequence[dict[str, object]]:
  """Makes rows of metrics, one per environment."""
  return [
    {
      'meta_step': meta_step,
      'environment': name,
      'return': np.mean(values),
      'return_min': np.min(values),
      'return_max': np.max(values),
    }
    for name, values in returns.items()
  ]
