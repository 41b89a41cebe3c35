"""The meta-update and the held-out trials of a run, against a NumPy reference.

Two groups of unequal size take meta-steps with meta-gradients that are known
functions of the rule's parameters, so that NumPy can follow the whole run.
"""

import dataclasses
import itertools
import pathlib
from typing import Any
from unittest import mock

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import agent as agent_lib
from disco_rl.agent import cohort
from disco_rl.agent import episodes
from disco_rl.environments import base
from disco_rl.meta_training import build
from disco_rl.meta_training import config as meta_config
from disco_rl.meta_training import device_group
from disco_rl.meta_training import estimator as estimator_lib
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import meta_trainer
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import population
from disco_rl.runtime import json_files
from disco_rl.runtime import metrics
from disco_rl.training import parallel
from disco_rl.update_rules import actor_critic
from disco_rl.update_rules import cards
from disco_rl.update_rules import registry

META_STEPS = 4
LEARNING_RATE = 0.1
MAX_NORM = 2.0
# Agents of the two groups; by their numbers, 0 to 4.
SIZES = (4, 1)
AGENTS = sum(SIZES)
# Norms of the meta-gradients, some of them above MAX_NORM; in every second
# meta-step ten times as large, as Adam cancels what is constant.
NORMS = (0.1, 30.0, 1.0, 5.0, 0.01)
# The loss of one agent is NaN in every second meta-step, its gradient is not.
FAILING = 2
SEEDS = 3
UPDATES = 7
SETTINGS: dict[str, Any] = {
  'agents': AGENTS,
  'chunk_size': 2,
  'average_rule': False,
  'meta_learning_rate': LEARNING_RATE,
  'max_meta_gradient_norm': MAX_NORM,
  'meta_steps': META_STEPS,
  'checkpoint_every': META_STEPS,
  'inner_updates': 1,
  'held_out_environments': 'catch/4x3',
  'held_out_every': 1,
  'held_out_updates': UPDATES,
  'held_out_seeds': SEEDS,
  'seed': 11,
}


@types.record
class Numbered(base.JaxEnvironment):
  """Knows the number of its agent."""

  spec = types.EnvironmentSpec(
    observation=jax.ShapeDtypeStruct((1,), jnp.float32), num_actions=2
  )
  number: types.Array

  def reset(self, key: types.Array) -> tuple[types.Array, types.Array]:
    del key
    return jnp.int32(0), jnp.zeros((1,))

  def step(self, state: Any, action: types.Array, key: types.Array) -> Any:
    raise NotImplementedError('The estimator below does not act.')


def make_rule(config: Any) -> tuple[Any, types.Params]:
  """For `build.make_rule`: parameters that agents do not look at."""
  rng = np.random.default_rng(0)
  params = {
    'one': {'w': rng.normal(size=(3, 4)), 'b': rng.normal(size=(4,))},
    'two': {'w': rng.normal(size=(4, 2))},
  }
  return actor_critic.ActorCritic(num_bins=3), jax.tree.map(jnp.float32, params)


def gradient_of(number: Any, rule_params: Any, library: Any) -> Any:
  """The meta-gradient of an agent; not yet of the norm in NORMS."""
  return library.cos((number + 1) * rule_params + number)


class KnownGradients(estimator_lib.DeviceEstimator):
  """Known gradients; finished episodes count an agent's meta-steps."""

  steps = estimator_lib.Steps(per_member=3, total=7)

  def __call__(
    self,
    rule_params: types.Params,
    member: inner_loop_lib.DeviceMember,
    environment: Any,
  ) -> tuple[types.Params, inner_loop_lib.DeviceMember, types.Logs]:
    number = environment.number
    gradient = jax.tree.map(lambda x: gradient_of(number, x, jnp), rule_params)
    square = sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(gradient))
    statistics = member.acting.episodes
    norm = jnp.asarray(NORMS)[number] * 10.0 ** (statistics.finished % 2)
    factor = norm / jnp.sqrt(square)
    fails = (number == FAILING) & (statistics.finished == 1)
    statistics = dataclasses.replace(
      statistics, finished=statistics.finished + 1
    )
    return (
      jax.tree.map(lambda x: factor * x, gradient),
      dataclasses.replace(
        member, acting=dataclasses.replace(member.acting, episodes=statistics)
      ),
      {'loss': jnp.where(fails, jnp.nan, 1.0)},
    )


def make_groups(
  config: meta_config.MetaTrainingConfig, rule: Any
) -> list[population.Group]:
  """For `build.make_groups`: as many agents, in numbered environments."""
  group = discovering.group_config(config, rule, Numbered.spec)
  numbers = iter(range(AGENTS))
  return [
    device_group.DeviceGroup(
      dataclasses.replace(group, names=(name,) * size),
      [Numbered(jnp.int32(next(numbers))) for _ in range(size)],
      KnownGradients(),
    )
    for size, name in zip(SIZES, ('many', 'one'))
  ]


