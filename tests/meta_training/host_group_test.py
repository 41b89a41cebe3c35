"""Micro-batches of members on the host: their order, memory and sizes."""

from collections.abc import Callable
import dataclasses
import functools
import gc
import pathlib
from typing import Any
from typing import cast
from unittest import mock

import discovering
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl import types
from disco_rl.agent import cohort
from disco_rl.agent import host_collector
from disco_rl.meta_training import footprint
from disco_rl.meta_training import host_group
from disco_rl.meta_training import inner_loop as inner_loop_lib
from disco_rl.meta_training import offloading
from disco_rl.meta_training import population
from disco_rl.planning import fitting
from disco_rl.runtime import compilation
from disco_rl.runtime import memory
from disco_rl.runtime import sharding
from disco_rl.update_rules import actor_critic

EACH, LENGTH, WIDTH = 2, 3, 50
SETTINGS: dict[str, Any] = {
  'inner_updates': 4,
  'unroll_length': LENGTH,
  'batch_size': 3,
  'on_policy_share': 0.4,
  'replay_capacity': 400,
  'hidden_sizes': (64,),
  'meta_value_hidden_sizes': (4,),
}


class Numbered(discovering.Counting):
  """Observes only its agent's number: larger inputs enlarge rounding."""

  def _observe(self) -> np.ndarray:
    return np.full((EACH, WIDTH), 0.1 * self._number, np.float32)


@dataclasses.dataclass(frozen=True)
class Step:
  """Two meta-steps: total of the updates, members, logs, and bytes of device.

  Attributes:
    group: that took them.
    updates: [devices, ...].
    members: [n, ...].
    logs: [n].
    device_bytes: most that the device held while it learned.
    acted: parameters of each rollout of the last micro-batch.
    learned: those before each of its updates.
  """

  group: host_group.HostGroup
  updates: types.Params
  members: inner_loop_lib.Member
  logs: types.Logs
  device_bytes: int
  acted: list[types.Params]
  learned: list[types.Params]


RULE_PARAMS = {'module': {'w': jnp.zeros((2,))}}


def make_group(
  num_members: int, chunk_size: int, num_padding: int = 0, **changes: Any
) -> host_group.HostGroup:
  config = discovering.config_of(
    **{**SETTINGS, **changes}, agents=num_members, chunk_size=chunk_size
  )
  group = discovering.group_config(
    config,
    actor_critic.ActorCritic(num_bins=3),
    discovering.counting_spec(WIDTH),
    num_padding=num_padding,
  )
  return host_group.HostGroup(
    group,
    lambda _: [Numbered(i, WIDTH) for i in range(num_members)],
    discovering.MeanReward(group.inner_loop),
  )


def footprint_of(group: host_group.HostGroup) -> footprint.Footprint:
  return footprint.of_group(group, group.named_calls(RULE_PARAMS), 1)


def take_steps(
  num_members: int, chunk_size: int, num_padding: int = 0, **changes: Any
) -> Step:
  group = make_group(num_members, chunk_size, num_padding, **changes)
  held: list[int] = []
  acted: list[types.Params] = []
  learned: list[types.Params] = []
  collector = group.cohort.micro_batches[-1].collector
  act = collector.act

  def watched_act(acting: Any) -> Any:
    acted.append(jax.tree.map(np.array, acting.params))
    return act(acting)

  collector.act = watched_act  # type: ignore[method-assign]

  class Watched(offloading.TrajectoryStore):
    def add(self, update: inner_loop_lib.Trajectory) -> None:
      super().add(update)
      held.append(sum(x.nbytes for x in jax.live_arrays()))
      learned.append(jax.tree.map(np.array, update.states.params))

  gc.collect()  # What tests before have left would be freed in between.
  start = sum(x.nbytes for x in jax.live_arrays())
  keys = jax.random.split(jax.random.key(0), 4)[:num_members]
  members = group.init(keys, RULE_PARAMS)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(offloading, 'TrajectoryStore', Watched)
    for _ in range(2):
      updates, members, logs = group.step(RULE_PARAMS, members)
  assert len(held) == 2 * 4 * num_members // chunk_size
  collector.act = act  # type: ignore[method-assign]
  device_bytes = max(held) - start
  return Step(group, updates, members, logs, device_bytes, acted, learned)


