"""Scenes: trajectories with an agent's predictions, the inputs of a rule.

A rule reads the outputs of a network, not the network itself. So predictions
replace parameters here, and the identity replaces the network: a rule can be
applied to any trajectory, recorded or hand-made, and to changed predictions.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

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
    outputs: The predictions along them, by head; see `AgentNetwork.unroll`.
    state: The rule's state, in which `target_params` are the target network's
      predictions, converted by `as_params`.
  """

  rollout: types.Rollout
  outputs: types.Outputs
  state: disco.DiscoState


def of_taken(outputs: types.Array, rollout: types.Rollout) -> types.Array:
  """Selects outputs of taken actions, [T+1, B, A, n] -> [T, B, n]."""
  action = rollout.action[:-1, :, None, None]
  return jnp.take_along_axis(outputs[:-1], action, axis=2)[:, :, 0]


def shuffled(x: types.Array, key: types.Array) -> types.Array:
  """Permutes an array [T, B, ...] among all steps and trajectories."""
  rows = x.reshape(-1, *x.shape[2:])
  return jax.random.permutation(key, rows).reshape(x.shape)


def as_params(outputs: types.Outputs) -> types.Params:
  """Converts predictions to parameters of a single module."""
  return {_MODULE: outputs}


def as_outputs(params: types.Params) -> types.Outputs:
  """Inverts `as_params`."""
  return params[_MODULE]


def from_agent(
  network: agent_network.AgentNetwork,
  state: learner.LearnerState,
  rollout: types.Rollout,
) -> Scene:
  """Makes the inputs of a discovered rule for an update of an agent."""
  unroll = jax.jit(network.unroll)
  outputs, _ = unroll(state.params, rollout)
  target_outputs, _ = unroll(state.rule_state.target_params, rollout)
  return Scene(
    rollout=rollout,
    outputs=outputs,
    state=_with_target(state.rule_state, as_params(target_outputs)),
  )


def cut(
  scene: Scene,
  start: int,
  length: int,
  trajectories: slice = slice(None),
) -> Scene:
  """Cuts `length` transitions of some trajectories out of a scene.

  Predictions and the rule's state are unchanged. The state of the agent's core,
  if it has one, is still from before the whole scene.
  """
  steps = lambda x: x[start : start + length, trajectories]
  states = lambda tree: jax.tree.map(
    lambda x: x[start : start + length + 1, trajectories], tree
  )
  rollout = scene.rollout
  targets = states(as_outputs(scene.state.target_params))
  return Scene(
    rollout=types.Rollout(
      observation=states(rollout.observation),
      action=states(rollout.action),
      logits=states(rollout.logits),
      reward=steps(rollout.reward),
      is_terminal=steps(rollout.is_terminal),
      mask=steps(rollout.mask),
      core_state=jax.tree.map(lambda x: x[:, trajectories], rollout.core_state),
    ),
    outputs=states(scene.outputs),
    state=_with_target(scene.state, as_params(targets)),
  )


@functools.partial(jax.jit, static_argnums=0)
def targets(
  rule: disco.Disco, rule_params: types.Params, scene: Scene
) -> disco.DiscoTargets:
  """Computes the rule's targets for the agent's predictions.

  Returns:
    Logits pi_hat [T, B, A], y_hat and z_hat [T, B, Y], returns q [T, B].
  """
  return apply_rule(rule, rule_params, scene)[0]


@functools.partial(jax.jit, static_argnums=0)
def settle(
  rule: disco.Disco, rule_params: types.Params, scene: Scene, times: int
) -> Scene:
  """Applies the rule to a scene several times, to advance its state.

  Initially the output of the meta-RNN is zero and the scale of advantages is
  unknown. Only the rule's state changes here, not the predictions.
  """

  def once(_: types.Array, scene: Scene) -> Scene:
    state = apply_rule(rule, rule_params, scene)[1]
    state = _with_target(state, scene.state.target_params)
    return dataclasses.replace(scene, state=state)

  return jax.lax.fori_loop(0, times, once, scene)


def apply_rule(
  rule: disco.Disco, rule_params: types.Params, scene: Scene
) -> tuple[disco.DiscoTargets, disco.DiscoState]:
  """Computes the targets of the rule and its next state."""
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
