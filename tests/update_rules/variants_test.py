"""Variants of DiscoRL: what they lack, and files of their weights."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rollouts
import small

from disco_rl import types
from disco_rl.maths import value_targets
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.update_rules import disco
from disco_rl.update_rules import registry
from disco_rl.update_rules import weights

T, B, A, Y, BINS = 5, 2, 3, 10, 9
FULL = disco.Disco(small.META_NETWORK, num_bins=BINS, max_abs_value=3.0)


def variant(aux_pi_cost: float = 1.0, **network: Any) -> disco.Disco:
  """The full rule with other fields of its network."""
  changed = dataclasses.replace(small.META_NETWORK, **network)
  return dataclasses.replace(FULL, network=changed, aux_pi_cost=aux_pi_cost)


NO_Y_AND_Z = variant(prediction_size=0, prediction_embedding=(16, 1))
NO_Q = variant(has_q=False)
NO_META_RNN = variant(meta_rnn_size=0, meta_rnn_input_size=16)
NO_AUX_PI = variant(aux_pi_cost=0.0)
TRANSFORMER = variant(transformer_layers=2, transformer_heads=3)
# Nothing but a policy and a trajectory.
BARE = variant(
  aux_pi_cost=0.0,
  prediction_size=0,
  prediction_embedding=(16, 1),
  has_q=False,
  meta_rnn_size=0,
  meta_rnn_input_size=16,
  transformer_layers=1,
  transformer_heads=2,
)
VARIANTS = [NO_Y_AND_Z, NO_Q, NO_META_RNN, NO_AUX_PI, TRANSFORMER, BARE]


def random_outputs(seed: int) -> dict[str, jax.Array]:
  """All outputs of an agent's network on a rollout."""
  keys = iter(jax.random.split(jax.random.key(seed), 5))
  draw = lambda *shape: jax.random.normal(next(keys), (T + 1, B, *shape))
  return {
    'logits': draw(A),
    'y': draw(Y),
    'z': draw(A, Y),
    'q': draw(A, BINS),
    'aux_pi': draw(A, A),
  }


ROLLOUT = rollouts.draw(0, T, B, A)
OUTPUTS, TARGET_OUTPUTS = random_outputs(1), random_outputs(2)


def heads(rule: disco.Disco) -> set[str]:
  spec = rule.output_spec(A)
  return {*spec.state, *spec.action}


def evaluate(rule: disco.Disco, params: Any, state: Any) -> Any:
  """Targets and the next state, from the outputs that the rule reads."""
  own = {'logits', *heads(rule)}
  pick = lambda outputs: {name: outputs[name] for name in own}
  targets, state, _ = rule.targets(
    params, state, {}, ROLLOUT, pick(OUTPUTS), lambda _: pick(TARGET_OUTPUTS)
  )
  return targets, state


def twice(rule: disco.Disco) -> Any:
  """Targets of one batch at two updates, and the state after them."""
  params = small.nest(small.arrays(rule.network))

  @jax.jit
  def run(params: Any, state: Any) -> Any:
    first, state = evaluate(rule, params, state)
    again, state = evaluate(rule, params, state)
    return first, again, state

  return run(params, rule.init_state({}))


# What they lack.


def test_agents_have_no_heads_for_what_is_not_predicted() -> None:
  everything = {'y', 'z', 'q', 'aux_pi'}
  assert heads(FULL) == heads(TRANSFORMER) == heads(NO_META_RNN) == everything
  assert heads(NO_Y_AND_Z) == {'q', 'aux_pi'}
  assert heads(NO_Q) == {'y', 'z', 'aux_pi'}
  assert heads(NO_AUX_PI) == {'y', 'z', 'q'}
  assert heads(BARE) == set()


@pytest.mark.parametrize(
  ('rule', 'columns', 'channels'),
  [
    # V at t and t+1, the advantage and the normalized one; of each action the
    # value and two advantages.
    (NO_Q, {4, 5, 6, 7}, {5, 6, 7}),
    # All after the target network's policy; of each action two embeddings of z.
    (NO_Y_AND_Z, set(range(9, 23)), {3, 4}),
  ],
)
def test_features_are_those_of_the_full_rule_without_some_columns(
  rule: disco.Disco, columns: set[int], channels: set[int]
) -> None:
  moments = FULL.init_state({}).moments
  estimates, _ = jax.jit(FULL._estimate)(
    moments, ROLLOUT, OUTPUTS, TARGET_OUTPUTS
  )
  embedded = meta_features.EmbeddedPredictions(
    y=OUTPUTS['y'][..., 0],
    target_y=TARGET_OUTPUTS['y'][..., 0],
    z=OUTPUTS['z'][..., 0],
    target_z=TARGET_OUTPUTS['z'][..., 0],
  )

  def prepare(has_q: bool, has_y_and_z: bool) -> meta_features.PreparedInputs:
    inputs = meta_features.MetaInputs(
      ROLLOUT, OUTPUTS, TARGET_OUTPUTS, estimates if has_q else None
    )
    return meta_features.prepare(inputs, embedded if has_y_and_z else None)

  full = prepare(True, True)
  fewer = prepare(rule.network.has_q, bool(rule.network.prediction_size))
  for function, missing in (
    (meta_features.step_features, columns),
    (meta_features.action_channels, channels),
  ):
    every = np.asarray(function(full))
    kept = [i for i in range(every.shape[-1]) if i not in missing]
    np.testing.assert_array_equal(function(fewer), every[..., kept])


