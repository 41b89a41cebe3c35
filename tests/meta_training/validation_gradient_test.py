"""How the outer loss is formed from validation, against NumPy in float64.

Agents are tables here: each prediction of a state is a parameter of its own,
and the rule adds an entry of its own table to it. So the parameters after N
updates are a sum, and the gradient with respect to the rule follows from the
outer loss written out below, by finite differences. V-trace, the meta-value
network and its Adam are written out as well.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from disco_rl import types
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import learner
from disco_rl.maths import moments
from disco_rl.maths import value_targets
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import inner_problem
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_value
from disco_rl.meta_training import outer_loss
from disco_rl.networks import agent_network
from disco_rl.update_rules import base
from disco_rl.update_rules import disco

# All different, so that no axis passes for another.
NUM_STATES, T, B, A, Y = 6, 4, 3, 2, 5
NUM_UPDATES = 2
STEP_SIZE = 2.5
POLICY_ENTROPY_COST, Y_ENTROPY_COST, Z_ENTROPY_COST = 0.3, 0.2, 0.4
MEAN_COST = 0.6
COSTS = outer_loss.OuterLossConfig(
  policy_entropy_cost=POLICY_ENTROPY_COST,
  y_entropy_cost=Y_ENTROPY_COST,
  z_entropy_cost=Z_ENTROPY_COST,
  target_kl_cost=0.0,
  target_mean_cost=MEAN_COST,
)
LEARNING_RATE, DISCOUNT, LAMBDA, DECAY = 0.02, 0.9, 0.7, 0.8
SPEC = types.EnvironmentSpec(
  jax.ShapeDtypeStruct((NUM_STATES,), jnp.float32), A
)

Arrays = Mapping[str, np.ndarray]
Table = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
  with jax.enable_x64(True):
    yield


# Agents that are tables.


@dataclasses.dataclass(frozen=True)
class TableRule(base.UpdateRule):
  """Moves the predictions of each state along the rule's entries for it."""

  def targets(
    self,
    rule_params: types.Params,
    state: Any,
    agent_params: types.Params,
    rollout: types.Rollout,
    outputs: types.Outputs,
    unroll: base.Unroll,
  ) -> tuple[disco.DiscoTargets, Any, types.Logs]:
    del agent_params, unroll
    entries = {
      name: rollout.observation[:-1] @ table
      for name, table in rule_params['table'].items()
    }
    targets = disco.DiscoTargets(
      **entries, q=rollout.reward, target_policy=outputs['logits'][:-1]
    )
    return targets, state, {}

  def loss(
    self, taken: types.Outputs, targets: disco.DiscoTargets, rollout: Any
  ) -> tuple[types.Array, types.Logs]:
    del rollout
    gains = (
      targets.pi * taken['logits'][:-1],
      targets.y * taken['y'][:-1],
      targets.z * taken['z'],
    )
    return -sum(jnp.sum(gain, axis=-1) for gain in gains), {}


def policy(params: types.Params, rollout: types.Rollout) -> types.Array:
  return rollout.observation @ params['table']['logits']


def unroll(
  params: types.Params, rollout: types.Rollout
) -> tuple[types.Outputs, types.Outputs]:
  table = params['table']
  state = {name: rollout.observation @ table[name] for name in ('logits', 'y')}
  z = jnp.einsum('tbs,say->tbay', rollout.observation, table['z'])
  action = jax.nn.one_hot(rollout.action, A)
  taken_z = jnp.einsum('tbay,tba->tby', z, action)[:-1]
  return {**state, 'z': z}, {**state, 'z': taken_z}


def not_called(*_: Any) -> Any:
  raise AssertionError('Nothing here initializes agents or acts.')


def make_inner_loop(on_inner_batches: bool = False) -> inner_loop_lib.InnerLoop:
  network = agent_network.AgentNetwork(
    init=not_called,
    initial_state=not_called,
    step=not_called,
    policy=policy,
    unroll=unroll,
  )
  agent = agent_lib.Agent(
    config=agent_lib.AgentConfig(
      unroll_length=T, batch_size=B, num_environments=B, replay_capacity=B
    ),
    environment_spec=SPEC,
    rule=TableRule(),
    network=network,
    optimizer=optax.sgd(STEP_SIZE),
  )
  value = meta_value.MetaValue(
    meta_value.MetaValueConfig(
      hidden_sizes=(7,),
      learning_rate=LEARNING_RATE,
      discount=DISCOUNT,
      lambda_=LAMBDA,
      moments_decay=DECAY,
      on_inner_batches=on_inner_batches,
    ),
    SPEC,
  )
  return inner_loop_lib.InnerLoop(
    inner_loop_lib.InnerLoopConfig(NUM_UPDATES, B), agent, value
  )


