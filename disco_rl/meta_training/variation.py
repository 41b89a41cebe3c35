"""How the agents of the population differ: learning rate and width.

Both are drawn when an agent is reset, so that the rule has to suit agents of
many kinds. All agents share one program: the learning rate is part of the
optimizer's state, and units that a narrow agent lacks have weights of zero.
Budgets, `lifetimes.LifetimeConfig`, are the third way in which agents differ.
"""

from collections.abc import Iterator
import dataclasses
import math

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.maths import optimizers
from disco_rl.networks import widths


@dataclasses.dataclass(frozen=True)
class VariationConfig(config_lib.Settings):
  """What is drawn for each agent, log-uniformly; empty: all have the same.

  Attributes:
    learning_rate_range: bounds of the learning rate, in place of
      `learning_rate`; it rises and decays as that would.
    width_range: bounds of the fraction of the units of each dense layer of the
      torso that the agent has, at most 1.
  """

  learning_rate_range: config_lib.Range = ()
  width_range: config_lib.Range = ()

  def conflicts(self) -> Iterator[str]:
    """No agent is wider than its parameters."""
    if self.width_range and self.width_range[1] > 1:
      yield (
        f'width_range={self.width_range} must be fractions of hidden_sizes, at '
        'most 1. Raise hidden_sizes for wider agents.'
      )


def prepare(config: VariationConfig, agent: agent_lib.Agent) -> agent_lib.Agent:
  """The agent, whose optimizer has room for a learning rate if one is drawn."""
  if not config.learning_rate_range:
    return agent
  optimizer = optimizers.with_own_rate(
    agent_lib.make_optimizer(agent.config, learning_rate=1.0)
  )
  return dataclasses.replace(agent, optimizer=optimizer)


def draw(
  config: VariationConfig, agent: agent_lib.Agent, state: agent_lib.AgentState
) -> agent_lib.AgentState:
  """Draws what distinguishes an initial agent.

  Args:
    config: the ranges.
    agent: see `prepare`.
    state: initial.

  Returns:
    The state; without ranges it is not changed, and no random number is drawn.

  Raises:
    ValueError: see `widths.narrow`.
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
  initial = learner.with_params(params, agent.rule, agent.optimizer)
  if config.learning_rate_range:
    rate = _log_uniform(rate_key, config.learning_rate_range)
    opt_state = optimizers.set_own_rate(initial.opt_state, rate)
    initial = dataclasses.replace(initial, opt_state=opt_state)
  return dataclasses.replace(state, learner=initial, key=key)


def _log_uniform(key: types.Array, bounds: tuple[float, ...]) -> types.Array:
  low, high = map(math.log, bounds)
  return jnp.exp(jax.random.uniform(key, minval=low, maxval=high))
