"""Sokoban by Jumanji, an optional extra, with levels generated or from a file.

Jumanji itself would download levels.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import config as config_lib
from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import boards
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments import scores
from disco_rl.environments.jax_native import sokoban_generator
from disco_rl.environments.jax_native import sokoban_levels

NUM_ACTIONS = 4  # Up, right, down, left.

# Variant -> number and seed of its levels; None is the family's name.
GENERATED: Mapping[str | None, tuple[int, int]] = {
  None: (4096, 0),
  'held_out': (1024, 1),
}


@dataclasses.dataclass(frozen=True)
class Preprocessing(config_lib.Settings, prefix='preprocessing.sokoban.'):
  """Preprocessing of Sokoban; the defaults are the benchmark's.

  Attributes:
    frame_stack: S, the number of frames in an observation; 4 in the paper.
    time_limit: time limit in steps, a truncation. With limits of 81 to 159
      steps, returns show which levels were solved.
  """

  frame_stack: config_lib.Count = 4
  time_limit: config_lib.Count = 120


BENCHMARK = Preprocessing()


@types.record
class State:
  """The positions on the board.

  Attributes:
    fixed: [10, 10] uint8; see `sokoban_levels`.
    movable: [S, 10, 10] uint8, in the last S steps, the newest last. The first
      one of the episode is repeated for those before it.
    agent: [2] int32, row and column.
    step: [] int32, steps taken in this episode.
  """

  fixed: types.Array
  movable: types.Array
  agent: types.Array
  step: types.Array


@types.record
class Sokoban(base.JaxEnvironment):
  """A game of pushing boxes onto targets, with N levels drawn at random.

  The actions are up, right, down and left; they have no effect if a wall or a
  second box is in the way. The reward of a step is -0.1, plus 1 if it pushes a
  box onto a target, minus 1 if it pushes one off, plus 10 if it solves the
  level, which ends the episode. Episodes are truncated after `time_limit`
  steps.

  The observation is [10, 10, S * 4] float32, the last S frames, the newest
  last. The channels of each: walls, targets, boxes, the agent. The first frame
  of an episode is repeated for those before it.

  Attributes:
    levels: [N, 10, 10, 2] uint8; see `sokoban_levels`.
    preprocessing: The preprocessing of frames and episodes.
  """

  levels: types.Array
  preprocessing: Preprocessing = dataclasses.field(
    default=BENCHMARK, metadata={'static': True}
  )

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec: observations [10, 10, S * 4], four actions."""
    side, channels = sokoban_levels.SIDE, 4 * self.preprocessing.frame_stack
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct((side, side, channels), jnp.float32),
      num_actions=NUM_ACTIONS,
    )

  def reset(self, key: types.Array) -> tuple[State, types.Array]:
    """Begins an episode; see the class for the observation."""
    level = self.levels[jax.random.randint(key, (), 0, self.levels.shape[0])]
    fixed, movable = level[..., 0], level[..., 1]
    cell = jnp.argmax(movable.reshape(-1) == sokoban_levels.AGENT)
    state = State(
      fixed=fixed,
      movable=jnp.stack([movable] * self.preprocessing.frame_stack),
      agent=jnp.stack(jnp.unravel_index(cell, fixed.shape)).astype(jnp.int32),
      step=jnp.int32(0),
    )
    return state, _observe(state)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    """Takes one action; see the class for their meaning."""
    del key  # Only the choice of the level is random.
    after, timestep = _game(self.preprocessing.time_limit).step(
      _package_state(state), jnp.asarray(action, jnp.int32)
    )
    state = State(
      fixed=after.fixed_grid,
      movable=jnp.concatenate([state.movable[1:], after.variable_grid[None]]),
      agent=after.agent_location,
      step=after.step_count,
    )
    return state, types.TimeStep(
      observation=_observe(state),
      reward=timestep.reward.astype(jnp.float32),
      is_terminal=timestep.extras['solved'],
      is_last=timestep.last(),
      mask=jnp.bool_(True),
    )

  def render(self, state: State) -> np.ndarray:
    """Implements `JaxEnvironment.render`; a box on a target is green."""
    fixed, movable = np.asarray(state.fixed), np.asarray(state.movable[-1])
    is_target = fixed == sokoban_levels.TARGET
    is_box = movable == sokoban_levels.BOX
    return boards.paint(
      (fixed == sokoban_levels.WALL, boards.WALL),
      (is_target, boards.COLORS[3]),
      (is_box, boards.COLORS[0]),
      (is_box & is_target, boards.COLORS[1]),
      (movable == sokoban_levels.AGENT, boards.AGENT),
    )


