"""Probes: how much an agent's predictions tell about the future (Fig. 4c).

A probe is an MLP that is trained to answer questions about the next steps from
one prediction, and is tested on held-out trajectories. The paper states the
sizes of the MLPs, R^2, accuracy and five folds; other choices are marked as
assumptions.
"""

from collections.abc import Mapping
import dataclasses
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from disco_rl import types
from disco_rl.analysis import scenes
from disco_rl.analysis import traces
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.update_rules import disco

# Questions are about the quantities 0 to 10 steps ahead.
FURTHEST = 10
# The fraction of non-zero rewards that counts as large.
_LARGE = 0.1
# Baselines: the policy at another step, and y of a network with initial
# parameters, which still depends on the observation.
SHUFFLED, INITIAL = 'shuffled policy', 'initial y'


@types.record
class Question:
  """A quantity at the K next steps of B trajectories.

  Attributes:
    answer: [T, B, K]; bool for yes-no questions, float32 for numbers.
    is_known: [T, B, K] bool, whether the step is within the trajectory and the
      same episode.
  """

  answer: types.Array
  is_known: types.Array


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """Settings of the training of probes.

  Attributes:
    hidden_sizes: The widths of the MLP's layers in the paper.
    wide_sizes: The widths for y and z in the paper.
    folds: The number of folds of the cross-validation.
    steps: The number of updates by Adam; an assumption, like the next two.
    batch_size: The number of steps of trajectories in an update.
    learning_rate: The step size of Adam.
  """

  hidden_sizes: tuple[int, ...] = (128, 64, 32)
  wide_sizes: tuple[int, ...] = (256, 256, 256)
  folds: int = 5
  steps: int = 400
  batch_size: int = 256
  learning_rate: float = 1e-3


def inputs(
  rule: disco.Disco,
  network: agent_network.AgentNetwork,
  scene: scenes.Scene,
  key: types.Array,
) -> Mapping[str, types.Array]:
  """Computes inputs of probes, [T, B, n], by name.

  Returns:
    The policy, y, and z of the taken action as probabilities; the expected q of
    each action as value; and as baselines the policy at other steps, and y of
    an initial network. Predictions that the rule lacks are omitted.
  """
  outputs = {name: x[:-1] for name, x in scene.outputs.items()}
  found = {'policy': jax.nn.softmax(outputs['logits'])}
  if 'q' in outputs:
    found['value'] = value_targets.values_from_logits(
      outputs['q'], rule.max_abs_value
    )
  found[SHUFFLED] = scenes.shuffled(found['policy'], key)
  if 'y' in outputs:
    taken = scenes.of_taken(scene.outputs['z'], scene.rollout)
    params = jax.jit(network.init)(key)
    initial, _ = jax.jit(network.unroll)(params, scene.rollout)
    found |= {
      'y': jax.nn.softmax(outputs['y']),
      'z': jax.nn.softmax(taken),
      INITIAL: jax.nn.softmax(initial['y'][:-1]),
    }
  return found


def questions(rule: disco.Disco, scene: scenes.Scene) -> Mapping[str, Question]:
  """Makes questions about the future of a scene.

  Fig. 4c has the first two. The paper does not define large rewards: here they
  are the largest tenth of non-zero rewards, by absolute value, and all that are
  equal to the smallest of these. The other questions replace those of Extended
  Data Fig. 2, which are not known here.

  Returns:
    By name: the entropy of the policy k steps later, whether a large reward
    follows the action k steps later, that reward, and, if the rule has q, the
    value k steps later; for k from 0 to 10.
  """
  trace, rollout = traces.trace(rule, scene), scene.rollout
  size = jnp.abs(rollout.reward)
  earned = np.asarray(size[rollout.mask & (size > 0)])
  least = np.quantile(earned, 1 - _LARGE, method='lower') if earned.size else 1
  ask = functools.partial(_ask, rollout)
  found = {
    'policy entropy': ask(-trace.policy_confidence),
    'large reward': ask(size >= least),
    'reward': ask(rollout.reward),
  }
  if trace.value is not None:
    found['value'] = ask(trace.value)
  return found


