"""Tests of disco_rl/meta_training/imitation.py and of launch/imitate.py."""

import functools
import json
import pathlib
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import launching
import numpy as np
import pytest
import rollouts
import small

import disco_rl
from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.meta_training import imitation
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry
from launch import imitate

T, B, A = 12, 16, 4


def softmax(x: np.ndarray) -> np.ndarray:
  weights = np.exp(x - x.max(axis=-1, keepdims=True))
  return weights / weights.sum(axis=-1, keepdims=True)


def random_inputs(prediction_size: int) -> meta_features.MetaInputs:
  """Of agents like no others: rewards everywhere, and heads that are random."""
  rng = np.random.default_rng(5)
  normal = lambda *shape: rng.normal(size=(T + 1, B, *shape)).astype(np.float32)
  logits = normal(A)
  rollout = rollouts.draw(1, T, B, A, logits=logits + 0.1 * normal(A))
  q = 0.5 * normal(A, 11)
  outputs = {
    'logits': logits,
    'y': normal(prediction_size),
    'z': normal(A, prediction_size),
  }
  estimates, _ = value_targets.retrace(
    value_targets.init_moments(),
    rollout,
    logits,
    q,
    q,
    discount=0.9,
    lambda_=0.9,
    max_abs_value=5.0,
    moments_decay=0.99,
  )
  return meta_features.MetaInputs(rollout, outputs, outputs, estimates)


def moved(
  policy: np.ndarray, action: np.ndarray, advantage: np.ndarray, strength: float
) -> np.ndarray:
  """The policy that is imitated, before any bound."""
  onehot = np.eye(A)[action]
  return policy + strength * advantage[..., None] * (onehot - policy)


def test_the_target_is_a_step_of_the_policy_gradient() -> None:
  """In the logits, the gradient of KL(pi_hat, pi) is pi - pi_hat."""
  rng = np.random.default_rng(0)
  logits = 0.5 * rng.normal(size=(5, A)).astype(np.float32)
  action, advantage = rng.integers(A, size=5), 0.02 * rng.normal(size=5)
  target = imitation.target(
    jnp.array(logits), jnp.int32(action), jnp.float32(advantage), 2.0, 9.0
  )

  def loss(logits: types.Array) -> types.Array:
    log_policy = jax.nn.log_softmax(logits)
    taken = jnp.take_along_axis(log_policy, action[:, None], axis=-1)[:, 0]
    return -jnp.sum(2.0 * advantage * taken)

  np.testing.assert_allclose(
    softmax(logits) - softmax(np.asarray(target)),
    jax.grad(loss)(jnp.array(logits)),
    atol=2e-6,
  )


def test_large_advantages_are_bounded() -> None:
  target = imitation.target(
    jnp.zeros((2, A)), jnp.arange(2), jnp.array([99.0, -99.0]), 0.1, 4.0
  )
  # 1/4 + 0.4 * 3/4, and 1/4 - 0.4 / 4; the other way round below zero, raised.
  least = imitation.MIN_PROBABILITY
  wanted = np.array([[0.55, 0.15, 0.15, 0.15], [0.35, least, 0.35, 0.35]])
  wanted /= wanted.sum(axis=-1, keepdims=True)
  np.testing.assert_allclose(softmax(np.asarray(target)), wanted, rtol=1e-5)


def test_the_shipped_rule_imitates_on_other_inputs() -> None:
  """pi_hat is where the formula says, in inputs that it was not fitted to."""
  rule = disco_rl.load_rule('imitation')
  config = rule.rule.network
  inputs = random_inputs(config.prediction_size)
  outputs, _ = jax.jit(meta_network.transform(config).apply)(
    rule.params, inputs, meta_network.initial_state(config)
  )
  assert inputs.estimates is not None
  policy = softmax(np.asarray(inputs.outputs['logits'])[:-1])
  wanted = moved(
    policy,
    np.asarray(inputs.rollout.action[:-1]),
    np.asarray(inputs.estimates.normalized_advantage),
    strength=0.3,
  )
  wanted = np.maximum(wanted, imitation.MIN_PROBABILITY)
  wanted /= wanted.sum(axis=-1, keepdims=True)
  step, wanted_step = softmax(np.asarray(outputs.pi)) - policy, wanted - policy
  cosine = np.sum(step * wanted_step) / (
    np.linalg.norm(step) * np.linalg.norm(wanted_step)
  )
  assert cosine > 0.9
  np.testing.assert_allclose(
    np.linalg.norm(step), np.linalg.norm(wanted_step), rtol=0.25
  )


@pytest.mark.slow
def test_learning_reduces_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(imitation, '_NUM_ACTIONS', (3,))  # It compiles sooner.
  errors: list[float] = []
  imitation.train(
    jax.random.key(0),
    small.META_NETWORK,
    60,
    lambda error, _: errors.append(error),
  )
  assert np.mean(errors[-10:]) < 0.8 * np.mean(errors[:10])


def test_inputs_fit_the_network_and_errors_are_reported_before_signals(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Without the minute in which training is compiled."""
  key, config = jax.random.key(0), small.META_NETWORK
  params = jax.eval_shape(lambda key: meta_network.init(key, config), key)
  loss = functools.partial(imitation._loss, config, progress=0.5)
  total, distances = jax.eval_shape(loss, params, key)
  assert [x.shape for x in (total, *distances)] == [(), (), ()]

  def known(_: Any, params: types.Params, *args: Any, **options: Any) -> Any:
    return params['w'], (0.25, 0.5)

  monkeypatch.setattr(meta_network, 'init', lambda *_: {'w': jnp.zeros(())})
  monkeypatch.setattr(imitation, '_loss', known)
  reported: list[tuple[float, float]] = []
  imitation.train(key, config, 2, lambda *x: reported.append(x))
  assert reported == [(0.25, 0.5)] * 2


def test_a_rule_without_q_cannot_imitate() -> None:
  config = meta_network.MetaNetworkConfig(has_q=False)
  with pytest.raises(ValueError, match='rule_has_q=False: .* no advantages'):
    imitation.train(jax.random.key(0), config, 1, lambda *_: None)


def test_the_launcher_writes_a_rule_that_discovery_begins_with(
  tmp_path: pathlib.Path,
  capsys: pytest.CaptureFixture[str],
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  def train(key: Any, config: Any, steps: int, report: Any) -> types.Params:
    for _ in range(steps):
      report(0.1, 0.2)
    return meta_network.init(key, config)

  monkeypatch.setattr(imitation, 'train', train)
  launching.call(
    imitate,
    tmp_path,
    f'--config={launching.REPOSITORY}/configs/quickstart.py',
    '--steps=2',
    '--config.rule_lstm_size=4',
    '--config.rule_prediction_size=3',
  )
  path = tmp_path / 'rule.npz'
  assert capsys.readouterr().out == f'{path}\n'
  rule, params = registry.load(str(path))
  assert isinstance(rule, disco.Disco)
  assert rule.network.lstm_size == 4
  card = json.loads(path.with_suffix('.json').read_text())
  assert 'fitted by 2 steps' in card['description']
  assert card['settings']['rule_lstm_size'] == 4
  assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))


def test_the_rule_of_a_discovery_is_not_overwritten(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  monkeypatch.setattr(imitation, 'train', mock.Mock(side_effect=AssertionError))
  (tmp_path / 'config.json').write_text('{}')
  config = f'--config={launching.REPOSITORY}/configs/quickstart.py'
  found = launching.error(imitate, tmp_path, config)
  assert 'it has config.json: its rule.npz would be overwritten' in found
  assert [path.name for path in tmp_path.iterdir()] == ['config.json']
