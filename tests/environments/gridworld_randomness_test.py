"""Chance events of a step in a grid world are independent of one another.

A step decides whether the action slips and to which other one, whether the
episode ends, whether collected objects reappear, and where the object that is
collected will: each by a random number of its own.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments.jax_native import gridworld

NUM_STEPS = 40_000
# Five standard deviations of a frequency, at most.
TOLERANCE = 5 * 0.5 / NUM_STEPS**0.5
SLIP, TERMINATION, RESPAWN = 0.5, 0.4, 0.3
# The agent goes to the right, onto an object, unless it slips. Wherever it goes
# there is an object of that kind; two others were collected before.
LAYOUT = """
  b.a.
  .a@a
  b.a."""
COLUMNS = 4
RIGHT = 4
# Slots count row by row: those around the agent, and the two absent ones.
AROUND, ABSENT = [1, 2, 3, 5], [0, 4]
START = COLUMNS + 2
# Where an action leads: stay, up, down, left, right.
NEIGHBORS = START + np.array([0, -COLUMNS, COLUMNS, -1, 1])


@jax.jit
def step_often(
  world: gridworld.GridWorld,
) -> tuple[gridworld.GridState, types.TimeStep]:
  """N steps to the right from one state, each with its own key."""
  state = gridworld.GridState(
    agent_cell=jnp.int32(START),
    object_cell=world.object_cell,
    is_present=jnp.ones(6, bool).at[jnp.array(ABSENT)].set(False),
    step=jnp.int32(0),
  )
  keys = jax.random.split(jax.random.key(17), NUM_STEPS)
  return jax.vmap(lambda key: world.step(state, jnp.int32(RIGHT), key))(keys)


def play(
  random_objects: bool = False, termination: float = TERMINATION
) -> tuple[gridworld.GridState, types.TimeStep]:
  """States and outcomes after one step, NumPy arrays [N, ...]."""
  world = gridworld.build(
    LAYOUT,
    [
      gridworld.Kind(reward=1.0, termination=termination, respawn=0.0),
      gridworld.Kind(reward=1.0, termination=0.0, respawn=RESPAWN),
    ],
    step_limit=50,
    size=(3, COLUMNS),
    num_slots=6,
    num_kinds=2,
    slip=SLIP,
    random_objects=random_objects,
  )
  return jax.tree.map(np.asarray, step_often(world))


def assert_independent(a: np.ndarray, b: np.ndarray) -> None:
  """Each combination of two events [N] is as frequent as the product says."""
  for x, y in itertools.product((a, ~a), (b, ~b)):
    assert 0.02 < x.mean() < 0.98 and 0.02 < y.mean() < 0.98
    assert abs(np.mean(x & y) - x.mean() * y.mean()) < TOLERANCE


def test_slipping_and_termination_are_drawn_apart() -> None:
  """P(cell, end) = P(cell) * P(end | an object is there)."""
  state, timestep = play()
  moved = state.agent_cell != START
  # In the agent's first cell there is nothing to collect.
  assert not timestep.is_terminal[~moved].any()
  for action, cell in enumerate(NEIGHBORS):
    is_here = state.agent_cell == cell
    expected = SLIP / 5 + (1.0 - SLIP) * (action == RIGHT)
    assert abs(is_here.mean() - expected) < TOLERANCE
    if action:
      joint = np.mean(is_here & timestep.is_terminal)
      assert abs(joint - expected * TERMINATION) < TOLERANCE


def test_objects_reappear_whatever_else_happens() -> None:
  """Also one without the other."""
  state, timestep = play()
  first, second = state.is_present[:, ABSENT].T
  for reappears in (first, second):
    assert abs(reappears.mean() - RESPAWN) < TOLERANCE
    assert_independent(reappears, state.agent_cell == START + 1)
    assert_independent(reappears, timestep.is_terminal)
  assert_independent(first, second)


def test_the_next_place_of_an_object_is_drawn_apart() -> None:
  """It says nothing of the move, of the episode's end, or of other objects."""
  state, timestep = play(random_objects=True)
  slot = AROUND[2]  # At the right.
  assert state.object_cell.shape == (NUM_STEPS, 6)
  is_collected = ~state.is_present[:, slot]
  assert abs(is_collected.mean() - (SLIP / 5 + 1.0 - SLIP)) < TOLERANCE
  of_collected = lambda x: x[is_collected]
  place = of_collected(state.object_cell[:, slot])
  # One of five free places, or its own where another object's is drawn.
  places = np.unique(place)
  assert len(places) == 6 and START + 1 in places
  for cell in places:
    assert_independent(place == cell, of_collected(timestep.is_terminal))
    for absent in ABSENT:
      assert_independent(
        place == cell, of_collected(state.is_present[:, absent])
      )
