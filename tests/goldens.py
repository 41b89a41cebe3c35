"""Golden vectors: numbers of the published rule, under this project's names.

A golden file is an npz archive with slash-separated keys.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
import re
from typing import Any

import haiku as hk
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.maths import categorical
from disco_rl.maths import moments
from disco_rl.maths import optimizers
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import base
from disco_rl.update_rules import disco
from disco_rl.update_rules import weights

DIRECTORY = pathlib.Path(__file__).parent / 'data'
AGENT_FILES = (
  'disco_small_a3',
  'disco_small_a9',
  'disco103_a3',
  'actor_critic_a3',
)

# The largest absolute difference over max(1, largest expected magnitude).
ONE_UPDATE = 2e-5
MORE_UPDATES = 2e-4
# In float32, h^-1 moves in steps of 2^-23 / eps = 1.2e-4: the last bit of a
# logit moves a value by one step, and so everything computed from values.
VALUES = 5e-4
# Norm of a tensor's error over its norm; or, where terms cancel, over the
# largest norm of all tensors: the bias of pi_hat has no effect but rounding.
#
# Largest deviations of a tensor that are above CANCELLED (JAX 0.10.1, CPU);
# float32 is without costly optimizations, with them, and with fast-math:
#
#                             disco_small_a3     disco_small_a9  disco103_a3
#                          meta-RNN  all others
#   golden, float64         9.1e-5     1.7e-3        1.1e-4        8.2e-5
#   float32, float64        9.4e-5     1.3e-3        1.4e-4        1.3e-4
#   golden, float32           -        9.7e-4        3.2e-5        6.4e-5
#   float32, float32          -        3.1e-4        3.6e-5    not measured
#
# In disco_small_a3 a single entry of the first gradient, 3e-7 with a rounding
# error of 4e-8, dominates the meta-gradient outside the meta-RNN: a cold Adam
# divides by it, so 1e-3 of its value moves tensors by 1.9e-3. Its value is
# replaced, but its derivative has its own rounding errors. Both the goldens and
# the numbers here are rounded: a bound is twice the distance from float64.
META_GRADIENT = 3e-4
COLD_META_GRADIENT = 3.5e-3
CANCELLED = 1e-6

# See VALUES; values are also features of the meta-network.
_OF_VALUES = re.compile(
  r'meta_out/.*|meta_state/(adv|td)_ema_state/moment\d'
  r'|log/(agent_q_mean|q_target|(normalized_)?td|avg_value|(pg|raw)_advs'
  r'|total_loss)'
)

# Modules of the agent's parameters: ours -> the goldens'.
_MODULES = {
  'agent/~/torso/mlp/~/linear_0': 'mlp/~_embedding_pass/torso/~/linear_0',
  'agent/~/torso/mlp/~/linear_1': 'mlp/~_embedding_pass/torso/~/linear_1',
  'agent/~/logits': 'mlp/~_head_pass/torso_head/~/linear_0',
  'agent/~/y': 'mlp/~_head_pass/torso_head_1/~/linear_0',
  'agent/~/action_model/root': 'mlp/linear',
  'agent/~/action_model/lstm/linear': 'mlp/action_cond/linear',
  'agent/~/action_model/z/~/linear_0': 'mlp/mlp/~/linear_0',
  'agent/~/action_model/z/~/linear_1': 'mlp/mlp/~/linear_1',
  'agent/~/action_model/aux_pi/~/linear_0': 'mlp/mlp_1/~/linear_0',
  'agent/~/action_model/aux_pi/~/linear_1': 'mlp/mlp_1/~/linear_1',
  'agent/~/action_model/q/~/linear_0': 'mlp/mlp_2/~/linear_0',
  'agent/~/action_model/q/~/linear_1': 'mlp/mlp_2/~/linear_1',
}
_ACTOR_CRITIC_MODULES = {
  **{ours: _MODULES[ours] for ours in list(_MODULES)[:3]},
  'agent/~/v': _MODULES['agent/~/y'],
}
_MOMENTS = {'advantage': 'adv_ema_state', 'td': 'td_ema_state'}
_META_RNN = 'rnn_state/lstm/meta_rnn_state'

# Numbers of one update by the goldens' keys, without `expected/i/`.
Report = dict[str, jax.Array]


class Golden:
  """One golden file.

  Attributes:
    name: The name of the file.
    arrays: Key -> array.
    read: The keys that were read so far.
  """

  def __init__(self, name: str):
    self.name = name
    with np.load(DIRECTORY / f'{name}.npz') as archive:
      self.arrays = dict(archive)
    self.read: set[str] = set()

  def __getitem__(self, key: str) -> np.ndarray:
    self.read.add(key)
    return self.arrays[key]

  def under(self, prefix: str) -> dict[str, np.ndarray]:
    """Returns all arrays under a prefix, which is removed from their keys."""
    return {
      key.removeprefix(prefix): self[key]
      for key in self.arrays
      if key.startswith(prefix)
    }

  def sequence(self, prefix: str) -> list[dict[str, np.ndarray]]:
    """Returns the arrays under `prefix/0/`, `prefix/1/` and so on."""
    numbers = {int(key.split('/')[0]) for key in self.under(f'{prefix}/')}
    return [self.under(f'{prefix}/{i}/') for i in sorted(numbers)]


@types.record
class Rollout(types.Rollout):
  """A rollout of the goldens, whose transitions are all real.

  Attributes:
    loss_mask: [T, B] bool, False for the first transition of an episode, which
      the published code leaves out of losses only.
  """

  loss_mask: Any = None


class _LossMask(base.UpdateRule):
  """A rule whose loss, averaged over all steps, is that of the goldens."""

  def loss(
    self, taken: types.Outputs, targets: Any, rollout: types.Rollout
  ) -> tuple[types.Array, types.Logs]:
    """Computes the loss of the rule, with weights whose mean is 1."""
    assert isinstance(rollout, Rollout)
    loss, logs = super().loss(taken, targets, rollout)
    return loss * rollout.loss_mask / jnp.mean(rollout.loss_mask), logs


class _Disco(_LossMask, disco.Disco):
  pass


class _ActorCritic(_LossMask, actor_critic.ActorCritic):
  pass


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """The agent of a golden file, and its data.

  Attributes:
    golden: The file.
    network: The agent's network.
    rule: The update rule of the agent.
    rule_params: eta.
    optimizer: The agent's optimizer, after `replace_first_gradient`.
    replacement: The gradients that replace others, NaN elsewhere.
    state: The state before the first update.
    rollouts: One rollout per update.
  """

  golden: Golden
  network: agent_network.AgentNetwork
  rule: base.UpdateRule
  rule_params: types.Params
  optimizer: optax.GradientTransformation
  replacement: types.Params
  state: learner.LearnerState
  rollouts: tuple[types.Rollout, ...]

  def step(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    rollout: types.Rollout,
  ) -> tuple[learner.LearnerState, Report]:
    """Makes one update; returns the state, and a report without gradients."""
    after, update = learner.update(
      self.network, self.rule, self.optimizer, rule_params, state, rollout
    )
    report_rule = (
      _report_disco
      if isinstance(self.rule, disco.Disco)
      else _report_actor_critic
    )
    logs = update.logs
    report = {
      **report_rule(
        self, *jax.lax.stop_gradient((rule_params, state, rollout, logs))
      ),
      **_report_state(after),
      'log/global_gradient_norm': logs['gradient_norm'],
      'log/global_update_norm': logs['update_norm'],
      'log/total_loss': logs['loss'],
      'log/entropy': logs['policy_entropy'],
    }
    return after, jax.lax.stop_gradient(report)

  def outer_loss(self, params: types.Params) -> jax.Array:
    """Computes the golden outer loss, the cross-entropy of the policy."""
    observation = self.golden['meta_gradient/valid_observation']
    probabilities = self.golden['meta_gradient/target_probs']
    logits, *_ = self.network.step(params, observation, ())
    terms = probabilities * jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.sum(terms, axis=-1))


def make_case(name: str, request: pytest.FixtureRequest) -> Case:
  """Reads a golden file of an agent; skips the test if disco103 is missing.

  Args:
    name: One of AGENT_FILES.
    request: The request of the test, for the path of the published weights.

  Returns:
    The agent and its data.
  """
  golden = Golden(name)
  rule, rule_params = _make_rule(golden, request)
  num_actions = int(golden['config/A'])
  network = small.network(
    types.EnvironmentSpec(jax.ShapeDtypeStruct((6,), np.float32), num_actions),
    rule.output_spec(num_actions),
    hidden_sizes=(24, 16),
    action_model_lstm=14,
    action_model_head=12,
  )
  params = _agent_params(golden.under('params/'))
  learning_rate = float(golden['config/learning_rate'])
  replacement = _first_gradient(golden, learning_rate)
  # One array of all parameters needs a fraction of the operations.
  optimizer = optax.flatten(
    optax.chain(
      replace_first_gradient(flatten_util.ravel_pytree(replacement)[0]),
      optimizers.agent_optimizer(learning_rate),
    )
  )
  rollouts = tuple(map(_rollout, golden.sequence('rollouts')))
  shape = (int(golden['config/T']), int(golden['config/B']))
  assert all(rollout.reward.shape == shape for rollout in rollouts)
  return Case(
    golden=golden,
    network=network,
    rule=rule,
    rule_params=rule_params,
    optimizer=optimizer,
    replacement=replacement,
    state=learner.LearnerState(
      params=params,
      opt_state=optimizer.init(params),
      rule_state=_rule_state(golden),
    ),
    rollouts=rollouts,
  )


# Reading.


def _nest(flat: Mapping[str, np.ndarray]) -> dict[str, dict[str, jax.Array]]:
  return jax.tree.map(jnp.asarray, small.nest(flat))


def _modules(params: types.Params) -> Mapping[str, str]:
  """Returns the modules of an agent's parameters, ours -> the goldens'."""
  return (
    _ACTOR_CRITIC_MODULES
    if len(params) == len(_ACTOR_CRITIC_MODULES)
    else _MODULES
  )


def _agent_params(flat: Mapping[str, np.ndarray]) -> types.Params:
  """Renames an agent's parameters from the goldens' names to ours."""
  theirs = _nest(flat)
  modules = _modules(theirs)
  assert sorted(modules.values()) == sorted(theirs)
  return {module: theirs[name] for module, name in modules.items()}


def _make_rule(
  golden: Golden, request: pytest.FixtureRequest
) -> tuple[base.UpdateRule, types.Params]:
  """Returns the rule of a golden file, and its parameters."""
  if golden.name == 'actor_critic_a3':
    # The published code's cost; small tasks are learned with less.
    return _ActorCritic(entropy_cost=0.2), {}
  if golden.name == 'disco103_a3':
    path = request.getfixturevalue('disco103_path')
    return _Disco(), jax.tree.map(jnp.asarray, weights.load(path))
  rule = _Disco(network=small.META_NETWORK, num_bins=21, max_abs_value=10.0)
  return rule, _nest(golden.under('eta/'))


def _rollout(arrays: Mapping[str, np.ndarray]) -> Rollout:
  """Converts a golden rollout.

  There, rewards[t] and discounts[t] arrive with observation t.
  """
  discounts = arrays['discounts']
  # The reward and the end before the first observation belong to no action.
  return Rollout(
    observation=jnp.asarray(arrays['observation']),
    action=jnp.asarray(arrays['actions']),
    logits=jnp.asarray(arrays['agent_outs/logits']),
    reward=jnp.asarray(arrays['rewards'][1:]),
    is_terminal=jnp.asarray(discounts[1:] == 0),
    mask=jnp.ones(discounts[1:].shape, bool),
    loss_mask=jnp.asarray(discounts[:-1] > 0),
  )


def _rule_state(golden: Golden) -> Any:
  """Returns the state of the rule before the first update."""
  flat = _nest(golden.under('init_meta_state/'))
  value_moments = value_targets.ValueMoments(
    **{
      ours: moments.Moments(**flat[theirs]) for ours, theirs in _MOMENTS.items()
    }
  )
  if _META_RNN not in flat:
    return value_moments
  return disco.DiscoState(
    meta_rnn=hk.LSTMState(**flat[_META_RNN]),
    target_params=_agent_params(golden.under('init_meta_state/target_params/')),
    moments=value_moments,
  )


# The first update of a cold Adam.


def replace_first_gradient(
  replacement: jax.Array,
) -> optax.GradientTransformation:
  """Replaces values of the first gradient, but not their derivatives.

  Args:
    replacement: An array like the gradient; NaN where it is not replaced.

  Returns:
    A transformation; its state is the next replacement.
  """

  def update(
    gradient: jax.Array, state: jax.Array, params: Any = None
  ) -> tuple[jax.Array, jax.Array]:
    del params
    value = jnp.where(jnp.isnan(state), gradient, state)
    replaced = gradient + jax.lax.stop_gradient(value - gradient)
    return replaced, jnp.full_like(state, jnp.nan)

  return optax.GradientTransformation(lambda _: replacement, update)


def _first_gradient(golden: Golden, learning_rate: float) -> types.Params:
  """Returns the five smallest golden gradients below 1e-6, NaN elsewhere.

  Their signs and sizes are rounding errors. Gradients g of the first update are
  derived from the update u = g / (|g| + 1e-8).
  """
  gradients = {}
  for key, before in golden.under('params/').items():
    after = golden.arrays[f'expected/0/params/{key}'].astype(np.float64)
    update = (before - after) / learning_rate
    size = np.abs(update)
    gradients[key] = 1e-8 * update / (1.0 - size.clip(max=1.0 - 1e-9))
  sizes = np.abs(np.concatenate([g.ravel() for g in gradients.values()]))
  # Zero is not a rounding error: the ReLU above is off.
  smallest = np.sort(sizes[(sizes > 0) & (sizes < 1e-6)])[:5]
  return _agent_params(
    {
      key: np.where(np.isin(np.abs(g), smallest), g, np.nan).astype(np.float32)
      for key, g in gradients.items()
    }
  )


# Reporting.


def golden_params(prefix: str, params: types.Params) -> Report:
  """Returns an agent's parameters by the goldens' keys."""
  modules = _modules(params)
  assert sorted(modules) == sorted(params)
  return {
    f'{prefix}/{modules[module]}/{name}': array
    for module, leaves in params.items()
    for name, array in leaves.items()
  }


def _report_state(state: learner.LearnerState) -> Report:
  """Reports the state after an update."""
  report = golden_params('params', state.params)
  value_moments = state.rule_state
  if isinstance(state.rule_state, disco.DiscoState):
    value_moments = state.rule_state.moments
    report |= golden_params('target_params', state.rule_state.target_params)
    for name, array in state.rule_state.meta_rnn._asdict().items():
      report[f'meta_state/{_META_RNN}/{name}'] = array
  for ours, theirs in _MOMENTS.items():
    for name, array in vars(getattr(value_moments, ours)).items():
      report[f'meta_state/{theirs}/{name}'] = array
  return report


def _report_disco(
  case: Any,
  rule_params: types.Params,
  state: learner.LearnerState,
  rollout: types.Rollout,
  logs: types.Logs,
) -> Report:
  """Reports the inputs and outputs of the meta-network, and logs."""
  rule = case.rule
  unroll = lambda params: case.network.unroll(params, rollout)
  outputs, _ = unroll(state.params)
  target_outputs, _ = unroll(state.rule_state.target_params)
  estimates, _ = value_targets.retrace(
    state.rule_state.moments,
    rollout,
    outputs['logits'],
    outputs['q'],
    target_outputs['q'],
    discount=rule.discount,
    lambda_=rule.lambda_,
    max_abs_value=rule.max_abs_value,
    moments_decay=rule.moments_decay,
  )
  meta_outputs, _ = meta_network.transform(rule.network).apply(
    rule_params,
    meta_features.MetaInputs(
      rollout=rollout,
      outputs=outputs,
      target_outputs=target_outputs,
      estimates=estimates,
    ),
    state.rule_state.meta_rnn,
  )
  targets, _, _ = rule.targets(
    rule_params,
    state.rule_state,
    state.params,
    rollout,
    outputs,
    lambda params: unroll(params)[0],
  )
  return {
    'meta_out/pi': targets.pi,
    'meta_out/y': targets.y,
    'meta_out/z': targets.z,
    'meta_out/q_target': targets.q,
    'meta_out/meta_input_emb': meta_outputs.embedding,
    **_report_estimates(estimates),
    'log/aux_kl_loss': logs['aux_pi_loss'],
    'log/pi_loss': logs['pi_loss'],
    'log/q_loss': logs['q_loss'],
    'log/pi_hat_entropy': logs['policy_target_entropy'],
    'log/td': logs['q_td'],
    'log/normalized_td': logs['normalized_q_td'],
    # Not logged here.
    'log/q_target': jnp.mean(targets.q),
    **{f'log/{x}_hat': jnp.mean(getattr(targets, x)) for x in ('pi', 'y', 'z')},
    **_report_outputs(rollout, outputs),
  }


def _report_estimates(estimates: value_targets.RetraceEstimates) -> Report:
  """Reports inputs of the meta-network."""
  return {
    'meta_out/adv': estimates.advantage,
    'meta_out/normalized_adv': estimates.normalized_advantage,
    'meta_out/q_td': estimates.q_td,
    'meta_out/normalized_q_td': estimates.normalized_q_td,
    'meta_out/q_value': estimates.q_value,
    'meta_out/qv_adv': estimates.qv_advantage,
    'meta_out/normalized_qv_adv': estimates.normalized_qv_advantage,
    'log/agent_q_mean': jnp.mean(estimates.q_value),
  }


def _report_outputs(rollout: types.Rollout, outputs: types.Outputs) -> Report:
  """Reports means of the agent's outputs, and of their entropies."""
  action = rollout.action[:-1, :, None, None]
  taken = lambda head: jnp.take_along_axis(
    outputs[head][:-1], action, axis=2
  ).squeeze(2)
  return {
    'log/logits': jnp.mean(outputs['logits'][:-1]),
    'log/y': jnp.mean(outputs['y'][:-1]),
    'log/z': jnp.mean(outputs['z'][:-1]),
    'log/y_entropy': jnp.mean(categorical.entropy(outputs['y'][:-1])),
    'log/z_entropy': jnp.mean(categorical.entropy(taken('z'))),
    'log/aux_policy_entropy': jnp.mean(categorical.entropy(taken('aux_pi'))),
    'log/aux_target_entropy': jnp.mean(
      categorical.entropy(outputs['logits'][1:])
    ),
  }


