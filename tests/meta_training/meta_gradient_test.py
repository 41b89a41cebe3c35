"""The meta-gradient: golden values, equal modes, finite differences."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import sys
from typing import Any

import goldens
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import small

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.maths import optimizers
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import outer_loss
from disco_rl.networks import agent_network
from disco_rl.networks import lstm
from disco_rl.update_rules import disco

NO_REGULARIZERS = outer_loss.OuterLossConfig(0.0, 0.0, 0.0, 0.0, 0.0)


def stack(*trees: Any) -> Any:
  return jax.tree.map(lambda *x: jnp.stack(x), *trees)


# Golden values.


@pytest.fixture
def case(request: pytest.FixtureRequest) -> goldens.Case:
  return goldens.make_case(request.param, request)


def make_inner_loop(
  config: inner_loop_lib.InnerLoopConfig,
  spec: types.EnvironmentSpec,
  batch_size: int,
  **fields: Any,
) -> inner_loop_lib.InnerLoop:
  """Inner loop of such an agent, in as many environments as trajectories."""
  agent = agent_lib.Agent(
    config=agent_lib.AgentConfig(
      batch_size=batch_size,
      num_environments=batch_size,
      replay_capacity=batch_size,
    ),
    environment_spec=spec,
    **fields,
  )
  value = meta_value.MetaValue(
    meta_value.MetaValueConfig(hidden_sizes=(4,)), spec
  )
  return inner_loop_lib.InnerLoop(config, agent, value)


def estimator_of(
  inner_loop: inner_loop_lib.InnerLoop,
  loss: outer_loss.OuterLossConfig,
  mode: str = 'mixed',
) -> meta_gradient.MetaGradient:
  return meta_gradient.MetaGradient(
    inner_problem.AgentProblem(inner_loop, loss),
    meta_gradient.Differentiation(mode),
  )


# The other modes are compared with each other below.
@pytest.mark.parametrize(
  'mode',
  [
    mode if mode == 'mixed' else pytest.param(mode, marks=pytest.mark.slow)
    for mode in meta_gradient.MODES
  ],
)
@pytest.mark.parametrize(
  'case',
  [
    'disco_small_a3',
    pytest.param('disco_small_a9', marks=pytest.mark.slow),
    pytest.param('disco103_a3', marks=pytest.mark.slow),
  ],
  indirect=True,
)
def test_golden_meta_gradient(case: goldens.Case, mode: str) -> None:
  num_updates = len(case.rollouts)
  save_every = num_updates if mode == 'plain' else 1
  inner_loop = make_inner_loop(
    inner_loop_lib.InnerLoopConfig(num_updates, 8, save_every),
    types.EnvironmentSpec(
      jax.ShapeDtypeStruct((6,), jnp.float32), int(case.golden['config/A'])
    ),
    batch_size=8,
    rule=case.rule,
    network=case.network,
    optimizer=case.optimizer,
  )
  estimator = estimator_of(inner_loop, NO_REGULARIZERS, mode)

  @jax.jit
  def run(
    rule_params: types.Params, state: learner.LearnerState, rollouts: Any
  ) -> tuple[jax.Array, types.Params]:
    def one(state: learner.LearnerState, rollout: types.Rollout) -> Any:
      after, update = learner.update(
        case.network, case.rule, case.optimizer, rule_params, state, rollout
      )
      return after, (state, update.gradient)

    last, (states, gradients) = jax.lax.scan(one, state, rollouts)
    trajectory = inner_loop.split_into_segments(
      inner_loop_lib.Trajectory(states, rollouts, gradients)
    )
    loss, cotangent = jax.value_and_grad(case.outer_loss)(last.params)
    gradient, _ = estimator.sweep(
      rule_params,
      trajectory,
      meta_gradient.initial_cotangents(rule_params, last, cotangent),
    )
    return loss, gradient

  loss, gradient = run(case.rule_params, case.state, stack(*case.rollouts))
  goldens.assert_meta_gradient(case.golden, loss, gradient)


# In float64, on an agent small enough for it.

T, B, A, CORE = 4, 3, 3, 4
NUM_UPDATES = 4
ADAM = optimizers.agent_optimizer(0.02)
SPEC = types.EnvironmentSpec(jax.ShapeDtypeStruct((3,), jnp.float32), A)
RULE = disco.Disco(small.META_NETWORK, num_bins=9, max_abs_value=3.0)
ALL_REGULARIZERS = outer_loss.OuterLossConfig(0.3, 0.2, 0.4, 0.5, 0.1)


@pytest.fixture
def double() -> Iterator[None]:
  """Rounding decides nothing here."""
  with jax.enable_x64(True):
    yield


def to_double(tree: Any) -> Any:
  return jax.tree.map(
    lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, tree
  )


def small_inner_loop(
  config: inner_loop_lib.InnerLoopConfig,
  optimizer: optax.GradientTransformation,
  compute_dtype: str = 'float32',
) -> inner_loop_lib.InnerLoop:
  """Inner loop of an agent with a recurrent core; golden agents have none."""
  network = small.network(
    SPEC,
    RULE.output_spec(A),
    hidden_sizes=(6,),
    core_lstm=CORE,
    action_model_lstm=4,
    action_model_head=5,
    compute_dtype=compute_dtype,
  )
  # All parameters in one array: fewer operations to compile.
  flat = optax.flatten(optimizer)
  return make_inner_loop(
    config, SPEC, B, rule=RULE, network=network, optimizer=flat
  )


def random_rollout(rng: np.random.Generator) -> types.Rollout:
  """With ends of episodes, and steps that must not be learned from."""
  is_terminal, mask = np.zeros((T, B), bool), np.ones((T, B), bool)
  is_terminal[rng.integers(T - 1), 0] = True
  mask[rng.integers(T), 1] = False
  return types.Rollout(
    observation=rng.normal(size=(T + 1, B, 3)).astype(np.float32),
    action=rng.integers(A, size=(T + 1, B), dtype=np.int32),
    logits=rng.normal(size=(T + 1, B, A)),
    reward=rng.normal(size=(T, B)),
    is_terminal=is_terminal,
    mask=mask,
    core_state=jax.tree.map(
      lambda x: rng.normal(size=(1, *x.shape)), lstm.zero_state(B, CORE)
    ),
  )


def random_rollouts(rng: np.random.Generator) -> list[types.Rollout]:
  return [random_rollout(rng) for _ in range(NUM_UPDATES)]


@functools.cache
def members() -> dict[str, Any]:
  """By age: eta, a member after N updates, the updates, its validation."""
  inner_loop = small_inner_loop(inner_loop_lib.InnerLoopConfig(), ADAM)

  @jax.jit
  def init(key: jax.Array) -> Any:
    learning = inner_loop_lib.Learning(
      learner=inner_loop.agent.init_learner(jax.random.split(key)[0]),
      meta_value=inner_loop.meta_value.init(key),
    )
    return to_double((RULE.init_params(key), learning))

  @jax.jit
  def run(
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    rollouts: types.Rollout,
  ) -> tuple[inner_loop_lib.Member, inner_loop_lib.Trajectory]:
    def update(member: inner_loop_lib.Member, batch: types.Rollout) -> Any:
      return inner_loop.learn(rule_params, member, batch)[:2]

    return jax.lax.scan(update, member, rollouts)

  rule_params, member = init(jax.random.key(0))
  rng = np.random.default_rng(1)
  cases = {}
  for age in ('initial', 'old'):
    member, updates = run(rule_params, member, stack(*random_rollouts(rng)))
    cases[age] = rule_params, member, updates, random_rollout(rng)
  return cases


def differentiate(
  estimator: meta_gradient.MetaGradient,
) -> Callable[..., types.Params]:
  """A program: (eta, member, its updates, validation) -> the gradient."""
  assert isinstance(estimator.problem, inner_problem.AgentProblem)
  inner_loop = estimator.problem.inner_loop

  @jax.jit
  def run(
    rule_params: types.Params,
    member: inner_loop_lib.Member,
    updates: inner_loop_lib.Trajectory,
    validation: types.Rollout,
  ) -> types.Params:
    if estimator.settings.mode != 'mixed':
      updates = dataclasses.replace(updates, gradients=None)
    trajectory = inner_loop.to_host(inner_loop.split_into_segments(updates))
    gradient, _, _ = estimator.differentiate(
      rule_params, member, trajectory, validation
    )
    return gradient

  return run


# Equal modes.


def in_mode(
  mode: str, save_every: int, offload: bool = False
) -> meta_gradient.MetaGradient:
  config = inner_loop_lib.InnerLoopConfig(NUM_UPDATES, B, save_every, offload)
  inner_loop = small_inner_loop(config, ADAM)
  return estimator_of(inner_loop, ALL_REGULARIZERS, mode)


@functools.cache
def expected_gradients() -> dict[str, types.Params]:
  """By age, without recomputation."""
  gradient_of = differentiate(in_mode('plain', NUM_UPDATES))
  return {age: gradient_of(*case) for age, case in members().items()}


# `test_golden_meta_gradient` compares mixed mode with golden values.
@pytest.mark.slow
@pytest.mark.parametrize(
  ('mode', 'save_every', 'offload'),
  [('plain', 1, False), ('mixed', 1, False), ('mixed', 2, True)],
)
def test_modes_are_equal(
  double: None, mode: str, save_every: int, offload: bool
) -> None:
  """Also for an initial agent, whose Adam amplifies rounding in float32."""
  gradient_of = differentiate(in_mode(mode, save_every, offload))
  for age, expected in expected_gradients().items():
    assert_close(gradient_of(*members()[age]), expected, 1e-9)


@pytest.mark.slow
def test_half_precision_changes_the_gradient_little() -> None:
  """In bfloat16, whose rounding is 0.4%, against float64."""
  with jax.enable_x64(True):
    expected = expected_gradients()['old']
    case = jax.tree.map(
      lambda x: x.astype(np.float32) if x.dtype == np.float64 else x,
      members()['old'],
    )
  estimator = estimator_of(
    small_inner_loop(
      inner_loop_lib.InnerLoopConfig(NUM_UPDATES, B), ADAM, 'bfloat16'
    ),
    ALL_REGULARIZERS,
  )
  actual, expected = (
    np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
    for tree in (differentiate(estimator)(*case), expected)
  )
  error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
  assert 1e-4 < error < 0.1


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
  """Each tensor's error by its norm; 1e-6 of the largest counts as nil."""
  norms = jax.tree.map(np.linalg.norm, expected)
  largest = max(jax.tree.leaves(norms))
  missed = {}
  for module, leaves in expected.items():
    for name, value in leaves.items():
      assert value.dtype == jnp.float64
      scale = max(norms[module][name], 1e-6 * largest)
      error = np.linalg.norm(actual[module][name] - value) / scale
      if not error <= tolerance:
        missed[f'{module}/{name}'] = error
  assert not missed


