"""What the meta-RNN holds, and whether a rule uses it.

The meta-RNN takes a step at each update, for the whole life of an agent, and
its state scales what a rule computes from the newest rollout. Two questions are
asked at several ages of new agents. What can be read from the state? A ridge
regression is fitted to some agents and judged on another. Random networks
remember, too, so an untrained meta-RNN sees the same rollouts beside the
rule's. Does the state matter? It is replaced, and targets move or do not. The
paper has no such analysis.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import pathlib
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import scipy

from disco_rl import types
from disco_rl.agent import episodes
from disco_rl.analysis import exact_values
from disco_rl.analysis import recording
from disco_rl.analysis import scenes
from disco_rl.maths import categorical
from disco_rl.maths import masked
from disco_rl.networks import meta_network
from disco_rl.runtime import metrics
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

QUANTITIES = AGE, RETURN, ENTROPY, ADVANTAGE = (
  'log of the age',
  'return',
  'entropy of the policy',
  'size of advantages',
)
# What quantities are predicted from.
SOURCES = STATE, UNTRAINED, AGE_ALONE = 'state', 'untrained state', 'age alone'
# What the state is replaced by.
REPLACEMENTS = INITIAL, HALF, OTHER = (
  'initial state',
  'at half the age',
  'of another agent',
)
_AGES = 20
# The seed of the untrained rule.
_SEED = 0


@types.record
class ComparedState(disco.DiscoState):
  """The state of a rule beside which an untrained meta-RNN runs.

  Attributes:
    untrained: The state of the untrained meta-RNN.
  """

  untrained: hk.LSTMState | None


@dataclasses.dataclass(frozen=True)
class Compared(disco.Disco):
  """The same rule, beside which an untrained one sees all that it sees."""

  def init_state(self, agent_params: types.Params) -> ComparedState:
    """Makes the initial state; both meta-RNNs begin with zeros."""
    state = super().init_state(agent_params)
    return ComparedState(**vars(state), untrained=state.meta_rnn)

  def targets(
    self,
    rule_params: types.Params,
    state: disco.DiscoState,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[disco.DiscoTargets, disco.DiscoState, types.Logs]:
    """Computes `Disco.targets`, and advances the untrained meta-RNN."""
    assert isinstance(state, ComparedState)
    target_outputs = unroll(state.target_params)
    apply = functools.partial(
      super().targets,
      agent_params=agent_params,
      rollout=rollout,
      outputs=outputs,
      unroll=lambda _: target_outputs,
    )
    untrained_params = self.init_params(jax.random.key(_SEED))
    replaced = dataclasses.replace(state, meta_rnn=state.untrained)
    untrained = apply(untrained_params, replaced)[1].meta_rnn
    targets, following, logs = apply(rule_params, state)
    return targets, ComparedState(**vars(following), untrained=untrained), logs


@dataclasses.dataclass(frozen=True)
class Findings:
  """What the meta-RNN held in the lives of S agents, and what it changed.

  Attributes:
    environment_steps: The environment steps of each agent so far, [ages].
    r_squared: By quantity and source, [S]; see `r_squared`. Empty for a single
      agent, as nothing is left to fit.
    moved: By replacement and target, [S, ages]; see `movement`.
  """

  environment_steps: np.ndarray
  r_squared: Mapping[str, Mapping[str, np.ndarray]]
  moved: Mapping[str, Mapping[str, np.ndarray]]


def along_lives(subject: recording.Subject, updates: int) -> Findings:
  """Trains new agents like those of a run, and examines the meta-RNN.

  At each of twenty ages an agent acts without learning, as long as in a rollout
  of its training; what is measured then is that of this experience.
  """
  rule, number = subject.rule, subject.config.seeds
  settings = {x.name: getattr(rule, x.name) for x in dataclasses.fields(rule)}
  environment = subject.environments(recording.NUM_TRAJECTORIES)
  network, length = subject.agent.network, subject.agent.config.unroll_length
  make_scene = jax.jit(scenes.from_agent, static_argnums=0)
  steps: list[int] = []
  past = [[meta_network.initial_state(rule.network)] for _ in range(number)]
  found: list[list[Any]] = [[] for _ in range(number)]
  with contextlib.closing(environment):
    play = recording.player(network, environment, length)
    for age in recording.lives(subject, Compared(**settings), updates, _AGES):
      steps.append(age.environment_steps)
      learners = age.agents.learner
      returns = episodes.mean_return_on_host(age.agents.acting.episodes)
      of_agent = lambda tree, i: jax.tree.map(lambda x: x[i % number], tree)
      for i in range(number):
        own = of_agent(learners, i)
        key = jax.random.fold_in(jax.random.key(i), age.update)
        scene = make_scene(network, own, play(own.params, key))
        state = own.rule_state
        past[i].append(state.meta_rnn)
        others = {INITIAL: past[i][0], HALF: past[i][(len(past[i]) - 1) // 2]}
        if number > 1:
          others[OTHER] = of_agent(learners.rule_state.meta_rnn, i + 1)
        features = {
          STATE: np.concatenate(state.meta_rnn),
          UNTRAINED: np.concatenate(state.untrained),
        }
        lived = {AGE: np.log(age.update), RETURN: returns[i]}
        moved = {
          name: movement(rule, subject.rule_params, scene, other)
          for name, other in others.items()
        }
        one = features, lived | quantities(rule, scene), moved
        found[i].append(jax.device_get(one))
  stack = lambda trees: jax.tree.map(lambda *x: np.stack(x), *trees)
  features, answers, moved = stack([stack(of_one) for of_one in found])
  return Findings(
    np.array(steps),
    _readouts(features, answers) if number > 1 else {},
    {name: moved[name] for name in REPLACEMENTS if name in moved},
  )


@functools.partial(jax.jit, static_argnums=0)
def quantities(
  rule: disco.Disco, scene: scenes.Scene
) -> dict[str, types.Array]:
  """Computes means over a scene: the entropy, and |A| if the rule has q."""
  logits = scene.outputs['logits'][:-1]
  found = {ENTROPY: categorical.entropy(logits)}
  inputs, _ = rule.inputs(
    scene.state.moments,
    scene.rollout,
    scene.outputs,
    scenes.as_outputs(scene.state.target_params),
  )
  if inputs.estimates is not None:
    found[ADVANTAGE] = jnp.abs(inputs.estimates.advantage)
  return masked.mean(found, scene.rollout.mask)


def movement(
  rule: disco.Disco,
  rule_params: types.Params,
  scene: scenes.Scene,
  other: hk.LSTMState | None,
) -> dict[str, float]:
  """Measures how far targets move if another state replaces the meta-RNN's.

  Returns:
    For the targets of the policy, y and z, if the rule has them: the mean of
    KL(target || target with the other state) over the mean of KL(target ||
    prediction), which agents minimize. 0: nothing moves; 1: as far as agents
    are asked to move.
  """
  state = dataclasses.replace(scene.state, meta_rnn=other)
  moved = scenes.targets(
    rule, rule_params, dataclasses.replace(scene, state=state)
  )
  whole, outputs = scenes.targets(rule, rule_params, scene), scene.outputs
  compared = {'policy': (whole.pi, moved.pi, outputs['logits'][:-1])}
  if whole.y is not None:
    taken = scenes.of_taken(outputs['z'], scene.rollout)
    compared['y'] = whole.y, moved.y, outputs['y'][:-1]
    compared['z'] = whole.z, moved.z, taken
  mask = np.asarray(scene.rollout.mask)

  def share(*logits: types.Array) -> float:
    # In float64: many states move targets by less than float32 can tell.
    target, other, prediction = (
      scipy.special.softmax(np.asarray(x, float)[mask], axis=-1) for x in logits
    )
    divergence = lambda x: np.sum(scipy.special.rel_entr(target, x))
    return float(divergence(other) / divergence(prediction))

  return {name: share(*logits) for name, logits in compared.items()}


def r_squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Computes R^2 of a ridge regression for each agent, fitted to the others.

  Args:
    x: The features of S agents, [S, ages, n].
    y: The answers, [S, ages].

  Returns:
    [S], the mean squared error of an agent as 1 - error / variance, with the
    variance over all agents and ages: their mean is R^2 over all agents. NaN if
    all answers are equal or some are NaN.
  """
  fold = np.repeat(np.arange(len(y)), y.shape[1])
  rows = np.asarray(x, float).reshape(y.size, -1)
  given = exact_values.held_out(rows, y.ravel(), fold).reshape(y.shape)
  error, spread = np.mean((given - y) ** 2, axis=1), np.var(y)
  return 1.0 - error / spread if spread > 0 else np.full(len(y), np.nan)


