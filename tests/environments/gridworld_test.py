"""Tests of the grid worlds, the chains and their tasks."""

from collections.abc import Sequence
import functools
from typing import Any

import conformance
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments import suites
from disco_rl.environments.jax_native import chain
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import gridworld_tasks

STAY, UP, DOWN, LEFT, RIGHT = range(5)
NUM_EPISODES = 128
# Scripts of actions are filled up to one length, for a single compilation.
NUM_STEPS = 12

CROSSING = """
  @a..
  .#b.
  ...."""


def _build(
  layout: str = CROSSING,
  kinds: Sequence[gridworld.Kind] = (
    gridworld.Kind(1.0, 0.0, 0.0),
    gridworld.Kind(-0.5, 1.0, 0.0),
  ),
  step_limit: int = 50,
  **options: Any,
) -> gridworld.GridWorld:
  options = dict(size=(4, 5), num_slots=3, num_kinds=2, **options)
  return gridworld.build(layout, kinds, step_limit, **options)


def _build_chain(**options: Any) -> chain.Chain:
  """Cue 0 wants the action 1, cue 1 the action 2."""
  options = {
    'payoff': [[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]],
    'lengths': (3, 6),
    'num_positions': 7,
    'num_bits': 2,
    **options,
  }
  return chain.build(**options)


@jax.jit
def _play_many(environment: Any, actions: Any, keys: Any) -> Any:
  def play(keys: Any) -> Any:
    state, first = environment.reset(keys[0])

    def step(state: Any, x: Any) -> Any:
      state, timestep = environment.step(state, *x)
      return state, (state, timestep)

    _, played = jax.lax.scan(step, state, (actions, keys[1:]))
    return state, first, *played

  return jax.vmap(play)(keys)


@functools.cache
def _keys() -> Any:
  """Not split where they are used: each split costs compilation time."""
  return jax.random.split(jax.random.key(0), (2000, NUM_STEPS + 1))


def _play(environment: Any, actions: Sequence[int]) -> Any:
  """Plays a script in 2000 episodes, also beyond their ends.

  Returns:
    NumPy arrays of leading axes [B] and [B, T]: the first state and
    observation, then the states and outcomes of the steps.
  """
  padded = np.pad(actions, (0, NUM_STEPS - len(actions)))
  played = _play_many(environment, padded, _keys())
  first_state, first, states, timesteps = jax.tree.map(np.asarray, played)
  cut = lambda x: x[:, : len(actions)]
  return first_state, first, *jax.tree.map(cut, (states, timesteps))


