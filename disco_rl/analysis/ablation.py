"""Ablation of the predictions y and z from a rule's inputs (Fig. 4e).

How much a rule depends on these predictions shows in how much worse agents
learn with the ablated rule, which trains them like any other rule. Without
training, it shows in how much the targets change.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp

from disco_rl import config as config_lib
from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import masked
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

# The fraction of the requested change of the agent below which a rule does not
# use y and z.
THRESHOLD = 0.01

_Change = Callable[[types.Outputs], types.Outputs]


@dataclasses.dataclass(frozen=True)
class Blind(disco.Disco):
  """Disco whose meta-network receives zeros for the logits of y and z.

  Attributes:
    extent: The targets that are affected. 'all': all of them. 'y_and_z': y_hat
      and z_hat; pi_hat and the state of the meta-RNN remain those of the
      original rule.
  """

  extent: Annotated[str, config_lib.one_of('y_and_z', 'all')] = 'all'

  def targets(
    self,
    rule_params: types.Params,
    state: disco.DiscoState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[disco.DiscoTargets, disco.DiscoState, types.Logs]:
    """Computes `Disco.targets` without the predictions y and z."""
    blind = super().targets(
      rule_params,
      state,
      agent_params,
      rollout,
      _hide(outputs),
      lambda params: _hide(unroll(params)),
    )
    if self.extent == 'all':
      return blind
    full, state, logs = super().targets(
      rule_params, state, agent_params, rollout, outputs, unroll
    )
    targets = dataclasses.replace(full, y=blind[0].y, z=blind[0].z)
    return targets, state, logs


def blind(rule: disco.Disco, extent: str = 'all') -> Blind:
  """Makes a rule with the same parameters, but y and z ablated; see `Blind`.

  Raises:
    ValueError: The extent is unknown, or the rule has no y and z.
  """
  if not rule.network.prediction_size:
    raise ValueError(
      'This rule has no predictions y and z (rule_prediction_size=0) to be '
      'ablated.'
    )
  fields = dataclasses.fields(disco.Disco)
  settings = {field.name: getattr(rule, field.name) for field in fields}
  return Blind(**settings, extent=extent)


@functools.partial(jax.jit, static_argnums=0)
def reliance(
  rule: disco.Disco,
  rule_params: types.Params,
  scene: scenes.Scene,
  key: types.Array,
) -> Mapping[str, Mapping[str, types.Array]]:
  """Measures how far targets move without y and z in the rule's inputs.

  Fig. 4e replaces them by zeros, which a rule may never have seen; if they are
  shuffled among steps and trajectories, only the information about the state is
  lost.

  Returns:
    For each target, pi, y and z: the mean total variation, in [0, 1], between
    the target and the target with y and z `shuffled`, or `hidden`; and, as
    `learned`, between the target and the agent's own prediction, which is the
    change that the rule requests; see `share`.
  """

  def apply(change: _Change) -> disco.DiscoTargets:
    target_outputs = scenes.as_outputs(scene.state.target_params)
    state = dataclasses.replace(
      scene.state, target_params=scenes.as_params(change(target_outputs))
    )
    changed = scenes.Scene(scene.rollout, change(scene.outputs), state)
    return scenes.apply_rule(rule, rule_params, changed)[0]

  def shuffle(outputs: types.Outputs) -> types.Outputs:
    moved = {name: scenes.shuffled(outputs[name], key) for name in ('y', 'z')}
    return {**outputs, **moved}

  targets = apply(lambda outputs: outputs)
  shuffled, hidden = apply(shuffle), apply(_hide)
  own = {name: x[:-1] for name, x in scene.outputs.items()}
  own |= {
    'pi': own['logits'],
    'z': scenes.of_taken(scene.outputs['z'], scene.rollout),
  }

  def distance(a: types.Array, b: types.Array) -> types.Array:
    variation = 0.5 * jnp.abs(jax.nn.softmax(a) - jax.nn.softmax(b)).sum(-1)
    return masked.mean(variation, scene.rollout.mask)

  return {
    name: {
      'learned': distance(getattr(targets, name), own[name]),
      'shuffled': distance(getattr(targets, name), getattr(shuffled, name)),
      'hidden': distance(getattr(targets, name), getattr(hidden, name)),
    }
    for name in ('pi', 'y', 'z')
  }


def share(of_target: Mapping[str, types.Array]) -> float:
  """Computes how much y and z matter for a target, from its `reliance`.

  This is how far shuffling moves the target, divided by the change that the
  rule requests; below `THRESHOLD` the rule does not use them.
  """
  return float(of_target['shuffled'] / of_target['learned'])


def _hide(outputs: types.Outputs) -> types.Outputs:
  hidden = {name: jnp.zeros_like(outputs[name]) for name in ('y', 'z')}
  return {**outputs, **hidden}
