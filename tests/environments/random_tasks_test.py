"""Tests of tasks at random: levels, chains, and who draws which."""

import collections
import pathlib
from typing import Any

import conformance
import jax
import numpy as np
import pytest

from configs import quickstart
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import random_catch
from disco_rl.environments.jax_native import random_chains
from disco_rl.environments.jax_native import random_grids
from disco_rl.environments.jax_native import task_distribution
from disco_rl.evaluation import normalization
from disco_rl.meta_training import build
from disco_rl.meta_training import meta_trainer
from disco_rl.runtime import checkpointing

NUM_LEVELS = 600
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def draw(distribution: task_distribution.TaskDistribution, num: int) -> Any:
  """Tasks [num] as a record of NumPy arrays."""
  keys = jax.random.split(jax.random.key(0), num)
  tasks = jax.jit(jax.vmap(distribution.draw))(keys)
  return jax.tree.map(np.asarray, tasks)


@pytest.fixture(scope='module')
def levels() -> Any:
  return draw(random_grids.RandomGrid(), NUM_LEVELS)


def reachable(
  walls: np.ndarray, start: tuple[int, ...]
) -> set[tuple[int, ...]]:
  """Cells that a walk from `start` visits, breadth first."""
  found, queue = {start}, collections.deque([start])
  while queue:
    row, column = queue.popleft()
    for down, right in MOVES:
      to = (row + down, column + right)
      is_inside = all(0 <= x < n for x, n in zip(to, walls.shape))
      if is_inside and not walls[to] and to not in found:
        found.add(to)
        queue.append(to)
  return found


