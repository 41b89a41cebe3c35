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
  """Scenes of agents like no others: rewards everywhere, heads at random."""
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


def test_inputs_fit_the_network() -> None:
  """Without the minute in which training is compiled."""
  key, config = jax.random.key(0), small.META_NETWORK
  params = jax.eval_shape(lambda key: meta_network.init(key, config), key)
  loss = functools.partial(imitation._loss, config, progress=0.5)
  total, distances = jax.eval_shape(loss, params, key)
  assert [x.shape for x in (total, *distances)] == [(), (), ()]


def test_training_follows_its_schedules(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """The loss is linear in a parameter, the slope 0.5, and 4 after the middle.

  Errors are reported before signals; here they are the progress of the target,
  and the parameter.
  """

  def known(
    _: Any, params: types.Params, key: types.Array, progress: types.Array
  ) -> Any:
    keys.append(key)
    w = params['w']
    return w * jnp.where(progress < 0.6, 0.5, 4.0), (progress, w)

  keys: list[types.Array] = []
  monkeypatch.setattr(meta_network, 'init', lambda *_: {'w': jnp.zeros(())})
  monkeypatch.setattr(imitation, '_loss', known)
  reported: list[tuple[float, float]] = []
  found = imitation.train(
    jax.random.key(0), small.META_NETWORK, 16, lambda *x: reported.append(x)
  )
  progress, w = np.transpose([*reported, (1.0, float(found['w']))])
  expected = np.clip((np.arange(16) / 16 - 0.3) / 0.4, 0, 1)
  np.testing.assert_allclose(progress[:-1], expected, atol=1e-6)
  # Adam, of gradients that are clipped to 1, after a warm-up of two steps.
  steps = np.arange(16)
  rates = np.where(
    steps < 2, steps / 2, 0.5 + 0.5 * np.cos(np.pi * (steps - 2) / 14)
  )
  mean = square = 0.0
  for i, gradient in enumerate(np.where(expected < 0.6, 0.5, 1.0)):
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    scaled = (
      mean / (1 - 0.9 ** (i + 1)) / np.sqrt(square / (1 - 0.999 ** (i + 1)))
    )
    np.testing.assert_allclose(
      w[i + 1] - w[i], -5e-3 * rates[i] * scaled, rtol=1e-3, atol=1e-8
    )
  assert len(keys) == 1  # It is compiled once.


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  return np.sum(p * np.log(p / q), axis=-1)


@pytest.mark.parametrize(
  ('progress', 'strength', 'bound'), [(0.0, 1.0, 3.0), (1.0, 0.3, 12.0)]
)
def test_the_loss_of_a_rule_that_moves_nothing(
  progress: float, strength: float, bound: float
) -> None:
  (total, (error, signal)), seen = copying()(jnp.float32(progress))
  divergences, distances = [], []
  for inputs in seen:
    policy = softmax(np.asarray(inputs.outputs['logits'], float)[:-1])
    advantage = np.asarray(inputs.estimates.normalized_advantage, float)
    onehot = np.eye(policy.shape[-1])[inputs.rollout.action[:-1]]
    step = strength * np.clip(advantage, -bound, bound)
    wanted = policy + step[..., None] * (onehot - policy)
    wanted = np.maximum(wanted, imitation.MIN_PROBABILITY)
    wanted /= wanted.sum(axis=-1, keepdims=True)
    divergences.append(kl(wanted, policy).mean() / strength)
    distances.append(np.square(wanted - policy).sum(axis=-1).mean())
  assert [x.outputs['logits'].shape for x in seen] == [
    (21, 24, 3),
    (21, 24, 5),
  ]
  assert total == pytest.approx(np.mean(divergences), rel=1e-3)
  assert error == pytest.approx(np.mean(distances), rel=1e-3)
  assert signal == pytest.approx(float(error), rel=1e-5)


@functools.cache
def copying() -> Any:
  """Compiles the loss of pi_hat = pi, with what the network reads."""

  def apply(_: Any, inputs: meta_features.MetaInputs, state: Any) -> Any:
    seen.append(inputs)
    return mock.Mock(pi=inputs.outputs['logits'][:-1]), state

  seen: list[meta_features.MetaInputs] = []
  config, key = small.META_NETWORK, jax.random.key(3)
  loss = lambda progress: (imitation._loss(config, {}, key, progress), seen)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(meta_network, 'transform', lambda _: mock.Mock(apply=apply))
    return jax.jit(loss).lower(jnp.float32(0.0)).compile()


def test_inputs_are_of_all_scales_and_fit_together() -> None:
  """Rates and deviations are those of hundreds of draws."""
  _, seen = copying()(jnp.float32(0.0))
  deviation = lambda x: np.std(
    x, axis=tuple(i for i in range(x.ndim) if i != 1)
  )
  within = lambda x, low, high: (
    0.5 * low < x.min() < 2.5 * low and high / 2.5 < x.max() < 1.5 * high
  )
  for inputs in seen:
    rollout, outputs, estimates = (
      inputs.rollout,
      inputs.outputs,
      inputs.estimates,
    )
    logits = np.asarray(outputs['logits'])
    num_actions = logits.shape[-1]
    assert within(deviation(logits), 0.05, 6.0)
    behavior, target = rollout.logits, inputs.target_outputs['logits']
    for other in (behavior, target):
      assert within(deviation(other - logits), 0.01, 0.5)
    assert not np.array_equal(behavior, target)
    shapes = {'y': (21, 24, 10), 'z': (21, 24, num_actions, 10)}
    for name, shape in shapes.items():
      assert outputs[name].shape == shape
      assert within(deviation(outputs[name]), 0.1, 3.0)
      apart = inputs.target_outputs[name] - outputs[name]
      assert np.std(apart) == pytest.approx(0.1, rel=0.1)
    # Actions are those of the behavior policy.
    np.testing.assert_allclose(
      np.eye(num_actions)[rollout.action].mean(axis=(0, 1)),
      softmax(np.asarray(behavior)).mean(axis=(0, 1)),
      atol=0.08,
    )
    assert np.mean(rollout.is_terminal) == pytest.approx(0.05, abs=0.025)
    assert np.mean(rollout.reward != 0) == pytest.approx(0.15, abs=0.04)
    rewards = rollout.reward[rollout.reward != 0]
    assert np.std(rewards) == pytest.approx(1, rel=0.25)
    assert rollout.mask.all() and rollout.mask.shape == (20, 24)
    value, q = np.asarray(estimates.value), np.asarray(estimates.q_value)
    assert within(deviation(value), 0.05, 2.0)
    spread = deviation(q - value[..., None]) / deviation(value)
    assert np.mean(spread) == pytest.approx(0.3, rel=0.15)
    spread = deviation(estimates.target_q_value - q) / deviation(value)
    assert np.mean(spread) == pytest.approx(0.05, rel=0.15)
    normalized = np.asarray(estimates.normalized_advantage)
    assert np.abs(normalized).max() <= 12
    # Heavy tails.
    assert np.mean(normalized**4) > 5 * np.mean(normalized**2) ** 2
    np.testing.assert_array_equal(estimates.normalized_q_td, normalized)
    advantage = np.asarray(estimates.advantage)
    np.testing.assert_array_equal(estimates.q_td, advantage)
    np.testing.assert_allclose(
      estimates.q_target, value[:-1] + advantage, rtol=1e-5, atol=1e-6
    )
    of_actions = np.asarray(estimates.normalized_qv_advantage)
    assert np.std(of_actions) == pytest.approx(0.6, rel=0.1)
    factors = np.asarray(estimates.qv_advantage) / of_actions
    np.testing.assert_allclose(
      factors, factors[:1, :, :1] + 0 * factors, rtol=1e-3
    )
    factor = factors[0, :, 0]
    assert np.mean(factor / deviation(value)) == pytest.approx(0.5, rel=0.15)
    np.testing.assert_allclose(
      advantage, factor * normalized, rtol=1e-3, atol=1e-6
    )


def test_states_are_initial_or_random() -> None:
  keys = jax.random.split(jax.random.key(1), 300)
  draw = lambda key: imitation._random_state(key, small.META_NETWORK)
  state = jax.jit(jax.vmap(draw))(keys)
  hidden, cell = np.asarray(state.hidden), np.asarray(state.cell)
  is_initial = ~cell.any(axis=(1, 2)) if cell.ndim == 3 else ~cell.any(axis=1)
  assert is_initial.mean() == pytest.approx(0.3, abs=0.08)
  assert not hidden[is_initial].any()
  assert np.std(cell[~is_initial]) == pytest.approx(1, rel=0.1)
  assert np.abs(hidden).max() < 1
  # tanh of a standard normal number.
  assert np.std(hidden[~is_initial]) == pytest.approx(0.628, rel=0.1)


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