# Shared by tests, which only read.
steps_of = functools.cache(take_steps)


@pytest.mark.slow
def test_micro_batches_of_any_size_do_the_same() -> None:
  one, two, four = (steps_of(4, size) for size in (1, 2, 4))
  for other in (two, four):
    jax.tree.map(
      lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5),
      (one.updates, _numbers(one.members), one.logs),
      (other.updates, _numbers(other.members), other.logs),
    )
  # Each member has met its own environments: rewards are its number, or one
  # more, in every transition.
  returns = one.members.acting.episodes.running / (2 * 5 * LENGTH)
  for i in range(4):
    assert (returns[i] >= i).all() and (returns[i] <= i + 1).all()
  np.testing.assert_array_equal(one.members.replay['added'], 4 * [2 * 4 * EACH])


@pytest.mark.parametrize('save_every', [1, 2])
def test_arguments_have_the_forms_that_are_divided(
  monkeypatch: pytest.MonkeyPatch, save_every: int
) -> None:
  """Several devices could divide them, although there is one here."""
  specs = {}
  make = sharding.Programs.make

  def record(*args: Any, **changes: Any) -> compilation.Program:
    program = make(*args, **changes)
    specs[program] = args[2]
    return program

  monkeypatch.setattr(sharding.Programs, 'make', record)
  group = make_group(2, 2, save_every=save_every)
  calls = group.named_calls(RULE_PARAMS)
  for name in ('learn', 'outer_loss', 'backward', 'meta_update'):
    program, arguments = calls[name]
    divided = jax.tree.structure(specs[program])
    assert len(divided.flatten_up_to(arguments)) == divided.num_leaves > 1


def test_updates_of_padding_do_not_count() -> None:
  """If two of four are padding, the sum is that of the first two alone."""
  padded, two = steps_of(4, 2, 2), steps_of(2, 2)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5),
    padded.updates,
    two.updates,
  )
  every = jax.tree.leaves(steps_of(4, 2).updates)
  assert all(
    (x != y).all() for x, y in zip(every, jax.tree.leaves(two.updates))
  )


def test_a_new_member_fills_its_replay_alone() -> None:
  """Before its first update, in its own environments only."""
  group = make_group(2, 2, min_replay_batches=2.0)
  # Two batches of three: three rollouts of two trajectories.
  assert group.fill_steps == 2 * EACH * LENGTH
  (micro,) = group.cohort.micro_batches
  made: Any = group.cohort.environments
  keys = jax.random.split(jax.random.key(0), 2)
  _, members, _ = group.step(RULE_PARAMS, group.init(keys, RULE_PARAMS))
  steps = [x.save_state()['counts'][2] for x in made]
  each = group.config.inner_loop.steps(updates=4, validations=1) // EACH
  assert steps == 2 * [each + 2 * LENGTH]
  assert group.cohort.counters['added'].tolist() == 2 * [(4 + 2) * EACH]

  members = group.reset_expired(keys, members, np.array([False, True]))
  _, members, _ = group.step(RULE_PARAMS, members)
  steps = [x.save_state()['counts'][2] for x in made]
  assert steps == [2 * each + 2 * LENGTH, each + 2 * LENGTH]
  counters = group.cohort.counters
  assert counters['added'].tolist() == [20, 24]
  assert counters['start'].tolist() == [0, 12]
  # All that was stored since then is its own.
  rows = micro.collector.replays[1].gather(np.arange(12))
  stored = micro.collector._programs.row_format.unpack(rows)
  assert (stored.observation == np.float32(0.1)).all()


def one_after_the_other(
  learning: Any,
  acting: Any,
  num_updates: int,
  hand_over: Callable[[Any, Any], Any],
  collect: Callable[[Any], tuple[Any, Any]],
  learn: Callable[[Any, Any], Any],
) -> tuple[Any, Any]:
  """Acts with the parameters of one update before, and learns when it has."""
  acting, batch = collect(acting)
  for _ in range(num_updates - 1):
    acting = hand_over(learning, acting)
    acting, next_batch = jax.block_until_ready(collect(acting))
    learning = jax.block_until_ready(learn(learning, batch))
    batch = next_batch
  acting = hand_over(learning, acting)
  return learn(learning, batch), acting


