"""Computes expected returns in grid worlds with a fixed layout, in NumPy.

Uses dynamic programming, over the time left or until values converge. The state
is the agent's cell and which objects are present: values are [H * W, 2^K], and
bit k of the second index is 1 where the object of slot k is present.
"""

import jax
import numpy as np

from disco_rl.environments.jax_native import gridworld

# The largest error of discounted values.
_PRECISION = 1e-5
# Row and column of a step, by action.
_STEPS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def of_grid_world(world: gridworld.GridWorld) -> tuple[float, float]:
  """Computes mean undiscounted returns of an episode.

  The optimal policy observes the time left, which agents do not, so its return
  is an upper bound for them.

  Args:
    world: A grid world with objects in fixed places.

  Returns:
    The returns of uniformly random actions and of the optimal policy.

  Raises:
    ValueError: Objects begin in random places: there are too many states.
  """
  task = _fixed(world)
  arrive = _arrivals(np.asarray(task.walls))
  starts = (
    [task.start_cell] if task.start_cell >= 0 else task.places[task.places >= 0]
  )
  all_present = sum(1 << k for k in _slots(task))
  returns = []
  for slip in (1.0, float(task.slip)):
    # Each action is random with this probability, otherwise the best.
    values = np.zeros((task.walls.size, 1 << task.object_kind.size))
    for _ in range(task.step_limit):
      arrival_values = _collect(task, _respawn(task, values))
      by_action = arrival_values[arrive]
      values = task.step_reward + slip * by_action.mean(0)
      if slip < 1:
        values += (1 - slip) * by_action.max(0)
    returns.append(float(values[starts, all_present].mean()))
  return returns[0], returns[1]


def of_policy(
  world: gridworld.GridWorld, policy: np.ndarray, discount: float
) -> np.ndarray:
  """Computes the expected discounted returns of actions, then of a policy.

  Time limits are ignored: agents do not observe them, and bootstrap there.

  Args:
    world: A grid world with objects in fixed places.
    policy: The probabilities of actions by state, [H * W, 2^K, A].
    discount: The discount, below 1.

  Returns:
    The action values, [H * W, 2^K, A].

  Raises:
    ValueError: Objects begin in random places: there are too many states.
  """
  task = _fixed(world)
  arrive = _arrivals(np.asarray(task.walls))
  q_values = np.zeros(policy.shape)
  change = np.inf
  while change > _PRECISION * (1.0 - discount):
    values = discount * np.sum(policy * q_values, axis=-1)
    arrival_values = _collect(task, _respawn(task, values))
    by_action = np.moveaxis(arrival_values[arrive], 0, -1)
    slipped = task.slip * by_action.mean(-1, keepdims=True)
    before, q_values = (
      q_values,
      task.step_reward + slipped + (1.0 - task.slip) * by_action,
    )
    change = np.abs(q_values - before).max()
  return q_values


def _fixed(world: gridworld.GridWorld) -> gridworld.GridWorld:
  """Returns the world with NumPy arrays, if objects have fixed places."""
  task: gridworld.GridWorld = jax.tree.map(np.asarray, world)
  if task.random_objects:
    raise ValueError(
      'Returns can be computed if objects have fixed places, but those of this '
      'grid world are random; measure them instead.'
    )
  return task


def _slots(task: gridworld.GridWorld) -> np.ndarray:
  """Returns the indices k of the slots that hold objects."""
  return np.flatnonzero(task.object_kind >= 0)


def _arrivals(walls: np.ndarray) -> np.ndarray:
  """Returns the cell that each action leads to from each cell, [A, H * W]."""
  rows, columns = walls.shape
  arrivals = np.empty((len(_STEPS), walls.size), int)
  for action, (down, right) in enumerate(_STEPS):
    for row, column in np.ndindex(rows, columns):
      to = (row + down, column + right)
      inside = 0 <= to[0] < rows and 0 <= to[1] < columns
      if not inside or walls[to]:
        to = (row, column)
      arrivals[action, row * columns + column] = to[0] * columns + to[1]
  return arrivals


def _respawn(task: gridworld.GridWorld, values: np.ndarray) -> np.ndarray:
  """Returns values before absent objects reappear, except under the agent."""
  for k in _slots(task):
    bits = values.reshape(len(values), -1, 2, 1 << k)
    absent, present = bits[:, :, 0], bits[:, :, 1]
    chance = np.full((len(values), 1, 1), task.object_respawn[k])
    chance[task.object_cell[k]] = 0.0
    mixed = absent + chance * (present - absent)
    values = np.stack([mixed, present], axis=2).reshape(values.shape)
  return values


def _collect(task: gridworld.GridWorld, after: np.ndarray) -> np.ndarray:
  """Returns values on entering a cell, from those after collecting."""
  values = after.copy()
  for k in _slots(task):
    cell = task.object_cell[k]
    bits = values[cell].reshape(-1, 2, 1 << k)
    survival = 1.0 - task.object_termination[k]
    bits[:, 1] = task.object_reward[k] + survival * bits[:, 0]
  return values
