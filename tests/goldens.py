"""Golden vectors: numbers of the published rule, under this project's names.

A golden file is an npz archive with slash-separated keys. Every key is an input
(`Golden.input`), an expectation, or one of UNUSED; see `Golden.kind`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import pathlib
import re
from typing import Any

import haiku as hk
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax

from disco_rl import types
from disco_rl.agent import learner
from disco_rl.maths import categorical
from disco_rl.maths import moments
from disco_rl.maths import optimizers
from disco_rl.maths import value_targets
from disco_rl.networks import agent_network
from disco_rl.networks import meta_features
from disco_rl.networks import meta_network
from disco_rl.networks import torsos
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
FILES = ('value_estimates', 'adam_sg_denom', *AGENT_FILES)

# Largest absolute difference over max(1, largest expected magnitude).
ONE_UPDATE = 2e-5
MORE_UPDATES = 2e-4
# In float32, h^-1 moves in steps of 2^-23 / eps = 1.2e-4: the last bit of a
# logit moves a value by a step, and with it what is made of values.
VALUES = 5e-4
# Norm of a tensor's error over its norm; or, where terms cancel, over the
# largest norm of all tensors: the bias of pi_hat has no effect but rounding.
#
# Largest deviations of a tensor that are above CANCELLED (JAX 0.10.1, CPU);
# float32 is `quick_jit`, `jax.jit`, and the latter with fast-math:
#
#                             disco_small_a3     disco_small_a9  disco103_a3
#                          meta-RNN  all others
#   golden, float64         9.1e-5     1.7e-3        1.1e-4        8.2e-5
#   float32, float64        9.4e-5     1.3e-3        1.4e-4        1.3e-4
#   golden, float32           -        9.7e-4        3.2e-5        6.4e-5
#   float32, float32          -        3.1e-4        3.6e-5    not measured
#
# In disco_small_a3 a single entry of the first gradient, 3e-7 with a rounding
# error of 4e-8, leads the meta-gradient outside the meta-RNN, as a cold Adam
# divides by it: 1e-3 of its value moves tensors by 1.9e-3. Its value is
# replaced, its derivative has rounding errors of its own. Both the goldens and
# the numbers here are rounded: a bound is twice the distance from float64.
META_GRADIENT = 3e-4
COLD_META_GRADIENT = 3.5e-3
CANCELLED = 1e-6

EXPECTED = ('expected/', 'meta_gradient/grad', 'meta_gradient/loss')
# What the behaviour policy's network predicted; no rule looks at it.
UNUSED = re.compile(r'rollouts/\d/agent_outs/(aux_pi|q|v|y|z)')
# See VALUES; the meta-network looks at values, too.
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

_SMALL_META_NETWORK = meta_network.MetaNetworkConfig(
  prediction_size=10,
  prediction_embedding=(6, 1),
  policy_channels=(7, 2),
  policy_target_channels=(5,),
  lstm_size=12,
  meta_rnn_input_size=4,
  meta_rnn_size=8,
)

# Numbers of one update by the goldens' keys, without `expected/i/`.
Report = dict[str, jax.Array]

# Programs run for milliseconds here, and compile for half a minute.
_COMPILER_OPTIONS = {
  'xla_backend_optimization_level': 0,
  'xla_cpu_use_fusion_emitters': False,
  'xla_llvm_disable_expensive_passes': True,
}


def quick_jit(function: Callable[..., Any], **kwargs: Any) -> Any:
  """`jax.jit` without the compiler's costly optimisations."""
  return jax.jit(function, compiler_options=_known_options(), **kwargs)


@functools.cache
def _known_options() -> dict[str, Any]:
  """Those options that this version of the compiler knows."""
  known = {}
  for name, value in _COMPILER_OPTIONS.items():
    compiled = jax.jit(lambda x: x, compiler_options={name: value})
    with contextlib.suppress(jax.errors.JaxRuntimeError):
      compiled(0)
      known[name] = value
  return known


