"""Distillation of a rule: its policy targets as a sum of hand-written terms.

The gradient of KL(pi_hat || pi) with respect to the logits of the agent's
policy is pi - pi_hat. So pi_hat - pi is the direction in which a rule moves
these logits, and the rules that people write are sums of known directions. A
regression on them tells how much of a rule is such a sum, and which one
(symbolic distillation, as in Goldie et al., 2025; the paper has no such
analysis).
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.runtime import metrics
from disco_rl.update_rules import disco

POLICY_GRADIENT = 'policy gradient'
ALL_ACTIONS = 'all actions'
ENTROPY = 'entropy'
TARGET_NETWORK = 'target network'
# The number of times in a life at which a rule is distilled.
_AGES = 10


@dataclasses.dataclass(frozen=True)
class Distillation:
  """A rule as a sum of terms, for one agent at one time.

  Attributes:
    coefficients: The coefficient of each term, by name.
    r_squared: The part of the squared length of pi_hat - pi that the sum
      explains, at most 1.
    alone: The same for each term alone, by name.
  """

  coefficients: Mapping[str, float]
  r_squared: float
  alone: Mapping[str, float]


@functools.partial(jax.jit, static_argnums=0)
def terms(rule: disco.Disco, scene: scenes.Scene) -> dict[str, types.Array]:
  """Computes the directions in which hand-written rules move logits.

  Returns:
    Name -> [T, B, A]. With pi(a), the agent's policy:
    'policy gradient': A (1[a is taken] - pi(a)), where A is the advantage by
      Retrace, normalized by its lifetime moments;
    'all actions': pi(a) (A(a) - sum_b pi(b) A(b)), the policy gradient in
      expectation over actions, where A(a) = q_bar(a) - V_bar, normalized alike;
    'entropy': the gradient of the entropy, -pi(a) (log pi(a) + H);
    'target network': pi_bar(a) - pi(a), towards the target network's policy.
    Rules without q lack the first two.
  """
  inputs, _ = rule.inputs(
    scene.state.moments,
    scene.rollout,
    scene.outputs,
    scenes.as_outputs(scene.state.target_params),
  )
  logits = scene.outputs['logits'][:-1]
  pi, log_pi = jax.nn.softmax(logits), jax.nn.log_softmax(logits)
  # Illegal actions have the probability 0 and an enormous logarithm.
  log_pi = jnp.where(pi > 0.0, log_pi, 0.0)
  entropy = -jnp.sum(pi * log_pi, axis=-1, keepdims=True)
  target_pi = jax.nn.softmax(inputs.target_outputs['logits'][:-1])
  found = {}
  if (estimates := inputs.estimates) is not None:
    taken = jax.nn.one_hot(scene.rollout.action[:-1], pi.shape[-1])
    advantage = estimates.normalized_advantage[..., None]
    of_actions = estimates.normalized_qv_advantage[:-1]
    mean = jnp.sum(pi * of_actions, axis=-1, keepdims=True)
    found = {
      POLICY_GRADIENT: advantage * (taken - pi),
      ALL_ACTIONS: pi * (of_actions - mean),
    }
  return {
    **found,
    ENTROPY: -pi * (log_pi + entropy),
    TARGET_NETWORK: target_pi - pi,
  }


def distill(
  rule: disco.Disco, rule_params: types.Params, scene: scenes.Scene
) -> Distillation:
  """Regresses pi_hat - pi on the terms, without an intercept.

  Steps between episodes, which agents do not learn from, are left out.
  """
  mask = np.asarray(scene.rollout.mask).ravel()
  rows = lambda x: np.asarray(x, float).reshape(len(mask), -1)[mask].ravel()
  pi_hat = jax.nn.softmax(scenes.targets(rule, rule_params, scene).pi)
  moved = rows(pi_hat - jax.nn.softmax(scene.outputs['logits'][:-1]))
  columns = {name: rows(x) for name, x in terms(rule, scene).items()}
  found, r_squared = _fit(list(columns.values()), moved)
  return Distillation(
    dict(zip(columns, found)),
    r_squared,
    {name: _fit([x], moved)[1] for name, x in columns.items()},
  )


@dataclasses.dataclass(frozen=True)
class Lives:
  """A rule as a sum of terms along the lives of agents.

  Attributes:
    environment_steps: The environment steps of each agent so far, [ages].
    found: The distillations, by agent and age.
  """

  environment_steps: np.ndarray
  found: Sequence[Sequence[Distillation]]


def along_lives(subject: recording.Subject, updates: int) -> Lives:
  """Trains new agents like those of a run, and distills the rule at ten ages.

  At each age an agent acts without learning, as long as in a rollout of its
  training, and the rule is applied to this experience, with the state that it
  has for the agent.
  """
  rule, rule_params = subject.rule, subject.rule_params
  network = subject.agent.network
  environment = subject.environments(recording.NUM_TRAJECTORIES)
  make_scene = jax.jit(scenes.from_agent, static_argnums=0)
  steps: list[int] = []
  found: list[list[Distillation]] = [[] for _ in range(subject.config.seeds)]
  with contextlib.closing(environment):
    length = subject.agent.config.unroll_length
    play = recording.player(network, environment, length)
    for age in recording.lives(subject, rule, updates, _AGES):
      steps.append(age.environment_steps)
      for i, own in enumerate(found):
        learner = jax.tree.map(lambda x, i=i: x[i], age.agents.learner)
        key = jax.random.fold_in(jax.random.key(i), age.update)
        scene = make_scene(network, learner, play(learner.params, key))
        own.append(distill(rule, rule_params, scene))
  return Lives(np.array(steps), found)


def write(path: pathlib.Path, lives: Lives, first_seed: int) -> None:
  """Writes a CSV file with a row for each agent and age, atomically."""
  names = [*lives.found[0][0].coefficients]
  rows: list[Sequence[object]] = [
    [
      *('environment_steps', 'seed', 'all terms, explained'),
      *(f'{name}, coefficient' for name in names),
      *(f'{name}, explained alone' for name in names),
    ]
  ]
  for seed, of_agent in enumerate(lives.found, first_seed):
    for steps, one in zip(lives.environment_steps.tolist(), of_agent):
      coefficients, alone = one.coefficients.values(), one.alone.values()
      rows.append([steps, seed, one.r_squared, *coefficients, *alone])
  metrics.write_rows(path, rows)


def _fit(columns: list[np.ndarray], y: np.ndarray) -> tuple[list[float], float]:
  """Fits y by least squares; returns coefficients and the part explained.

  Columns that are shorter than a thousandth of y have the coefficient 0. Values
  of actions that hardly differ yet, at the beginning of a life, would otherwise
  have coefficients of thousands, fitted to what other terms do not explain.
  """
  x = np.stack(columns, axis=1)
  scale = np.sqrt(np.mean(x**2, axis=0))
  is_seen = scale > 1e-3 * np.sqrt(np.mean(y**2))
  # Terms may be of very different sizes, such as those of the target network.
  x = np.where(is_seen, x / np.where(is_seen, scale, 1.0), 0.0)
  scale = np.where(is_seen, scale, 1.0)
  solution, *_ = np.linalg.lstsq(x, y)
  error, length = np.sum((y - x @ solution) ** 2), np.sum(y**2)
  explained = 1.0 - error / length if length > 0.0 else np.nan
  return (solution / scale).tolist(), float(explained)