def test_acting_while_learning_changes_nothing(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  """Bit for bit: the threads share no data."""
  together = steps_of(2, 2)
  monkeypatch.setattr(
    host_collector, 'collect_while_learning', one_after_the_other
  )
  apart = take_steps(2, 2)
  jax.tree.map(
    np.testing.assert_array_equal,
    (together.updates, _numbers(together.members), together.logs),
    (apart.updates, _numbers(apart.members), apart.logs),
  )


def test_rollouts_act_with_the_parameters_of_their_time() -> None:
  """Those of one update before, but the last ones in validation."""
  step = steps_of(2, 2)
  # Two meta-steps of four rollouts to learn from, and one of validation.
  assert (len(step.acted), len(step.learned)) == (2 * 5, 2 * 4)
  # The parameters after 0, 1, ..., 8 updates.
  after = [*step.learned, step.members.learner.params]
  for rollout, updates in enumerate([0, 0, 1, 2, 4, 3, 4, 5, 6, 8]):
    jax.tree.map(
      np.testing.assert_array_equal, step.acted[rollout], after[updates]
    )
  assert all((x != y).any() for x, y in zip(*map(jax.tree.leaves, after[3:5])))


@pytest.mark.slow
def test_offloaded_members_take_no_memory_of_the_device() -> None:
  """Micro-batches of one hold what one alone does; four at once, far more."""
  alone = take_steps(1, 1).device_bytes
  in_micro_batches = steps_of(4, 1).device_bytes
  at_once = steps_of(4, 4).device_bytes
  assert alone > 200_000
  assert in_micro_batches < 1.02 * alone
  assert at_once > 3 * alone


@pytest.mark.slow
def test_gradients_that_no_one_reads_take_no_memory() -> None:
  """Those of four updates, each as large as the parameters."""
  with_them, without = (
    take_steps(1, 1, mode=mode) for mode in ('mixed', 'plain')
  )
  gradients = 4 * memory.tree_bytes(without.members.learner.params)
  saved = with_them.device_bytes - without.device_bytes
  assert saved == pytest.approx(gradients, rel=0.05)
  jax.tree.map(
    np.testing.assert_array_equal, with_them.updates, without.updates
  )
  estimates = [
    footprint_of(step.group).other_device_bytes['outer_loss']
    for step in (with_them, without)
  ]
  assert estimates[0] - estimates[1] == gradients


def test_the_estimate_of_what_waits_on_the_device() -> None:
  """Against the arrays that are alive when the last update has been made."""
  step = take_steps(2, 1)
  calls = step.group.named_calls(RULE_PARAMS)
  _, (_, members, validation) = calls['outer_loss']
  additional = footprint_of(step.group).other_device_bytes
  updates = additional['outer_loss']
  estimate = updates + memory.device_bytes(members)
  assert estimate == pytest.approx(step.device_bytes, rel=0.2)
  assert additional['backward'] == pytest.approx(
    estimate * 3 / 4 + memory.device_bytes(validation), rel=0.1
  )


def test_a_population_that_does_not_fit_is_refused(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  needs = footprint.needs([make_group(4, 2)], RULE_PARAMS)
  needed = max(load.measurement()().total for load in needs.loads)
  host = needs.host
  monkeypatch.setattr(fitting, 'device_bytes', lambda _: needed)
  monkeypatch.setattr(memory, 'host_bytes', lambda: host)
  needs.check()
  monkeypatch.setattr(memory, 'host_bytes', lambda: host - 1)
  with pytest.raises(ValueError, match='replay_on_disk=True'):
    needs.check()
  monkeypatch.setattr(memory, 'host_bytes', lambda: host)
  monkeypatch.setattr(fitting, 'device_bytes', lambda _: needed - 1)
  with pytest.raises(
    fitting.DoesNotFitError,
    match='2 at a time.*help: lower chunk_size, set torso.*, lower batch_size,',
  ):
    needs.check()


@pytest.mark.parametrize(
  ('size', 'is_offered'), [(0, True), (1, False), (32, False), (33, True)]
)
def test_chunks_are_offered_where_they_may_be_smaller(
  size: int, is_offered: bool
) -> None:
  group = make_group(2, 1, torso_chunk_size=size)
  load = footprint.needs([group], RULE_PARAMS).loads[0]
  assert ('set torso_chunk_size=-1' in load.remedies) == is_offered


def test_programs_share_a_device_with_what_waits_of_other_groups(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  groups = [make_group(2, 1), make_group(4, 1, offload=True)]
  of_group = footprint.of_group
  monkeypatch.setattr(
    footprint,
    'of_group',
    lambda group, calls, checkpoints: dataclasses.replace(
      of_group(group, calls, checkpoints),
      idle_device_bytes=10 * group.config.num_members,
    ),
  )
  loads = footprint.needs(groups, RULE_PARAMS).loads
  each = len(loads) // 2
  for group, own, of_others in (
    (groups[0], loads[:each], 40),
    (groups[1], loads[each:], 20),
  ):
    additional = footprint_of(group).other_device_bytes
    for load in own:
      assert load.other_bytes == additional.get(load.name, 0) + of_others
      is_offloaded = group.config.inner_loop.config.offload
      assert ('set offload=True' in load.remedies) != is_offloaded


@pytest.mark.parametrize('is_on_disk', [False, True])
def test_replay_is_moved_to_disk_only_once(is_on_disk: bool) -> None:
  group = make_group(2, 1, replay_on_disk=is_on_disk)
  needs = footprint.needs([group], RULE_PARAMS)
  with pytest.raises(fitting.MachineTooSmallError) as refused:
    needs.check_host(needs.host - 1)
  assert ('replay' in str(refused.value)) != is_on_disk
  replay = (
    2 * host_collector.replay_footprint(group.config.inner_loop.agent).memory
  )
  assert (replay == 0) == is_on_disk
  footprint.check_replay([group], replay)
  if not is_on_disk:
    with pytest.raises(fitting.MachineTooSmallError):
      footprint.check_replay([group], replay - 1)


def test_the_first_rollout_and_those_of_validation_are_waited_for() -> None:
  rollout = 2 * EACH * LENGTH  # Actions of two members.
  assert footprint_of(make_group(4, 2)).schedule == {
    'learn': (2 * 4, rollout, 0),
    'outer_loss': (2, 0, 2 * rollout),
    'backward': (2 * 4, 0, 0),
  }


def test_replays_can_be_saved_once_they_have_directories(
  tmp_path: pathlib.Path,
) -> None:
  group = make_group(2, 1)
  with pytest.raises(ValueError, match='without a directory'):
    group.cohort.save_replays(keep=1)
  group.cohort.open_replays(tmp_path)
  group.cohort.save_replays(keep=1)


def test_environments_resume_in_micro_batches_of_another_size() -> None:
  """Each agent continues in its own, as on other devices."""
  stepped, other = steps_of(4, 1), make_group(4, 2)
  saved = stepped.group.cohort.save_episodes()
  assert saved is not None
  other.resume(stepped.members, 1, saved)
  jax.tree.map(
    np.testing.assert_array_equal, other.cohort.save_episodes(), saved
  )
  for i in range(4):
    counts = saved[str(i)]['environment']['counts']
    assert counts.tolist() == [i, 1, 2 * 5 * LENGTH]


def test_micro_batches_have_equal_parts_on_all_devices() -> None:
  config: Any = mock.Mock(num_members=12, chunk=2)
  config.mesh.shape = {sharding.AGENTS: 3}
  divide: Any = population.GroupConfig.micro_batches
  one, two = divide.fget(config)
  assert one.tolist() == [0, 1, 4, 5, 8, 9]
  assert two.tolist() == [2, 3, 6, 7, 10, 11]


def test_members_of_a_second_process(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  """It has members 4 to 7 of twelve, on the second of three rows of devices."""
  monkeypatch.setattr(
    cohort.joined, 'JoinedEnvironment', lambda each: mock.Mock(each=each)
  )
  make_collector = mock.Mock(side_effect=lambda *_: mock.Mock())
  monkeypatch.setattr(host_collector, 'Programs', mock.Mock())
  monkeypatch.setattr(host_collector, 'HostCollector', make_collector)
  group = object.__new__(host_group.HostGroup)
  config: Any = mock.Mock(
    num_members=12, chunk=2, local_members=range(4, 8), is_in_all_processes=True
  )
  config.mesh.shape = {sharding.AGENTS: 3}
  config.local_part = lambda tree: jax.tree.map(lambda x: x[4:8], tree)
  group.config = config
  environments: Any = [mock.Mock() for _ in range(4)]
  group.cohort = cohort.Cohort(
    config.inner_loop.agent,
    lambda: environments,
    [np.array([0, 1, 4, 5, 8, 9]), np.array([2, 3, 6, 7, 10, 11])],
    config.local_members,
  )
  one, two = group.cohort.micro_batches
  assert (one.own.tolist(), two.own.tolist()) == ([0, 1], [2, 3])
  for i, made in enumerate(make_collector.call_args_list):
    agent, environment, number, _ = made.args
    assert agent is config.inner_loop.agent and number == 2
    assert environment.each == environments[2 * i : 2 * i + 2]

  one_, two_ = (cast(Any, micro.collector) for micro in (one, two))
  group.cohort.open_replays(tmp_path)
  one_.open_replays.assert_called_once_with([tmp_path / '4', tmp_path / '5'])
  two_.open_replays.assert_called_once_with([tmp_path / '6', tmp_path / '7'])

  saved = {
    str(i): {'environment': f'of {i}', 'keys': np.array(i)} for i in range(12)
  }
  members = inner_loop_lib.Member(*(np.arange(12) for _ in range(5)))
  one_.replays, two_.replays = (
    [mock.Mock(start=i, added=10 + i) for i in numbers]
    for numbers in ((4, 5), (6, 7))
  )
  resumed = group.resume(members, 3, saved)
  assert resumed.learner.tolist() == [4, 5, 6, 7]
  assert resumed.replay['added'].tolist() == [14, 15, 16, 17]
  (restored,) = two_.actor.restore.call_args.args
  assert restored['environment'] == ['of 6', 'of 7']
  assert restored['keys'].tolist() == [6, 7]

  # Member 7 begins anew, the second of two in the second micro-batch.
  config.split = lambda tree: tree
  config.local_part = lambda tree: jax.tree.map(lambda x: x[2:4], tree)
  group._initial = lambda keys, _: inner_loop_lib.Newborn(*(3 * [10 + keys]))  # type: ignore[assignment]
  after = group.reset_expired(
    np.arange(12)[:, None],
    inner_loop_lib.Member(*(np.zeros((4, 1)) for _ in range(5))),
    np.arange(12) == 7,
  )
  assert after.learner.tolist() == [[0], [0], [0], [17]]
  one_.reset.assert_not_called()
  two_.reset.assert_called_once_with(1, environments[3].reset.return_value)
  assert [x.reset.call_count for x in environments] == [0, 0, 0, 1]


def test_memory_and_disk_beside_devices() -> None:
  """Every member is offloaded; replay is in memory, and on the disk."""
  two, four, older = (
    footprint.needs([make_group(n, 1)], RULE_PARAMS, keep)
    for n, keep in ((2, 2), (4, 2), (2, 3))
  )
  assert (four.host, four.disk) == (2 * two.host, 2 * two.disk)
  observations = SETTINGS['replay_capacity'] * (LENGTH + 1) * WIDTH * 4
  parameters = 4 * WIDTH * 64
  assert (
    2 * observations < two.host < 2 * (1.5 * observations + 10 * parameters)
  )
  assert two.disk > 2 * (observations + 3 * 3 * parameters)
  # Of one more checkpoint: two moments, what learns and what acts.
  assert older.disk - two.disk > 2 * 4 * parameters


def _numbers(members: inner_loop_lib.Member) -> Any:
  """All arrays, keys as their data."""
  key = jax.random.key_data(members.acting.key)
  acting = dataclasses.replace(members.acting, key=key)
  return dataclasses.replace(members, acting=acting)
