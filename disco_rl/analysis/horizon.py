"""The horizon of a rule: how far ahead its targets depend on predictions.

A rule that bootstraps computes the target z_hat at t from the prediction z at
t+k. Perturbing z at t+k and measuring the change of z_hat shows how much (Fig.
4d).
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco

PREDICTIONS = ('y', 'z')


@functools.partial(jax.jit, static_argnames=('rule', 'name'))
def movement(
  rule: disco.Disco,
  rule_params: types.Params,
  scene: scenes.Scene,
  key: types.Array,
  name: str = 'z',
  scale: float = 1.0,
) -> types.Array:
  """Measures how far each target moves when a prediction is perturbed.

  Normal noise with standard deviation `scale` is added to the online network's
  logits of the prediction `name`, for all actions; the target network's outputs
  are not changed.

  Returns:
    [T+1, T, B]: at s, t, the total variation in [0, 1] between the targets at t
    with and without noise at s.

  Raises:
    ValueError: The prediction is unknown, or the rule does not have it.
  """
  if name not in PREDICTIONS:
    raise ValueError(
      f'name={name!r} is not a prediction whose semantics the rule discovers; '
      f'choose one of {", ".join(PREDICTIONS)}.'
    )
  if name not in scene.outputs:
    raise ValueError(
      f'This rule has no prediction {name} (rule_prediction_size=0) whose '
      'horizon could be measured.'
    )
  logits = scene.outputs[name]
  noise = scale * jax.random.normal(key, logits.shape, logits.dtype)

  def target(logits: types.Array) -> types.Array:
    outputs = {**scene.outputs, name: logits}
    perturbed = dataclasses.replace(scene, outputs=outputs)
    targets, _ = scenes.apply_rule(rule, rule_params, perturbed)
    return jax.nn.softmax(getattr(targets, name))

  unperturbed = target(logits)

  def move(s: types.Array) -> types.Array:
    moved = target(logits.at[s].add(noise[s]))
    return 0.5 * jnp.sum(jnp.abs(moved - unperturbed), axis=-1)

  return jax.lax.map(move, jnp.arange(len(logits)))


@jax.jit
def by_distance(movements: types.Array, rollout: types.Rollout) -> types.Array:
  """Averages `movement` over all pairs k steps apart in the same episode.

  The paper only draws the target at the first step. Pairs across the end of an
  episode are ignored: the features of an episode's last step contain z of the
  next observation, which belongs to another episode.

  Returns:
    [T+1, B], by k from 0 to T; NaN if a trajectory has no such pair.
  """
  starts = agent_network.episode_starts(rollout)
  episode = jnp.cumsum(starts, axis=0)
  length = len(rollout.reward)
  distance = jnp.arange(length + 1)[:, None] - jnp.arange(length)
  same_episode = episode[:, None] == episode[None, :-1]
  same_episode &= (distance >= 0)[..., None] & rollout.mask[None]

  def mean(k: types.Array) -> types.Array:
    pairs = same_episode & (distance == k)[..., None]
    total = jnp.sum(movements * pairs, axis=(0, 1))
    return total / jnp.sum(pairs, axis=(0, 1))

  return jax.lax.map(mean, jnp.arange(length + 1))
