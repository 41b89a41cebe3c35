"""Parity with the published rule, by the golden vectors of tests/data.

Cold Adam. The goldens of agents start from an optimiser without moments, whose
first update is g / (|g| + 1e-8), and the meta-gradient passes through
1 / (|g| + 1e-8). Where a gradient is about as small as its rounding error, the
golden update is what that error makes of it, and one such entry can outweigh
all others in the meta-gradient: in disco103_a3, one is 1.1e-6 by float64 and
was -4e-8. So at the first update, and only there, the golden *value* stands in
for ours in at most five entries of thousands: the smallest of those below 1e-6.
The derivative stays ours, and without this all other entries agree as well;
see `goldens.replace_first_gradient`, `test_first_update_without_replacement`.
"""

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any

import goldens
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl import learner
from disco_rl import moments
from disco_rl import optimizers
from disco_rl import types
from disco_rl import value_targets

PUBLISHED = 'disco103_a3'
META_FILES = ('disco_small_a3', 'disco_small_a9', PUBLISHED)


def make_case(name: str, request: pytest.FixtureRequest) -> goldens.Case:
  path: pathlib.Path | None = None
  if name == PUBLISHED:
    path = request.getfixturevalue('disco103_path')
  return goldens.make_case(name, path)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> goldens.Case:
  return make_case(request.param, request)


# Value estimates.


@pytest.mark.parametrize('mode', ['jitted', 'unjitted'])
def test_value_estimates(mode: str) -> None:
  golden = goldens.Golden('value_estimates')
  estimate = lambda *args: estimate_values(golden, *args)
  if mode == 'jitted':
    estimate = jax.jit(estimate)
  q_moments = v_moments = value_targets.init_moments()
  for i in range(2):
    expected = golden.under(f'expected/{i}/')
    inputs = golden.inputs(f'inputs/{i}/')
    actual, q_moments, v_moments = estimate(inputs, q_moments, v_moments)
    assert set(actual) == set(expected)
    for key, value in expected.items():
      # Through the two-hot code.
      bound = 1e-4 if key == 'q_loss' else goldens.ONE_UPDATE
      assert goldens.deviation(actual[key], value) <= bound, (i, key)


def estimate_values(
  golden: goldens.Golden,
  inputs: dict[str, jax.Array],
  q_moments: value_targets.ValueMoments,
  v_moments: value_targets.ValueMoments,
) -> tuple[
  dict[str, jax.Array], value_targets.ValueMoments, value_targets.ValueMoments
]:
  config = {
    key: float(golden.input(f'config/{key}')) for key in ('discount', 'lambda_')
  }
  max_abs_value = float(golden.input('config/max_abs_value'))
  q_logits = inputs['q_logits']
  assert q_logits.shape[-1] == golden.input('config/num_bins')
  rollout = types.Rollout(
    observation=(),
    action=inputs['actions'],
    logits=inputs['mu_logits'],
    reward=inputs['rewards'],
    is_terminal=inputs['is_terminal'],
    mask=jnp.ones_like(inputs['is_terminal']),
  )
  pi_logits, v_net = inputs['pi_logits'], inputs['v_net'][..., 0]
  q, q_moments = value_targets.retrace(
    q_moments,
    rollout,
    pi_logits,
    q_logits,
    inputs['target_q_logits'],
    max_abs_value=max_abs_value,
    moments_decay=0.99,
    **config,
  )
  v, v_moments = value_targets.vtrace(
    v_moments,
    rollout,
    pi_logits,
    value_targets.TRANSFORM.apply_inv(v_net),
    moments_decay=0.99,
    **config,
  )
  rho = value_targets.importance_ratio(pi_logits, rollout)[:-1]
  target_value = jnp.sum(jax.nn.softmax(pi_logits) * q.target_q_value, axis=-1)
  # The goldens' own: the advantage cut at rho, on top of the target's value.
  value_target = target_value[:-1] + jnp.minimum(rho, 1.0) * q.advantage
  actual = {
    'q/value': q.value,
    'q/target_value': target_value,
    'q/rho': rho,
    'q/adv': q.advantage,
    'q/normalized_adv': q.normalized_advantage,
    'q/qv_adv': q.qv_advantage,
    'q/normalized_qv_adv': q.normalized_qv_advantage,
    'q/q_value': q.q_value,
    'q/target_q_value': q.target_q_value,
    'q/q_target': q.q_target,
    'q/q_td': q.q_td,
    'q/normalized_q_td': q.normalized_q_td,
    'q/value_target': value_target,
    'q/td': value_target - q.value[:-1],
    'v/value': v.value,
    'v/rho': rho,
    'v/adv': v.advantage,
    'v/normalized_adv': v.normalized_advantage,
    'v/value_target': v.value_target,
    'v/td': v.td,
    'v/normalized_td': v.normalized_td,
    'q_loss': value_targets.categorical_value_loss(
      jnp.take_along_axis(q_logits, rollout.action[..., None, None], axis=2)[
        :-1, :, 0
      ],
      q.q_target,
      max_abs_value,
    ),
    # 0.5 (v_net - target)^2 of a target that is v_net + normalized_td.
    'v_loss': 0.5 * jnp.square(v_net[:-1] - (v_net[:-1] + v.normalized_td)),
  }
  for name, value_moments in (('q', q_moments), ('v', v_moments)):
    for key, moment in (
      ('adv', value_moments.advantage),
      ('td', value_moments.td),
    ):
      for field, array in vars(moment).items():
        actual[f'{name}_{key}_ema/{field}'] = array
  return actual, q_moments, v_moments