@dataclasses.dataclass(frozen=True)
class Trial:
  """Arguments of an evaluation: keys of its agents, parameters, updates."""

  keys: np.ndarray
  rule_params: np.ndarray
  updates: int


class RecordedTraining:
  """For `parallel.make`; agent i of trial t returns 10 t + i."""

  def __init__(self, num_agents: int):
    self.num_agents = num_agents
    self.cohort = cohort.Cohort(mock.Mock())
    self.trials: list[Trial] = []

  def calls(self, rule_params: Any) -> list[Any]:
    del rule_params
    return []

  def init(self, keys: types.Array) -> Any:
    return np.asarray(jax.random.key_data(keys))

  def advance(
    self, rule_params: types.Params, train_state: np.ndarray, num_updates: int
  ) -> tuple[Any, types.Logs]:
    returned = 10.0 * len(self.trials) + np.arange(self.num_agents)
    self.trials.append(Trial(train_state, flat(rule_params), num_updates))
    statistics = episodes.EpisodeStatistics(
      running=jnp.zeros((self.num_agents, 1)),
      running_error=jnp.zeros((self.num_agents, 1)),
      recent_error=jnp.zeros((self.num_agents, episodes.NUM_RECENT)),
      billions=jnp.zeros((self.num_agents,), jnp.int32),
      recent=jnp.broadcast_to(
        jnp.asarray(returned)[:, None], (self.num_agents, episodes.NUM_RECENT)
      ),
      finished=jnp.ones((self.num_agents,), jnp.int32),
    )
    nothing: Any = None
    acting = actor.Acting(nothing, statistics, None)
    return agent_lib.AgentState(nothing, acting, nothing), {}


def flat(rule_params: types.Params) -> np.ndarray:
  """All parameters as one vector, in the order of their names."""
  return np.concatenate(
    [
      np.asarray(rule_params[module][name], np.float64).ravel()
      for module in sorted(rule_params)
      for name in sorted(rule_params[module])
    ]
  )


@dataclasses.dataclass(frozen=True)
class Run:
  """A whole run.

  Attributes:
    initial: the rule's parameters as saved before it.
    final: and as saved after it.
    trials: held-out trials in their order.
    metrics: columns of metrics.csv.
    held_out: columns of held_out/metrics.csv.
  """

  initial: np.ndarray
  final: np.ndarray
  trials: list[Trial]
  metrics: dict[str, np.ndarray]
  held_out: dict[str, np.ndarray]


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
  return discover(tmp_path_factory.mktemp('run'))


def discover(workdir: pathlib.Path, **changes: Any) -> Run:
  config = discovering.config_of(**{**SETTINGS, **changes})
  made: list[RecordedTraining] = []
  saved: dict[str, np.ndarray] = {}

  def make_training(agent: Any, environment: Any, num_agents: int) -> Any:
    made.append(RecordedTraining(num_agents))
    return made[-1]

  def save(path: pathlib.Path, _: Any, rule_params: types.Params) -> None:
    saved[path.name] = flat(rule_params)
    path.write_bytes(saved[path.name])  # Its card has a checksum.

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(build, 'make_rule', make_rule)
    patch.setattr(build, 'make_groups', make_groups)
    patch.setattr(parallel, 'make', make_training)
    # It refuses what are no parameters of a meta-network.
    patch.setattr(registry, 'save', save)
    meta_trainer.MetaTrainer(config).run(workdir, {})
  (training_,) = made
  return Run(
    initial=saved['initial_rule.npz'],
    final=saved.get('newest_rule.npz', saved['rule.npz']),
    trials=training_.trials,
    metrics=metrics.read(workdir / 'metrics.csv'),
    held_out=metrics.read(workdir / 'held_out' / 'metrics.csv'),
  )


def reference(initial: np.ndarray) -> list[np.ndarray]:
  """The rule's parameters before and after each meta-step.

  eta <- eta - (1 / n) sum_i Adam_i(clip(g_i)); Kingma & Ba (2015), algorithm 1.
  The sum leaves out an agent that fails, and its Adam does not see that step.
  """
  eta = initial
  m, v = np.zeros((AGENTS, eta.size)), np.zeros((AGENTS, eta.size))
  count = np.zeros(AGENTS)
  etas = [eta]
  for meta_step in range(META_STEPS):
    total = np.zeros_like(eta)
    for i in range(AGENTS):
      if i == FAILING and meta_step % 2:
        continue
      gradient = gradient_of(i, eta, np)
      norm = min(NORMS[i] * 10.0 ** (meta_step % 2), MAX_NORM)
      gradient *= norm / np.linalg.norm(gradient)
      m[i] = 0.9 * m[i] + 0.1 * gradient
      v[i] = 0.999 * v[i] + 0.001 * gradient**2
      count[i] += 1
      m_hat, v_hat = (
        m[i] / (1 - 0.9 ** count[i]),
        v[i] / (1 - 0.999 ** count[i]),
      )
      total -= LEARNING_RATE * m_hat / (np.sqrt(v_hat) + 1e-8)
    eta = eta + total / AGENTS
    etas.append(eta)
  return etas


