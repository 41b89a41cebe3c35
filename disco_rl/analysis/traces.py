"""Traces: rewards, the confidence of y and the policy's entropy over time.

In the paper (Fig. 4a) the confidence of y rises ahead of salient events, before
any reward.
"""

import jax

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.networks import agent_network


@types.record
class Trace:
  """Values along T transitions of B trajectories.

  Attributes:
    reward: [T, B].
    y_confidence: [T, B] negative entropy of softmax(y), nats; at most 0. None
      where the rule has no y.
    policy_entropy: [T, B] nats.
    ended: [T, B] bool, whether the next observation begins another episode.
  """

  reward: types.Array
  y_confidence: types.Array | None
  policy_entropy: types.Array
  ended: types.Array


@jax.jit
def trace(scene: scenes.Scene) -> Trace:
  """Computes the trace of a scene."""
  rollout, outputs = scene.rollout, scene.outputs
  has_y = 'y' in outputs
  return Trace(
    reward=rollout.reward,
    y_confidence=-categorical.entropy(outputs['y'][:-1]) if has_y else None,
    policy_entropy=categorical.entropy(outputs['logits'][:-1]),
    ended=agent_network.has_ended(rollout.is_terminal, rollout.mask),
  )