def random_table(rng: np.random.Generator, rule: bool) -> Table:
  """The rule's entries, or an agent's predictions."""
  shapes = {'pi': (A,), 'y': (Y,), 'z': (Y,)}
  if not rule:
    shapes = {'logits': (A,), 'y': (Y,), 'z': (A, Y)}
  return {
    name: rng.normal(0.3, 1.0, size=(NUM_STATES, *shape))
    for name, shape in shapes.items()
  }


def random_rollout(rng: np.random.Generator) -> Table:
  """With ends of episodes, and steps that must not be learned from."""
  is_terminal, mask = np.zeros((T, B), bool), np.ones((T, B), bool)
  is_terminal[rng.integers(T - 1), 0] = True
  mask[rng.integers(1, T - 1), 1] = False
  mask[[0, 3], 2] = False
  return {
    'state': rng.integers(NUM_STATES, size=(T + 1, B)),
    'action': rng.integers(A, size=(T + 1, B)),
    'logits': rng.normal(size=(T + 1, B, A)),
    'reward': rng.normal(2.0, 3.0, size=(T, B)),
    'is_terminal': is_terminal,
    'mask': mask,
  }


def as_rollout(arrays: Arrays) -> types.Rollout:
  """What the project sees of it: states are one-hot vectors."""
  return types.Rollout(
    observation=np.eye(NUM_STATES, dtype=np.float32)[arrays['state']],
    action=arrays['action'].astype(np.int32),
    **{
      name: arrays[name] for name in ('logits', 'reward', 'is_terminal', 'mask')
    },
  )


def real(arrays: Arrays) -> list[tuple[int, int]]:
  """Transitions that are learned from."""
  return [(t, b) for t in range(T) for b in range(B) if arrays['mask'][t, b]]


def stack(trees: list[Any]) -> Any:
  return jax.tree.map(lambda *x: np.stack(x), *trees)


# The agent's updates and the outer loss, written out.


def inner_gradient(rule: Table, table: Table, batch: Arrays) -> Table:
  """Gradient of the rule's loss with respect to an agent's table."""
  gradient = {name: np.zeros_like(x) for name, x in table.items()}
  weight = 1.0 / (len(real(batch)) + 1e-8)
  for t, b in real(batch):
    state, action = batch['state'][t, b], batch['action'][t, b]
    gradient['logits'][state] -= weight * rule['pi'][state]
    gradient['y'][state] -= weight * rule['y'][state]
    gradient['z'][state, action] -= weight * rule['z'][state]
  return gradient


def descend(table: Table, gradient: Table) -> Table:
  return {name: table[name] - STEP_SIZE * gradient[name] for name in table}


def log_softmax(x: np.ndarray) -> np.ndarray:
  return x - np.log(np.sum(np.exp(x), axis=-1, keepdims=True))


def entropy(x: np.ndarray) -> float:
  return -float(np.sum(np.exp(log_softmax(x)) * log_softmax(x)))


def outer_loss_of(
  rule: Table,
  table: Table,
  batches: list[Table],
  validation: Arrays,
  advantage: np.ndarray,
) -> float:
  """Loss of the rule: N updates, their regularizers, the validation loss."""
  total = 0.0
  for batch in batches:
    table = descend(table, inner_gradient(rule, table, batch))
    for entries in rule.values():
      means = [np.mean(entries[batch['state'][t, b]]) for t, b in real(batch)]
      mean = sum(means) / (len(means) + 1e-8)
      total += MEAN_COST * mean**2 / NUM_UPDATES
  terms = []
  for t, b in real(validation):
    state, action = validation['state'][t, b], validation['action'][t, b]
    log_pi = log_softmax(table['logits'][state])
    terms.append(
      -log_pi[action] * advantage[t, b]
      - POLICY_ENTROPY_COST * entropy(table['logits'][state])
      - Y_ENTROPY_COST * entropy(table['y'][state])
      - Z_ENTROPY_COST * entropy(table['z'][state, action])
    )
  return total + sum(terms) / (len(terms) + 1e-8)


