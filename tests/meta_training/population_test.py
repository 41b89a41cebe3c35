"""Groups of agents: members are independent, and all groups do the same."""

import dataclasses
from typing import Any

import discovering
import jax
from jax import flatten_util
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks import small_runs
from configs import ablations
from disco_rl import types
from disco_rl.agent import actor
from disco_rl.agent import host_collector
from disco_rl.agent import replay
from disco_rl.environments import base
from disco_rl.environments.host import joined
from disco_rl.environments.jax_native import catch
from disco_rl.meta_training import build
from disco_rl.meta_training import device_group
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import lifetimes as lifetimes_lib
from disco_rl.meta_training import meta_gradient
from disco_rl.meta_training import meta_update
from disco_rl.meta_training import offloading
from disco_rl.meta_training import population
from disco_rl.meta_training import reporting
from disco_rl.runtime import files

TINY: dict[str, Any] = {
  'agents': 4,
  'chunk_size': 1,
  'min_replay_batches': 1.0,  # Two rollouts before the first update.
  'inner_updates': 2,
  'validation_trajectories': 4,
  'rule_prediction_embedding': (3, 1),
  'rule_policy_channels': (3, 2),
  'rule_policy_target_channels': (3,),
}


def make(**changes: Any) -> tuple[list[population.Group], types.Params]:
  """The groups of a run, and eta."""
  config = discovering.config_of(**{**TINY, **changes})
  rule, rule_params = build.make_rule(config)
  return build.make_groups(config, rule), rule_params


def make_groups(**changes: Any) -> list[population.Group]:
  """The groups of a run, without eta: drawing it takes long to compile."""
  config = discovering.config_of(**{**TINY, **changes})
  return build.make_groups(config, config.rule_settings)


def keys(seed: int, num_members: int) -> types.Array:
  return jax.random.split(jax.random.key(seed), num_members)


def leaves(tree: Any) -> dict[str, np.ndarray]:
  """Copies of all arrays by their paths."""
  return {
    jax.tree_util.keystr(path): np.array(files.to_data(x))
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  }


@jax.jit
def copied(tree: Any) -> Any:
  """A copy that may be donated."""
  return jax.tree.map(jnp.copy, tree)


def as_on_host(members: inner_loop_lib.Member) -> inner_loop_lib.Member:
  """The members as a group on the host has them."""
  added, device = members.replay.added, members.acting
  acting = host_collector.HostActing(
    device.key, device.episodes, device.rewards, copied(members.learner.params)
  )
  counters = {'start': jnp.zeros_like(added), 'added': added}
  return offloading.offloaded(
    dataclasses.replace(members, acting=acting, replay=counters)
  )


def as_on_device(members: inner_loop_lib.Member) -> inner_loop_lib.Member:
  """A copy whose replay tells how much is in it, as on a device."""
  counts: Any = members.replay
  return dataclasses.replace(
    members,
    replay=replay.ReplayState(
      rollouts=None, added=counts['added'] - counts['start']
    ),
  )


def changed(before: Any, after: Any, index: int) -> set[str]:
  """Paths of the arrays that are not the same bit for bit for one member."""
  before, after = leaves(before), leaves(after)
  assert before.keys() == after.keys()
  return {
    path
    for path, x in before.items()
    if not np.array_equal(x[index], after[path][index], equal_nan=True)
  }


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
  """Compares each array by the norm of its difference."""
  actual, expected = leaves(actual), leaves(expected)
  assert actual.keys() == expected.keys()
  for path, x in expected.items():
    assert actual[path].shape == x.shape, path
    assert actual[path].dtype == x.dtype, path
    if not np.issubdtype(x.dtype, np.floating):
      np.testing.assert_array_equal(actual[path], x, path)
      continue
    error = np.linalg.norm(np.nan_to_num(actual[path] - x, nan=0.0))
    np.testing.assert_array_equal(np.isnan(actual[path]), np.isnan(x), path)
    assert error <= tolerance * max(np.linalg.norm(np.nan_to_num(x)), 1e-3), (
      f'{path}: {error:.1e} of {np.linalg.norm(x):.1e}'
    )


@dataclasses.dataclass(frozen=True)
class Warm:
  """Four members after two steps.

  Attributes:
    group: theirs, with chunks of one.
    rule_params: eta.
    initial: before the first step.
    members: after the second step; not to be donated.
  """

  group: population.Group
  rule_params: types.Params
  initial: inner_loop_lib.Member
  members: inner_loop_lib.Member


@pytest.fixture(scope='module')
def warm() -> Warm:
  (group,), rule_params = make(**small_runs.SMALL_RULE)
  initial = group.init(keys(0, 4), rule_params)
  members = copied(initial)
  for _ in range(2):
    _, members, _ = group.step(rule_params, members)
  return Warm(group, rule_params, initial, members)


