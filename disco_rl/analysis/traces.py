"""Traces of an agent's predictions and their confidence (Fig. 4a).

In the paper the confidence of y rises ahead of salient events, before any
reward.
"""

import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco


@types.record
class Trace:
  """Values along T transitions of B trajectories.

  Attributes:
    reward: [T, B].
    ended: [T, B] bool, whether the next observation begins another episode.
    policy_confidence: [T, B] negative entropy of the policy, nats; at most 0.
    value: [T, B] expectation of q under the policy; None without q.
    y: [T, B, n] probabilities; None without y.
    y_confidence: [T, B] negative entropy of y; None without y.
  """

  reward: types.Array
  ended: types.Array
  policy_confidence: types.Array
  value: types.Array | None
  y: types.Array | None
  y_confidence: types.Array | None


@functools.partial(jax.jit, static_argnums=0)
def trace(rule: disco.Disco, scene: scenes.Scene) -> Trace:
  """Computes the trace of a scene; `rule` defines the bins of q."""
  rollout = scene.rollout
  outputs = {name: x[:-1] for name, x in scene.outputs.items()}
  value, y = None, outputs.get('y')
  if 'q' in outputs:
    q = value_targets.values_from_logits(outputs['q'], rule.max_abs_value)
    value = jnp.sum(jax.nn.softmax(outputs['logits']) * q, axis=-1)
  return Trace(
    reward=rollout.reward,
    ended=agent_network.has_ended(rollout.is_terminal, rollout.mask),
    policy_confidence=-categorical.entropy(outputs['logits']),
    value=value,
    y=None if y is None else jax.nn.softmax(y),
    y_confidence=None if y is None else -categorical.entropy(y),
  )
