"""Scenes: trajectories with predictions along them, shown to a rule.

A rule asks for the outputs of a network, not for the network. So predictions
stand in for parameters here, and the network for the identity: any trajectory,
recorded or made up, can be shown to a rule, and changed at will in between.
"""

import dataclasses
import functools

import jax

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco

_MODULE = 'predictions'


@types.record
class Scene:
  """All that a rule is shown for one update.

  Attributes:
    rollout: T transitions of B trajectories.
    outputs: predictions along them, by head; see `AgentNetwork.unroll`.
    state: the rule's share of the life so far; its `target_params` are what
      `as_params` makes of the target network's predictions.
  """

  rollout: types.Rollout
  outputs: types.Outputs
  state: disco.DiscoState


def as_params(outputs: types.Outputs) -> types.Params:
  """Predictions in the place of parameters, as those of a single module."""
  return {_MODULE: outputs}


def as_outputs(params: types.Params) -> types.Outputs:
  """Undoes `as_params`."""
  return params[_MODULE]


def from_agent(
  network: agent_network.AgentNetwork,
  state: learner.LearnerState,
  rollout: types.Rollout,
) -> Scene:
  """What a rule is shown when an agent learns from a rollout.

  Args:
    network: the agent's.
    state: of the agent; it must live by a discovered rule.
    rollout: T transitions of B trajectories.

  Returns:
    The scene.
  """
  outputs, _ = network.unroll(state.params, rollout)
  target_outputs, _ = network.unroll(state.rule_state.target_params, rollout)
  return Scene(
    rollout=rollout,
    outputs=outputs,
    state=_with_target(state.rule_state, as_params(target_outputs)),
  )


@functools.partial(jax.jit, static_argnums=0)
def targets(
  rule: disco.Disco, rule_params: types.Params, scene: Scene
) -> disco.DiscoTargets:
  """Where the rule would move the agent.

  Args:
    rule: a discovered one.
    rule_params: eta.
    scene: T transitions of B trajectories.

  Returns:
    Logits pi_hat [T, B, A], y_hat and z_hat [T, B, Y], returns q [T, B].
  """
  return show(rule, rule_params, scene)[0]


@functools.partial(jax.jit, static_argnums=0)
def settle(
  rule: disco.Disco, rule_params: types.Params, scene: Scene, times: int
) -> Scene:
  """The same scene, after the rule has seen it so many times.

  At birth the meta-RNN is silent and nothing is known of the size of
  advantages. This is the least that makes up for it: predictions stay as they
  are, what the rule remembers of the life moves on.

  Args:
    rule: a discovered one.
    rule_params: eta.
    scene: T transitions of B trajectories.
    times: that it is shown, at least 0.

  Returns:
    The scene with the rule's state after that.
  """

  def once(_: types.Array, scene: Scene) -> Scene:
    state = show(rule, rule_params, scene)[1]
    state = _with_target(state, scene.state.target_params)
    return dataclasses.replace(scene, state=state)

  return jax.lax.fori_loop(0, times, once, scene)


def show(
  rule: disco.Disco, rule_params: types.Params, scene: Scene
) -> tuple[disco.DiscoTargets, disco.DiscoState]:
  """Shows the rule a scene; returns its targets and its next state."""
  found, state, _ = rule.targets(
    rule_params,
    scene.state,
    as_params(scene.outputs),
    scene.rollout,
    scene.outputs,
    as_outputs,
  )
  return found, state


def _with_target(
  state: disco.DiscoState, target_params: types.Params
) -> disco.DiscoState:
  return dataclasses.replace(state, target_params=target_params)