# The mean over the population.


def test_the_rule_moves_by_the_mean_over_groups_of_unequal_size(
  run: Run,
) -> None:
  np.testing.assert_allclose(run.final, reference(run.initial)[-1], atol=2e-5)


def test_the_logged_norm_is_that_of_the_mean(run: Run) -> None:
  changes = np.diff(reference(run.initial), axis=0)
  norms = np.linalg.norm(changes, axis=1)
  # A row for each of the two environments.
  np.testing.assert_allclose(
    run.metrics['rule_update_norm'], np.repeat(norms, 2), rtol=1e-3
  )


def test_an_agent_with_a_nan_loss_is_reported(run: Run) -> None:
  assert run.metrics['environment'].tolist() == ['many', 'one'] * META_STEPS
  assert run.metrics['failed'].tolist() == [0, 0, 1, 0, 0, 0, 1, 0]


def test_members_age_by_their_own_steps_and_all_are_counted(run: Run) -> None:
  """Steps that the estimator discards make no agent older."""
  meta_steps = np.arange(1, META_STEPS + 1)
  of_environment = lambda name: run.metrics['environment'] == name
  # Of one agent, which does not fail.
  ages = run.metrics['age'][of_environment('one')]
  np.testing.assert_array_equal(ages, 3 * meta_steps)
  for name, size in zip(('many', 'one'), SIZES):
    steps = run.metrics['environment_steps'][of_environment(name)]
    np.testing.assert_array_equal(steps, 7 * size * meta_steps)