def _ask(rollout: types.Rollout, quantity: types.Array) -> Question:
  """Makes a question about a quantity [T, B], 0 to `FURTHEST` steps ahead."""
  episode = np.cumsum(agent_network.episode_starts(rollout), axis=0)
  length = len(quantity)
  step = np.arange(length)[:, None] + np.arange(FURTHEST + 1)
  index = np.minimum(step, length - 1)
  is_known = (step < length)[..., None] & np.asarray(rollout.mask)[index]
  is_known &= episode[index] == episode[:length, None]
  to_last = lambda x: jnp.asarray(np.moveaxis(x, 1, -1))
  return Question(to_last(np.asarray(quantity)[index]), to_last(is_known))


def score(
  key: types.Array,
  found: Mapping[str, types.Array],
  asked: Mapping[str, Question],
  config: ProbeConfig,
) -> dict[str, dict[str, np.ndarray]]:
  """Scores probes on held-out trajectories.

  One probe answers all questions about all steps ahead from one prediction, and
  has an output for each; the paper trains one for each question.

  Returns:
    Question -> prediction -> [folds, K]. For numbers, R^2 = 1 - sum (probe -
    answer)^2 / sum (answer - mean)^2, which is 0 for a probe that always gives
    the mean of the held-out answers. For yes-no questions, the accuracy,
    averaged over both answers, which is 0.5 for a probe without information,
    even if one answer is rare. NaN if all answers are equal.

  Raises:
    ValueError: There are fewer trajectories than folds, or the shapes differ.
  """
  shape = next(iter(asked.values())).answer.shape[:2]
  if shape[1] < config.folds:
    raise ValueError(
      f'{shape[1]} trajectories are too few for folds={config.folds}: record '
      'more of them.'
    )
  scores: dict[str, dict[str, np.ndarray]] = {name: {} for name in asked}
  for name, prediction in found.items():
    if prediction.shape[:2] != shape:
      raise ValueError(
        f'The prediction {name} has shape {prediction.shape} and the questions '
        f'{shape}; expected [T, B, n] and [T, B].'
      )
    is_wide = name in ('y', 'z', INITIAL)
    sizes = config.wide_sizes if is_wide else config.hidden_sizes
    for question, values in _cross_validate(
      key, prediction, dict(asked), sizes, config
    ).items():
      scores[question][name] = np.asarray(values)
  return scores


@functools.partial(jax.jit, static_argnames=('sizes', 'config'))
def _cross_validate(
  key: types.Array,
  prediction: types.Array,
  asked: dict[str, Question],
  sizes: tuple[int, ...],
  config: ProbeConfig,
) -> dict[str, types.Array]:
  """Computes scores [folds, K] with folds of whole trajectories.

  Adjacent steps are similar: in different folds, they would leak answers.
  """
  number = prediction.shape[1]
  fold = jnp.broadcast_to(
    jnp.arange(number) % config.folds, prediction.shape[:2]
  ).ravel()
  rows = lambda x: x.reshape(-1, x.shape[-1])
  x, asked = rows(prediction), jax.tree.map(rows, asked)

  def one(key: types.Array, i: types.Array) -> dict[str, types.Array]:
    known = lambda chosen: {
      name: (question.is_known & chosen[:, None]).astype(jnp.float32)
      for name, question in asked.items()
    }
    answers = {name: question.answer for name, question in asked.items()}
    given = _fit(key, x, answers, known(fold != i), sizes, config)
    test = known(fold == i)
    return {
      name: (_accuracy if answer.dtype == bool else _r_squared)(
        given[name], answer, test[name]
      )
      for name, answer in answers.items()
    }

  keys = jax.random.split(key, config.folds)
  return jax.lax.map(lambda a: one(*a), (keys, jnp.arange(config.folds)))