def differences(function: Any, tables: Table) -> Table:
  """The gradient of a function of tables, by central differences."""
  size = 1e-5
  gradient = {}
  for name, table in tables.items():
    slopes = np.zeros_like(table)
    for index in np.ndindex(table.shape):
      ends = []
      for sign in (1.0, -1.0):
        moved = table.copy()
        moved[index] += sign * size
        ends.append(function({**tables, name: moved}))
      slopes[index] = (ends[0] - ends[1]) / (2.0 * size)
    gradient[name] = slopes
  return gradient


# The meta-value function, written out.


def flatten(params: types.Params) -> Table:
  return {
    f'{module}/{name}': np.asarray(x, np.float64)
    for module, leaves in params.items()
    for name, x in leaves.items()
  }


def as_table(vector: types.Array, params: types.Params) -> Table:
  """Moments of Adam, which are one vector, by the names of the parameters."""
  leaves, structure = jax.tree.flatten(params)
  ends = np.cumsum([x.size for x in leaves])
  parts = np.split(np.asarray(vector), ends[:-1])
  assert ends[-1] == vector.size
  return flatten(
    jax.tree.unflatten(
      structure, [part.reshape(x.shape) for part, x in zip(parts, leaves)]
    )
  )


def predict(params: Table, state: np.ndarray) -> np.ndarray:
  """Values as the network outputs them: of one-hot vectors, row by row."""
  hidden = params['torso/mlp/~/linear_0/w'][state]
  # As in agents, no activation follows the last layer of the torso.
  hidden = hidden + params['torso/mlp/~/linear_0/b']
  return (hidden @ params['value/w'])[..., 0] + params['value/b'][0]


def in_units_of_the_return(v: np.ndarray) -> np.ndarray:
  """Pohlen et al. (2018), proposition A.2 (iii)."""
  eps = 1e-3
  root = np.sqrt(1.0 + 4.0 * eps * (np.abs(v) + 1.0 + eps))
  return np.sign(v) * (((root - 1.0) / (2.0 * eps)) ** 2 - 1.0)


def trace(
  rollout: Arrays, policy_logits: np.ndarray, value: np.ndarray
) -> np.ndarray:
  """TD errors by V-trace; as both ratios are cut at 1, advantages as well."""
  error = np.zeros((T, B))
  ratio = np.exp(log_softmax(policy_logits) - log_softmax(rollout['logits']))
  for t, b in reversed(list(np.ndindex(T, B))):
    rho = min(1.0, ratio[t, b, rollout['action'][t, b]])
    discount = 0.0 if rollout['is_terminal'][t, b] else DISCOUNT
    # The trace ends with the rollout, and before what is not real.
    goes_on = t + 1 < T and rollout['mask'][t + 1, b]
    after = value[t + 1, b] + (LAMBDA * error[t + 1, b] if goes_on else 0.0)
    error[t, b] = rho * (
      rollout['reward'][t, b] + discount * after - value[t, b]
    )
  return error


@dataclasses.dataclass(frozen=True)
class ValueUpdate:
  """What `MetaValue.estimate_and_update` returns, by other names."""

  params: Table
  mu: Table
  nu: Table
  moments: list[list[float]]
  advantage: np.ndarray
  normalized_advantage: np.ndarray
  logs: dict[str, float]