# The optimiser.


@pytest.mark.parametrize('mode', ['jitted', 'unjitted', 'vmapped'])
def test_optimizer(mode: str) -> None:
  golden = goldens.Golden('adam_sg_denom')
  optimizer = optimizers.agent_optimizer(0.01)
  params: Any = golden.inputs('params/')
  lanes = mode == 'vmapped'
  if lanes:
    params = jax.tree.map(lambda x: jnp.stack([x, 2.0 * x]), params)
  init, update = optimizer.init, optimizer.update
  if lanes:
    init, update = jax.vmap(init), jax.vmap(update)
  elif mode == 'jitted':
    update = jax.jit(update)
  state = init(params)
  for i in range(4):
    gradient: Any = golden.inputs(f'grads/{i}/')
    if lanes:
      gradient = jax.tree.map(lambda x: jnp.stack([x, 1.0 - x]), gradient)
    updates, state = update(gradient, state)
    params = optax.apply_updates(params, updates)
    expected = golden.under(f'expected/{i}/')
    assert set(expected) == set(params)
    for key, value in expected.items():
      actual = params[key][0] if lanes else params[key]
      assert goldens.deviation(actual, value) <= goldens.ONE_UPDATE, (i, key)


# Sequences of updates.


def run_jitted(case: goldens.Case) -> Any:
  return run(case, jax.jit(case.step))


def run_unjitted(case: goldens.Case) -> Any:
  return run(case, case.step)


def run_vmapped(case: goldens.Case) -> Any:
  """Three lanes: the goldens on both sides of an agent with other data."""
  step = jax.jit(jax.vmap(case.step, in_axes=(None, 0, 0)))
  other = lambda rollout: dataclasses.replace(
    rollout, reward=1.0 - rollout.reward, mask=~rollout.mask
  )
  state = stack(case.state, case.state, case.state)
  lanes: list[Any] = []
  for rollout in case.rollouts:
    state, report = step(
      case.rule_params, state, stack(rollout, other(rollout), rollout)
    )
    lanes.append(report)
  first, second, third = (
    [jax.tree.map(lambda x, i=i: x[i], report) for report in lanes]
    for i in range(3)
  )
  for mine, others in zip(first, second):
    assert goldens.deviation(mine['log/total_loss'], others['log/total_loss'])
  for i, report in enumerate(third):
    goldens.assert_outcome(case.golden, i, report)
  return first


def run(case: goldens.Case, step: goldens.Step) -> list[goldens.Report]:
  state, reports = case.state, []
  for rollout in case.rollouts:
    state, report = step(case.rule_params, state, rollout)
    reports.append(report)
  return reports


