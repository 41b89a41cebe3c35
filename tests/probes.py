"""Tiny environments, each of which requires one more part of an agent.

If an agent fails, the fault is in the new part. They follow the probe
environments of A. Jones, "Debugging RL, Without the Agonizing Pain".
"""

import enum

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.environments import base


class Kind(enum.IntEnum):
  """Kinds of rewards; the cue is drawn anew in each episode."""

  CONSTANT = 0  # 1, whatever happens.
  CUE = 1  # The cue.
  DELAY = 2  # 1 in the second and last step, 0 in the first.
  ACTION = 3  # 1 for action 1, -1 for action 0.
  CUE_AND_ACTION = 4  # 1 for the action that the cue names, -1 for the other.
  RECALL = 5  # The same in the second step, which does not show the cue.


# The likely fault if a probe of this kind is the first that is not solved. The
# last kind also needs a memory.
SUSPECTS = {
  Kind.CONSTANT: 'the value loss, its optimizer, or the cut at terminal steps',
  Kind.CUE: 'the way from the observation to the value',
  Kind.DELAY: 'the discount, or bootstrapping from the next value',
  Kind.ACTION: 'the sign of the advantage, or the policy gradient',
  Kind.CUE_AND_ACTION: 'the alignment of observations, actions and rewards',
}


@types.record
class State:
  """The cue, [] float32, -1 or 1, and the step, [] int32."""

  cue: types.Array
  step: types.Array


@types.record
class Probe(base.JaxEnvironment):
  """Observes the cue and the step, [2] float32; there are two actions.

  The mean reward of RECALL is 0 without a memory, and 1 with one. As a record
  the probe can be mapped over, so that one program serves all kinds.

  Attributes:
    kind: [] int32, a `Kind`.
  """

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((2,), jnp.float32), num_actions=2
  )
  kind: types.Array

  def reset(self, key: types.Array) -> tuple[State, types.Array]:
    state = State(
      cue=jax.random.rademacher(key, (), jnp.float32), step=jnp.int32(0)
    )
    return state, observe(state.cue, state.step)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    del key
    sign = 2.0 * action - 1.0
    rewards = {
      Kind.CONSTANT: 1.0,
      Kind.CUE: state.cue,
      Kind.DELAY: state.step.astype(jnp.float32),
      Kind.ACTION: sign,
      Kind.CUE_AND_ACTION: sign * state.cue,
    }
    rewards[Kind.RECALL] = rewards[Kind.DELAY] * rewards[Kind.CUE_AND_ACTION]
    reward = jnp.stack([jnp.float32(rewards[kind]) for kind in Kind])
    is_recall = self.kind == Kind.RECALL
    has_two_steps = (self.kind == Kind.DELAY) | is_recall
    is_last = (state.step == 1) | ~has_two_steps
    state = State(cue=state.cue, step=state.step + 1)
    return state, types.TimeStep(
      observation=observe(jnp.where(is_recall, 0, state.cue), state.step),
      reward=reward[self.kind],
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )


def observe(cue: float | types.Array, step: int | types.Array) -> types.Array:
  """Returns the observation, [2]."""
  return jnp.stack([jnp.float32(cue), jnp.float32(step)])