def test_steps_are_counted_as_they_were_made(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """A fork may take more of them in each meta-step; 2^53 is passed exactly."""
  many = 2**52 + 1
  for last, steps in ((1, many), (2, many), (META_STEPS, 11)):
    monkeypatch.setattr(
      KnownGradients, 'steps', estimator_lib.Steps(per_member=3, total=steps)
    )
    run = discover(tmp_path, meta_steps=last)
  expected = many * np.array([1, 2, 2, 2]) + [0, 0, 11, 22]
  of_one = run.metrics['environment'] == 'one'
  counted = run.metrics['environment_steps']
  np.testing.assert_array_equal(counted[of_one], expected)
  np.testing.assert_array_equal(counted[~of_one], SIZES[0] * expected)
  total = AGENTS * int(expected[-1])
  assert cards.read(tmp_path / 'rule.json').environment_steps == total
  summary = json_files.read(tmp_path / 'summary.json')
  assert summary['environment_steps'] == total


def test_a_run_killed_before_its_first_checkpoint_begins_again(
  run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  write, writes = metrics.MetricsWriter.write, itertools.count()

  def write_and_die(self: metrics.MetricsWriter, rows: Any) -> None:
    write(self, rows)
    if next(writes) == 2:
      raise KeyboardInterrupt

  with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
    patch.setattr(metrics.MetricsWriter, 'write', write_and_die)
    discover(tmp_path)
  left = metrics.read(tmp_path / 'held_out' / 'metrics.csv')['meta_step']
  assert left.tolist() == [0, 1]
  again = discover(tmp_path)
  assert again.held_out['meta_step'].tolist() == [0, 1, 2, 3, 4]
  for name in ('held_out', 'metrics'):
    for column, values in getattr(again, name).items():
      np.testing.assert_array_equal(values, getattr(run, name)[column])


def test_the_mean_rule_is_evaluated_and_saved(tmp_path: pathlib.Path) -> None:
  """Its weights are t (t + 1); all else is as without the mean."""
  run = discover(tmp_path, average_rule=True)
  first, *etas = reference(run.initial)
  t = np.arange(1, META_STEPS + 1)
  means = [first] + [
    np.average(etas[:n], axis=0, weights=(t * (t + 1))[:n]) for n in t
  ]
  np.testing.assert_allclose(run.final, means[-1], atol=2e-5)
  for trial, mean in zip(run.trials, means, strict=True):
    np.testing.assert_allclose(trial.rule_params, mean, atol=2e-5)
  assert np.abs(means[-1] - etas[-1]).max() > 0.01


# Held-out trials.


def test_held_out_trials_get_the_current_rule(run: Run) -> None:
  etas = reference(run.initial)
  assert len(run.trials) == len(etas)
  for trial, eta in zip(run.trials, etas):
    np.testing.assert_allclose(trial.rule_params, eta, atol=2e-5)
  assert all(np.abs(x - y).max() > 0.01 for x, y in zip(etas, etas[1:]))


def test_held_out_agents_have_seeds_of_their_own(run: Run) -> None:
  """The same ones in each trial, so that trials can be compared.

  Not the keys that the population has from these seeds: meta-step 0 folds in 0.
  """
  expected = [
    jax.random.key_data(jax.random.fold_in(jax.random.key(11 + i), 2**32 - 1))
    for i in range(SEEDS)
  ]
  for trial in run.trials:
    np.testing.assert_array_equal(trial.keys, expected)


def test_held_out_agents_make_all_their_updates(run: Run) -> None:
  assert [trial.updates for trial in run.trials] == [UPDATES] * len(run.trials)


def test_held_out_returns_are_logged_with_their_meta_step(run: Run) -> None:
  trials = np.arange(1 + META_STEPS)
  assert run.held_out['meta_step'].tolist() == trials.tolist()
  for name, of_agents in (('return', 1), ('return_min', 0), ('return_max', 2)):
    np.testing.assert_array_equal(run.held_out[name], 10 * trials + of_agents)


# What is not finite.


def one_update(
  gradient: float, loss: float, counts: bool = True
) -> tuple[types.Array, types.Logs, bool]:
  """The first of an agent, its logs, and whether Adam is as it was."""
  optimizer = meta_update.per_agent_adam(LEARNING_RATE, MAX_NORM)
  rule_params = {'module': {'w': jnp.zeros((3,))}}
  before = optimizer.init(rule_params)
  update, after, logs = jax.jit(
    lambda gradient, loss, counts: meta_update.member_update(
      optimizer,
      rule_params,
      before,
      {'module': {'w': gradient}},
      {'loss': loss, 'other': jnp.float32(1.0)},
      episodes.init(1),
      counts,
    )
  )(jnp.array([gradient, 0.5, -0.5]), jnp.float32(loss), jnp.array(counts))
  same = jax.tree.map(lambda x, y: bool((x == y).all()), after, before)
  return update['module']['w'], logs, all(jax.tree.leaves(same))


@pytest.mark.parametrize(
  'gradient, loss, is_kept',
  [
    (1.0, 1.0, True),
    (1.0, np.nan, False),
    (1.0, np.inf, False),
    (np.nan, 1.0, False),
    (np.inf, 1.0, False),
  ],
)
def test_the_meta_update_is_dropped_where_something_is_not_finite(
  gradient: float, loss: float, is_kept: bool
) -> None:
  """Gradient or losses are not finite; Adam stays as it was."""
  update, logs, is_adam_the_same = one_update(gradient, loss)
  assert logs['failed'] == (not is_kept)
  # The first step of Adam is the learning rate times the sign.
  expected = LEARNING_RATE * np.array([-1.0, -1.0, 1.0]) * is_kept
  np.testing.assert_allclose(update, expected, rtol=1e-5)
  assert is_adam_the_same == (not is_kept)


def test_updates_of_padding_are_zero() -> None:
  """Their Adam goes on."""
  update, logs, is_adam_the_same = one_update(1.0, 1.0, counts=False)
  assert logs['failed'] == 0
  assert not update.any()
  assert not is_adam_the_same


# Adam of one agent.


def adam_updates(
  gradients: np.ndarray, decay_steps: int = 0, max_norm: float = np.inf
) -> np.ndarray:
  """An agent's updates from its gradients, [steps, 3]."""
  optimizer = meta_update.per_agent_adam(LEARNING_RATE, max_norm, decay_steps)

  def step(state: Any, gradient: types.Array) -> Any:
    return optimizer.update(gradient, state)[::-1]

  first = optimizer.init(jnp.zeros(3))
  return np.asarray(jax.lax.scan(step, first, jnp.float32(gradients))[1])


def test_agents_with_small_gradients_have_the_same_influence() -> None:
  gradients = np.random.default_rng(0).normal(size=(4, 3))
  np.testing.assert_allclose(
    adam_updates(gradients), adam_updates(100 * gradients), rtol=1e-3
  )


def test_the_learning_rate_decays_by_a_cosine() -> None:
  gradients = np.random.default_rng(1).normal(size=(4, 3))
  factors = np.array([[1.0], [0.75], [0.25], [0.0]])  # (1 + cos(pi i / 3)) / 2.
  np.testing.assert_allclose(
    adam_updates(gradients, decay_steps=3),
    factors * adam_updates(gradients),
    rtol=1e-4,
    atol=1e-9,
  )