class TestGridWorld:
  @pytest.mark.parametrize('is_tabular', [True, False])
  def test_conformance(self, is_tabular: bool) -> None:
    layout = '.ab ... #..'
    kinds = [gridworld.Kind(1, 0.2, 0.2), gridworld.Kind(-1, 0.1, 0.2)]
    environment = _build(
      layout,
      kinds,
      10,
      is_tabular=is_tabular,
      random_objects=not is_tabular,
      slip=0.1,
    )
    played = conformance.check(lambda _: environment, num_steps=30)
    if not is_tabular:
      observation = played.observation
      walls = np.broadcast_to(environment.walls, (31, 96, 4, 5))
      np.testing.assert_array_equal(observation[..., 0], walls)
      on_walls = observation[..., 0] * observation[..., 1:].sum(-1)
      np.testing.assert_array_equal(on_walls, 0)

  def test_collecting_pays_once_and_may_end_the_episode(self) -> None:
    actions = [STAY, RIGHT, STAY, LEFT, RIGHT, RIGHT, DOWN]
    *_, timesteps = _play(_build(step_reward=-0.25), actions)
    reward = np.array([0, 1, 0, 0, 0, 0, -0.5]) - 0.25
    np.testing.assert_array_equal(timesteps.reward, [reward] * 2000)
    ends = np.arange(7) == 6
    np.testing.assert_array_equal(timesteps.is_terminal, [ends] * 2000)
    np.testing.assert_array_equal(timesteps.is_last, [ends] * 2000)

  def test_termination_and_respawn_have_their_probabilities(self) -> None:
    kinds = [gridworld.Kind(1, 0.3, 0.2), gridworld.Kind(0, 0, 0)]
    actions = [RIGHT, STAY, STAY, LEFT, STAY, STAY]
    *_, states, timesteps = _play(_build(kinds=kinds), actions)
    assert abs(timesteps.is_terminal[:, 0].mean() - 0.3) < 0.05
    assert not timesteps.is_terminal[:, 1:].any()
    present = states.is_present[:, :, 0].mean(0)
    # Nothing reappears under the agent.
    want = np.array([0, 0, 0, 0.2, 1 - 0.8**2, 1 - 0.8**3])
    np.testing.assert_allclose(present, want, atol=0.05)
    np.testing.assert_array_equal(present[:3], 0)

  def test_random_starts_are_uniform_over_free_cells(self) -> None:
    first_state, *_ = _play(_build('.a. .#b'), [STAY])
    counts = np.bincount(first_state.agent_cell, minlength=20) / 2000
    want = np.zeros(20)
    want[[0, 2, 5]] = 1 / 3
    np.testing.assert_allclose(counts, want, atol=0.05)

  @pytest.mark.parametrize('layout', ['aba ... .#.', '@ab .a. .#.'])
  def test_random_objects_are_in_all_free_cells_alike(
    self, layout: str
  ) -> None:
    first_state, *_ = _play(_build(layout, random_objects=True), [STAY])
    cells = np.concatenate(
      [first_state.agent_cell[:, None], first_state.object_cell], axis=1
    )
    assert all(len(set(row)) == 4 for row in cells.tolist())
    free = [0, 1, 2, 5, 6, 7, 10, 12]
    if '@' in layout:
      assert (cells[:, 0] == 0).all()
      cells, free = cells[:, 1:], free[1:]
    for column in cells.T:
      counts = np.bincount(column, minlength=20) / 2000
      np.testing.assert_allclose(counts[free], 1 / len(free), atol=0.04)

  def test_collected_random_objects_are_put_elsewhere(self) -> None:
    kinds = [gridworld.Kind(1, 0, 1), gridworld.Kind(1, 0, 1)]
    environment = _build('@ab ...', kinds, random_objects=True)
    actions = [RIGHT, RIGHT, DOWN, LEFT, LEFT, UP] * 2
    first_state, _, states, timesteps = _play(environment, actions)
    collected = timesteps.reward == 1
    before = np.concatenate(
      [first_state.object_cell[:, None], states.object_cell[:, :-1]], axis=1
    )
    moved = (before != states.object_cell).any(-1)
    assert not moved[~collected].any()
    # Two of the five places are the objects' own.
    assert abs(moved[collected].mean() - 3 / 5) < 0.03
    cells = states.object_cell[..., :2]
    assert (cells[..., 0] != cells[..., 1]).all()
    assert set(np.unique(cells)) == {1, 2, 5, 6, 7}
    is_under_agent = (cells == states.agent_cell[..., None]).any(-1)
    assert collected.any() and is_under_agent[collected].any()
    np.testing.assert_array_equal(states.is_present[..., 2], False)

  def test_tabular_and_image_observations_agree(self) -> None:
    kinds = [gridworld.Kind(1, 0, 0.5), gridworld.Kind(-1, 0, 0.5)]
    layout = '.aa .#b ...'
    actions = [RIGHT, DOWN, RIGHT, UP, LEFT] * 2
    played = [
      _play(_build(layout, kinds, is_tabular=is_tabular), actions)
      for is_tabular in (True, False)
    ]
    (_, _, states, tabular), (_, _, same_states, image) = played
    for want, got in zip(jax.tree.leaves(states), jax.tree.leaves(same_states)):
      np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(image.reward, tabular.reward)
    pixels = image.observation.reshape(2000, 10, 20, 4)
    np.testing.assert_array_equal(pixels[..., 1], tabular.observation[..., :20])
    # Slots are filled row by row: a, a, b.
    presence = np.stack(
      [pixels[..., 1, 2], pixels[..., 2, 2], pixels[..., 7, 3]], axis=-1
    )
    np.testing.assert_array_equal(presence, tabular.observation[..., 20:])
    np.testing.assert_array_equal(
      pixels[..., 2:].sum((-2, -1)), presence.sum(-1)
    )

  @pytest.mark.parametrize(
    'layout, options, message',
    [
      ('@. .', {}, 'rows differ'),
      ('', {}, 'or there are none'),
      ('@.....', {}, r'\(1, 6\) exceeds the board \(4, 5\)'),
      ('@c', {}, 'not c:'),
      ('@@a', {}, '@ once'),
      ('@aaaa', {}, '4 objects of 2 kinds do not fit into num_slots=3'),
      ('@a.', {'is_tabular': True, 'random_objects': True}, 'Tabular'),
      ('ab', {}, '1 free cells are required'),
      ('aab', {'random_objects': True}, '4 free cells are required'),
      ('@a', {'random_objects': True}, '2 free cells are required'),
      ('@a', {'slip': 1.5}, 'slip=1.5'),
      ('@a', {'step_limit': 0}, 'step_limit=0'),
      ('@a', {'kinds': [gridworld.Kind(1, 0, -0.1)]}, 'respawn=-0.1'),
    ],
  )
  def test_impossible_tasks_are_refused(
    self, layout: str, options: dict[str, Any], message: str
  ) -> None:
    with pytest.raises(ValueError, match=message):
      _build(layout, **options)