def _readouts(
  x: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
  """Computes `r_squared` of all quantities from all sources.

  The age alone, a feature for each age, predicts what the other agents had at
  that age.
  """
  number, ages = y[AGE].shape
  x = {**x, AGE_ALONE: np.tile(np.eye(ages), (number, 1, 1))}
  return {
    name: {
      source: r_squared(x[source], y[name])
      for source in SOURCES
      if (name, source) != (AGE, AGE_ALONE)
    }
    for name in QUANTITIES
    if name in y
  }


def write(
  folder: pathlib.Path, findings: Findings, first_seed: int
) -> list[pathlib.Path]:
  """Writes meta_rnn_effect.csv, and meta_rnn_state.csv for several agents.

  Returns:
    Their paths. They have rows of `Findings.moved` and `Findings.r_squared`.
  """
  told: list[Sequence[object]] = [['seed', 'quantity', 'from', 'r_squared']]
  for quantity, by_source in findings.r_squared.items():
    for source, scores in by_source.items():
      for seed, score in enumerate(scores.tolist(), first_seed):
        told.append([seed, quantity, source, score])
  targets = [*findings.moved[INITIAL]]
  header = 'seed', 'environment_steps', 'replacement', *targets
  moved: list[Sequence[object]] = [header]
  for name, by_target in findings.moved.items():
    columns = np.stack([by_target[x] for x in targets], axis=-1)
    for seed, of_agent in enumerate(columns, first_seed):
      for step, shares in zip(findings.environment_steps, of_agent):
        moved.append([seed, step, name, *shares.tolist()])
  tables = {'meta_rnn_effect.csv': moved}
  if findings.r_squared:
    tables['meta_rnn_state.csv'] = told
  for name, rows in tables.items():
    metrics.write_rows(folder / name, rows)
  return [folder / name for name in tables]
