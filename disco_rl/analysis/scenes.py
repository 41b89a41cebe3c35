"""Scenes: trajectories with an agent's predictions, the inputs of a rule.

A rule reads the outputs of a network, not the network itself. So predictions
take the place of parameters here, and the identity that of the network: a rule
can be applied to any trajectory, recorded or hand-made, and to changed
predictions.
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
  """The inputs of a rule for one update.

  Attributes:
    rollout: T transitions of B trajectories.
    outputs: predictions along them, by head; see `AgentNetwork.unroll`.
    state: the rule's state; its `target_params` are the target network's
      predictions, converted by `as_params`.
  """

  rollout: types.Rollout
  outputs: types.Outputs
  state: disco.DiscoState


def as_params(outputs: types.Outputs) -> types.Params:
  """Converts predictions to parameters of a single module."""
  return {_MODULE: outputs}


def as_outputs(params: types.Params) -> types.Outputs:
  """The inverse of `as_params`."""
  return params[_MODULE]


def from_agent(
  network: agent_network.AgentNetwork,
  state: learner.LearnerState,
  rollout: types.Rollout,
) -> Scene:
  """The inputs of a rule when an agent learns from a rollout.

  Args:
    network: of the agent.
    state: of the agent, with the state of a discovered rule.
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
  """The rule's targets for the agent's predictions.

  Args:
    rule: a discovered rule.
    rule_params: its parameters (eta).
    scene: T transitions of B trajectories.

  Returns:
    Logits pi_hat [T, B, A], y_hat and z_hat [T, B, Y], returns q [T, B].
  """
  return apply_rule(rule, rule_params, scene)[0]


@functools.partial(jax.jit, static_argnums=0)
def settle(
  rule: disco.Disco, rule_params: types.Params, scene: Scene, times: int
) -> Scene:
  """Applies the rule to a scene a number of times, to advance its state.

  Initially the output of the meta-RNN is zero and the scale of advantages is
  unknown. Here the predictions do not change, only the rule's state does.

  Args:
    rule: a discovered rule.
    rule_params: its parameters (eta).
    scene: T transitions of B trajectories.
    times: number of applications, at least 0.

  Returns:
    The scene with the rule's state after the last one.
  """

  def once(_: types.Array, scene: Scene) -> Scene:
    state = apply_rule(rule, rule_params, scene)[1]
    state = _with_target(state, scene.state.target_params)
    return dataclasses.replace(scene, state=state)

  return jax.lax.fori_loop(0, times, once, scene)


def apply_rule(
  rule: disco.Disco, rule_params: types.Params, scene: Scene
) -> tuple[disco.DiscoTargets, disco.DiscoState]:
  """Returns the targets of the rule and its next state."""
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