# Finite differences.


def hold_constants(
  patch: pytest.MonkeyPatch, held: list[Any] | None
) -> list[Any]:
  """Holds the arguments of `stop_gradient` at given values.

  Args:
    patch: The fixture that replaces `jax.lax.stop_gradient`.
    held: The values in the order of the calls; None: those that are passed in.

  Returns:
    The values passed in, once the calls are made.
  """
  stop, seen = jax.lax.stop_gradient, []

  def constant(x: Any) -> Any:
    # JAX's own, in the softmax, change no numbers.
    if not sys._getframe(1).f_globals['__name__'].startswith('disco_rl'):
      return stop(x)
    seen.append(stop(x))
    return seen[-1] if held is None else held[len(seen) - 1]

  patch.setattr(jax.lax, 'stop_gradient', constant)
  return seen


def validation_loss_of(
  network: agent_network.AgentNetwork,
  validation: types.Rollout,
  advantage: np.ndarray,
) -> Callable[[types.Params], jax.Array]:
  """The outer loss of an agent's parameters."""

  def loss(params: types.Params) -> jax.Array:
    _, taken = network.unroll(params, validation)
    return outer_loss.validation_loss(
      ALL_REGULARIZERS, taken, validation, advantage
    )[0]

  return loss


def central_difference(
  loss: Callable[[types.Params], jax.Array],
  params: types.Params,
  direction: types.Params,
) -> float:
  """The slope of a loss along a direction."""
  size = 1e-5
  moved = jax.jit(optax.tree.add_scale)
  more, less = (
    loss(moved(params, sign * size, direction)) for sign in (1.0, -1.0)
  )
  return float(more - less) / (2.0 * size)