def _fit(
  key: types.Array,
  x: types.Array,
  answers: dict[str, types.Array],
  weights: dict[str, types.Array],
  sizes: tuple[int, ...],
  config: ProbeConfig,
) -> dict[str, types.Array]:
  """Trains a probe where weights [N, K] are 1; returns answers to all rows."""
  used = jnp.stack([*weights.values()]).max(axis=(0, 2))[:, None]
  x = _standardize(x, used)[0]
  answers, weights, scales = _balance(answers, weights)
  network = _network(sizes, {n: x.shape[1] for n, x in answers.items()})
  optimizer = optax.adam(config.learning_rate)
  totals = {name: jnp.mean(weight, axis=0) for name, weight in weights.items()}

  def objective(params: types.Params, rows: types.Array) -> types.Array:
    given = network.apply(params, x[rows])
    total = jnp.zeros(())
    for name, answer in answers.items():
      loss = (
        optax.sigmoid_binary_cross_entropy
        if answer.dtype == bool
        else optax.squared_error
      )
      weight = weights[name][rows] / (totals[name] + 1e-8)
      total += jnp.mean(weight * loss(given[name], answer[rows].astype(float)))
    return total

  def step(carry: tuple, key: types.Array) -> tuple[tuple, None]:
    params, state = carry
    rows = jax.random.randint(key, (config.batch_size,), 0, len(x))
    gradient = jax.grad(objective)(params, rows)
    updates, state = optimizer.update(gradient, state)
    return (optax.apply_updates(params, updates), state), None

  init_key, key = jax.random.split(key)
  params = network.init(init_key, x)
  (params, _), _ = jax.lax.scan(
    step,
    (params, optimizer.init(params)),
    jax.random.split(key, config.steps),
  )
  given = network.apply(params, x)
  for name, (mean, deviation) in scales.items():
    given[name] = given[name] * deviation + mean
  return given


def _balance(
  answers: dict[str, types.Array], weights: dict[str, types.Array]
) -> tuple[dict, dict, dict]:
  """Standardizes numbers, and gives yes and no equal weight; returns scales."""
  answers, weights, scales = {**answers}, {**weights}, {}
  for name, answer in answers.items():
    if answer.dtype == bool:
      yes = _mean(answer, weights[name])
      weights[name] = weights[name] * jnp.where(answer, 1 - yes, yes)
    else:
      answers[name], *scales[name] = _standardize(answer, weights[name])
  return answers, weights, scales


def _network(
  sizes: tuple[int, ...], widths: Mapping[str, int]
) -> hk.Transformed:
  """Makes a probe: x [N, n] -> by question [N, width]."""

  def apply(x: types.Array) -> dict[str, types.Array]:
    y = hk.nets.MLP([*sizes, sum(widths.values())])(x)
    ends = np.cumsum([*widths.values()])[:-1].tolist()
    return dict(zip(widths, jnp.split(y, ends, axis=-1)))

  return hk.without_apply_rng(hk.transform(apply))


def _r_squared(
  given: types.Array, answer: types.Array, weight: types.Array
) -> types.Array:
  """Computes R^2, [N, K] -> [K]; NaN where all answers are equal."""
  error = _mean(jnp.square(given - answer), weight)
  spread = _mean(jnp.square(answer - _mean(answer, weight)), weight)
  # The mean of equal answers is rounded, so their spread may not be 0.
  lowest = jnp.min(answer, axis=0, where=weight > 0, initial=jnp.inf)
  highest = jnp.max(answer, axis=0, where=weight > 0, initial=-jnp.inf)
  return jnp.where(lowest < highest, 1 - error / spread, jnp.nan)


def _accuracy(
  given: types.Array, answer: types.Array, weight: types.Array
) -> types.Array:
  """Computes balanced accuracies from logits, [N, K] -> [K]."""
  of = lambda kind: (
    jnp.sum(weight * kind * ((given > 0) == answer), axis=0)
    / (jnp.sum(weight * kind, axis=0))
  )
  return (of(answer) + of(~answer)) / 2


def _standardize(
  x: types.Array, weight: types.Array
) -> tuple[types.Array, types.Array, types.Array]:
  """Standardizes weighted values; also returns their mean and deviation."""
  mean = _mean(x, weight)
  deviation = jnp.sqrt(_mean(jnp.square(x - mean), weight))
  deviation = jnp.where(deviation > 0, deviation, 1.0)
  return (x - mean) / deviation, mean, deviation


def _mean(x: types.Array, weight: types.Array) -> types.Array:
  """Computes weighted means, [N, K] -> [K]."""
  return jnp.sum(x * weight, axis=0) / (jnp.sum(weight, axis=0) + 1e-8)
