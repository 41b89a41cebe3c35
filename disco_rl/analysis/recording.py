"""Recordings: a rollout of an agent that was trained with a rule."""

import jax

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.evaluation import base as training_base
from disco_rl.evaluation import training


@types.record
class Recording:
  """A rollout of an agent, with the agent.

  Attributes:
    state: of the agent when it acted, with its parameters.
    scene: T transitions in E environments, and its predictions along them.
  """

  state: learner.LearnerState
  scene: scenes.Scene


def record(
  agent: agent_lib.Agent,
  environment: base.JaxEnvironment,
  rule_params: types.Params,
  key: types.Array,
  updates: int,
) -> Recording:
  """Trains an agent and records one rollout of it.

  Args:
    agent: built for a discovered rule.
    environment: JAX-native.
    rule_params: parameters of the rule (eta).
    key: PRNG key of the agent.
    updates: number of updates before the rollout, at least 1.

  Returns:
    The recording.

  Raises:
    ValueError: the environment is not JAX-native, or `updates` < 1.
  """
  if not isinstance(environment, base.JaxEnvironment):
    raise ValueError(
      f'{type(environment).__name__} steps on the host; recordings are made in '
      'JAX-native environments, such as catch and gridworld/00. For others, '
      'pass a rollout of your own to `scenes.from_agent`.'
    )
  if updates < 1:
    raise ValueError(f'updates={updates} must be at least 1.')
  driver = training.DeviceTraining(agent, environment)
  train_state, _ = driver.advance(
    jax.device_put(rule_params), driver.init(key[None]), updates
  )

  @jax.jit
  def act(train_state: training_base.TrainState) -> Recording:
    assert train_state.actors is not None
    state, _, rollout = agent.act(
      environment, train_state.agents, train_state.actors
    )
    scene = scenes.from_agent(agent.network, state.learner, rollout)
    return Recording(state=state.learner, scene=scene)

  return act(jax.tree.map(lambda x: x[0], train_state))