def stack(*trees: Any) -> Any:
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize('case', goldens.AGENT_FILES, indirect=True)
@pytest.mark.parametrize('runner', [run_jitted, run_unjitted, run_vmapped])
def test_updates(
  case: goldens.Case, runner: Callable[[goldens.Case], list[goldens.Report]]
) -> None:
  for i, report in enumerate(runner(case)):
    goldens.assert_outcome(case.golden, i, report)


@pytest.mark.parametrize('case', goldens.AGENT_FILES, indirect=True)
def test_first_update_without_replacement(case: goldens.Case) -> None:
  """All entries but those that `replace_first_gradient` would replace."""
  replacement = case.state.opt_state[0].replacement
  is_replaced = jax.tree.map(lambda x: ~np.isnan(x), replacement)
  num_replaced = sum(np.sum(x) for x in jax.tree.leaves(is_replaced))
  assert num_replaced <= 5
  assert num_replaced < 1e-3 * sum(x.size for x in jax.tree.leaves(replacement))

  plain = goldens.ReplaceState(
    jnp.ones((), bool),
    jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), replacement),
  )
  state = dataclasses.replace(
    case.state, opt_state=(plain, *case.state.opt_state[1:])
  )
  # The same computation as `run_jitted`, which is in the cache.
  _, report = jax.jit(case.step)(case.rule_params, state, case.rollouts[0])
  for key, skip in goldens.golden_params('params', is_replaced).items():
    expected = case.golden.arrays[f'expected/0/{key}']
    actual = np.where(skip, expected, report[key])
    assert goldens.deviation(actual, expected) <= goldens.ONE_UPDATE, key


@pytest.mark.parametrize('case', goldens.AGENT_FILES, indirect=True)
def test_network_has_the_parameters_of_the_goldens(case: goldens.Case) -> None:
  params = jax.eval_shape(case.network.init, jax.random.key(0))
  shapes = lambda tree: jax.tree.map(lambda x: x.shape, tree)
  assert shapes(params) == shapes(dict(case.state.params))


# Meta-gradients.


def outer_loss(
  rule_params: types.Params,
  case: goldens.Case,
  state: learner.LearnerState,
  rollouts: types.Rollout,
  scan: Callable[..., Any] = jax.lax.scan,
) -> jax.Array:
  """Cross-entropy of the policy after all updates; rollouts are stacked."""

  def update(
    state: learner.LearnerState, rollout: types.Rollout
  ) -> tuple[learner.LearnerState, None]:
    state, _ = learner.update(
      case.network, case.rule, case.optimizer, rule_params, state, rollout
    )
    return state, None

  state, _ = scan(update, state, rollouts)
  logits = case.network.policy(
    state.params, case.validation['valid_observation']
  )
  return -jnp.mean(
    jnp.sum(
      case.validation['target_probs'] * jax.nn.log_softmax(logits), axis=-1
    )
  )


def loop(step: Callable[..., Any], carry: Any, xs: Any) -> tuple[Any, None]:
  """`jax.lax.scan`, op by op."""
  for i in range(len(jax.tree.leaves(xs)[0])):
    carry, _ = step(carry, jax.tree.map(lambda x, i=i: x[i], xs))
  return carry, None


def assert_meta_gradient(
  case: goldens.Case, loss: jax.Array, gradient: types.Params
) -> None:
  expected = case.golden.arrays['meta_gradient/loss']
  assert goldens.deviation(loss, expected) <= goldens.MORE_UPDATES
  goldens.assert_meta_gradient(case.golden, gradient)


@pytest.mark.parametrize('case', META_FILES, indirect=True)
def test_meta_gradient(case: goldens.Case) -> None:
  gradient_of = jax.jit(jax.value_and_grad(outer_loss), static_argnums=1)
  assert_meta_gradient(
    case,
    *gradient_of(case.rule_params, case, case.state, stack(*case.rollouts)),
  )


@pytest.mark.parametrize('case', ['disco_small_a9'], indirect=True)
def test_meta_gradient_unjitted(case: goldens.Case) -> None:
  gradient_of = jax.value_and_grad(outer_loss)
  assert_meta_gradient(
    case,
    *gradient_of(
      case.rule_params, case, case.state, stack(*case.rollouts), scan=loop
    ),
  )