class Golden:
  """One golden file; keeps note of the inputs that it handed out."""

  def __init__(self, name: str):
    self.name = name
    with np.load(DIRECTORY / f'{name}.npz') as archive:
      self.arrays = dict(archive)
    self.read: set[str] = set()

  def input(self, key: str) -> np.ndarray:
    """The array of an input."""
    self.read.add(key)
    return self.arrays[key]

  def inputs(self, prefix: str) -> dict[str, np.ndarray]:
    """All inputs under a prefix, without it."""
    return {key: self.input(f'{prefix}{key}') for key in self.under(prefix)}

  def under(self, prefix: str) -> dict[str, np.ndarray]:
    """All arrays under a prefix, without it."""
    return {
      key.removeprefix(prefix): array
      for key, array in self.arrays.items()
      if key.startswith(prefix)
    }

  def indices(self, prefix: str) -> list[int]:
    """The numbers that follow a prefix."""
    return sorted({int(key.split('/')[0]) for key in self.under(prefix)})

  def kind(self, key: str) -> str:
    """Whether a key is unused, expected, or an input that was read."""
    if UNUSED.fullmatch(key):
      return 'unused'
    if key.startswith(EXPECTED):
      return 'expected'
    return 'input' if key in self.read else 'forgotten'


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
  """One golden file of an agent that learns.

  Attributes:
    golden: the file.
    network: the agent's.
    rule: what it learns from.
    rule_params: eta.
    optimizer: the agent's, behind `replace_first_gradient`.
    replacement: gradients that it replaces, NaN elsewhere.
    state: before the first update.
    rollouts: one per update.
    validation: of the outer loss, observations and probabilities; or ().
  """

  golden: Golden
  network: agent_network.AgentNetwork
  rule: base.UpdateRule
  rule_params: types.Params
  optimizer: optax.GradientTransformation
  replacement: types.Params
  state: learner.LearnerState
  rollouts: tuple[types.Rollout, ...]
  validation: tuple[np.ndarray, ...]

  def update(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    rollout: types.Rollout,
  ) -> tuple[learner.LearnerState, types.Logs]:
    """One update."""
    state, update = learner.update(
      self.network, self.rule, self.optimizer, rule_params, state, rollout
    )
    return state, update.logs

  def report(
    self,
    rule_params: types.Params,
    before: learner.LearnerState,
    rollout: types.Rollout,
    after: learner.LearnerState,
    logs: types.Logs,
  ) -> Report:
    """Everything that the goldens say of an update, by their keys."""
    report_rule = (
      _report_disco
      if isinstance(self.rule, disco.Disco)
      else _report_actor_critic
    )
    return {
      **report_rule(
        self.network, self.rule, rule_params, before, rollout, logs
      ),
      **_report_state(after),
      'log/global_gradient_norm': logs['gradient_norm'],
      'log/global_update_norm': logs['update_norm'],
      'log/total_loss': logs['loss'],
      'log/entropy': logs['policy_entropy'],
    }

  def step(
    self,
    rule_params: types.Params,
    state: learner.LearnerState,
    rollout: types.Rollout,
  ) -> tuple[learner.LearnerState, Report]:
    """One update, and everything that the goldens say of it."""
    after, logs = self.update(rule_params, state, rollout)
    return after, self.report(rule_params, state, rollout, after, logs)