def sweep(
  inner_loop: inner_loop_lib.InnerLoop,
  rule_params: types.Params,
  states: Any,
  batches: Any,
  gradients: Any,
  validation_loss: Callable[[types.Params], jax.Array],
) -> types.Params:
  """The gradient of the outer loss by the backward sweep."""
  estimator = estimator_of(inner_loop, ALL_REGULARIZERS)

  @jax.jit
  def run(rule_params: types.Params, states: Any, gradients: Any) -> Any:
    trajectory = inner_loop.split_into_segments(
      inner_loop_lib.Trajectory(
        stack(*states[:-1]), stack(*batches), stack(*gradients)
      )
    )
    cotangents = meta_gradient.initial_cotangents(
      rule_params, states[-1], jax.grad(validation_loss)(states[-1].params)
    )
    return estimator.sweep(rule_params, trajectory, cotangents)[0]

  return run(rule_params, states, gradients)


@pytest.mark.parametrize(
  ('num_updates', 'optimizer'),
  [(1, optax.sgd(0.5)), (2, ADAM)],
  ids=['one_update_by_sgd', 'two_by_adam'],
)
@pytest.mark.slow
def test_finite_differences(
  double: None,
  monkeypatch: pytest.MonkeyPatch,
  num_updates: int,
  optimizer: optax.GradientTransformation,
) -> None:
  """The whole outer loss, along two directions of eta.

  Within one update by SGD no argument of `stop_gradient` depends on eta; within
  two by Adam many do: they are held at their values for the unperturbed rule.
  """
  inner_loop = small_inner_loop(
    inner_loop_lib.InnerLoopConfig(num_updates, B), optimizer
  )
  agent = inner_loop.agent
  rule_params, member, _, validation = members()['old']
  first = member.learner
  if num_updates == 1:
    first = dataclasses.replace(
      first, opt_state=agent.optimizer.init(first.params)
    )
  rng = np.random.default_rng(2)
  batches = [random_rollout(rng) for _ in range(num_updates)]
  validation_loss = validation_loss_of(
    agent.network, validation, rng.normal(size=(T, B))
  )

  @jax.jit
  def total_loss(
    rule_params: types.Params, held: list[Any] | None = None
  ) -> tuple[jax.Array, Any]:
    with monkeypatch.context() as patch:
      seen = hold_constants(patch, held)
      states, gradients, total = [first], [], 0.0
      for batch in batches:
        state, update = learner.update(
          agent.network, RULE, agent.optimizer, rule_params, states[-1], batch
        )
        states.append(state)
        gradients.append(update.gradient)
        total += outer_loss.target_regularizer(
          ALL_REGULARIZERS, update.targets, batch
        )[0]
      loss = validation_loss(states[-1].params)
    return loss + total / num_updates, (seen, states, gradients)

  _, (held, states, gradients) = total_loss(rule_params)
  gradient = sweep(
    inner_loop, rule_params, states, batches, gradients, validation_loss
  )
  for _ in range(2):
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), rule_params)
    slope = central_difference(
      lambda params: total_loss(params, held if num_updates > 1 else None)[0],
      rule_params,
      direction,
    )
    assert jax.jit(optax.tree.vdot)(gradient, direction) == pytest.approx(
      slope, rel=1e-5
    )
