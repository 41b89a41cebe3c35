"""Inputs of probes, and questions about the future of a trajectory."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco


@types.record
class Question:
  """A question about the future of T steps of B trajectories, with answers.

  Attributes:
    answer: [T, B] float32; 0 or 1 for yes-no questions.
    is_known: [T, B] bool, whether the trajectory determines the answer.
  """

  answer: types.Array
  is_known: types.Array


def predictions(
  rule: disco.Disco, scene: scenes.Scene
) -> Mapping[str, types.Array]:
  """Inputs of probes, by name, [T, B, n].

  Args:
    rule: of the agent.
    scene: T transitions of B trajectories.

  Returns:
    The policy, y, and z of the taken action as probabilities; the value q of
    each action. Those that the rule lacks are left out.
  """
  outputs = {name: x[:-1] for name, x in scene.outputs.items()}
  action = scene.rollout.action[:-1, :, None, None]
  taken = lambda x: jnp.take_along_axis(x, action, axis=2)[:, :, 0]
  value = lambda x: value_targets.values_from_logits(x, rule.max_abs_value)
  found = {'pi': jax.nn.softmax(outputs['logits'])}
  if 'q' in outputs:
    found['q'] = value(outputs['q'])
  if 'y' in outputs:
    found['y'] = jax.nn.softmax(outputs['y'])
    found['z'] = jax.nn.softmax(taken(outputs['z']))
  return found


def future_policy_entropy(scene: scenes.Scene, steps: int) -> Question:
  """The entropy of the policy a number of steps later, in nats.

  Args:
    scene: T transitions of B trajectories.
    steps: at least 1; the answer is known if the episode lasts that long.

  Returns:
    The question.

  Raises:
    ValueError: `steps` < 1.
  """
  _check(steps)
  entropy = categorical.entropy(scene.outputs['logits'])
  ended = agent_network.has_ended(scene.rollout.is_terminal, scene.rollout.mask)
  return Question(
    answer=_ahead(entropy, steps)[:-1],
    # Observations after the trajectory count as another episode.
    is_known=~_any_of_next(_followed_by(ended, True), steps),
  )


def large_reward(rollout: types.Rollout, steps: int, size: float) -> Question:
  """Whether a reward of at least this size, of either sign, comes in time.

  Args:
    rollout: T transitions of B trajectories.
    steps: in which the reward must come, at least 1; the reward of step t is
      one step ahead of it. The answer is known if the episode ends, the reward
      comes, or the trajectory lasts that long.
    size: of the reward.

  Returns:
    The question.

  Raises:
    ValueError: `steps` < 1.
  """
  _check(steps)
  ended = agent_network.has_ended(rollout.is_terminal, rollout.mask)
  is_open = jnp.ones_like(ended)
  comes = jnp.zeros_like(ended)
  is_large = _followed_by((jnp.abs(rollout.reward) >= size), False)
  ended = _followed_by(ended, False)
  beyond = _followed_by(jnp.zeros_like(is_open), True)
  is_unknown = jnp.zeros_like(is_open)
  for k in range(steps):
    is_unknown |= is_open & ~comes & _ahead(beyond, k)[:-1]
    comes |= is_open & _ahead(is_large, k)[:-1]
    is_open &= ~_ahead(ended, k)[:-1]
  return Question(
    answer=comes.astype(jnp.float32), is_known=rollout.mask & ~is_unknown
  )


def _check(steps: int) -> None:
  if steps < 1:
    raise ValueError(f'steps={steps} must be at least 1.')


def _followed_by(x: types.Array, last: bool) -> types.Array:
  """[T, B] -> [T+1, B]."""
  return jnp.concatenate([x, jnp.full_like(x[:1], last)])


def _ahead(x: types.Array, steps: int) -> types.Array:
  """Values a number of steps later; beyond the end, the last one."""
  indices = jnp.minimum(jnp.arange(len(x)) + steps, len(x) - 1)
  return x[indices]


def _any_of_next(x: types.Array, steps: int) -> types.Array:
  """Whether any of x at t, ..., t + steps - 1 is set, [T+1, B] -> [T, B]."""
  found = jnp.zeros_like(x)
  for k in range(steps):
    found |= _ahead(x, k)
  return found[:-1]