def make_case(name: str, weights_path: pathlib.Path | None = None) -> Case:
  """Reads a golden file of an agent; disco103_a3 wants the weights' path."""
  golden = Golden(name)
  rule, rule_params = _rule(golden, weights_path)
  num_actions = int(golden.input('config/A'))
  network = agent_network.make(
    types.EnvironmentSpec(jax.ShapeDtypeStruct((6,), np.float32), num_actions),
    rule.output_spec(num_actions),
    agent_network.AgentNetworkConfig(
      torsos.TorsoConfig(hidden_sizes=(24, 16)),
      action_model_lstm=14,
      action_model_head=12,
    ),
  )
  params = _agent_params(golden.inputs('params/'))
  learning_rate = float(golden.input('config/learning_rate'))
  replacement = _first_gradient(golden, learning_rate)
  # All parameters in one array: a fraction of the operations to compile.
  optimizer = optax.flatten(
    optax.chain(
      replace_first_gradient(flatten_util.ravel_pytree(replacement)[0]),
      optimizers.agent_optimizer(learning_rate),
    )
  )
  rollouts = tuple(
    _rollout(golden, f'rollouts/{i}/') for i in golden.indices('rollouts/')
  )
  shape = (int(golden.input('config/T')), int(golden.input('config/B')))
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
    validation=tuple(
      golden.input(f'meta_gradient/{key}')
      for key in ('valid_observation', 'target_probs')
      if rule_params
    ),
  )


# Reading.


def _nest(flat: Mapping[str, np.ndarray]) -> dict[str, dict[str, jax.Array]]:
  """{'module/name': array} -> {'module': {'name': array}}."""
  nested: dict[str, dict[str, jax.Array]] = {}
  for key, array in flat.items():
    module, _, name = key.rpartition('/')
    nested.setdefault(module, {})[name] = jnp.asarray(array)
  return nested


def _modules(params: types.Params) -> Mapping[str, str]:
  """Modules of an agent that has these parameters, ours -> the goldens'."""
  return (
    _ACTOR_CRITIC_MODULES
    if len(params) == len(_ACTOR_CRITIC_MODULES)
    else _MODULES
  )


def _agent_params(flat: Mapping[str, np.ndarray]) -> types.Params:
  """Parameters of an agent from the goldens' names to ours."""
  theirs = _nest(flat)
  modules = _modules(theirs)
  assert sorted(modules.values()) == sorted(theirs)
  return {module: theirs[name] for module, name in modules.items()}


def _rule(
  golden: Golden, weights_path: pathlib.Path | None
) -> tuple[base.UpdateRule, types.Params]:
  """The rule that a file is about, and eta."""
  if golden.name == 'actor_critic_a3':
    return actor_critic.ActorCritic(), {}
  if golden.name == 'disco103_a3':
    return disco.Disco(), jax.tree.map(jnp.asarray, weights.load(weights_path))
  rule = disco.Disco(
    network=_SMALL_META_NETWORK, num_bins=21, max_abs_value=10.0
  )
  return rule, _nest(golden.inputs('eta/'))


def _rollout(golden: Golden, prefix: str) -> types.Rollout:
  """There, rewards[t] and discounts[t] arrived with observation t."""
  discounts = golden.input(f'{prefix}discounts')
  # The reward and the end before the first observation are nobody's outcome.
  return types.Rollout(
    observation=jnp.asarray(golden.input(f'{prefix}observation')),
    action=jnp.asarray(golden.input(f'{prefix}actions')),
    logits=jnp.asarray(golden.input(f'{prefix}agent_outs/logits')),
    reward=jnp.asarray(golden.input(f'{prefix}rewards')[1:]),
    is_terminal=jnp.asarray(discounts[1:] == 0),
    mask=jnp.asarray(discounts[:-1] > 0),
  )


def _rule_state(golden: Golden) -> Any:
  """The state of the rule before the first update."""
  flat = _nest(golden.inputs('init_meta_state/'))
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


@types.record
class ReplaceState:
  """State of `replace_first_gradient`.

  Attributes:
    is_first: [] bool.
    replacement: like the gradient; NaN where it is not replaced.
  """

  is_first: types.Array
  replacement: types.Params


def replace_first_gradient(
  replacement: types.Params,
) -> optax.GradientTransformation:
  """Puts values in the first gradient; its derivative stays what it is.

  Args:
    replacement: like the gradient; NaN where it is not replaced.

  Returns:
    A transformation whose state holds the replacement.
  """

  def update(
    updates: types.Params, state: ReplaceState, params: Any = None
  ) -> tuple[types.Params, ReplaceState]:
    del params

    def replace(gradient: jax.Array, value: jax.Array) -> jax.Array:
      is_kept = jnp.isnan(value) | ~state.is_first
      value = jnp.where(is_kept, gradient, value)
      return gradient + jax.lax.stop_gradient(value - gradient)

    return (
      jax.tree.map(replace, updates, state.replacement),
      ReplaceState(jnp.zeros((), bool), state.replacement),
    )

  return optax.GradientTransformation(
    lambda _: ReplaceState(jnp.ones((), bool), replacement), update
  )


