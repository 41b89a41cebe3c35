"""Tests of Sokoban: its levels, their files, and the game."""

import heapq
import itertools
import pathlib
import re
from typing import Any

import conformance
import jax
import numpy as np
import pytest

from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.jax_native import sokoban
from disco_rl.environments.jax_native import sokoban_generator
from disco_rl.environments.jax_native import sokoban_levels

Cell = tuple[int, int]
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
LEVEL = """\
##########
# . #    #
#   $  @ #
#  *   $ #
#   .  $ #
#     .###
#      ###
##########
##########
##########
"""


@pytest.fixture(scope='module', name='training_levels')
def _training_levels() -> np.ndarray:
  return sokoban_generator.generate(*sokoban.GENERATED[None])


def _solve(level: np.ndarray) -> list[int]:
  """Actions that solve a level, by search; knows nothing of its making."""
  floor = _cells(level[..., 0] != sokoban_levels.WALL)
  target = _cells(level[..., 0] == sokoban_levels.TARGET)
  box = _cells(level[..., 1] == sokoban_levels.BOX)
  (agent,) = _cells(level[..., 1] == sokoban_levels.AGENT)
  useful = _useful(floor, target)
  tie = itertools.count()
  queue = [(0, next(tie), [], agent, box)]
  seen = set()
  while queue:
    _, _, actions, agent, box = heapq.heappop(queue)
    if box == target:
      return actions
    walks = _walks(agent, floor - box)
    if (box, min(walks)) in seen:
      continue
    seen.add((box, min(walks)))
    for (cell, walk), action in itertools.product(walks.items(), range(4)):
      pushed = _move(cell, action)
      after = _move(pushed, action)
      if pushed in box and after in useful - box:
        moved = box - {pushed} | {after}
        longer = [*actions, *walk, action]
        missing = sum(
          min(abs(r - i) + abs(c - j) for i, j in target) for r, c in moved
        )
        heapq.heappush(
          queue, (len(longer) + 3 * missing, next(tie), longer, pushed, moved)
        )
  raise AssertionError('the level has no solution')


def _cells(mask: np.ndarray) -> frozenset[Cell]:
  return frozenset((int(r), int(c)) for r, c in np.argwhere(mask))


def _move(cell: Cell, action: int) -> Cell:
  return cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]


def _useful(floor: frozenset[Cell], target: frozenset[Cell]) -> set[Cell]:
  """Where a box that is alone can still be pushed to a target."""
  useful, queue = set(target), list(target)
  while queue:
    cell = queue.pop()
    for action in range(4):
      before = _move(cell, action)
      if {before, _move(before, action)} <= floor and before not in useful:
        useful.add(before)
        queue.append(before)
  return useful


def _walks(agent: Cell, free: frozenset[Cell]) -> dict[Cell, list[int]]:
  """Cells that can be walked to -> shortest walks."""
  walks: dict[Cell, list[int]] = {agent: []}
  for cell in (queue := [agent]):
    for action in range(4):
      after = _move(cell, action)
      if after in free and after not in walks:
        walks[after] = [*walks[cell], action]
        queue.append(after)
  return walks


def _boxes_after(level: np.ndarray, actions: list[int]) -> frozenset[Cell]:
  """Where the boxes are after actions, none of which runs into anything."""
  floor = _cells(level[..., 0] != sokoban_levels.WALL)
  box = _cells(level[..., 1] == sokoban_levels.BOX)
  (agent,) = _cells(level[..., 1] == sokoban_levels.AGENT)
  for action in actions:
    agent = _move(agent, action)
    if agent in box:
      pushed = _move(agent, action)
      assert pushed in floor - box
      box = box - {agent} | {pushed}
    assert agent in floor
  return box


@jax.jit
def _outcomes(environment: Any, actions: Any) -> Any:
  key = jax.random.key(0)
  state, _ = environment.reset(key)
  step = lambda state, action: environment.step(state, action, key)
  return jax.lax.scan(step, state, actions)[1]


def _play(level: np.ndarray, actions: Any) -> Any:
  """Outcomes [T] of actions [T], which do not begin new episodes."""
  num_steps = len(actions)
  # Filled up to one length, for a single compilation.
  padded = np.pad(np.asarray(actions, np.int32), (0, 120 - num_steps))
  timesteps = _outcomes(sokoban.make(level[None]), padded)
  return jax.tree.map(lambda x: np.asarray(x)[:num_steps], timesteps)