def update_value(
  before: meta_value.MetaValueState, rollout: Arrays, logits: np.ndarray
) -> ValueUpdate:
  """Clipped Adam on 0.5 (v - target)^2, v + normalized TD the target."""
  params = flatten(before.params)
  v = predict(params, rollout['state'])
  value = in_units_of_the_return(v)
  td = advantage = trace(rollout, logits, value)

  new_moments, statistics = [], []
  for old, x in (
    (before.moments.advantage, advantage),
    (before.moments.td, td),
  ):
    x_real = x[rollout['mask']]
    first = DECAY * float(old.moment1) + (1.0 - DECAY) * np.mean(x_real)
    second = DECAY * float(old.moment2) + (1.0 - DECAY) * np.mean(x_real**2)
    product = DECAY * float(old.decay_product)
    mean = first / (1.0 - product)
    deviation = np.sqrt(second / (1.0 - product) - mean**2 + 1e-12) + 1e-6
    new_moments.append([first, second, product])
    statistics.append((mean, deviation))
  target = v[:-1] + td / statistics[1][1]

  def loss(params: Table) -> float:
    error = predict(params, rollout['state'])[:-1] - target
    weight = np.sum(rollout['mask']) + 1e-8
    return float(np.sum(0.5 * error**2 * rollout['mask']) / weight)

  gradient = differences(loss, params)
  adam = before.opt_state[0]
  count = int(adam.count) + 1
  mu, nu = as_table(adam.mu, before.params), as_table(adam.nu, before.params)
  for name, g in gradient.items():
    mu[name] = 0.9 * mu[name] + 0.1 * g
    nu[name] = 0.999 * nu[name] + 0.001 * g**2
    step = mu[name] / (1.0 - 0.9**count)
    step /= np.sqrt(nu[name] / (1.0 - 0.999**count)) + 1e-8
    params[name] = params[name] - LEARNING_RATE * np.clip(step, -1.0, 1.0)
  mean, deviation = statistics[0]
  return ValueUpdate(
    params=params,
    mu=mu,
    nu=nu,
    moments=new_moments,
    advantage=advantage,
    normalized_advantage=(advantage - mean) / deviation,
    logs={
      'meta_value_loss': loss(flatten(before.params)),
      'meta_value': float(np.mean(value[:-1][rollout['mask']])),
      'meta_value_td': float(np.mean(np.abs(td[rollout['mask']]))),
    },
  )


def random_value_state(
  inner_loop: inner_loop_lib.InnerLoop, rng: np.random.Generator
) -> meta_value.MetaValueState:
  """In the middle of a lifetime: moments, also Adam's, are not zero."""
  shapes = jax.eval_shape(inner_loop.meta_value.init, jax.random.key(0))
  draw = lambda tree: jax.tree.map(lambda x: rng.normal(size=x.shape), tree)
  adam = optax.ScaleByAdamState(
    count=jnp.int32(4),
    mu=draw(shapes.opt_state[0].mu),
    nu=np.square(draw(shapes.opt_state[0].nu)),
  )
  return meta_value.MetaValueState(
    params=draw(shapes.params),
    opt_state=(adam, *shapes.opt_state[1:]),
    moments=value_targets.ValueMoments(
      advantage=moments.Moments(*np.array([0.7, 4.1, DECAY**4])),
      td=moments.Moments(*np.array([0.4, 2.9, DECAY**4])),
    ),
  )


def assert_value_state(
  state: meta_value.MetaValueState, expected: ValueUpdate
) -> None:
  adam = state.opt_state[0]
  assert adam.count == 5
  for actual, values in (
    (flatten(state.params), expected.params),
    (as_table(adam.mu, state.params), expected.mu),
    (as_table(adam.nu, state.params), expected.nu),
  ):
    assert_tables(actual, values)
  for actual, moment in zip(
    (state.moments.advantage, state.moments.td), expected.moments
  ):
    fields = [actual.moment1, actual.moment2, actual.decay_product]
    np.testing.assert_allclose(fields, moment, rtol=1e-8)


def assert_tables(actual: Any, expected: Table) -> None:
  assert set(actual) == set(expected)
  for name, value in expected.items():
    np.testing.assert_allclose(
      actual[name], value, rtol=1e-7, atol=1e-8, err_msg=name
    )


def assert_logs(logs: types.Logs, expected: dict[str, float]) -> None:
  for name, value in expected.items():
    assert logs[name] == pytest.approx(value, rel=1e-7), name


def make_learning(
  table: Table, value: meta_value.MetaValueState
) -> inner_loop_lib.Learning:
  state = learner.LearnerState(
    params={'table': table}, opt_state=NO_STATE, rule_state=()
  )
  return inner_loop_lib.Learning(learner=state, meta_value=value)


# Of SGD.
NO_STATE = optax.sgd(STEP_SIZE).init({})


# What is checked.


