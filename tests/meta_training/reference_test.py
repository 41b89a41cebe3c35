"""Whole meta-steps, against a reference in float64 that shares no code."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
import reference

from configs import meta_training
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_step
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import population
from disco_rl.runtime import sharding

UPDATES, LENGTH, LIMIT = 3, 5, 4
SETTINGS: dict[str, Any] = {
  'rule_prediction_size': 3,
  'rule_prediction_embedding': (2, 1),
  'rule_policy_channels': (3, 2),
  'rule_policy_target_channels': (2,),
  'rule_lstm_size': 4,
  'rule_meta_rnn_input_size': 2,
  'rule_meta_rnn_size': 3,
  'num_bins': 9,
  'max_abs_value': 4.0,
  'unroll_length': LENGTH,
  'batch_size': 6,
  'num_environments': 2,
  'on_policy_share': 1 / 3,
  'replay_capacity': 10,
  'hidden_sizes': (7, 6),
  'action_model_lstm': 5,
  'action_model_head': 4,
  'learning_rate': 3e-3,
  'inner_updates': UPDATES,
  'validation_trajectories': 3,
  'meta_value_hidden_sizes': (6, 5),
  'held_out_environments': '',
  # Below the norms: all gradients are scaled down.
  'max_meta_gradient_norm': 1e-4,
  'meta_learning_rate': 1e-3,
  'policy_entropy_cost': 0.02,
  'y_entropy_cost': 0.03,
  'z_entropy_cost': 0.04,
  'target_kl_cost': 0.1,
  'target_mean_cost': 0.05,
}
# Entries of eta whose derivatives are compared.
ENTRIES = 60


@types.record
class Limited(base.JaxEnvironment):
  """Four actions; episodes are terminated at random, or cut after four steps.

  The state is a position, a sign and the steps so far; rewards depend on the
  position and the action.
  """

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((3,), jnp.float32), num_actions=4
  )

  def reset(self, key: types.Array) -> tuple[types.Array, types.Array]:
    state = jnp.stack([jax.random.normal(key), 0.5, 0.0])
    return state, self._observe(state)

  def step(
    self, state: types.Array, action: types.Array, key: types.Array
  ) -> tuple[types.Array, types.TimeStep]:
    noise_key, end_key = jax.random.split(key)
    noise = jax.random.normal(noise_key)
    position = 0.7 * state[0] + 0.3 * (action - 1.5) + 0.1 * noise
    state = jnp.stack([position, -state[1], state[2] + 1])
    is_terminal = jax.random.uniform(end_key) < 0.15
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=position * (action - 1.0),
      is_terminal=is_terminal,
      is_last=is_terminal | (state[2] >= LIMIT),
      mask=jnp.array(True),
    )

  def _observe(self, state: types.Array) -> types.Array:
    return jnp.stack([state[0], state[1], state[0] * state[1]])


class LimitedOnHost(base.HostEnvironment):
  """The same on the host, where a step after the last one only resets."""

  def __init__(self, num_environments: int, seed: int):
    self.spec = Limited.spec
    self.num_environments = num_environments
    self._rng = np.random.default_rng(seed)
    self.reset()

  def reset(self) -> types.PyTree:
    self._states = np.stack([self._new() for _ in range(self.num_environments)])
    self._resets = np.zeros(self.num_environments, bool)
    return self._observe()

  def step(self, action: np.ndarray) -> types.TimeStep:
    is_dummy = self._resets
    number = self.num_environments
    noise = self._rng.standard_normal(number)
    is_terminal = (self._rng.random(number) < 0.15) & ~is_dummy
    position, sign, steps = self._states.T
    position = 0.7 * position + 0.3 * (action - 1.5) + 0.1 * noise
    states = np.stack([position, -sign, steps + 1], -1)
    states[is_dummy] = [self._new() for _ in range(is_dummy.sum())] or 0.0
    self._states = states
    self._resets = is_terminal | (states[:, 2] >= LIMIT)
    return types.TimeStep(
      observation=self._observe(),
      reward=np.where(is_dummy, 0, position * (action - 1)).astype(np.float32),
      is_terminal=is_terminal | is_dummy,
      is_last=self._resets,
      mask=~is_dummy,
    )

  def close(self) -> None:
    pass

  def _new(self) -> np.ndarray:
    return np.array([self._rng.standard_normal(), 0.5, 0.0])

  def _observe(self) -> np.ndarray:
    x, sign, _ = self._states.T
    return np.stack([x, sign, x * sign], -1).astype(np.float32)


# Conversions to the records of the reference.


def as_float64(tree: Any) -> Any:
  return jax.tree.map(lambda x: np.array(x, np.float64), jax.device_get(tree))


def as_params(params: types.Params) -> dict[str, dict[str, np.ndarray]]:
  return {name: dict(leaves) for name, leaves in as_float64(params).items()}


def as_adam(opt_state: types.PyTree, params: types.Params) -> reference.Adam:
  """Finds Adam in the state of an optimizer, whose moments are one vector."""
  is_adam = lambda x: hasattr(x, 'nu')
  (adam,) = filter(is_adam, jax.tree.leaves(opt_state, is_leaf=is_adam))
  _, nested = flatten_util.ravel_pytree(params)
  return reference.Adam(
    int(adam.count), as_params(nested(adam.mu)), as_params(nested(adam.nu))
  )


def as_moments(moments: Any) -> reference.Moments:
  return reference.Moments(
    *map(float, (moments.moment1, moments.moment2, moments.decay_product))
  )


def as_agent(learner: Any) -> reference.Agent:
  state = learner.rule_state
  return reference.Agent(
    params=as_params(learner.params),
    target=as_params(state.target_params),
    optimizer=as_adam(learner.opt_state, learner.params),
    advantage=as_moments(state.moments.advantage),
    td=as_moments(state.moments.td),
    memory=tuple(as_float64((state.meta_rnn.hidden, state.meta_rnn.cell))),
  )


def as_meta_value(state: Any) -> reference.MetaValue:
  return reference.MetaValue(
    params=as_params(state.params),
    optimizer=as_adam(state.opt_state, state.params),
    advantage=as_moments(state.moments.advantage),
    td=as_moments(state.moments.td),
  )


def as_batch(rollout: types.Rollout) -> reference.Batch:
  rollout = jax.device_get(rollout)
  length, number = rollout.action.shape
  observation = np.asarray(rollout.observation, np.float64)
  return reference.Batch(
    observation=observation.reshape(length, number, -1),
    action=rollout.action,
    behavior=np.asarray(rollout.logits, np.float64),
    reward=np.asarray(rollout.reward, np.float64),
    is_terminal=rollout.is_terminal,
    mask=rollout.mask,
  )


# What the package did.


@dataclasses.dataclass(frozen=True)
class Done:
  """The meta-step of one member.

  Attributes:
    before: The member.
    after: The same afterwards.
    batches: The batches of its updates.
    validation: Its validation trajectories.
    norm: The norm of its meta-gradient, in the logs.
  """

  before: inner_loop_lib.Member
  after: inner_loop_lib.Member
  batches: Sequence[reference.Batch]
  validation: reference.Batch
  norm: float


def experience_on_device(
  group: population.Group, rule_params: types.Params, members: Any
) -> Any:
  """Acts and learns once more, to see the batches and the validation."""
  loop = group.config.inner_loop

  @jax.jit
  def again(member: Any, environment: Any) -> Any:
    member, trajectory, _ = loop.run(environment, rule_params, member, UPDATES)
    _, validation = loop.validate(environment, member)
    return trajectory.batches, validation

  for i in range(group.config.num_counted):
    one = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)
    batches, validation = again(one(members), one(group._environments))
    yield (
      [
        as_batch(jax.tree.map(lambda x, k=k: x[k, 0], batches))
        for k in range(UPDATES)
      ],
      as_batch(validation),
    )


class Recorder:
  """Records what a program on the host is called with."""

  def __init__(self, program: Any):
    self._program = program
    self.calls: list[Any] = []

  def __call__(self, rule_params: Any, members: Any, data: Any) -> Any:
    self.calls.append(jax.tree.map(lambda x: np.array(x[0]), data))
    return self._program(rule_params, members, data)


def check(
  config: meta_config.MetaTrainingConfig,
  rule_params: Any,
  done: Done,
) -> reference.Params:
  """Compares the meta-step of a member; returns its change of eta."""
  loss, rule = config.loss, config.rule_settings
  settings = reference.Settings(
    discount=rule.discount,
    trace=rule.lambda_,
    max_value=rule.max_abs_value,
    value_cost=rule.q_cost,
    learning_rate=config.agent.learning_rate,
    value_learning_rate=config.meta_value.learning_rate,
    **dataclasses.asdict(loss),
  )
  eta = as_params(rule_params)
  meta_value, advantage = reference.meta_value_update(
    settings,
    as_meta_value(done.before.meta_value),
    done.validation,
    done.validation.behavior,
  )
  step = reference.MetaStep(
    settings,
    as_agent(done.before.learner),
    done.batches,
    done.validation,
    advantage,
  )
  indices = np.random.default_rng(5).permutation(reference.flat(eta).size)
  indices = indices[:ENTRIES]
  gradient, agent = step.gradient(eta, indices, step=1e-5)

  got = as_agent(done.after.learner)
  for name, tolerance in (('params', 2e-6), ('target', 2e-6)):
    assert_close(getattr(got, name), getattr(agent, name), tolerance)
  assert_close(got.memory, agent.memory, 2e-4)
  for name in ('advantage', 'td'):
    assert_close(
      *(dataclasses.astuple(getattr(x, name)) for x in (got, agent)), 1e-4
    )
  got_value = as_meta_value(done.after.meta_value)
  assert_close(got_value.params, meta_value.params, 1e-6)
  assert_close(
    *(dataclasses.astuple(x.advantage) for x in (got_value, meta_value)), 1e-4
  )
  # The gradient that entered Adam, from its first moment before and after.
  before, after = (
    as_adam(member.meta_opt_state, rule_params)
    for member in (done.before, done.after)
  )
  entered = reference.combine(
    lambda new, old: (new - 0.9 * old) / 0.1, after.first, before.first
  )
  limit = config.max_meta_gradient_norm
  assert done.norm > limit
  assert np.linalg.norm(reference.flat(entered)) == pytest.approx(
    limit, rel=1e-3
  )
  assert_close(
    reference.flat(entered)[indices], gradient * limit / done.norm, 1e-3
  )
  return reference.adam_change(config.meta_learning_rate, before, entered)


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
  """Compares the norm of the difference with that of what is expected."""
  actual, expected = (
    np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])
    for tree in (actual, expected)
  )
  error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
  assert error < tolerance


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['device', 'host'])
def test_a_meta_step_is_that_of_the_reference(
  kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
  """Several agents have replay, time limits, and padding on the device.

  The bounds are ten times what was measured.
  """
  monkeypatch.setattr(
    registry.families, 'FAMILIES', {**registry.families.FAMILIES}
  )
  if kind == 'device':
    registry.register('limited', lambda *_: Limited(), 'device')
    population_ = {'environments': 'catch/4x3,limited', 'agents': 3}
    population_['group_multiple'] = 2
  else:
    registry.register('limited', LimitedOnHost, 'host')
    population_ = {'environments': 'limited', 'agents': 2}
  config = meta_trainer.config_of(
    {**meta_training.base().to_dict(), **SETTINGS, **population_}
  )
  mesh = sharding.make_mesh(1)
  rule, rule_params = build.make_rule(config)
  groups = build.make_groups(config, rule, mesh)
  stepper = meta_step.MetaStep(config, groups, mesh)
  state = stepper.init(
    sharding.to_devices(rule_params, mesh, sharding.REPLICATED)
  )
  # Adam is warm, and replay has overwritten its oldest trajectories.
  for _ in range(5):
    state, _, _ = stepper(state)

  rule_params, members = jax.tree.map(
    jnp.copy, (state.rule_params, state.members)
  )
  experience: list[Any] = []
  learn = outer_loss = None
  if kind == 'device':
    for group, each in zip(groups, members):
      experience += experience_on_device(group, rule_params, each)
  else:
    (group,) = groups
    assert isinstance(group, host_group.HostGroup)
    learn, outer_loss = Recorder(group._learn), Recorder(group._outer_loss)
    monkeypatch.setattr(group, '_learn', learn)
    monkeypatch.setattr(group, '_outer_loss', outer_loss)
  state, logs, _ = stepper(state)
  if learn is not None and outer_loss is not None:
    join = groups[0].config.inner_loop.concatenate_rollouts
    for i, rollouts in enumerate(outer_loss.calls):
      batches = learn.calls[UPDATES * i : UPDATES * (i + 1)]
      stacked = jax.tree.map(lambda *x: np.stack(x), *rollouts)
      experience.append(
        ([as_batch(batch) for batch in batches], as_batch(join(stacked)))
      )

  found = iter(experience)
  changes, masked = [], []
  for group, before, after, own in zip(groups, members, state.members, logs):
    for i in range(group.config.num_counted):
      batches, validation = next(found)
      masked.append(1 - np.mean([batch.mask for batch in batches]))
      one = lambda tree, i=i: jax.tree.map(lambda x: x[i], tree)
      done = Done(
        *(one(before), one(after), batches, validation),
        float(own['meta_gradient_norm'][i]),
      )
      changes.append(check(config, rule_params, done))
  assert masked[-1] > 0.1  # There are artifacts of resetting.
  mean = reference.combine(lambda *x: sum(x) / len(x), *changes)
  moved = reference.combine(
    np.subtract, as_params(state.rule_params), as_params(rule_params)
  )
  assert_close(moved, mean, 2e-4)
