"""Responses: how a rule's targets move when one step of a rollout changes.

A change is a reward, another action, or the end of the episode at one step. How
the targets of the same and of other steps move shows what a rule makes of
experience: a policy gradient with lambda returns responds to a reward d steps
later by (gamma lambda)^d, and not to earlier ones. The paper has no such
analysis.

Derivatives with respect to rewards are central differences. Rules read values,
returns and policies as constants, through `stop_gradient`: automatic
differentiation would silently leave out whatever depends on them.
"""

from collections.abc import Mapping
import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.meta_training import imitation
from disco_rl.networks import agent_network
from disco_rl.runtime import metrics
from disco_rl.update_rules import disco

CHANGES = REWARD, ACTION, END = (
  'reward',
  'another action',
  'end of the episode',
)
# The target of the policy by the closed form.
POLICY_GRADIENT = 'policy gradient'
# Half of the distance between the two rewards of a central difference.
_STEP = 0.01

# The change -> the target -> how far it moves.
Responses = Mapping[str, Mapping[str, types.Array | np.ndarray]]


@functools.partial(jax.jit, static_argnums=0)
def policy_gradient(rule: disco.Disco, scene: scenes.Scene) -> types.Array:
  """Computes pi_hat of the policy gradient that rules imitate, [T, B, A].

  It is pi + 0.3 A (1[a is taken] - pi), where A is the advantage by Retrace,
  normalized by its lifetime moments; see `imitation.target`.
  """
  inputs, _ = rule.inputs(
    scene.state.moments,
    scene.rollout,
    scene.outputs,
    scenes.as_outputs(scene.state.target_params),
  )
  assert inputs.estimates is not None, 'Rules without q have no advantages.'
  logits = imitation.target(
    scene.outputs['logits'][:-1],
    scene.rollout.action[:-1],
    inputs.estimates.normalized_advantage,
    imitation.STRENGTH[-1],
    imitation.BOUND[-1],
  )
  return jax.nn.softmax(logits)


@functools.partial(jax.jit, static_argnums=0)
def measure(
  rule: disco.Disco, rule_params: types.Params, scene: scenes.Scene
) -> Responses:
  """Measures how targets at each step move when one step changes.

  The step is changed in all trajectories at once, which only meet in the
  moments of advantages, and these hardly move in one update. Another action is
  the most probable of those that were not taken; its reward and next state
  remain. At the end of the episode the discount is 0.

  Returns:
    By change and target ('policy', 'y' and 'z', if the rule has them, and
    `POLICY_GRADIENT`, if it has q), [T, T, B]: at s, t, the total variation
    between the targets at t with and without the change at s; of rewards, per
    unit of reward.
  """
  rollout = scene.rollout

  whole = {
    name: getattr(rollout, name) for name in ('reward', 'action', 'is_terminal')
  }

  def targets(changed: dict[str, types.Array]) -> dict[str, types.Array]:
    seen = dataclasses.replace(
      scene, rollout=dataclasses.replace(rollout, **changed)
    )
    found = scenes.targets(rule, rule_params, seen)
    by_name = {'policy': found.pi, 'y': found.y, 'z': found.z}
    known = {
      name: jax.nn.softmax(x) for name, x in by_name.items() if x is not None
    }
    if rule.network.has_q:
      known[POLICY_GRADIENT] = policy_gradient(rule, seen)
    return known

  def distance(
    a: dict[str, types.Array], b: dict[str, types.Array], scale: float = 1.0
  ) -> dict[str, types.Array]:
    variation = lambda p, q: 0.5 * jnp.sum(jnp.abs(p - q), axis=-1) / scale
    return jax.tree.map(variation, a, b)

  logits = scene.outputs['logits']
  is_taken = jax.nn.one_hot(rollout.action, logits.shape[-1], dtype=bool)
  other = jnp.argmax(jnp.where(is_taken, -jnp.inf, logits), axis=-1)

  def change(s: types.Array) -> dict[str, dict[str, types.Array]]:
    changes = [
      {'reward': rollout.reward.at[s].add(_STEP)},
      {'reward': rollout.reward.at[s].add(-_STEP)},
      {'action': rollout.action.at[s].set(other[s])},
      {'is_terminal': rollout.is_terminal.at[s].set(True)},
      {},
    ]
    # One program for all of them: compilation takes most of the time.
    stacked = jax.tree.map(
      lambda *x: jnp.stack(x), *(whole | changed for changed in changes)
    )
    found = jax.lax.map(targets, stacked)
    more, less, moved, ended, unchanged = (
      jax.tree.map(lambda x, i=i: x[i], found) for i in range(len(changes))
    )
    return {
      REWARD: distance(more, less, 2 * _STEP),
      ACTION: distance(moved, unchanged),
      END: distance(ended, unchanged),
    }

  return jax.lax.map(change, jnp.arange(len(rollout.reward)))


def by_distance(
  found: Responses, rollout: types.Rollout
) -> dict[str, dict[str, np.ndarray]]:
  """Averages responses over all pairs of steps d apart in the same episode.

  Returns:
    The same with [2 T - 1], by the distance d from the target's step to the
    changed one, from -(T - 1), a change T - 1 steps earlier, to T - 1; NaN
    without such pairs. Ends where the episode ends anyway do not count.
  """
  mask = np.asarray(rollout.mask)
  episode = np.cumsum(agent_network.episode_starts(rollout), axis=0)[:-1]
  is_pair = (episode[:, None] == episode) & mask[:, None] & mask
  step = np.arange(len(mask))
  apart = step[:, None] - step

  def average(x: types.Array | np.ndarray, counts: np.ndarray) -> np.ndarray:
    means = []
    for d in range(1 - len(mask), len(mask)):
      own = np.asarray(x)[counts & (apart == d)[..., None]]
      means.append(own.mean() if own.size else np.nan)
    return np.array(means)

  continues = ~np.asarray(rollout.is_terminal)[:, None]
  return {
    # JAX has sorted them by name.
    change: {
      name: average(x, is_pair & continues if change == END else is_pair)
      for name, x in found[change].items()
    }
    for change in CHANGES
  }


def write(path: pathlib.Path, of_agents: Mapping[int, Responses]) -> None:
  """Writes a CSV file, atomically.

  It has a row for each agent, by seed, each change and each distance of
  `by_distance` between a changed step and that of the target.
  """
  names = [*next(iter(of_agents.values()))[REWARD]]
  rows: list[list[object]] = [['seed', 'change', 'distance', *names]]
  for seed, found in of_agents.items():
    for change, by_target in found.items():
      columns = [np.asarray(by_target[name]) for name in names]
      last = len(columns[0]) // 2
      for d, *values in zip(range(-last, last + 1), *columns):
        rows.append([seed, change, d, *(float(x) for x in values)])
  metrics.write_rows(path, rows)
