"""What predictions tell about exact values, in grid worlds.

There, values of the agent's policy can be computed rather than learned; see
`exact_returns`. A ridge regression on one prediction tells how much of them it
contains. Predictions of an untrained network, functions of the same states,
tell how much any wide output would. The paper has no such analysis.
"""

from collections.abc import Mapping
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.environments import base
from disco_rl.environments.jax_native import exact_returns
from disco_rl.environments.jax_native import gridworld
from disco_rl.maths import value_targets
from disco_rl.runtime import metrics
from disco_rl.update_rules import disco

UNTRAINED = 'untrained '
_FOLDS = 5
# The penalties of the regression, in units of the features' variance.
_PENALTIES = 10.0 ** np.arange(-6, 2)

# The prediction -> R^2.
Scores = Mapping[str, float]


def measure(
  subject: recording.Subject, scene: scenes.Scene, seed: int = 0
) -> Scores | None:
  """Regresses exact values on predictions along a recording of an agent.

  Values are those of states under the agent's policy, with the discount of its
  rule. Advantages are no question here: errors of q are as large.

  Args:
    subject: The agent and its rule.
    scene: The recording of the agent.
    seed: The seed of the untrained network and of the folds.

  Returns:
    By prediction, the R^2 on held-out states; None if the states
    of the environment cannot be enumerated from observations, or the policy
    depends on more than the state.
  """
  world = subject.environments(recording.NUM_TRAJECTORIES)
  if isinstance(world, base.HostEnvironment):
    world.close()
    return None
  if (
    not isinstance(world, gridworld.GridWorld)
    or not world.is_tabular
    or subject.agent.config.network.core_lstm
  ):
    return None
  policy = of_all_states(subject.agent, subject.learner.params, world)
  q_values = exact_returns.of_policy(world, policy, subject.rule.discount)
  values = np.sum(policy * q_values, axis=-1).ravel()
  mask = np.asarray(scene.rollout.mask)
  state = _states(world, np.asarray(scene.rollout.observation)[:-1][mask])
  key = jax.random.key(seed)
  untrained, _ = jax.jit(subject.agent.network.unroll)(
    jax.jit(subject.agent.network.init)(key), scene.rollout
  )
  predictions = {
    **_predictions(subject.rule, scene, scene.outputs),
    **{
      UNTRAINED + name: x
      for name, x in _predictions(subject.rule, scene, untrained).items()
    },
  }
  fold = np.random.default_rng(seed).integers(_FOLDS, size=values.size)[state]
  return {
    name: r_squared(np.asarray(x, float)[mask], values[state], fold)
    for name, x in predictions.items()
  }


def of_all_states(
  agent: agent_lib.Agent, params: types.Params, world: gridworld.GridWorld
) -> np.ndarray:
  """Computes an agent's policy in all states, [H * W, 2^K, A]."""
  cells, slots = world.walls.size, world.object_kind.size
  bits = np.arange(1 << slots)[:, None] >> np.arange(slots) & 1
  observation = np.concatenate(
    [
      np.repeat(np.eye(cells), len(bits), axis=0),
      np.tile(bits, (cells, 1)),
    ],
    axis=1,
  )
  logits, _ = jax.jit(agent.network.step)(
    params,
    jnp.asarray(observation, jnp.float32),
    agent.network.initial_state(len(observation)),
  )
  policy = jax.nn.softmax(logits).reshape(cells, len(bits), -1)
  return np.asarray(policy, float)


def _states(world: gridworld.GridWorld, observation: np.ndarray) -> np.ndarray:
  """Numbers the states of observations as `of_all_states`, [N, n] -> [N]."""
  cells = world.walls.size
  bits = observation[:, cells:].astype(int)
  present = bits @ (1 << np.arange(bits.shape[1]))
  return observation[:, :cells].argmax(axis=1) * (1 << bits.shape[1]) + present


def _predictions(
  rule: disco.Disco, scene: scenes.Scene, outputs: types.Outputs
) -> dict[str, types.Array]:
  """Selects the predictions q, y and z that a rule has, [T, B, n].

  Those of q are the expected returns of all actions and of the policy; those of
  z are for the taken action.
  """
  found: dict[str, types.Array] = {}
  if 'q' in outputs:
    q = value_targets.values_from_logits(outputs['q'][:-1], rule.max_abs_value)
    policy = jax.nn.softmax(outputs['logits'][:-1])
    value = jnp.sum(policy * q, axis=-1, keepdims=True)
    found['q'] = jnp.concatenate([q, value], axis=-1)
  if 'y' in outputs:
    found['y'] = jax.nn.softmax(outputs['y'][:-1])
    taken = scenes.of_taken(outputs['z'], scene.rollout)
    found['z'] = jax.nn.softmax(taken)
  return found


def r_squared(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> float:
  """Computes R^2 of a ridge regression on held-out rows.

  Args:
    x: The features, [N, n]; they are standardized.
    y: The answers, [N].
    fold: The fold of each row, [N]; each fold is predicted from the others.

  Returns:
    1 - sum (prediction - y)^2 / sum (y - mean)^2, for the best of a few
    penalties; below 0 if none helps, NaN if all answers are equal.
  """
  error = np.sum((held_out(x, y, fold) - y) ** 2)
  spread = np.sum((y - y.mean()) ** 2)
  return float(1.0 - error / spread) if spread > 0 else np.nan


def held_out(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> np.ndarray:
  """Predicts held-out rows by a ridge regression; see `r_squared`.

  Returns:
    The predictions, [N], by the penalty with the least squared error.
  """
  deviation = x.std(axis=0)
  x = x / np.where(deviation > 0, deviation, 1.0)
  given = np.zeros((len(_PENALTIES), len(y)))
  for is_own in (fold == i for i in np.unique(fold)):
    mean_x, mean_y = x[~is_own].mean(axis=0), y[~is_own].mean()
    own, rest = x[is_own] - mean_x, x[~is_own] - mean_x
    sizes, axes = np.linalg.eigh(rest.T @ rest / len(rest))
    found = axes.T @ (rest.T @ (y[~is_own] - mean_y)) / len(rest)
    for j, penalty in enumerate(_PENALTIES):
      weights = axes @ (found / (np.maximum(sizes, 0.0) + penalty))
      given[j, is_own] = own @ weights + mean_y
  return given[np.argmin(np.sum((given - y) ** 2, axis=1))]


def write(path: pathlib.Path, of_agents: Mapping[int, Scores]) -> None:
  """Writes a CSV file of R^2, a row for each agent and prediction."""
  rows: list[list[object]] = [['seed', 'prediction', 'r_squared']]
  for seed, scores in of_agents.items():
    rows += [[seed, name, score] for name, score in scores.items()]
  metrics.write_rows(path, rows)