def _first_gradient(
  golden: Golden, learning_rate: float, most: int = 5, bound: float = 1e-6
) -> types.Params:
  """The golden gradients that rounding decides, NaN elsewhere.

  Args:
    golden: file of an agent.
    learning_rate: of its optimiser.
    most: this many, the smallest, are kept.
    bound: of those below this bound.

  Returns:
    Gradients at the first update, read off that update's size,
    u = g / (|g| + 1e-8).
  """
  gradients = {}
  for key, before in golden.under('params/').items():
    after = golden.arrays[f'expected/0/params/{key}'].astype(np.float64)
    update = (before - after) / learning_rate
    size = np.abs(update)
    gradients[key] = 1e-8 * update / (1.0 - size.clip(max=1.0 - 1e-9))
  sizes = np.abs(np.concatenate([g.ravel() for g in gradients.values()]))
  # Zero is no rounding error: the ReLU above is off.
  smallest = np.sort(sizes[(sizes > 0) & (sizes < bound)])[:most]
  return _agent_params(
    {
      key: np.where(np.isin(np.abs(g), smallest), g, np.nan).astype(np.float32)
      for key, g in gradients.items()
    }
  )


# Reporting.


def golden_params(prefix: str, params: types.Params) -> Report:
  """Parameters of an agent by the goldens' keys."""
  modules = _modules(params)
  assert sorted(modules) == sorted(params)
  return {
    f'{prefix}/{modules[module]}/{name}': array
    for module, leaves in params.items()
    for name, array in leaves.items()
  }


def _report_state(state: learner.LearnerState) -> Report:
  """The state after an update."""
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
  network: agent_network.AgentNetwork,
  rule: disco.Disco,
  rule_params: types.Params,
  state: learner.LearnerState,
  rollout: types.Rollout,
  logs: types.Logs,
) -> Report:
  """What goes into the meta-network, what comes out, and logs."""
  unroll = lambda params: network.unroll(params, rollout)
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
  action = rollout.action[:-1, :, None, None]
  taken = lambda head: jnp.take_along_axis(
    outputs[head][:-1], action, axis=2
  ).squeeze(2)
  return {
    'meta_out/pi': targets.pi,
    'meta_out/y': targets.y,
    'meta_out/z': targets.z,
    'meta_out/q_target': targets.q,
    'meta_out/meta_input_emb': meta_outputs.embedding,
    'meta_out/adv': estimates.advantage,
    'meta_out/normalized_adv': estimates.normalized_advantage,
    'meta_out/q_td': estimates.q_td,
    'meta_out/normalized_q_td': estimates.normalized_q_td,
    'meta_out/q_value': estimates.q_value,
    'meta_out/qv_adv': estimates.qv_advantage,
    'meta_out/normalized_qv_adv': estimates.normalized_qv_advantage,
    'log/aux_kl_loss': logs['aux_pi_loss'],
    'log/pi_loss': logs['pi_loss'],
    'log/q_loss': logs['q_loss'],
    'log/pi_hat_entropy': logs['policy_target_entropy'],
    'log/td': logs['q_td'],
    'log/normalized_td': logs['normalized_q_td'],
    # Not logged here.
    'log/agent_q_mean': jnp.mean(estimates.q_value),
    'log/q_target': jnp.mean(targets.q),
    'log/pi_hat': jnp.mean(targets.pi),
    'log/y_hat': jnp.mean(targets.y),
    'log/z_hat': jnp.mean(targets.z),
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
  network: agent_network.AgentNetwork,
  rule: actor_critic.ActorCritic,
  rule_params: types.Params,
  state: learner.LearnerState,
  rollout: types.Rollout,
  logs: types.Logs,
) -> Report:
  """Value estimates, and logs."""
  outputs, _ = network.unroll(state.params, rollout)
  estimates, _ = rule.estimate(
    state.rule_state,
    rollout,
    outputs['logits'],
    value_targets.values_from_logits(outputs['v'], rule.max_abs_value),
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
    'log/avg_value': logs['value'],
    'log/raw_advs': logs['advantage'],
    # Not logged here.
    'log/pg_advs': jnp.mean(targets.advantage),
    'log/logits': jnp.mean(outputs['logits'][:-1]),
  }


