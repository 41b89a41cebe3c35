"""Fresh agents learn with the rule in environments outside the population."""

from collections.abc import Sequence
import dataclasses

import jax
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.environments import registry
from disco_rl.evaluation import training
from disco_rl.runtime import config_checks
from disco_rl.update_rules import base


@dataclasses.dataclass(frozen=True)
class HeldOutConfig(config_checks.Settings, prefix='held_out_'):
  """What the rule is tried on now and then.

  Attributes:
    environments: names; none: it is not tried.
    every: meta-steps between two trials.
    updates: of each agent.
    seeds: agents per environment.
  """

  environments: tuple[str, ...] = ()
  every: config_checks.Count = 100
  updates: config_checks.Count = 100
  seeds: config_checks.Count = 3


class HeldOut:
  """One driver, and so one compiled program, for each environment."""

  def __init__(
    self,
    config: HeldOutConfig,
    agent_config: agent_lib.AgentConfig,
    rule: base.UpdateRule,
    seed: int,
    preprocessing: registry.Preprocessing,
  ):
    """Builds agents and environments.

    Args:
      config: what the rule is tried on.
      agent_config: of the fresh agents.
      rule: whose parameters are tried.
      seed: of the agents; the same in every trial, so that trials compare.
      preprocessing: of environments, see `registry.make`.
    """
    self.config = config
    self._keys = jax.vmap(jax.random.key)(seed + np.arange(config.seeds))
    self._drivers = {
      name: _make_driver(name, config, agent_config, rule, seed, preprocessing)
      for name in config.environments
    }

  @property
  def compile_seconds(self) -> float:
    """Time spent on compiling so far."""
    return sum(driver.compile_seconds for driver in self._drivers.values())

  def evaluate(self, rule_params: types.Params) -> dict[str, np.ndarray]:
    """Trains the agents; returns their last returns [seeds] by environment."""
    returns = {}
    for name, driver in self._drivers.items():
      train_state, _ = driver.advance(
        rule_params, driver.init(self._keys), self.config.updates
      )
      means = jax.vmap(episodes.mean_return)(train_state.agents.episodes)
      returns[name] = np.asarray(means)
    return returns


def rows(
  meta_step: int, returns: dict[str, np.ndarray]
) -> Sequence[dict[str, object]]:
  """Rows of metrics, one per environment."""
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


def _make_driver(
  name: str,
  config: HeldOutConfig,
  agent_config: agent_lib.AgentConfig,
  rule: base.UpdateRule,
  seed: int,
  preprocessing: registry.Preprocessing,
) -> training.Driver:
  environment = registry.make(
    name, config.seeds * agent_config.num_environments, seed, preprocessing
  )
  agent = agent_lib.make(agent_config, environment.spec, rule)
  return training.make(agent, environment, config.seeds)