def _report_actor_critic(
  case: Any,
  rule_params: types.Params,
  state: learner.LearnerState,
  rollout: types.Rollout,
  logs: types.Logs,
) -> Report:
  """Reports value estimates, and logs."""
  rule = case.rule
  outputs, _ = case.network.unroll(state.params, rollout)
  estimates, _ = rule.estimate(
    state.rule_state,
    rollout,
    outputs['logits'],
    value_targets.values_from_logits(outputs['v'], rule.max_abs_value),
    rule.moments_decay,
  )
  targets, _, _ = rule.targets(
    rule_params, state.rule_state, state.params, rollout, outputs, None
  )
  return {
    'meta_out/raw_advs': estimates.advantage,
    'meta_out/normalized_advs': estimates.normalized_advantage,
    'meta_out/tds': estimates.td,
    'meta_out/normalized_tds': estimates.normalized_td,
    'meta_out/value_target': targets.value,
    'meta_out/values': estimates.value,
    # Logged without the value after the last step.
    'log/avg_value': jnp.mean(estimates.value),
    'log/raw_advs': logs['advantage'],
    # Not logged here.
    'log/pg_advs': jnp.mean(targets.advantage),
    'log/logits': jnp.mean(outputs['logits'][:-1]),
  }


# Comparing.