MODES = [{'mode': mode} for mode in meta_gradient.MODES]


@pytest.mark.parametrize('settings', [*MODES, ablations.VARIANTS['evolution']])
def test_only_mixed_mode_keeps_gradients(settings: dict[str, Any]) -> None:
  (group,) = make_groups(**settings, **small_runs.SMALL_RULE)
  is_mixed = settings.get('mode') == 'mixed'
  assert group.config.inner_loop.keep_gradients == is_mixed


def test_only_programs_that_run_often_are_optimized() -> None:
  """Those that make members compile in half the time."""
  (group,) = make_groups(**small_runs.SMALL_RULE)
  assert isinstance(group, device_group.DeviceGroup)
  assert group._step._runs_often
  for program in (group._initial, group._complete, group._replace):
    assert not program._runs_often


# Chunks.


@pytest.mark.parametrize(
  'num_members, sizes',
  [(1, [1, 1, 1]), (4, [1, 2, 2, 4, 4]), (6, [1, 2, 3, 3, 3, 6, 6])],
)
def test_a_chunk_is_a_divisor(
  warm: Warm, num_members: int, sizes: list[int]
) -> None:
  config = dataclasses.replace(
    warm.group.config, names=('catch/4x3',) * num_members
  )
  for chunk_size, expected in enumerate(sizes, start=1):
    assert dataclasses.replace(config, chunk_size=chunk_size).chunk == expected


@pytest.mark.slow
def test_chunk_sizes_agree(warm: Warm) -> None:
  (chunked,) = make_groups(chunk_size=2, **small_runs.SMALL_RULE)
  assert chunked.config.chunk == 2
  # A third step: the warmer Adam is, the less it amplifies rounding.
  _, start, _ = warm.group.step(warm.rule_params, copied(warm.members))
  outcomes = [
    group.step(warm.rule_params, copied(start))
    for group in (warm.group, chunked)
  ]
  (updates, members, logs), (other_updates, other_members, other_logs) = (
    outcomes
  )
  assert_close(other_updates, updates, 5e-3)
  assert_close(other_logs, logs, 1e-4)
  assert_close(other_members, members, 1e-4)
  for path, x in leaves(logs).items():
    assert x.shape == (4,), path


def test_updates_of_members_are_summed(warm: Warm) -> None:
  """Each member has an Adam; gradients are read from its first moments."""
  optimizer = warm.group.config.optimizer
  _, by_name = flatten_util.ravel_pytree(warm.rule_params)

  @jax.jit
  def again(before: Any, after: Any) -> tuple[types.Array, types.Params]:
    vectors = (after[1][0].mu - 0.9 * before[1][0].mu) / 0.1
    gradients = jax.vmap(by_name)(vectors)
    updates, _ = jax.vmap(optimizer.update)(gradients, before)
    norms = jax.vmap(optax.tree.norm)(gradients)
    return norms, jax.tree.map(
      lambda x: jnp.sum(x, axis=0, keepdims=True), updates
    )

  updates, members, logs = warm.group.step(
    warm.rule_params, copied(warm.members)
  )
  norms, expected = again(warm.members.meta_opt_state, members.meta_opt_state)
  clipped = np.minimum(logs['meta_gradient_norm'], 1.0)
  np.testing.assert_allclose(norms, clipped, rtol=1e-3)
  assert_close(updates, expected, 1e-3)