def test_features_are_those_of_numpy() -> None:
  """Three steps of two trajectories, with four actions.

  In one state the last action, with the largest z, is not legal.
  """
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(size=(4, 2, *shape)).astype(np.float32)
  z, target_z, y, target_y = draw(4), draw(4), draw(), draw()
  z[1, 1, 3] = target_z[1, 1, 3] = 9.0
  legal = np.ones((4, 2, 4), bool)
  legal[1, 1, 3] = False
  policy, behavior, target_policy = (abs(draw(4)) for _ in range(3))
  value, q_value, target_q, advantages, normalized = (
    draw(),
    *(draw(4) for _ in range(4)),
  )
  action = rng.integers(4, size=(4, 2))
  reward, q_target, q_td, normalized_td, advantage, normalized_advantage = (
    draw()[:-1] for _ in range(6)
  )
  is_terminal = np.array([[False, True], [True, False], [False, False]])
  raw = meta_features.MetaInputs(
    types.Rollout(
      observation=(),
      action=jnp.array(action),
      logits=draw(4),
      reward=jnp.array(reward),
      is_terminal=jnp.array(is_terminal),
      mask=~is_terminal,
    ),
    outputs={},
    target_outputs={},
    estimates=value_targets.RetraceEstimates(
      value=jnp.array(value),
      q_value=jnp.array(q_value),
      target_q_value=jnp.array(target_q),
      q_target=q_target,
      q_td=q_td,
      normalized_q_td=normalized_td,
      advantage=advantage,
      normalized_advantage=normalized_advantage,
      qv_advantage=jnp.array(advantages),
      normalized_qv_advantage=jnp.array(normalized),
    ),
  )
  inputs = meta_features.PreparedInputs(
    raw,
    *map(jnp.array, (policy, behavior, target_policy)),
    meta_features.EmbeddedPredictions(
      *map(jnp.array, (y, target_y, z, target_z))
    ),
    jnp.array(legal),
  )
  compress = lambda x: np.sign(x) * np.log1p(np.abs(x))
  taken = lambda x: np.take_along_axis(x, action[..., None], -1)[:-1, :, 0]
  pair = lambda x: (x[:-1], x[1:])
  expected = lambda x: pair((policy * x).sum(-1))
  largest = lambda x: pair(np.where(legal, x, -np.inf).max(-1))
  columns = [
    taken(policy),
    taken(behavior),
    compress(reward),
    1.0 - is_terminal,
    *pair(compress(value)),
    compress(advantage),
    normalized_advantage,
    taken(target_policy),
    *pair(y),
    *pair(target_y),
    taken(z),
    *expected(z),
    *largest(z),
    taken(target_z),
    *expected(target_z),
    *largest(target_z),
  ]
  np.testing.assert_allclose(
    meta_features.step_features(inputs), np.stack(columns, -1), rtol=1e-5
  )
  channels = [
    *(policy, behavior, target_policy, z, target_z),
    *(compress(target_q), compress(advantages), normalized),
    np.eye(4)[action],
  ]
  np.testing.assert_allclose(
    meta_features.action_channels(inputs),
    np.stack(channels, -1)[:-1],
    rtol=1e-5,
  )
  np.testing.assert_array_equal(meta_features.legal_actions(inputs), legal[:-1])


def divergence(target: Any, prediction: Any) -> np.ndarray:
  """KL in NumPy, from logits."""
  log_p, log_q = (
    x - np.log(np.exp(x).sum(-1, keepdims=True))
    for x in (np.asarray(target, float), np.asarray(prediction, float))
  )
  return (np.exp(log_p) * (log_p - log_q)).sum(-1)