class TestChain:
  def test_conformance(self) -> None:
    environment = _build_chain(noise=0.5, bit_rate=0.5)
    conformance.check(lambda _: environment, num_steps=20)

  @pytest.mark.parametrize('first_action', [0, 1, 2])
  def test_only_the_first_action_and_the_last_reward_matter(
    self, first_action: int
  ) -> None:
    actions = [first_action, 1, 2, 0, 1, 2]
    state, _, _, timesteps = _play(_build_chain(), actions)
    payoff = np.array([[0, 1, -1], [0, -1, 1]])[state.cue, first_action]
    is_last = np.arange(1, 7) == state.length[:, None]
    np.testing.assert_array_equal(timesteps.is_last, is_last)
    np.testing.assert_array_equal(timesteps.is_terminal, is_last)
    np.testing.assert_array_equal(
      timesteps.reward, np.where(is_last, payoff[:, None], 0)
    )
    lengths = np.bincount(state.length, minlength=7) / 2000
    np.testing.assert_allclose(lengths, [0] * 3 + [0.25] * 4, atol=0.05)
    assert abs(state.cue.mean() - 0.5) < 0.05

  def test_a_later_decision_a_lure_and_noise(self) -> None:
    environment = _build_chain(
      decision_step=2, lure=[0.0, 0.0, 8.0], noise=0.25, lengths=(4, 4)
    )
    state, _, _, timesteps = _play(environment, [2, 1, 2, 1])
    payoff = np.array([-1, 1])[state.cue]
    np.testing.assert_array_equal(timesteps.reward[:, 3], payoff)
    noise = timesteps.reward[:, :3] - [0, 0, 8]
    np.testing.assert_array_equal(np.abs(noise), 0.25)
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.03)

  def test_each_choice_has_its_lure_in_its_step_alone(self) -> None:
    """Also if it is the last step; noise has nothing to do with the bits."""
    environment = _build_chain(
      decision_step=2,
      lure=[8.0, 16.0, 32.0],
      noise=0.25,
      bit_rate=0.5,
      lengths=(3, 4),
    )
    for choice in range(3):
      actions = [1, 2, choice, 0]
      state, _, _, timesteps = _play(environment, actions)
      payoff = np.array([[0, 1, -1], [0, -1, 1]])[state.cue, choice]
      is_last = np.arange(1, 5) == state.length[:, None]
      lure = np.array([0, 0, environment.lure[choice], 0])
      rest = timesteps.reward - np.where(is_last, payoff[:, None], 0) - lure
      before = np.arange(1, 5) < state.length[:, None]
      np.testing.assert_array_equal(np.abs(rest[before]), 0.25)
      np.testing.assert_array_equal(rest[is_last], 0)
      bits = timesteps.observation[:, :2, -2:]
      for i in range(2):
        agree = (bits[..., i] > 0) == (rest[:, :2] > 0)
        assert abs(agree.mean() - 0.5) < 0.05

  @pytest.mark.parametrize('hides_choice', [False, True])
  def test_the_observation_is_step_cue_choice_and_bits(
    self, hides_choice: bool
  ) -> None:
    environment = _build_chain(
      decision_step=1, bit_rate=0.3, hides_choice=hides_choice
    )
    state, first, _, timesteps = _play(environment, [0, 2, 1, 1, 1, 1])
    observation = np.concatenate(
      [first[:, None], timesteps.observation], axis=1
    )
    step, cue, choice, bits = np.split(observation, [7, 9, 12], axis=-1)
    np.testing.assert_array_equal(step, [np.eye(7)] * 2000)
    np.testing.assert_array_equal(cue.argmax(-1), state.cue[:, None] + [0] * 7)
    want = np.zeros((7, 3))
    if not hides_choice:
      want[2:, 2] = 1
    np.testing.assert_array_equal(choice, [want] * 2000)
    assert set(np.unique(bits)) == {0, 1}
    np.testing.assert_allclose(bits.mean(0), 0.3, atol=0.05)

  @pytest.mark.parametrize(
    'options, message',
    [
      ({'lengths': (3, 8)}, 'got 0, 3, 8, 7'),
      ({'decision_step': 3}, 'got 3, 3, 6, 7'),
      ({'bit_rate': -0.5}, 'bit_rate .* got -0.5'),
      ({'lure': [1.0, 2.0]}, r'\(2, 3\), \(2,\)'),
    ],
  )
  def test_impossible_chains_are_refused(
    self, options: dict[str, Any], message: str
  ) -> None:
    with pytest.raises(ValueError, match=message):
      _build_chain(**options)