def test_updates_of_padding_do_not_count(
  warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
  """They learn as the others do."""

  def step(counts: list[bool]) -> Any:
    monkeypatch.setattr(warm.group, '_counts', jnp.array(counts))
    return warm.group.step(warm.rule_params, copied(warm.members))

  updates, members, logs = step([True, True, True, True])
  first, same_members, same_logs = step([True, True, True, False])
  last, _, _ = step([False, False, False, True])
  assert all((x != 0).any() for x in jax.tree.leaves((first, last)))
  assert_close(jax.tree.map(jnp.add, first, last), updates, 1e-5)
  assert_close((same_members, same_logs), (members, logs), 0.0)


def test_a_group_is_padded() -> None:
  names = ('catch/4x3', 'gridworld/00', 'gridworld/01')
  groups = make_groups(environments=','.join(names), agents=6, group_multiple=3)
  boards, grids = (group.config for group in groups)
  assert boards.names == 3 * names[:1]
  assert boards.counts.tolist() == [True, True, False]
  assert grids.names == 3 * names[1:]
  assert grids.counts.tolist() == 4 * [True] + 2 * [False]
  assert (boards.num_counted, grids.num_counted) == (2, 4)


def lifetimes(*failures: int) -> lifetimes_lib.Lifetimes:
  age = np.zeros(len(failures), np.int32)
  return lifetimes_lib.Lifetimes(age, age, np.array(failures, np.int32))


def test_failures_of_padding_do_not_end_a_run() -> None:
  groups = make_groups(
    environments='catch/4x3,gridworld/00', agents=2, group_multiple=2
  )
  (message,) = reporting.failures(9, groups, [lifetimes(0, 9), lifetimes(1, 9)])
  assert message.startswith('A loss or the meta-gradient of agent 1, in grid')


def test_failures_are_of_the_agents_of_the_settings() -> None:
  names = ('catch/4x3', 'gridworld/00')
  groups = make_groups(environments=','.join(names), agents=5)
  # Agents 0, 2, 4, then 1 and 3.
  failed = [lifetimes(0, 1, 0), lifetimes(0, 1)]
  messages = reporting.failures(9, groups, failed)
  for message, number in zip(messages, (2, 3), strict=True):
    assert f'of agent {number}, in {names[number % 2]}, ' in message


# Members.


def test_every_parameter_of_the_agents_changes(warm: Warm) -> None:
  for name, parts in {
    'agent': lambda member: member.learner.params,
    'target network': lambda m: m.learner.rule_state.target_params,
    'meta-value function': lambda member: member.meta_value.params,
  }.items():
    for i in range(4):
      before, after = parts(warm.initial), parts(warm.members)
      assert changed(before, after, i) == set(leaves(before)), (name, i)


def test_every_parameter_of_the_rule_gets_a_gradient(warm: Warm) -> None:
  """From some member: a ReLU of the rule may be dead for one of them."""
  before, after = warm.initial.meta_opt_state, warm.members.meta_opt_state
  moved = set().union(*(changed(before, after, i) for i in range(4)))
  assert moved == set(leaves(before))


def test_members_are_independent(warm: Warm) -> None:
  """A change of one does not affect the others."""

  @jax.jit
  def disturb(members: inner_loop_lib.Member) -> inner_loop_lib.Member:
    return jax.tree.map(
      lambda x: x.at[1].multiply(1.5) if x.dtype == jnp.float32 else x, members
    )

  updates, members, logs = warm.group.step(
    warm.rule_params, copied(warm.members)
  )
  others = warm.group.step(warm.rule_params, disturb(warm.members))
  for i in range(4):
    differences = changed(members, others[1], i) | changed(logs, others[2], i)
    assert bool(differences) == (i == 1), differences
  assert any(
    (x != y).any()
    for x, y in zip(jax.tree.leaves(updates), jax.tree.leaves(others[0]))
  )


def test_initial_members_differ(warm: Warm) -> None:
  for path, x in leaves(warm.initial.learner.params).items():
    if path.endswith("['w']"):
      assert len(np.unique(x.reshape(4, -1), axis=0)) == 4, path


# Resets.


def assert_reset(
  before: inner_loop_lib.Member,
  after: inner_loop_lib.Member,
  fresh: inner_loop_lib.Member,
  index: int,
) -> None:
  """This member is as fresh as can be, and the others are untouched."""
  for i in range(len(before.replay.added)):
    if i != index:
      assert not changed(before, after, i)
  assert not changed(before.meta_opt_state, after.meta_opt_state, index)
  assert before.replay.added[index] > 0
  assert after.replay.added[index] == 0

  def comparable(members: inner_loop_lib.Member) -> Any:
    # Storage of which nothing counts as filled, and the moments, remain.
    replay = dataclasses.replace(members.replay, rollouts=None)
    members = dataclasses.replace(members, replay=replay, meta_opt_state=())
    return {path: x[index] for path, x in leaves(members).items()}

  assert_close(comparable(after), comparable(fresh), 1e-5)
  for part in (
    lambda member: member.learner.params,
    lambda member: member.meta_value.params,
  ):
    weights = {path for path in leaves(part(before)) if path.endswith("['w']")}
    assert weights <= changed(part(before), part(after), index)


def test_one_of_the_members_is_reset(warm: Warm) -> None:
  expired = np.array([False, False, True, False])
  after = warm.group.reset_expired(keys(5, 4), copied(warm.members), expired)
  fresh = warm.group.init(keys(5, 4), warm.rule_params)
  assert_reset(warm.members, after, fresh, 2)
  # It goes on learning.
  _, after, logs = warm.group.step(warm.rule_params, after)
  assert all(np.isfinite(x).all() for x in leaves(logs).values())
  added = after.replay.added.tolist()
  # Two for each update, and before the first update of a life two more.
  assert added == [14, 14, 6, 14]


# Environments on the host.


class HostCatch(base.HostEnvironment):
  """Catch as if it were on the host."""

  def __init__(self, environment: catch.Catch, num_environments: int):
    self.spec = environment.spec
    self.num_environments = num_environments
    self.resets = 0
    self._reset = jax.jit(jax.vmap(environment.reset))
    self._step = jax.jit(jax.vmap(environment.step_autoreset))
    self._keys = keys(0, num_environments)

  def reset(self) -> types.PyTree:
    self.resets += 1
    self._state, observation = self._reset(self._keys)
    return np.asarray(observation)

  def step(self, action: Any) -> types.TimeStep:
    self._state, timestep = self._step(
      self._state, jnp.asarray(action), self._keys
    )
    return jax.tree.map(np.asarray, timestep)

  def close(self) -> None:
    pass


def same_noise(
  key: types.Array, num_actions: int, length: int, num_environments: int
) -> types.Array:
  """For `actor.policy_noise`: the two kinds of actor use keys differently."""
  del key
  return jax.random.gumbel(
    jax.random.key(7), (length + 1, num_environments, num_actions)
  )


@dataclasses.dataclass(frozen=True)
class Pair:
  """The same two members in both kinds of environment, after two steps.

  Attributes:
    host: the group on the host.
    environments: its environments.
    rule_params: eta.
    on_host: updates, members and logs of the last step.
    on_device: the same of the other group.
  """

  host: host_group.HostGroup
  environments: list[HostCatch]
  rule_params: types.Params
  on_host: meta_update.MetaUpdates
  on_device: meta_update.MetaUpdates


def in_turn(
  learning: Any,
  acting: Any,
  num_updates: int,
  hand_over: Any,
  collect: Any,
  learn: Any,
) -> tuple[Any, Any]:
  """For `collect_while_learning`: each rollout waits for the update before."""
  for _ in range(num_updates):
    acting, batch = collect(hand_over(learning, acting))
    learning = learn(learning, batch)
  return learning, hand_over(learning, acting)


@pytest.fixture(scope='module')
def pair() -> Pair:
  """With but one column nothing in the environments is random."""
  (device,), rule_params = make(
    environments='catch/4x1',
    agents=2,
    save_every=2,
    rule_meta_rnn_size=0,
    **small_runs.SMALL_RULE,
  )
  assert isinstance(device, device_group.DeviceGroup)
  environments = [HostCatch(catch.Catch(4, 1), 2) for _ in range(2)]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(actor, 'policy_noise', same_noise)
    patch.setattr(host_collector, 'collect_while_learning', in_turn)
    host = host_group.HostGroup(
      device.config, lambda _: environments, device.estimator
    )
    on_device = device.step(rule_params, device.init(keys(0, 2), rule_params))
    members = device.init(keys(0, 2), rule_params)
    on_host = host.step(rule_params, as_on_host(members))
    on_device = device.step(rule_params, on_device[1])
    on_host = host.step(rule_params, on_host[1])
  return Pair(host, environments, rule_params, on_host, on_device)


def test_both_kinds_of_group_do_the_same(pair: Pair) -> None:
  updates, members, logs = pair.on_host
  expected_updates, expected_members, expected_logs = pair.on_device
  assert_close(logs, expected_logs, 1e-3)
  # On the host also the parameters wait that act next, those before the update.
  expected = as_on_host(expected_members)
  acting = dataclasses.replace(expected.acting, params=members.acting.params)
  expected = dataclasses.replace(expected, acting=acting)
  assert_close(members, expected, 1e-3)
  # Adam, still cold, enlarges the rounding of small gradients.
  assert_close(updates, expected_updates, 2e-3)
  assert (members.acting.episodes.finished > 0).all()


def test_one_of_the_members_on_the_host_is_reset(pair: Pair) -> None:
  members = pair.host.init(keys(0, 2), pair.rule_params)
  _, members, _ = pair.host.step(pair.rule_params, members)
  resets = [environment.resets for environment in pair.environments]
  before = offloading.select(members, np.arange(2))
  after = pair.host.reset_expired(keys(5, 2), members, np.array([True, False]))
  fresh = pair.host.init(keys(5, 2), pair.rule_params)
  assert_reset(*map(as_on_device, (before, after, fresh)), 0)
  resets[0] += 1
  assert [environment.resets for environment in pair.environments] == resets


def test_resumed_members_on_the_host_start_an_episode(pair: Pair) -> None:
  members = pair.host.init(keys(0, 2), pair.rule_params)
  members = discovering.in_episodes(members)
  resumed = pair.host.resume(members, 1)
  for i in range(2):
    assert changed(members, resumed, i) == {'.acting.episodes.running'}
  assert (resumed.acting.episodes.running == 0).all()
  # They can be overwritten in place, as each micro-batch does.
  offloading.overwrite(
    resumed, np.array([0]), offloading.select(resumed, np.array([1]))
  )


def test_joined_environments_differ() -> None:
  with pytest.raises(ValueError, match='differ'):
    joined.JoinedEnvironment(
      [HostCatch(catch.Catch(4, 1), 2), HostCatch(catch.Catch(5, 1), 2)]
    )