class TestGenerator:
  def test_levels_are_well_formed(
    self, training_levels: np.ndarray, tmp_path: pathlib.Path
  ) -> None:
    assert training_levels.shape == (4096, 10, 10, 2)
    np.save(tmp_path / 'levels.npy', training_levels)
    # Refuses levels with faults.
    np.testing.assert_array_equal(
      sokoban_levels.read(tmp_path / 'levels.npy'), training_levels
    )
    fixed, movable = np.moveaxis(training_levels, -1, 0)
    is_on_target = (fixed == sokoban_levels.TARGET) & (
      movable == sokoban_levels.BOX
    )
    assert not is_on_target.any()
    inner = fixed[:, 1:-1, 1:-1] != sokoban_levels.WALL
    assert (fixed != sokoban_levels.WALL).sum() == inner.sum()

  def test_levels_differ_and_none_is_held_out(
    self, training_levels: np.ndarray
  ) -> None:
    held_out = sokoban_generator.generate(*sokoban.GENERATED['held_out'])
    levels = np.concatenate([training_levels, held_out])
    assert len({level.tobytes() for level in levels}) == 4096 + 1024

  def test_the_seed_decides(self) -> None:
    first, again, other = (
      sokoban_generator.generate(8, seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()

  def test_levels_can_be_solved(self, training_levels: np.ndarray) -> None:
    for level in training_levels[:30]:
      target = _cells(level[..., 0] == sokoban_levels.TARGET)
      assert _boxes_after(level, _solve(level)) == target


def _inner(board: int) -> frozenset[Cell]:
  """The cells of a board of 8 x 8, of which the first bit is the top left."""
  return frozenset(divmod(i, 8) for i in range(64) if int(board) >> i & 1)


def _corridor(length: int, agent: int = 5, copies: int = 400) -> Any:
  """A row of floor, the agent in it, a box on the cell 2 and three elsewhere.

  The only way to pull is to walk to the cell 3, and to go on to the right.
  """
  boxes = np.tile([20, 2, 36, 52], (copies, 1))
  return sokoban_generator._Play(
    floor=np.full(copies, 0b11111111, np.uint64),
    target=boxes.copy(),
    box=boxes,
    agent=np.full(copies, agent),
    length=np.full(copies, length),
  )


class TestBackwardPlay:
  def test_rooms_are_connected(self) -> None:
    floors = sokoban_generator._carve(np.random.default_rng(0), 200)
    sizes = []
    for floor in map(_inner, floors):
      assert {*_walks(next(iter(floor)), floor)} == floor
      sizes.append(len(floor))
    # All sides are reached, and rooms differ.
    assert _inner(np.bitwise_or.reduce(floors)) == _inner(2**64 - 1)
    assert 20 < np.mean(sizes) < 44 and np.std(sizes) > 3

  def test_boxes_are_on_cells_that_they_can_leave(self) -> None:
    floors = sokoban_generator._carve(np.random.default_rng(1), 50)
    can_be_left = sokoban_generator._can_be_left(floors)
    for cells, floor in zip(can_be_left, map(_inner, floors), strict=True):
      expected = {
        cell
        for cell in floor
        if any(
          {_move(cell, a), _move(_move(cell, a), a)} <= floor for a in range(4)
        )
      }
      assert _cells(cells.reshape(8, 8)) == expected

  def test_distances_are_those_of_shortest_walks(self) -> None:
    floors = sokoban_generator._carve(np.random.default_rng(2), 30)
    cells = np.array(
      [sorted(8 * i + j for i, j in _inner(x))[:6] for x in floors]
    )
    play = sokoban_generator._Play(
      floors, cells[:, :4], cells[:, 1:5], cells[:, 0], np.zeros(30, int)
    )
    goals = np.tile(np.arange(64), (30, 1))
    found = sokoban_generator._distances(play, goals)
    for i, floor in enumerate(map(_inner, floors)):
      box = {divmod(int(x), 8) for x in play.box[i]}
      walks = _walks(divmod(int(play.agent[i]), 8), floor - box)
      expected = [
        len(walks[cell]) if (cell := divmod(x, 8)) in walks else -1
        for x in range(64)
      ]
      assert found[i].tolist() == expected

  def test_a_box_is_pulled_by_one_to_five_cells(self) -> None:
    play = _corridor(length=10)
    sokoban_generator._pull(np.random.default_rng(0), play)
    moved = play.box[:, 1] - 2
    # Five cells would lead outside.
    counts = np.bincount(moved, minlength=5)
    np.testing.assert_allclose(counts / 400, [0, 0.2, 0.2, 0.2, 0.4], atol=0.08)
    np.testing.assert_array_equal(play.agent, 3 + moved)
    # Two steps to the box.
    np.testing.assert_array_equal(play.length, 12 + moved)
    np.testing.assert_array_equal(play.is_on_target.sum(axis=1), 3)
    np.testing.assert_array_equal(
      play.box[:, [0, 2, 3]], play.target[:, [0, 2, 3]]
    )

  @pytest.mark.parametrize(('length', 'most'), [(106, 2), (107, 1), (108, 0)])
  def test_solutions_have_at_most_110_steps(
    self, length: int, most: int
  ) -> None:
    play = _corridor(length)
    sokoban_generator._pull(np.random.default_rng(0), play)
    moved = play.box[:, 1] - 2
    assert moved.max() == most
    expected = length + 2 + moved if most else length
    np.testing.assert_array_equal(play.length, expected)
    np.testing.assert_array_equal(play.agent, 3 + moved if most else 5)

  def test_boxes_on_targets_are_pulled_first(self) -> None:
    play = _corridor(length=0, agent=4)
    # Also a box that is not on a target, below another row of floor.
    play.floor[:] = 0b11111111_11111111
    play.target[:] = [2, 36, 52, 60]
    play.box[:] = [2, 13, 52, 60]
    sokoban_generator._pull(np.random.default_rng(0), play)
    assert (play.box[:, 0] != 2).all()
    assert (play.box[:, 1] == 13).all()

  def test_the_agent_ends_anywhere_within_reach(self) -> None:
    play = _corridor(length=108)
    sokoban_generator._walk(np.random.default_rng(0), play)
    # Two steps are left, and the box is on the cell 2.
    counts = np.bincount(play.agent, minlength=9)
    np.testing.assert_allclose(
      counts / 400, [0, 0, 0, 0.2, 0.2, 0.2, 0.2, 0.2, 0], atol=0.08
    )
    np.testing.assert_array_equal(play.length, 108 + np.abs(play.agent - 5))

  def test_cells_are_drawn_without_replacement(self) -> None:
    allowed = np.zeros((600, 64), bool)
    allowed[:, [3, 9, 60]] = True
    drawn = sokoban_generator._draw_cells(np.random.default_rng(0), allowed, 2)
    assert drawn.shape == (600, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    counts = np.bincount(drawn.ravel(), minlength=64)
    assert set(np.flatnonzero(counts)) == {3, 9, 60}
    np.testing.assert_allclose(counts[[3, 9, 60]] / 400, 1, atol=0.12)

  def test_a_game_becomes_a_level(self) -> None:
    play = _corridor(length=0, copies=1)
    (level,) = sokoban_generator._to_levels(play)
    assert level.dtype == np.uint8
    cells = lambda channel, what: _cells(level[..., channel] == what)
    boxes = {(1, 3), (3, 5), (5, 5), (7, 5)}
    floor = {(1, i) for i in range(1, 9)}
    assert cells(0, sokoban_levels.TARGET) == boxes
    assert cells(0, sokoban_levels.EMPTY) == floor - boxes
    assert cells(1, sokoban_levels.BOX) == boxes
    assert cells(1, sokoban_levels.AGENT) == {(1, 6)}
    assert len(cells(0, sokoban_levels.WALL)) == 100 - len(floor | boxes)


@pytest.mark.needs('sokoban/held_out')
class TestSokoban:
  def test_conforms_and_time_limits_end_episodes(
    self, training_levels: np.ndarray
  ) -> None:
    environment = sokoban.make(training_levels)
    trajectory = conformance.check(lambda _: environment, num_steps=130)
    timestep, observation = trajectory.timestep, trajectory.observation
    # Random actions solve nothing.
    is_last = np.zeros((130, 96), bool)
    is_last[119] = True
    np.testing.assert_array_equal(timestep.is_last, is_last)
    np.testing.assert_array_equal(timestep.is_terminal, is_last)
    # Of walls, targets, boxes and agents, in each of four frames.
    assert observation.shape[2:] == (10, 10, 16)
    counts = observation.reshape(131, 96, 10, 10, 4, 4).sum((2, 3))
    np.testing.assert_array_equal(np.unique(counts[..., 1:3]), 4)
    np.testing.assert_array_equal(np.unique(counts[..., 3]), 1)
    # Boxes are pushed onto targets and off them.
    rewards = np.unique(timestep.reward)
    np.testing.assert_allclose(rewards, [-1.1, -0.1, 0.9], atol=1e-6)
    # Levels change where episodes begin, and only there.
    is_same = (observation[1:, ..., 0] == observation[:-1, ..., 0]).all((2, 3))
    np.testing.assert_array_equal(is_same, ~is_last)

  def test_frames_are_stacked_within_episodes(
    self, training_levels: np.ndarray
  ) -> None:
    def play(frame_stack: int) -> conformance.Trajectory:
      settings = sokoban.Preprocessing(frame_stack, time_limit=7)
      environment = sokoban.make(training_levels, settings)
      return conformance.check(lambda _: environment, num_steps=20)

    single, stack = play(1), play(3)
    frame = single.observation
    assert frame.shape[2:] == (10, 10, 4)
    is_first = np.concatenate([np.ones((1, 96), bool), single.timestep.is_last])
    assert is_first[7::7].all()
    want = np.swapaxes(conformance.stacked(frame, is_first, 3), -1, -2)
    np.testing.assert_array_equal(
      stack.observation, want.reshape(*frame.shape[:-1], 12)
    )

  def test_a_solved_level_ends_the_episode_and_pays(
    self, training_levels: np.ndarray
  ) -> None:
    actions = _solve(training_levels[0])
    timestep = _play(training_levels[0], actions)
    num_steps = len(actions)
    assert num_steps <= 120
    is_final = np.arange(num_steps) == num_steps - 1
    np.testing.assert_array_equal(timestep.is_last, is_final)
    np.testing.assert_array_equal(timestep.is_terminal, is_final)
    assert timestep.mask.all()
    # Four boxes, the level, and the steps.
    np.testing.assert_allclose(timestep.reward[-1], 10 + 1 - 0.1, atol=1e-6)
    np.testing.assert_allclose(
      timestep.reward.sum(), 10 + 4 - 0.1 * num_steps, atol=1e-4
    )
    last = timestep.observation[-1, ..., -4:]
    np.testing.assert_array_equal(last[..., 1], last[..., 2])

  def test_the_time_limit_is_a_truncation(
    self, training_levels: np.ndarray
  ) -> None:
    timestep = _play(training_levels[1], np.zeros(120, np.int32))
    np.testing.assert_array_equal(timestep.is_last, np.arange(120) == 119)
    assert not timestep.is_terminal.any()

  def test_the_observation_shows_the_level(self, tmp_path: Any) -> None:
    path = tmp_path / 'level.txt'
    path.write_text(LEVEL)
    environment = registry.make(f'sokoban/{path}', 1, seed=0)
    assert isinstance(environment, base.JaxEnvironment)
    _, observation = environment.reset(jax.random.key(0))
    rows = LEVEL.splitlines()
    for channel, characters in enumerate(('#', '.*', '$*', '@')):
      want = [[character in characters for character in row] for row in rows]
      for frame in np.split(observation, 4, axis=-1):
        np.testing.assert_array_equal(frame[..., channel], want)
    # Up, right, down, left: the agent comes back; then it pushes nothing.
    timestep = _play(sokoban_levels.read(path)[0], [0, 1, 2, 3, 2])
    agents = [
      np.argwhere(image)[0].tolist() for image in timestep.observation[..., -1]
    ]
    assert agents == [[1, 7], [1, 8], [2, 8], [2, 7], [2, 7]]


class TestLevelFiles:
  def test_boxoban_text(self, tmp_path: pathlib.Path) -> None:
    path = tmp_path / '000.txt'
    on_target = LEVEL.replace('@', ' ').replace('.', '+', 1)
    path.write_text(f'; 0\n{LEVEL}\n; 1\n{on_target}')
    levels = sokoban_levels.read(path)
    assert levels.shape == (2, 10, 10, 2)
    assert levels.dtype == np.uint8
    assert levels[0, 2, 7].tolist() == [0, sokoban_levels.AGENT]
    assert levels[0, 3, 3].tolist() == [
      sokoban_levels.TARGET,
      sokoban_levels.BOX,
    ]
    assert levels[1, 1, 2].tolist() == [
      sokoban_levels.TARGET,
      sokoban_levels.AGENT,
    ]
    assert levels[0, 0, 0].tolist() == [sokoban_levels.WALL, 0]

  @pytest.mark.parametrize(
    'text, message',
    [
      ('', 'holds no levels'),
      ('; 0\n\n', 'holds no levels'),
      (LEVEL.replace('@', 'x'), r"line 3: \['x'\] have no meaning"),
      (LEVEL.replace(' @ ', ' @'), 'line 3: a row of 9 characters'),
      (f'; 0\n{LEVEL[:-11]}; 1\n{LEVEL}', 'line 11: a level of 9 rows ends'),
      (LEVEL[:-11], 'line 10: a level of 9 rows ends'),
      (LEVEL + LEVEL, 'line 21: a level of 20 rows ends'),
      (
        f'{LEVEL}\n{LEVEL.replace("@", " ")}',
        'level 1, .*0 agents instead of 1',
      ),
      (LEVEL.replace('@', '$'), 'level 0, .*0 agents'),
      (LEVEL.replace('*', '$'), 'level 0, .*3 targets instead of 4'),
      (LEVEL.replace('*', '.'), 'level 0, .*3 boxes instead of 4'),
      (LEVEL.replace('$', ' ').replace('.', '*'), 'level 0, .*solved already'),
      ('; \u00e9', 'not a text file'),
    ],
  )
  def test_malformed_text_is_located(
    self, text: str, message: str, tmp_path: pathlib.Path
  ) -> None:
    path = tmp_path / 'levels.txt'
    path.write_text(text, 'utf-8')
    with pytest.raises(ValueError, match=f'{re.escape(str(path))}.*{message}'):
      sokoban_levels.read(path)
    with pytest.raises(ValueError, match=message):
      registry.validate(f'sokoban/{path}')

  @pytest.mark.parametrize(
    'change, message',
    [
      (lambda x: x[0], r'holds uint8 \[10, 10, 2\] instead of integers'),
      (lambda x: x.astype(np.float32), r'holds float32 \[3, 10, 10, 2\]'),
      (lambda x: x.astype('m8[s]'), r'holds timedelta64\[s\] \[3, 10'),
      (lambda x: x.astype(object), 'not an npy file of numbers'),
      (lambda x: x[:0], 'holds no levels'),
      (lambda x: x.astype(np.int64) + 256, 'numbers from 256 to 260'),
      (lambda x: np.where(x == 2, 4, x), r'level 0.* fixed cells hold \[4\]'),
      (lambda x: np.where(x == 3, 2, x), r'level 0.* movable cells hold \[2\]'),
      (lambda x: np.where(x[..., :1] == 0, [1, 0], x), 'a box is|0 agents'),
    ],
  )
  def test_malformed_arrays_are_located(
    self, change: Any, message: str, tmp_path: pathlib.Path
  ) -> None:
    path = tmp_path / 'levels.npy'
    np.save(path, change(sokoban_generator.generate(3, 0)))
    with pytest.raises(ValueError, match=f'{re.escape(str(path))}.*{message}'):
      sokoban_levels.read(path)

  def test_missing_files_are_named(self, tmp_path: pathlib.Path) -> None:
    for suffix in sokoban_levels.SUFFIXES:
      path = tmp_path / f'none{suffix}'
      with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
        registry.validate(f'sokoban/{path}')

  def test_other_files_are_refused(self) -> None:
    with pytest.raises(ValueError, match='levels.json: .* end in .txt or .npy'):
      sokoban_levels.read('levels.json')
