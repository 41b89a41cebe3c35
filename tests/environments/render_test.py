"""Pictures of environments, compared with ones that are drawn by hand."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments import registry
from disco_rl.environments.host import gymnasium_adapter
from disco_rl.environments.host import terminal
from disco_rl.environments.jax_native import catch
from disco_rl.environments.jax_native import chain
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import random_catch
from disco_rl.environments.jax_native import sokoban
from disco_rl.environments.jax_native import sokoban_levels

COLORS = {
  '.': boards.FLOOR,
  '#': boards.WALL,
  '@': boards.AGENT,
  'a': boards.COLORS[0],
  'b': boards.COLORS[1],
  'd': boards.COLORS[3],
}


def drawing(*rows: str) -> np.ndarray:
  return np.array([[COLORS[x] for x in row] for row in rows], np.uint8)


def cells(picture: np.ndarray) -> np.ndarray:
  """The color of each cell of a board."""
  return picture[::8, ::8]


def test_catch() -> None:
  state = catch.State(jnp.int32(1), jnp.int32(0), jnp.int32(2))
  picture = catch.Catch(3, 4).render(state)
  assert picture.shape == (24, 32, 3)
  np.testing.assert_array_equal(cells(picture), drawing('....', 'a...', '..@.'))
  # Cells are squares between darker lines.
  assert (picture[8:15, :7] == boards.COLORS[0]).all()
  assert (picture[15, :7] == (173, 120, 0)).all()
  inside = random_catch.SmallCatch(4, 4, board=jnp.array([3, 3]))
  np.testing.assert_array_equal(
    cells(inside.render(state)), drawing('...#', 'a..#', '..@#', '####')
  )


def test_grid_worlds_without_collected_objects() -> None:
  kinds = [gridworld.Kind(1.0, 0.0, 0.0), gridworld.Kind(-1.0, 0.0, 0.0)]
  world = gridworld.build(
    'a@.  .#b', kinds, 9, size=(3, 4), num_slots=4, num_kinds=2
  )
  # Cells are numbered row by row; the first object, then both.
  for is_present, first_row in (((0, 1, 0, 0), '.@.#'), ((1, 1, 0, 0), 'a@.#')):
    state = gridworld.GridState(
      agent_cell=jnp.int32(1),
      object_cell=jnp.array([0, 6, -1, -1]),
      is_present=jnp.array(is_present, bool),
      step=jnp.int32(0),
    )
    np.testing.assert_array_equal(
      cells(world.render(state)), drawing(first_row, '.#b#', '####')
    )


def test_sokoban() -> None:
  fixed, movable = np.zeros((2, 10, 10), np.uint8)
  fixed[0] = sokoban_levels.WALL
  fixed[1, :2] = sokoban_levels.TARGET
  movable[1, 1] = movable[2, 2] = sokoban_levels.BOX
  movable[3, 3] = sokoban_levels.AGENT
  state = sokoban.State(fixed, np.stack([movable * 0, movable]), None, None)
  want = drawing('#' * 10, 'db........', '..a.......', '...@......')
  picture = sokoban.Sokoban(np.zeros((1, 10, 10, 2), np.uint8)).render(state)
  np.testing.assert_array_equal(cells(picture)[:4], want)
  assert (cells(picture)[4:] == boards.FLOOR).all()


def test_chains() -> None:
  """The cue, the choice once it is made, and the step of so many."""
  task = chain.build(
    payoff=[[0.0, 1.0, -1.0], [0.0, -1.0, 1.0]],
    lengths=(3, 4),
    num_positions=4,
    num_bits=0,
  )
  for choice, second_row in ((-1, '.....'), (2, '..b..')):
    step, length, cue, chosen = (jnp.int32(x) for x in (1, 3, 1, choice))
    state = chain.ChainState(step=step, length=length, cue=cue, choice=chosen)
    np.testing.assert_array_equal(
      cells(task.render(state)), drawing('.a...', second_row, '.@..#')
    )


@pytest.mark.needs('minatar/breakout')
def test_gymnax_draws_boards_alone() -> None:
  environment: Any = registry.make('minatar/breakout', 1, 0)
  state, observation = environment.reset(jax.random.key(0))
  picture = cells(environment.render(state))
  assert picture.shape == (10, 10, 3)
  # A cell is dark where all channels are zero.
  np.testing.assert_array_equal(
    (picture != boards.FLOOR).any(-1), np.asarray(observation).any(-1)
  )
  environment = registry.make('gymnax/CartPole-v1', 1, 0)
  state, _ = environment.reset(jax.random.key(0))
  with pytest.raises(base.RenderError, match='CartPole-v1 of gymnax: only'):
    environment.render(state)


def test_gymnasium() -> None:
  environment: Any = registry.make('gymnasium/CartPole-v1', 2, 0)
  environment.reset()
  with pytest.raises(base.RenderError, match="render_mode='rgb_array'"):
    environment.render()
  pytest.importorskip('pygame')
  environment = registry.make('gymnasium/CartPole-v1', 2, 0, can_render=True)
  environment.reset()
  first = environment.render()
  assert first.shape == (400, 600, 3) and first.dtype == np.uint8
  assert environment.frames_per_second == 50
  for _ in range(5):
    environment.step(np.ones(2, np.int32))
  assert (environment.render() != first).any()
  environment.close()


class Drawn(gymnasium.Env):
  metadata = {'render_modes': ['rgb_array'], 'render_fps': 7}
  observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
  action_space = gymnasium.spaces.Discrete(2)

  def __init__(self, render_mode: str | None = None):
    self.render_mode = render_mode

  def reset(self, *, seed: Any = None, options: Any = None) -> Any:
    del seed, options
    return np.zeros(1, np.float32), {}

  def render(self) -> Any:
    return np.full((4, 4, 3), 9, np.uint8)


@pytest.mark.parametrize(
  'entry_point',
  [
    Drawn,
    lambda **settings: Drawn(**settings),
    lambda: Drawn('rgb_array'),
    f'{__name__}:Drawn',
  ],
)
def test_entry_points_that_are_classes_or_functions(
  entry_point: Any,
) -> None:
  gymnasium.register('DiscoTest/Drawn-v0', entry_point=entry_point)
  environment: Any = registry.make(
    'gymnasium/DiscoTest/Drawn-v0', 1, 0, can_render=True
  )
  del gymnasium.registry['DiscoTest/Drawn-v0']
  environment.reset()
  assert environment.render().mean() == 9
  assert environment.frames_per_second == 7


@pytest.mark.parametrize(
  ('picture', 'pixel'),
  [
    (np.full((4, 5), 9, np.uint8), (9, 9, 9)),
    (np.full((4, 5, 1), 9, np.uint8), (9, 9, 9)),
    (np.full((4, 5, 4), (1, 2, 3, 255), np.uint8), (1, 2, 3)),
    (np.full((4, 5, 3), 255, np.int64), (255, 255, 255)),
    (np.full((4, 5, 3), 256, np.int64), None),
    (np.full((4, 5, 3), -1, np.int64), None),
    (np.full((4, 5, 3), 0.5), None),
    (np.full((3, 4, 5), 9, np.uint8), None),
    ([np.full((4, 5, 3), 9, np.uint8)], None),
    (np.zeros((0, 5, 3), np.uint8), None),
    (None, None),
  ],
)
def test_pictures_are_colors_or_refused(picture: Any, pixel: Any) -> None:
  env = Drawn('rgb_array')
  env.render = lambda: picture  # type: ignore[method-assign]
  environment = gymnasium_adapter.SingleEnvironments([env], 0)
  if pixel is None:
    with pytest.raises(
      base.RenderError, match=r'Drawn.* from 0 to 255, \[H, W'
    ):
      environment.render()
    return
  np.testing.assert_array_equal(
    environment.render(), np.full((4, 5, 3), pixel, np.uint8)
  )


def test_levels_that_were_drawn_at_random() -> None:
  environment: Any = registry.make('lpg/longer', 1, 0)
  state, _ = environment.reset(jax.random.key(2))
  picture = cells(environment.render(state))
  walls = (picture == boards.WALL).all(-1)
  np.testing.assert_array_equal(walls, state.task.walls)
  is_agent = (picture == boards.AGENT).all(-1).reshape(-1)
  assert np.flatnonzero(is_agent).tolist() == [state.episode.agent_cell]
  is_floor = (picture == boards.FLOOR).all(-1)
  objects = np.flatnonzero(~(walls | is_floor).reshape(-1) & ~is_agent)
  cell = state.episode.object_cell
  assert objects.tolist() == sorted(cell[state.episode.is_present].tolist())


def test_environments_without_pictures_say_so() -> None:
  env = Drawn()
  env.metadata = {}
  environment = gymnasium_adapter.SingleEnvironments([env], 0)
  with pytest.raises(base.RenderError, match=r'it has \[\]'):
    environment.render()


@pytest.mark.needs('atari/breakout')
def test_the_screen_of_atari_shows_the_game_of_the_agent() -> None:
  whole = {'height': 210, 'width': 160, 'is_grayscale': False, 'frame_stack': 1}
  plain, shown = (
    registry.make('atari/breakout', 2, 3, {'atari': whole}, can_render)
    for can_render in (False, True)
  )
  assert isinstance(plain, base.HostEnvironment)
  assert isinstance(shown, base.HostEnvironment)
  observations = [shown.reset()]
  np.testing.assert_array_equal(observations[0], plain.reset())
  rng = np.random.default_rng(0)
  for _ in range(40):
    # Button and paddle; sticky actions draw random numbers.
    action = rng.integers(1, 5, size=2, dtype=np.int32)
    observations.append(shown.step(action).observation)
    np.testing.assert_array_equal(
      observations[-1], plain.step(action).observation
    )
    np.testing.assert_array_equal(shown.render(), observations[-1][0])
  assert (observations[-1] != observations[20]).any()
  assert shown.frames_per_second == 15
  plain.close()
  shown.close()


@pytest.mark.needs('crafter')
def test_drawing_crafter_by_night_changes_nothing() -> None:
  worlds: Any = [registry.make('crafter', 1, 0) for _ in range(2)]
  for world in worlds:
    world.reset()
  rng = np.random.default_rng(0)
  for i in range(200):
    # It is dark after some 150 steps.
    if i > 180:
      assert worlds[0].render().shape == (288, 288, 3)
    action = rng.integers(1, 5, size=1, dtype=np.int32)
    x, y = (world.step(action).observation for world in worlds)
  np.testing.assert_array_equal(x, y)
  for world in worlds:
    world.close()


def test_terminals() -> None:
  characters = np.full((2, 4), ord(' '), np.uint8)
  characters[0, 1], characters[1, 0] = ord('@'), ord('#')
  assert terminal.to_text(characters) == ' @\n#'
  colors = np.array([[0, 15, 0, 0], [1, 0, 0, 0]])
  glyphs = terminal.draw(characters, colors).reshape(2, 14, 4, 7, 3)
  inked = glyphs.any(axis=(1, 3, 4))
  np.testing.assert_array_equal(inked, characters != ord(' '))
  assert glyphs[0, :, 1].max(axis=(0, 1)).min() > 200  # White.
  red, green, _ = glyphs[1, :, 0].max(axis=(0, 1))
  assert red > 3 * green


@pytest.mark.needs('nethack/score')
def test_nethack() -> None:
  plain, shown = (
    registry.make('nethack/score', 1, 0, can_render=can_render)
    for can_render in (False, True)
  )
  assert isinstance(plain, base.HostEnvironment)
  assert isinstance(shown, base.HostEnvironment)
  jax.tree.map(np.testing.assert_array_equal, plain.reset(), shown.reset())
  with pytest.raises(base.RenderError, match='can_render'):
    plain.render()
  assert 'Dlvl:1' in shown.screen()
  assert '@' in shown.screen()
  assert shown.render().shape == (24 * 14, 80 * 7, 3)
  plain.close()
  shown.close()