# Comparing.


def deviation(actual: Any, expected: np.ndarray) -> float:
  """Largest absolute difference over max(1, largest expected magnitude)."""
  actual = np.asarray(actual)
  assert actual.shape == expected.shape, (actual.shape, expected.shape)
  difference = np.max(np.abs(actual.astype(np.float64) - expected))
  return float(difference / max(1.0, np.max(np.abs(expected))))


def tolerance(key: str, num_updates: int) -> float:
  """Bound of the deviation of `expected/i/key`, i = num_updates - 1."""
  bound = ONE_UPDATE if num_updates == 1 else MORE_UPDATES
  return max(bound, VALUES) if _OF_VALUES.fullmatch(key) else bound


def assert_outcomes(golden: Golden, actual: Sequence[Report]) -> None:
  """Compares all that the goldens say of each update."""
  for i, report in zip(golden.indices('expected/'), actual, strict=True):
    assert_outcome(golden, i, report)


def assert_outcome(golden: Golden, index: int, actual: Report) -> None:
  """Compares all that the goldens say of one update, `expected/index/...`."""
  missed = {}
  for key, value in golden.under(f'expected/{index}/').items():
    error, bound = deviation(actual[key], value), tolerance(key, index + 1)
    if not error <= bound:
      missed[key] = f'{error:.1e}, not {bound:.1e}'
  assert not missed, f'{golden.name}, update {index}: {missed}'


def meta_gradient_tolerance(name: str, tensor: str) -> float:
  """Bound of the relative error of a tensor of a file's meta-gradient."""
  is_cold = name == 'disco_small_a3' and '/meta_lstm/' not in tensor
  return COLD_META_GRADIENT if is_cold else META_GRADIENT


def assert_meta_gradient(golden: Golden, actual: types.Params) -> None:
  """Compares a meta-gradient, in full or by its excerpts."""
  expected = golden.under('meta_gradient/grad')
  largest = max(
    np.linalg.norm(value)
    for key, value in expected.items()
    if not key.startswith(('_mean', '_head'))
  )
  missed = {}

  def check(key: str, difference: Any, scale: Any) -> None:
    error, scale = np.linalg.norm(difference), np.linalg.norm(scale)
    bound = meta_gradient_tolerance(golden.name, key.partition('/')[2])
    if not error <= max(bound * scale, CANCELLED * largest):
      missed[key] = f'{error:.1e} of {scale:.1e}'

  gradient = {
    f'{module}/{name}': np.asarray(array)
    for module, leaves in actual.items()
    for name, array in leaves.items()
  }
  assert {key.partition('/')[2] for key in expected} == set(gradient)
  for key, value in expected.items():
    kind, _, tensor = key.partition('/')
    own = gradient[tensor]
    if kind == '':
      assert own.shape == value.shape
      check(key, own - value, value)
    elif kind == '_head':
      check(key, own.ravel()[:64] - value, value)
    elif kind == '_norm':
      check(key, np.linalg.norm(own) - value, value)
    else:
      assert kind == '_mean'
      # |mean(d)| <= |d| / sqrt(n)
      norm = expected[f'_norm/{tensor}']
      root = own.size**0.5
      check(key, root * (own.mean() - value), norm)
  assert not missed, f'{golden.name}: {missed}'