def find_levels(variant: str | None) -> Callable[[], np.ndarray] | None:
  """Looks up the levels of a variant.

  Args:
    variant: The part of the name after 'sokoban/': a key of `GENERATED`, or the
      path of a file, which is read.

  Returns:
    A function that returns the levels, [N, 10, 10, 2]; None if there is no such
    variant.

  Raises:
    OSError: The file cannot be read.
    ValueError: The file is malformed; see `sokoban_levels.read`.
  """
  if variant in GENERATED:
    return functools.partial(sokoban_generator.generate, *GENERATED[variant])
  if variant is not None and sokoban_levels.is_path(variant):
    levels = sokoban_levels.read(variant)
    return lambda: levels
  return None


def make(
  levels: np.ndarray, preprocessing: Preprocessing = BENCHMARK
) -> Sokoban:
  """Makes the game with levels [N, 10, 10, 2].

  Raises:
    ImportError: Jumanji is not installed.
  """
  import_package()
  return Sokoban(jnp.asarray(levels, jnp.uint8), preprocessing)


def import_package() -> ModuleType:
  """Returns Jumanji's Sokoban; raises ImportError if it is not installed."""
  return packages.load(
    'jumanji.environments.routing.sokoban',
    "'sokoban...'",
    'the package jumanji (1.1.2 or later)',
    extras.install('sokoban'),
  )


@functools.cache
def _game(time_limit: int) -> Any:
  """Makes Jumanji's environment; only its `step` is used."""
  # The defaults would download levels, and leave files of pictures open.
  unused = object()
  # It keeps arrays, which must not belong to the first trace.
  with jax.ensure_compile_time_eval():
    return import_package().Sokoban(
      generator=unused, viewer=unused, time_limit=time_limit
    )


def _package_state(state: State) -> Any:
  return import_package().State(
    key=None,
    fixed_grid=state.fixed,
    variable_grid=state.movable[-1],
    agent_location=state.agent,
    step_count=state.step,
  )


def _observe(state: State) -> types.Array:
  """Returns the observation, [10, 10, S * 4] float32; see `Sokoban`."""
  frames = [_channels(state.fixed, movable) for movable in state.movable]
  return jnp.concatenate(frames, axis=-1).astype(jnp.float32)


def _channels(fixed: types.Array, movable: types.Array) -> types.Array:
  """Returns the channels of a frame, [10, 10, 4] bool."""
  channels = (
    fixed == sokoban_levels.WALL,
    fixed == sokoban_levels.TARGET,
    movable == sokoban_levels.BOX,
    movable == sokoban_levels.AGENT,
  )
  return jnp.stack(channels, axis=-1)


def _find(
  variant: str | None, preprocessing: Preprocessing
) -> family.Builder | None:
  """Returns the builder of a variant; see `find_levels`."""
  levels = find_levels(variant)
  if levels is None:
    return None
  import_package()
  return lambda *_: make(levels(), preprocessing)


_SCALE = scores.Scale(
  scores.Benchmark(
    'sokoban',
    'Sokoban, levels solved',
    'The fraction of the last 100 episodes in which the level was solved. The '
    'paper shows mean returns (Fig. 2f), in levels like those of I2A; these '
    'are generated, or from a file.',
  ),
  low=0.0,
  high=1.0,
)
FAMILIES = {
  'sokoban': family.Family(
    form='sokoban, sokoban/held_out or sokoban/PATH of a file of levels',
    kind='device',
    names=lambda: ('sokoban', 'sokoban/held_out'),
    find=_find,
    find_scale=lambda _: _SCALE,
    # Each of at most 120 steps has a reward of -0.1, a box on its target 1, and
    # the solution 10. So a solved episode returns at least -1, and an unsolved
    # one with n boxes at most n - 13. With four boxes, limits of 81 to 159
    # steps also work.
    success_threshold=-5.0,
    preprocessing=Preprocessing,
  )
}