def quantiles(values: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
  """Deciles of log-uniform numbers, on a scale from 0 to 1."""
  assert values.min() >= bounds[0] and values.max() <= bounds[1]
  low, high = np.log(bounds)
  scaled = (np.log(values) - low) / (high - low)
  return np.quantile(scaled, np.arange(0.1, 1, 0.1))


class TestLevels:
  def test_the_floor_is_connected_and_large_enough(self, levels: Any) -> None:
    sides, wall_counts = set(), set()
    for walls in levels.walls:
      rows, columns = np.nonzero(~walls)
      cells = set(zip(rows.tolist(), columns.tolist()))
      assert reachable(walls, min(cells)) == cells
      size = rows.max() + 1, columns.max() + 1
      num_walls = size[0] * size[1] - len(cells)
      assert len(cells) >= 12  # Of 16 at most 4 are walls.
      sides.update(size)
      wall_counts.add(num_walls)
    assert sides == set(range(4, 11))
    assert wall_counts == set(range(16))

  def test_objects_are_on_floor_and_apart_from_starts(
    self, levels: Any
  ) -> None:
    counts = collections.Counter[int]()
    for walls, cells, places, kinds in zip(
      levels.walls, levels.object_cell, levels.places, levels.object_kind
    ):
      present = cells[kinds >= 0]
      assert (cells[kinds < 0] == -1).all()
      assert len(set(present)) == len(present)
      floor = set(np.flatnonzero(~walls))
      assert set(present) <= floor
      assert sorted(floor - set(present)) == list(places[places >= 0])
      counts[len(present)] += 1
    # Expected 120 of each; the standard deviation is 10.
    assert set(counts) == {1, 2, 3, 4, 5}
    assert all(80 < count < 160 for count in counts.values())
    # In all parts of the board, not only where the search begins.
    assert len(np.unique(levels.object_cell)) > 95

  def test_numbers_have_their_distributions(self, levels: Any) -> None:
    exists = levels.object_kind >= 0
    reward = levels.object_reward
    assert (reward[:, 0] > 0).all()
    assert abs(reward[:, 0].mean() - 0.5) < 0.06
    others = reward[:, 1:][exists[:, 1:]]
    assert others.min() < -0.9 and others.max() > 0.9
    assert abs(others.mean()) < 0.08
    want = np.arange(0.1, 1, 0.1)
    for values, bounds in (
      (levels.object_termination[exists], (0.01, 1.0)),
      (levels.object_respawn[exists], (0.001, 0.1)),
      (levels.step_limit, (20, 750)),
    ):
      np.testing.assert_allclose(quantiles(values, bounds), want, atol=0.08)
    for values in (reward, levels.object_termination, levels.object_respawn):
      assert (values[~exists] == 0).all()

  def test_lpg_has_the_published_numbers(self) -> None:
    # Sums over objects of reward, termination, respawn: good ones, bad ones.
    want = {
      'dense': ((11, 11), 500, [2.0, 0.0, 0.1, -2.0, 0.5, 0.6]),
      'sparse': ((13, 13), 50, [1.0, 1.0, 0.0, -1.0, 1.0, 0.0]),
      'long': ((11, 11), 1000, [2.0, 0.0, 0.02, -2.0, 1.0, 2.0]),
      'longer': ((7, 9), 2000, [2.0, 0.2, 0.02, -5.0, 4.0, 5.0]),
      'long_dense': ((11, 11), 2000, [4.0, 0.0, 0.02, 0.0, 0.0, 0.0]),
    }
    tasks = {name: random_grids.make_lpg(name) for name in want}
    assert tuple(want) == random_grids.LPG_TASKS
    keys = jax.random.split(jax.random.key(0), 2)
    draw_two = jax.jit(jax.vmap(lambda task, key: task.draw(key), (None, 0)))
    for name, (size, limit, sums) in want.items():
      level = jax.tree.map(np.asarray, draw_two(tasks[name], keys))
      floor = np.zeros((13, 13), bool)
      floor[: size[0], : size[1]] = True
      np.testing.assert_array_equal(level.walls, [~floor, ~floor])
      assert (level.step_limit == limit).all()
      assert (level.object_cell[0] != level.object_cell[1]).any()
      is_good = level.object_reward[0] > 0
      got = [
        numbers[0][chosen].sum()
        for chosen in (is_good, ~is_good)
        for numbers in (
          level.object_reward,
          level.object_termination,
          level.object_respawn,
        )
      ]
      np.testing.assert_allclose(got, sums, rtol=1e-6)
    assert draw_two._cache_size() == 1, 'one program serves all tasks'

  def test_a_level_is_played_as_described(self) -> None:
    """Every step of 1,500 environments against a simulation in NumPy."""
    level: Any = registry.make('random_grid/0', 1, 0)
    played = conformance.check(lambda _: level, 60, num_environments=1500)
    level = jax.tree.map(np.asarray, level)
    cell = played.observation[..., :100].argmax(-1)
    present = played.observation[..., 100:] == 1
    end = np.asarray(played.timestep.is_last)
    time = steps_of_episodes(end)

    moved = np.where(
      level.walls.reshape(-1)[targets(cell[:-1], played.action)],
      cell[:-1],
      targets(cell[:-1], played.action),
    )
    is_here = moved[..., None] == level.object_cell
    collected = present[:-1] & is_here
    reward = (collected * level.object_reward).sum(-1)
    np.testing.assert_allclose(played.timestep.reward, reward, rtol=1e-6)
    # Episodes end at the limit, else only by an object, as often as it says.
    assert end[time == level.step_limit].all()
    early = time < level.step_limit
    assert not end[early & ~collected.any(-1)].any()
    went_on, gone = ~end, ~present[:-1] & ~is_here
    np.testing.assert_array_equal(cell[1:][went_on], moved[went_on])
    assert (present[1:] & collected)[went_on].sum() == 0
    assert (~present[1:] & present[:-1] & ~collected)[went_on].sum() == 0
    for k in range(5):
      assert_frequency(
        end[early & collected[..., k]], level.object_termination[k]
      )
      assert_frequency(
        present[1:][..., k][went_on & gone[..., k]], level.object_respawn[k]
      )
    # The next one begins with all objects, in any place without one.
    assert present[1:][end].all() and present[0].all()
    assert set(cell[1:][end]) == set(level.places[level.places >= 0])
    # The returns of first episodes, which all are over.
    first = np.cumsum(end, axis=0) - end == 0
    returns = (played.timestep.reward * first).sum(0)
    scale = normalization.find_scale('random_grid/0')
    assert scale is not None
    error = returns.std() / np.sqrt(len(returns))
    assert abs(returns.mean() - scale.low) < 4 * error
    assert scale.low < scale.high < returns.max() + 1


def targets(cell: np.ndarray, action: np.ndarray) -> np.ndarray:
  """Where actions lead on a board of 10 x 10 without walls."""
  step = np.array(MOVES)[action]
  row = np.clip(cell // 10 + step[..., 0], 0, 9)
  return row * 10 + np.clip(cell % 10 + step[..., 1], 0, 9)


def steps_of_episodes(end: np.ndarray) -> np.ndarray:
  """How many steps of its episode each step [T, B] completes."""
  steps, before = np.zeros(end.shape, int), np.zeros(end.shape[1], int)
  for t, is_last in enumerate(end):
    steps[t] = before + 1
    before = np.where(is_last, 0, steps[t])
  return steps


def assert_frequency(happened: np.ndarray, probability: float) -> None:
  assert happened.size > 100
  error = np.sqrt(probability * (1 - probability) / happened.size)
  assert abs(happened.mean() - probability) < 4.5 * error


class TestChains:
  def test_numbers_have_their_distributions(self) -> None:
    chains = draw(random_chains.RandomChain(), 600)
    np.testing.assert_array_equal(chains.min_length, chains.max_length)
    assert set(chains.max_length) == set(range(5, 51))
    np.testing.assert_array_equal(chains.payoff.sum((1, 2)), np.zeros(600))
    np.testing.assert_array_equal(abs(chains.payoff), np.ones((600, 1, 2)))
    # The first action is decisive; it lures nobody, and is seen.
    assert not chains.decision_step.any() and not chains.lure.any()
    assert not chains.hides_choice.any()
    assert chains.spec.observation.shape == (50 + 1 + 2 + 20,)
    coins = np.stack(
      [chains.payoff[:, 0, 0] > 0, chains.noise == 1, chains.bit_rate == 0.5]
    )
    assert set(chains.noise) == {0, 1} and set(chains.bit_rate) == {0, 0.5}
    # Each heads half of the time, and none with another.
    np.testing.assert_allclose(np.cov(coins), np.eye(3) / 4, atol=0.04)


def test_boards_of_catch_are_equally_probable() -> None:
  boards = draw(random_catch.RandomCatch(), 800).board
  sizes, counts = np.unique(boards, axis=0, return_counts=True)
  want = [[rows, columns] for rows in range(2, 8) for columns in (3, 4)]
  np.testing.assert_array_equal(sizes, want)
  for count in counts:
    assert_frequency(np.arange(800) < count, 1 / 12)


@pytest.mark.parametrize(
  'name', ['random_grid', 'lpg/sparse', 'random_chain', 'random_catch']
)
def test_distributions_draw_a_task_for_each_state(name: str) -> None:
  """Within an agent the task is shared; here each has its own."""
  distribution: Any = registry.make(name, 1, 0)
  conformance.check(lambda _: distribution, 60, num_environments=8)
  task = registry.make(f'{name}/3', 1, 0)
  assert task.spec == distribution.spec


def test_each_distribution_has_a_program_of_its_own() -> None:
  # JAX may take the structures of dataclasses without leaves for equal.
  for _ in range(40):

    @types.record
    class Constant(task_distribution.TaskDistribution):
      def draw(self, key: types.Array) -> base.JaxEnvironment:
        del key
        return self

    assert type(task_distribution.numbered(Constant(), 0)) is Constant


def test_numbers_name_tasks() -> None:
  again, same, other = (
    jax.tree.leaves(registry.make(f'random_grid/{number}', 1, seed))
    for number, seed in ((3, 0), (3, 1), (4, 0))
  )
  assert all(map(np.array_equal, again, same))
  assert not all(map(np.array_equal, again, other))


def test_subsets_are_nested_and_hold_so_many_tasks() -> None:
  """The tasks that 300 agents meet, by the rewards of their objects."""
  found = {}
  for name in ('of_1', 'of_4', 'of_16'):
    subset: Any = registry.make(f'random_grid/{name}', 1, 0)
    rewards = draw(subset, 300).object_reward
    found[name] = {row.tobytes() for row in rewards}
    counts = collections.Counter(row.tobytes() for row in rewards)
    assert min(counts.values()) > 150 / len(found[name]) - 5, 'as probable'
  assert [len(tasks) for tasks in found.values()] == [1, 4, 16]
  assert found['of_1'] < found['of_4'] < found['of_16']
  numbered: Any = [registry.make(f'random_grid/{i}', 1, 0) for i in range(16)]
  tests = {np.asarray(task.object_reward).tobytes() for task in numbered}
  assert not tests & found['of_16']


@pytest.mark.parametrize(
  'name',
  [
    'random_grid/',
    'random_grid/of_0',
    'random_grid/of_',
    'random_grid/01',
    'random_grid/-1',
    'lpg',
    'lpg/dense/x',
  ],
)
def test_wrong_names_are_refused(name: str) -> None:
  with pytest.raises(ValueError, match=f"Unknown environment '{name}'"):
    registry.validate(name)


def test_all_episodes_of_an_agent_are_in_its_level() -> None:
  distribution = random_grids.RandomGrid()

  @jax.jit
  def play(key: Any) -> Any:
    state, first = distribution.reset_batch(key, 4)

    def step(state: Any, key: Any) -> Any:
      keys = jax.random.split(key, 4)
      action = jax.vmap(lambda key: jax.random.randint(key, (), 0, 5))(keys)
      state, timestep = distribution.step_batch(state, action, keys)
      return state, timestep

    last, timesteps = jax.lax.scan(step, state, jax.random.split(key, 800))
    return state, first, last, timesteps

  tasks = []
  for seed in range(2):
    state, first, last, timesteps = play(jax.random.key(seed))
    assert timesteps.is_last.any(0).all()
    jax.tree.map(np.testing.assert_array_equal, state.task, last.task)
    tasks.append(state.task)
    # Each environment moves on floor of the one level, episode after episode.
    places = np.asarray(timesteps.observation[..., :100]).any((0, 1))
    assert not (places & np.asarray(state.task.walls).reshape(-1)).any()
    assert len(set(np.asarray(first[:, :100]).argmax(-1))) > 1
  assert not np.array_equal(tasks[0].object_reward, tasks[1].object_reward)


TINY = {
  'environments': 'random_grid',
  'agents': 3,
  'unroll_length': 2,
  'batch_size': 2,
  'num_environments': 2,
  'replay_capacity': 4,
  'validation_trajectories': 2,
  'hidden_sizes': (4,),
  'learning_rate_range': (1e-4, 1e-2),
  'action_model_lstm': 4,
  'action_model_head': 4,
  'num_bins': 5,
  'meta_value_hidden_sizes': (4,),
  'rule_prediction_size': 4,
  'rule_lstm_size': 4,
  'rule_meta_rnn_size': 4,
}


def test_resets_draw_new_levels_and_rates_and_checkpoints_keep_them(
  tmp_path: pathlib.Path,
) -> None:
  settings = {**quickstart.get_config().to_dict(), **TINY}
  config = meta_trainer.config_of(settings)
  rule = config.rule_settings
  (group,) = build.make_groups(config, rule)
  rule_params: Any = {'eta': np.zeros(1)}  # Nothing learns here.
  first_keys, next_keys = (
    jax.random.split(jax.random.key(seed), 3) for seed in (1, 2)
  )
  members = group.init(first_keys, rule_params)
  before = copy_drawn(members)
  assert len({level.tobytes() for level in before['object_reward']}) == 3
  expired = np.array([False, True, False])
  members = group.reset_expired(next_keys, members, expired)
  after = copy_drawn(members)
  drawn = ('walls', 'object_cell', 'object_reward', 'step_limit')
  for name in (*drawn, 'learning_rate', 'torso'):
    kept = [np.array_equal(*pair) for pair in zip(before[name], after[name])]
    assert kept == [True, False, True], name

  with checkpointing.Checkpointer(tmp_path / 'checkpoints') as checkpointer:
    checkpointer.save(1, {'members': group.to_checkpoint(members)})
  fresh = group.init(next_keys, rule_params)
  assert not np.array_equal(copy_drawn(fresh)['walls'], after['walls'])
  with checkpointing.Checkpointer(tmp_path / 'checkpoints') as checkpointer:
    like = {'members': group.to_checkpoint(fresh)}
    restored = checkpointer.restore(like)
  assert restored is not None
  resumed = copy_drawn(group.resume(restored[1]['members'], 1))
  jax.tree.map(np.testing.assert_array_equal, resumed, after)


def test_agents_of_different_subsets_share_a_program() -> None:
  environments = 'random_grid/of_1,random_grid/of_64'
  settings = {**quickstart.get_config().to_dict(), **TINY}
  config = meta_trainer.config_of(
    {**settings, 'environments': environments, 'agents': 6}
  )
  (group,) = build.make_groups(config, config.rule_settings)
  members = group.init(
    jax.random.split(jax.random.key(1), 6), {'eta': np.zeros(1)}
  )
  rewards = [x.tobytes() for x in copy_drawn(members)['object_reward']]
  assert len(set(rewards[::2])) == 1 < len(set(rewards[1::2]))


def copy_drawn(members: Any) -> dict[str, np.ndarray]:
  """What is drawn for each agent [n, ...]; later steps may donate it."""
  task = members.acting.actor.environment.task
  assert isinstance(task, gridworld.GridWorld)
  learner = members.learner
  return {
    'learning_rate': np.array(learner.opt_state.learning_rate),
    'torso': np.array(learner.params['agent/~/torso/mlp/~/linear_0']['w']),
    **{
      name: np.array(value)
      for name, value in vars(task).items()
      if isinstance(value, jax.Array)
    },
  }