def test_losses_are_the_terms_that_are_left() -> None:
  outputs = {k: x for k, x in OUTPUTS.items() if k in ('logits', 'y')}
  of_action = {k: x[:-1, :, 0] for k, x in OUTPUTS.items() if k not in outputs}
  taken = {**outputs, **of_action}
  logits = {k: x[:-1, :, 0] for k, x in TARGET_OUTPUTS.items()}
  pi = TARGET_OUTPUTS['logits'][:-1]
  targets = disco.DiscoTargets(
    pi=pi,
    y=TARGET_OUTPUTS['y'][:-1],
    z=logits['z'],
    q=ROLLOUT.reward,
    target_policy=pi,
  )
  no_y_and_z = dataclasses.replace(targets, y=None, z=None)
  no_q = dataclasses.replace(targets, q=None)
  of_pi = divergence(pi, OUTPUTS['logits'][:-1])
  of_y = divergence(targets.y, OUTPUTS['y'][:-1])
  of_z = divergence(targets.z, taken['z'])
  of_aux_pi = divergence(OUTPUTS['logits'][1:], taken['aux_pi'])
  full, _ = FULL.loss(taken, targets, ROLLOUT)
  of_q = np.asarray(full) - (of_pi + of_y + of_z + of_aux_pi)
  assert np.min(of_q) > 0.01
  for rule, kept, expected in (
    (NO_Y_AND_Z, no_y_and_z, of_pi + of_aux_pi + of_q),
    (NO_Q, no_q, of_pi + of_y + of_z + of_aux_pi),
    (NO_AUX_PI, targets, of_pi + of_y + of_z + of_q),
    (BARE, dataclasses.replace(no_y_and_z, q=None), of_pi),
  ):
    own = {k: taken[k] for k in ('logits', *heads(rule))}
    loss, _ = rule.loss(own, kept, ROLLOUT)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


def test_without_the_meta_rnn_only_the_batch_decides() -> None:
  """The same batch has the same targets, at any update of the lifetime."""
  first, again, state = twice(BARE)
  assert state.meta_rnn is None
  # The moments are those of one batch, but for rounding.
  np.testing.assert_allclose(again.pi, first.pi, atol=1e-4)
  assert np.std(first.pi) > 0.01
  first, again, _ = twice(FULL)
  assert np.max(np.abs(again.pi - first.pi)) > 0.01


def test_widths_of_a_network_may_be_lists() -> None:
  config = dataclasses.replace(small.META_NETWORK, policy_channels=[7, 2])
  assert meta_network.parameter_shapes(config) == (
    meta_network.parameter_shapes(small.META_NETWORK)
  )


@pytest.mark.parametrize('rule', VARIANTS)
def test_targets_are_those_of_the_heads(rule: disco.Disco) -> None:
  params = small.nest(small.arrays(rule.network))
  targets, state = jax.eval_shape(
    lambda params, state: evaluate(rule, params, state),
    params,
    rule.init_state({}),
  )
  shapes = {
    name: x.shape
    for name, x in vars(targets).items()
    if x is not None and name != 'target_policy'
  }
  every = {'pi': (T, B, A), 'y': (T, B, Y), 'z': (T, B, Y), 'q': (T, B)}
  assert shapes == {k: x for k, x in every.items() if k in heads(rule) | {'pi'}}
  assert (state.meta_rnn is None) == (not rule.network.meta_rnn_size)


# Files.


@pytest.mark.parametrize('rule', VARIANTS)
def test_a_file_says_which_variant_it_holds(
  rule: disco.Disco, tmp_path: pathlib.Path
) -> None:
  path, params = tmp_path / 'rule.npz', small.nest(small.arrays(rule.network))
  registry.save(path, rule, params)
  settings = {'num_bins': BINS, 'max_abs_value': 3.0}
  loaded, loaded_params = registry.load(str(path), **settings)
  assert loaded == rule
  jax.tree.map(np.testing.assert_array_equal, loaded_params, params)


def test_settings_given_by_name_win_over_those_of_the_file(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'rule.npz'
  registry.save(path, NO_AUX_PI, small.nest(small.arrays()))
  rule, _ = registry.load(str(path), aux_pi_cost=0.5)
  assert isinstance(rule, disco.Disco)
  assert rule.aux_pi_cost == 0.5


def test_settings_of_the_file_win_over_those_of_its_card(
  tmp_path: pathlib.Path,
) -> None:
  path = tmp_path / 'rule.npz'
  registry.save(path, NO_AUX_PI, small.nest(small.arrays()))
  card = {'name': 'x', 'settings': {'aux_pi_cost': 0.5, 'y_cost': 2.0}}
  path.with_suffix('.json').write_text(json.dumps(card))
  rule, _ = registry.load(str(path))
  assert isinstance(rule, disco.Disco)
  assert (rule.aux_pi_cost, rule.y_cost) == (0.0, 2.0)


@pytest.mark.parametrize('rule', [FULL, NO_Y_AND_Z, NO_Q, BARE])
def test_a_tensor_that_a_rule_lacks_is_named(
  rule: disco.Disco, tmp_path: pathlib.Path
) -> None:
  arrays = small.arrays(rule.network)
  for key in arrays:
    others = {k: x for k, x in arrays.items() if k != key}
    with pytest.raises(weights.WeightsError, match='incomplete') as caught:
      weights.save(tmp_path / 'x.npz', small.nest(others), rule.network)
    assert f'  {key}: found nothing, expected' in str(caught.value)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
  with pytest.raises(ValueError, match=r'rule_lstm_size=12 .*heads=5'):
    variant(transformer_layers=1, transformer_heads=5)
  # They are not used by an LSTM.
  assert not variant(transformer_heads=5).network.transformer_layers
