"""Variation of learning rates and widths in the population.

Both are drawn when an agent is reset, so that the rule has to suit many kinds
of agents. All agents share one program: the learning rate is part of the
optimizer's state, and missing units of narrow agents have zero weights. Agents
also differ in their budgets, see `lifetimes.LifetimeConfig`.
"""

from collections.abc import Iterator
import dataclasses
import math

import jax
import jax.numpy as jnp
import optax

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.maths import optimizers
from disco_rl.networks import widths


@dataclasses.dataclass(frozen=True)
class VariationConfig(config_lib.Settings):
  """Ranges from which each agent draws log-uniformly; if empty, all are equal.

  Attributes:
    learning_rate_range: bounds of the learning rate, which replaces
      `learning_rate`, with the same warm-up and decay.
    width_range: bounds of the fraction of units in each dense layer of the
      torso, at most 1.
  """

  learning_rate_range: config_lib.Range = ()
  width_range: config_lib.Range = ()

  def conflicts(self) -> Iterator[str]:
    """Yields an error for widths above 1."""
    if self.width_range and self.width_range[1] > 1:
      yield (
        f'width_range={self.width_range} must be fractions of hidden_sizes, at '
        'most 1. Raise hidden_sizes for wider agents.'
      )


def prepare(config: VariationConfig, agent: agent_lib.Agent) -> agent_lib.Agent:
  """Adapts the optimizer of an agent to discovery.

  Args:
    config: The ranges.
    agent: The agent, with an optimizer of its config.

  Returns:
    An agent whose moments are one vector of the entries of all parameters, and
    whose optimizer state has a learning rate if each agent draws its own.
  """
  # A single vector of moments takes a fifth off the compilation time of a
  # meta-step, whose loops copy each array of a state with a separate function.
  if not config.learning_rate_range:
    optimizer = optax.flatten(agent.optimizer)
  else:
    with_rate_1 = agent_lib.make_optimizer(agent.config, learning_rate=1.0)
    optimizer = optimizers.with_own_rate(optax.flatten(with_rate_1))
  return dataclasses.replace(agent, optimizer=optimizer)


def draw(
  config: VariationConfig, agent: agent_lib.Agent, state: agent_lib.AgentState
) -> agent_lib.AgentState:
  """Draws the learning rate and width of an initial agent.

  Args:
    config: The ranges.
    agent: The agent from `prepare`.
    state: The initial state.

  Returns:
    The state; without ranges, it is unchanged and nothing is drawn.

  Raises:
    ValueError: The torso cannot be narrowed; see `widths.narrow`.
  """
  if not config.learning_rate_range and not config.width_range:
    return state
  key, rate_key, width_key = jax.random.split(state.key, 3)
  params = state.learner.params
  if config.width_range:
    num_actions = agent.environment_spec.num_actions
    params = widths.narrow(
      params,
      agent.config.network,
      agent.rule.output_spec(num_actions).state,
      _log_uniform(width_key, config.width_range),
    )
  initial = learner.init(params, agent.rule, agent.optimizer)
  if config.learning_rate_range:
    rate = _log_uniform(rate_key, config.learning_rate_range)
    opt_state = optimizers.set_own_rate(initial.opt_state, rate)
    initial = dataclasses.replace(initial, opt_state=opt_state)
  return dataclasses.replace(state, learner=initial, key=key)


def _log_uniform(key: types.Array, bounds: tuple[float, ...]) -> types.Array:
  low, high = map(math.log, bounds)
  return jnp.exp(jax.random.uniform(key, minval=low, maxval=high))
