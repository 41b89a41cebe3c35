"""How far ahead a rule looks when it makes targets out of predictions.

A rule that bootstraps makes z_hat at t out of z at t+k. How much z_hat moves
when z at t+k is disturbed shows from how far (Fig. 4d of the paper).
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
  """How far each target moves when a prediction at one time is disturbed.

  Normal noise is added to the online network's logits of the prediction, of all
  actions; all else stays, the target network's included.

  Args:
    rule: a discovered one.
    rule_params: eta.
    scene: T transitions of B trajectories.
    key: PRNG key of the noise.
    name: of the prediction, 'y' or 'z', and so of the target.
    scale: deviation of the noise.

  Returns:
    [T+1, T, B]: at s, t the total variation, in [0, 1], between the targets at
    t with and without noise at s.

  Raises:
    ValueError: there is no such prediction.
  """
  if name not in PREDICTIONS:
    raise ValueError(
      f'name={name!r} is no prediction that a rule gives its own meaning; '
      f'choose one of {", ".join(PREDICTIONS)}.'
    )
  logits = scene.outputs[name]
  noise = scale * jax.random.normal(key, logits.shape, logits.dtype)

  def target(logits: types.Array) -> types.Array:
    outputs = {**scene.outputs, name: logits}
    disturbed = dataclasses.replace(scene, outputs=outputs)
    targets, _ = scenes.show(rule, rule_params, disturbed)
    return jax.nn.softmax(getattr(targets, name))

  undisturbed = target(logits)

  def move(s: types.Array) -> types.Array:
    moved = target(logits.at[s].add(noise[s]))
    return 0.5 * jnp.sum(jnp.abs(moved - undisturbed), axis=-1)

  return jax.lax.map(move, jnp.arange(len(logits)))


@jax.jit
def by_distance(movements: types.Array, rollout: types.Rollout) -> types.Array:
  """Means of `movement` over all pairs k steps apart in one episode.

  The features of an episode's last step hold z of the observation that follows
  it, though that is of another episode. Such pairs are left out.

  Args:
    movements: [T+1, T, B].
    rollout: T transitions of B trajectories.

  Returns:
    [T+1], by k from 0 to T; NaN where no episode is so long.
  """
  starts = agent_network.episode_starts(rollout)
  episode = jnp.cumsum(starts, axis=0)
  length = len(rollout.reward)
  distance = jnp.arange(length + 1)[:, None] - jnp.arange(length)
  is_one = episode[:, None] == episode[None, :-1]
  is_one &= (distance >= 0)[..., None] & rollout.mask[None]

  def mean(k: types.Array) -> types.Array:
    pairs = is_one & (distance == k)[..., None]
    return jnp.sum(movements * pairs) / jnp.sum(pairs)

  return jax.lax.map(mean, jnp.arange(length + 1))
