"""The analyses of Fig. 4 of the paper for one rule, as pictures."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from matplotlib import figure
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import episodes
from disco_rl.analysis import ablation
from disco_rl.analysis import figures
from disco_rl.analysis import hand_made
from disco_rl.analysis import horizon
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.analysis import traces
from disco_rl.environments import base
from disco_rl.evaluation import learning_curves
from disco_rl.evaluation import training
from disco_rl.update_rules import disco

# The rule sees the hand-made scene as often before: its meta-RNN has settled.
_TIMES = 10
_POINTS = 25  # Of each learning curve.


def targets(rule: disco.Disco, rule_params: types.Params) -> figure.Figure:
  """Targets in a scene made up by hand.

  Two episodes of six steps, three actions: the first episode ends with a reward
  of 1, the second has a reward of -1 at its second step. The policy is uniform.
  Where the rule has q, the value of the first action is 0.5 higher.

  Args:
    rule: a discovered rule.
    rule_params: eta.

  Returns:
    See `figures.targets`.
  """
  scene = hand_made.scene(
    rule,
    actions=[0, 1, 2, 1, 0, 2, 1, 1, 0, 2, 0, 1],
    rewards=[0, 0, 0, 0, 0, 1, 0, -1, 0, 0, 0, 0],
    ends=[False] * 5 + [True] + [False] * 6,
    values=[0.5 if rule.network.has_q else 0.0, 0.0, 0.0],
  )
  scene = scenes.settle(rule, rule_params, scene, times=_TIMES)
  return figures.targets(scene, scenes.targets(rule, rule_params, scene))


def of_an_agent(
  rule: disco.Disco,
  rule_params: types.Params,
  config: agent_lib.AgentConfig,
  environment: base.JaxEnvironment,
  updates: int,
  seed: int,
) -> dict[str, figure.Figure]:
  """What the rule does with an agent that it has trained.

  Args:
    rule: a discovered rule.
    rule_params: eta.
    config: of the agent.
    environment: JAX-native.
    updates: of the agent.
    seed: of the agent, and of the noise on its predictions.

  Returns:
    By name: `trace`, see `figures.trace`; where the rule has y and z also
    `horizon`, the change of targets by noise on predictions ahead.
  """
  agent = agent_lib.make(config, environment.spec, rule)
  key = jax.random.key(seed)
  scene = recording.record(agent, environment, rule_params, key, updates).scene
  drawn = {'trace': figures.trace(traces.trace(scene))}
  if rule.network.prediction_size:
    drawn['horizon'] = figures.horizon(
      {
        f'{name}_hat, by noise on {name}': horizon.by_distance(
          horizon.movement(rule, rule_params, scene, key, name), scene.rollout
        )
        for name in horizon.PREDICTIONS
      }
    )
  return drawn


def without_predictions(
  rule: disco.Disco,
  rule_params: types.Params,
  config: agent_lib.AgentConfig,
  environment: base.JaxEnvironment,
  updates: int,
  seeds: range,
  title: str,
) -> figure.Figure:
  """Learning curves with the rule, and with y and z hidden from it.

  Args:
    rule: a discovered rule that has y and z.
    rule_params: eta.
    config: of the agents.
    environment: JAX-native.
    updates: of each agent.
    seeds: of the agents.
    title: of the figure.

  Returns:
    See `learning_curves.draw`.
  """
  compared: Mapping[str, disco.Disco] = {
    'the rule': rule,
    'y and z hidden from it': ablation.blind(rule),
  }
  return learning_curves.draw(
    {
      label: _curve(
        agent_lib.make(config, environment.spec, one),
        environment,
        rule_params,
        updates,
        seeds,
      )
      for label, one in compared.items()
    },
    title,
  )


def _curve(
  agent: agent_lib.Agent,
  environment: base.JaxEnvironment,
  rule_params: types.Params,
  updates: int,
  seeds: range,
) -> learning_curves.Curve:
  """Trains agents; their mean returns along the way."""
  trained = training.make(agent, environment, len(seeds))
  state = trained.init(jax.vmap(jax.random.key)(jnp.asarray(seeds)))
  every = max(1, updates // _POINTS)
  returns = []
  for _ in range(updates // every):
    state, _ = trained.advance(rule_params, state, every)
    returns.append(jax.vmap(episodes.mean_return)(state.agents.episodes))
  steps = every * agent.steps_per_update * np.arange(1, len(returns) + 1)
  return steps, np.stack(returns, axis=-1)
