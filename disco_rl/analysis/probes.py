"""Probes: the information that a prediction contains (Fig. 4c of the paper).

A probe is a small MLP that is trained to answer a question from one prediction,
and is tested on held-out trajectories.
"""

from collections.abc import Callable
import dataclasses
import functools

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from disco_rl import types
from disco_rl.analysis import questions
from disco_rl.maths import masked


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
  """Training of probes.

  Attributes:
    hidden_sizes: widths of the MLP's layers; the first of the paper has 256
      units for y and z.
    folds: number of folds of the cross-validation.
    steps: updates by Adam, each on all training data.
    learning_rate: step size of Adam.
  """

  hidden_sizes: tuple[int, ...] = (128, 64, 32)
  folds: int = 5
  steps: int = 300
  learning_rate: float = 1e-3


# (output of the MLP, answer), [N] each -> [N].
_Loss = Callable[[types.Array, types.Array], types.Array]


@functools.partial(jax.jit, static_argnames='config')
def r_squared(
  key: types.Array,
  prediction: types.Array,
  question: questions.Question,
  config: ProbeConfig = ProbeConfig(),
) -> types.Array:
  """R^2 of probes of a number on held-out trajectories.

  Args:
    key: PRNG key.
    prediction: [T, B, n] input of the probes.
    question: about T steps of B trajectories.
    config: settings of the probes.

  Returns:
    [folds] 1 - sum (probe - answer)^2 / sum (answer - mean)^2; 0 for a probe
    that outputs the mean, NaN if all answers are equal.

  Raises:
    ValueError: there are fewer trajectories than folds, or the shapes differ.
  """

  def score(
    output: types.Array, answer: types.Array, weight: types.Array
  ) -> types.Array:
    mean = masked.mean(answer, weight)
    error = jnp.sum(weight * jnp.square(output - answer))
    return 1.0 - error / jnp.sum(weight * jnp.square(answer - mean))

  loss = lambda output, answer: jnp.square(output - answer)
  return _cross_validate(key, prediction, question, config, loss, score)


@functools.partial(jax.jit, static_argnames='config')
def accuracy(
  key: types.Array,
  prediction: types.Array,
  question: questions.Question,
  config: ProbeConfig = ProbeConfig(),
) -> types.Array:
  """Accuracy of probes of a yes-no question on held-out trajectories.

  Arguments and errors are those of `r_squared`.

  Returns:
    [folds] fractions of correct answers; compare with `majority`.
  """

  def score(
    output: types.Array, answer: types.Array, weight: types.Array
  ) -> types.Array:
    return masked.mean((output > 0) == (answer > 0.5), weight)

  return _cross_validate(
    key, prediction, question, config, optax.sigmoid_binary_cross_entropy, score
  )


def majority(question: questions.Question) -> types.Array:
  """The accuracy of always giving the more frequent answer."""
  yes = masked.mean(question.answer, question.is_known)
  return jnp.maximum(yes, 1.0 - yes)


def _cross_validate(
  key: types.Array,
  prediction: types.Array,
  question: questions.Question,
  config: ProbeConfig,
  loss: _Loss,
  score: Callable[[types.Array, types.Array, types.Array], types.Array],
) -> types.Array:
  """Scores [folds]; each fold consists of whole trajectories.

  Neighbouring steps are similar: in different folds, they would leak answers.
  """
  shape = question.answer.shape
  if prediction.shape[:2] != shape:
    raise ValueError(
      f'The prediction has shape {prediction.shape} and the question {shape}; '
      'expected [T, B, n] and [T, B].'
    )
  if shape[1] < config.folds:
    raise ValueError(
      f'{shape[1]} trajectories are too few for folds={config.folds}: record '
      'more of them.'
    )
  x = prediction.reshape(-1, prediction.shape[-1])
  answer, is_known = question.answer.ravel(), question.is_known.ravel()
  fold = jnp.broadcast_to(jnp.arange(shape[1]) % config.folds, shape).ravel()

  def one(key: types.Array, i: types.Array) -> types.Array:
    train = (is_known & (fold != i)).astype(x.dtype)
    test = (is_known & (fold == i)).astype(x.dtype)
    return score(_fit(key, x, answer, train, config, loss), answer, test)

  keys = jax.random.split(key, config.folds)
  return jax.lax.map(lambda a: one(*a), (keys, jnp.arange(config.folds)))


def _fit(
  key: types.Array,
  x: types.Array,
  answer: types.Array,
  weight: types.Array,
  config: ProbeConfig,
  loss: _Loss,
) -> types.Array:
  """Trains a probe where the weight is 1; returns its outputs for all steps."""
  mean = _weighted_mean(x, weight)
  deviation = jnp.sqrt(_weighted_mean(jnp.square(x - mean), weight))
  x = (x - mean) / jnp.where(deviation > 0, deviation, 1.0)
  network = _probe(config)
  optimizer = optax.adam(config.learning_rate)

  def objective(params: types.Params) -> types.Array:
    return masked.mean(loss(network.apply(params, x), answer), weight)

  def step(carry: tuple[types.Params, optax.OptState], _: None) -> tuple:
    params, state = carry
    updates, state = optimizer.update(jax.grad(objective)(params), state)
    return (optax.apply_updates(params, updates), state), None

  params = network.init(key, x)
  (params, _), _ = jax.lax.scan(
    step, (params, optimizer.init(params)), length=config.steps
  )
  return network.apply(params, x)


def _probe(config: ProbeConfig) -> hk.Transformed:
  """The MLP, [N, n] -> [N]."""
  mlp = lambda x: hk.nets.MLP([*config.hidden_sizes, 1])(x)[..., 0]
  return hk.without_apply_rng(hk.transform(mlp))


def _weighted_mean(x: types.Array, weight: types.Array) -> types.Array:
  """[N, n], [N] -> [n]."""
  return weight @ x / (jnp.sum(weight) + 1e-8)
