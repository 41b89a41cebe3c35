"""Variation of learning rates in the population.

They are drawn when agents are reset, so that the rule has to suit many kinds of
agents. All agents share one program: the learning rate is part of the
optimizer's state. Agents also differ in their budgets, see
`lifetimes.LifetimeConfig`.
"""

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


@dataclasses.dataclass(frozen=True)
class VariationConfig(config_lib.Settings):
  """The range from which each agent draws; if empty, all are equal.

  Attributes:
    learning_rate_range: bounds of the learning rate, drawn log-uniformly, which
      replaces `learning_rate`, with the same warm-up and decay.
  """

  learning_rate_range: config_lib.Range = ()


def prepare(config: VariationConfig, agent: agent_lib.Agent) -> agent_lib.Agent:
  """Adapts the optimizer of an agent to discovery.

  Args:
    config: The range.
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
  config: VariationConfig, state: learner.LearnerState, key: types.Array
) -> tuple[learner.LearnerState, types.Array]:
  """Draws the learning rate of an initial agent.

  Args:
    config: The range.
    state: The initial learner state of an agent from `prepare`.
    key: The agent's key.

  Returns:
    The state, and the key for the agent's future; without a range, both are
    unchanged.
  """
  if not config.learning_rate_range:
    return state, key
  key, rate_key = jax.random.split(key)
  rate = _log_uniform(rate_key, config.learning_rate_range)
  opt_state = optimizers.set_own_rate(state.opt_state, rate)
  return dataclasses.replace(state, opt_state=opt_state), key


def _log_uniform(key: types.Array, bounds: tuple[float, ...]) -> types.Array:
  low, high = map(math.log, bounds)
  return jnp.exp(jax.random.uniform(key, minval=low, maxval=high))
