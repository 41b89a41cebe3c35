"""Along an episode: what is paid, how sure y is, how free the policy.

In the paper (Fig. 4a) y grows sure of itself where something is about to happen
that rewards alone do not tell yet.
"""

import jax

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.networks import agent_network


@types.record
class Trace:
  """Numbers along T transitions of B trajectories.

  Attributes:
    reward: [T, B].
    y_confidence: [T, B] negative entropy of softmax(y), nats; at most 0.
    policy_entropy: [T, B] nats.
    ended: [T, B] bool, whether the next observation is of another episode.
  """

  reward: types.Array
  y_confidence: types.Array
  policy_entropy: types.Array
  ended: types.Array


@jax.jit
def trace(scene: scenes.Scene) -> Trace:
  """Reads rewards, the confidence of y and the policy's entropy."""
  rollout, outputs = scene.rollout, scene.outputs
  return Trace(
    reward=rollout.reward,
    y_confidence=-categorical.entropy(outputs['y'][:-1]),
    policy_entropy=categorical.entropy(outputs['logits'][:-1]),
    ended=agent_network.has_ended(rollout.is_terminal, rollout.mask),
  )