def deviation(actual: Any, expected: np.ndarray) -> float:
  """Returns the largest difference over max(1, largest expected magnitude)."""
  actual = np.asarray(actual)
  assert actual.shape == expected.shape, (actual.shape, expected.shape)
  difference = np.max(np.abs(actual.astype(np.float64) - expected))
  return float(difference / max(1.0, np.max(np.abs(expected))))


def assert_outcomes(golden: Golden, actual: Sequence[Report]) -> None:
  """Compares all golden numbers of the first updates."""
  expected = golden.sequence('expected')
  missed = {}
  for i, report in enumerate(actual):
    for key, value in expected[i].items():
      bound = MORE_UPDATES if i else ONE_UPDATE
      if _OF_VALUES.fullmatch(key):
        bound = max(bound, VALUES)
      error = deviation(report[key], value)
      if not error <= bound:
        missed[i, key] = f'{error:.1e}, not {bound:.1e}'
  assert not missed, f'{golden.name}: {missed}'


def assert_meta_gradient(
  golden: Golden, loss: jax.Array, gradient: types.Params
) -> None:
  """Compares the outer loss and its gradient, in full or by its excerpts."""
  assert deviation(loss, golden['meta_gradient/loss']) <= MORE_UPDATES
  expected = golden.under('meta_gradient/grad')
  largest = max(
    np.linalg.norm(value)
    for key, value in expected.items()
    if not key.startswith(('_mean', '_head'))
  )
  tensors = {
    f'{module}/{name}': np.asarray(array)
    for module, leaves in gradient.items()
    for name, array in leaves.items()
  }
  assert {key.partition('/')[2] for key in expected} == set(tensors)
  missed = {}
  for key, value in expected.items():
    kind, _, name = key.partition('/')
    scale, tensor = value, tensors[name]
    match kind:
      case '':
        actual = tensor
      case '_head':
        actual = tensor.ravel()[:64]
      case '_norm':
        actual = np.linalg.norm(tensor)
      case '_mean':  # |mean(d)| <= |d| / sqrt(n)
        root = tensor.size**0.5
        actual, value = root * tensor.mean(), root * value
        scale = expected[f'_norm/{name}']
    assert actual.shape == value.shape
    is_cold = golden.name == 'disco_small_a3' and '/meta_lstm/' not in name
    bound = COLD_META_GRADIENT if is_cold else META_GRADIENT
    error, size = np.linalg.norm(actual - value), np.linalg.norm(scale)
    if not error <= max(bound * size, CANCELLED * largest):
      missed[key] = f'{error:.1e} of {size:.1e}'
  assert not missed, f'{golden.name}: {missed}'