def test_gradient_of_the_outer_loss() -> None:
  """And the meta-value function learns from the validation trajectories."""
  rng = np.random.default_rng(0)
  inner_loop = make_inner_loop()
  rule, table = random_table(rng, rule=True), random_table(rng, rule=False)
  batches = [random_rollout(rng) for _ in range(NUM_UPDATES)]

  tables, gradients = [table], []
  for batch in batches:
    gradients.append(inner_gradient(rule, tables[-1], batch))
    tables.append(descend(tables[-1], gradients[-1]))
  validation = random_rollout(rng)
  # On-policy: the agent after its N updates acted.
  validation['logits'] = tables[-1]['logits'][validation['state']]
  value = random_value_state(inner_loop, rng)

  one_per_segment = lambda trees: jax.tree.map(
    lambda x: x[:, None], stack(trees)
  )
  trajectory = inner_loop_lib.Trajectory(
    states=learner.LearnerState(
      params={'table': stack(tables[:-1])}, opt_state=NO_STATE, rule_state=()
    ),
    batches=one_per_segment([as_rollout(batch) for batch in batches]),
    gradients={'table': one_per_segment(gradients)},
  )
  estimator = meta_gradient.MetaGradient(
    inner_problem.AgentProblem(inner_loop, COSTS)
  )
  gradient, member, logs = jax.jit(estimator.differentiate)(
    {'table': rule},
    make_learning(tables[-1], value),
    trajectory,
    as_rollout(validation),
  )

  expected = update_value(value, validation, validation['logits'])
  assert_value_state(member.meta_value, expected)
  assert_logs(logs, expected.logs)
  assert_tables(
    gradient['table'],
    differences(
      lambda rule: outer_loss_of(
        rule, table, batches, validation, expected.normalized_advantage
      ),
      rule,
    ),
  )
  # The raw advantage is another.
  assert abs(np.mean(expected.normalized_advantage - expected.advantage)) > 0.1
  # All else of the member is as it was.
  assert_tables(member.learner.params['table'], tables[-1])


def test_gradient_of_the_divergence_from_a_target() -> None:
  """At every step; and of the entropies of y and z."""
  rng = np.random.default_rng(2)
  table, target = (random_table(rng, rule=False) for _ in range(2))
  validation = random_rollout(rng)
  problem = inner_problem.AgentProblem(make_inner_loop(), COSTS)
  gradient, _ = jax.jit(problem.divergence_gradient)(
    {'table': table}, {'table': target}, as_rollout(validation)
  )

  def loss(table: Table) -> float:
    terms = []
    for t, b in real(validation):
      state, action = validation['state'][t, b], validation['action'][t, b]
      wanted = log_softmax(target['logits'][state])
      log_pi = log_softmax(table['logits'][state])
      terms.append(
        np.sum(np.exp(wanted) * (wanted - log_pi))
        - Y_ENTROPY_COST * entropy(table['y'][state])
        - Z_ENTROPY_COST * entropy(table['z'][state, action])
      )
    return sum(terms) / (len(terms) + 1e-8)

  assert_tables(gradient['table'], differences(loss, table))


@pytest.mark.parametrize('on_inner_batches', [False, True])
def test_values_of_inner_batches_are_those_of_the_policy_before(
  on_inner_batches: bool,
) -> None:
  """Others acted; ratios are with the policy that has not yet learned."""
  rng = np.random.default_rng(1)
  inner_loop = make_inner_loop(on_inner_batches)
  rule, table = random_table(rng, rule=True), random_table(rng, rule=False)
  batch = random_rollout(rng)
  value = random_value_state(inner_loop, rng)
  member, updates, logs = jax.jit(inner_loop.learn)(
    {'table': rule}, make_learning(table, value), as_rollout(batch)
  )
  gradient = inner_gradient(rule, table, batch)
  assert_tables(updates.gradients['table'], gradient)
  assert_tables(updates.states.params['table'], table)
  after = descend(table, gradient)
  assert_tables(member.learner.params['table'], after)

  if not on_inner_batches:
    jax.tree.map(np.testing.assert_array_equal, member.meta_value, value)
    return
  expected = update_value(value, batch, table['logits'][batch['state']])
  assert_value_state(member.meta_value, expected)
  assert_logs(logs, {f'inner_{k}': v for k, v in expected.logs.items()})