def _make(name: str) -> Any:
  environment = gridworld_tasks.make(name.removeprefix('gridworld/'))
  assert environment is not None
  return environment


def _stack(trees: Sequence[Any]) -> Any:
  # Of NumPy: those of JAX would be compiled for every shape.
  return jax.tree.map(lambda *x: np.stack(x), *trees)


class TestNames:
  def test_groups_cover_all_names(self) -> None:
    names = tuple(gridworld_tasks.RETURNS)
    assert names == suites.expand('gridworld57') + suites.expand(
      'gridworld_held_out'
    )
    assert len(names) == len(set(names)) == 57 + 18
    assert sum(gridworld_tasks.GROUPS, ()) == names

  def test_the_suite_of_chains_has_all_held_out_chains(self) -> None:
    held_out = suites.expand('gridworld_held_out')
    chains = [x for x in held_out if isinstance(_make(x), chain.Chain)]
    assert [*suites.expand('gridworld_held_out_chains')] == chains

  def test_all_tasks_differ(self) -> None:
    contents = {
      (str(tree), *(np.asarray(leaf).tobytes() for leaf in leaves))
      for leaves, tree in map(
        jax.tree.flatten, map(_make, gridworld_tasks.RETURNS)
      )
    }
    assert len(contents) == len(gridworld_tasks.RETURNS)

  def test_held_out_tasks_have_new_sizes_layouts_or_dynamics(self) -> None:
    training = [_make(name) for name in gridworld_tasks.TRAINING]
    shapes = {_shapes(environment) for environment in training}
    layouts = {_layout(environment) for environment in training}
    assert len(shapes) == 3, 'each costs a compilation'
    for name in gridworld_tasks.HELD_OUT:
      environment = _make(name)
      if isinstance(environment, chain.Chain):
        is_new = environment.hides_choice or environment.decision_step > 0
      else:
        is_new = environment.slip > 0 or _layout(environment) not in layouts
      assert is_new or _shapes(environment) not in shapes, name


def _shapes(environment: Any) -> Any:
  leaves, tree = jax.tree.flatten(environment)
  return tree, *(leaf.shape for leaf in leaves)


def _layout(environment: Any) -> bytes | None:
  if isinstance(environment, chain.Chain):
    return None
  walls = np.asarray(environment.walls)
  return walls.tobytes() + np.asarray(environment.object_cell).tobytes()


# A second implementation of grid worlds, in NumPy.


def _targets(environment: gridworld.GridWorld) -> np.ndarray:
  """Where each action leads from each cell, [A, H * W]."""
  walls = np.asarray(environment.walls)
  cells = np.arange(walls.size).reshape(walls.shape)
  padded = np.pad(np.where(walls, -1, cells), 1, constant_values=-1)
  moved = [padded[1:-1, 1:-1], padded[:-2, 1:-1], padded[2:, 1:-1]]
  moved += [padded[1:-1, :-2], padded[1:-1, 2:]]
  return np.where(np.array(moved) < 0, cells, moved).reshape(5, -1)


def _distances(targets: np.ndarray) -> np.ndarray:
  """Steps from cell to cell, [H * W, H * W]; large where there is no way."""
  num_cells = targets.shape[1]
  distances = np.where(np.eye(num_cells, dtype=bool), 0.0, 1000.0)
  for _ in range(num_cells):
    distances = np.minimum(distances, 1 + distances[targets].min(0))
  return distances


def _exact_return(environment: Any, is_optimal: bool) -> float:
  """Expected return of an episode, by backward induction.

  Where objects are fixed, the state is the agent's cell and which objects are
  present: values are an array [H * W, 2, 2, ...].
  """
  if isinstance(environment, chain.Chain):
    total = np.asarray(environment.payoff) + np.asarray(environment.lure)
    return float(total.max(1).mean() if is_optimal else total.mean())
  task = jax.tree.map(np.asarray, environment)
  targets = _targets(environment)
  slots = np.flatnonzero(task.object_kind >= 0)
  values = np.zeros((targets.shape[1],) + (2,) * len(slots))
  for _ in range(task.step_limit):
    later = _after_respawn(values, task, slots)
    arrived = later.copy()
    for axis, slot in enumerate(slots):
      cell = task.object_cell[slot]
      absent = np.moveaxis(later[cell], axis, 0)[0]
      going_on = (1 - task.object_termination[slot]) * absent
      np.moveaxis(arrived[cell], axis, 0)[1] = (
        task.object_reward[slot] + going_on
      )
    by_action = arrived[targets]
    values = task.step_reward + by_action.mean(0)
    if is_optimal:
      chosen = task.step_reward + by_action.max(0)
      values = task.slip * values + (1 - task.slip) * chosen
  all_present = values[(slice(None), *[1] * len(slots))]
  if task.start_cell >= 0:
    return all_present[task.start_cell]
  return all_present[task.places[task.places >= 0]].mean()


def _after_respawn(values: np.ndarray, task: Any, slots: np.ndarray) -> Any:
  """Expectation over which absent objects reappear, not under the agent."""
  values = values.copy()
  for axis, slot in enumerate(slots):
    by_presence = np.moveaxis(values, axis + 1, -1)
    probability = np.full(len(values), task.object_respawn[slot])
    probability[task.object_cell[slot]] = 0
    probability = probability.reshape(-1, *[1] * (len(slots) - 1))
    gain = by_presence[..., 1] - by_presence[..., 0]
    by_presence[..., 0] += probability * gain
  return values


def _nearest_first(
  environment: Any, targets: Any, distances: Any, state: Any
) -> Any:
  """Goes to the object of most reward for its distance, around bad ones."""
  cells = targets[:, state.agent_cell]
  is_good = state.is_present & (environment.object_reward > 0)
  is_bad = state.is_present & (environment.object_reward < 0)
  worth = (
    environment.object_reward * 0.95 ** distances[cells][:, state.object_cell]
  )
  good = jnp.max(jnp.where(is_good, worth, 0.0), axis=-1)
  bad = jnp.any(is_bad & (state.object_cell == cells[:, None]), axis=-1)
  return jnp.argmax(good - 10.0 * bad)


def _play_task(
  environment: Any, maps: Any, is_reference: Any, actions: Any, keys: Any
) -> tuple[Any, Any]:
  """Plays one environment with given actions or `_nearest_first`.

  Args:
    environment: a single task.
    maps: its targets and distances; None for a chain, which has no reference.
    is_reference: [] bool.
    actions: [T].
    keys: [T].

  Returns:
    Rewards and whether an episode ended, [T]; meaningful up to the first end.
  """
  state, _ = environment.reset(keys[0])

  def step(state: Any, x: Any) -> Any:
    action, key = x
    if maps is not None:
      smart = _nearest_first(environment, *maps, state)
      action = jnp.where(is_reference, smart, action)
    state, timestep = environment.step(state, action, key)
    return state, (timestep.reward, timestep.is_last)

  return jax.lax.scan(step, state, (actions, keys))[1]


# Over episodes, policies, and tasks: [N, P, B, T].
_over_episodes = jax.vmap(_play_task, (None, None, None, 0, 0))
_over_policies = jax.vmap(_over_episodes, (None, None, 0, None, None))
_play_single = jax.jit(_over_policies)
_play_stacked = jax.jit(jax.vmap(_over_policies, (0, 0, None, None, None)))


def _maps(environment: Any) -> Any:
  if isinstance(environment, chain.Chain):
    return None
  targets = _targets(environment)
  return targets, _distances(targets)


@functools.cache
def _played(index: int) -> Any:
  """Plays the tasks that have the shapes of a group.

  Returns:
    The names and the tasks; the policies, actions and keys; rewards and whether
    an episode ended, [N, P, B, T].
  """
  shapes = _shapes(_make(gridworld_tasks.GROUPS[index][0]))
  named = {name: _make(name) for name in gridworld_tasks.RETURNS}
  named = {name: x for name, x in named.items() if _shapes(x) == shapes}
  tasks = tuple(named.values())
  is_chain = isinstance(tasks[0], chain.Chain)
  limit = 'max_length' if is_chain else 'step_limit'
  size = NUM_EPISODES, max(int(getattr(task, limit)) for task in tasks)
  how = (
    np.array([False, True]),
    np.random.default_rng(0).integers(5, size=size),
    jax.random.split(jax.random.key(0), size),
  )
  maps = _stack([_maps(task) for task in tasks])
  played = _play_stacked(_stack(tasks), maps, *how)
  return named, how, jax.tree.map(np.asarray, played)


def _is_exact(task: Any) -> bool:
  return isinstance(task, chain.Chain) or not task.random_objects


def _first_returns(reward: Any, is_last: Any) -> np.ndarray:
  """Return of the first episode: [..., T] -> [...]."""
  assert np.asarray(is_last).any(-1).all(), 'an episode did not end'
  ended_before = np.cumsum(is_last, axis=-1) - is_last > 0
  return np.where(ended_before, 0, reward).sum(-1)


class TestTasks:
  # One group of each shape.
  @pytest.mark.parametrize('index', [0, 1, 2, 4, 6, 8])
  def test_returns_agree_with_the_table(self, index: int) -> None:
    named, _, (rewards, lasts) = _played(index)
    assert rewards.dtype == np.float32
    returns = _first_returns(rewards, lasts)
    means, errors = returns.mean(-1), returns.std(-1) / NUM_EPISODES**0.5
    for (name, task), mean, error in zip(named.items(), means, errors):
      table = np.array(gridworld_tasks.RETURNS[name])
      measured = f'{name}: {mean} +- {error}, in the table {table}'
      # The rounding of the table, and events too rare to be sampled.
      error = 5 * error + 0.1
      assert abs(mean - table)[0] < error[0], measured
      if _is_exact(task):
        assert mean[1] < table[1] + error[1], measured
      else:
        assert abs(mean - table)[1] < error[1], measured

  @pytest.mark.parametrize('index', [1, 2])
  def test_stacked_tasks_are_the_same_as_single_ones(self, index: int) -> None:
    named, how, stacked = _played(index)
    for i, task in enumerate(named.values()):
      single = _play_single(task, _maps(task), *how)
      for got, want in zip(stacked, single):
        np.testing.assert_array_equal(got[i], want)

  def test_exact_returns(self) -> None:
    for name in gridworld_tasks.RETURNS:
      task = _make(name)
      if _is_exact(task):
        want = [_exact_return(task, is_optimal) for is_optimal in (False, True)]
        got = gridworld_tasks.RETURNS[name]
        np.testing.assert_allclose(got, want, atol=6e-4, err_msg=name)
