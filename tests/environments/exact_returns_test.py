"""Tests of the expected returns in grid worlds."""

import numpy as np
import pytest

from disco_rl.environments import registry
from disco_rl.environments.jax_native import exact_returns
from disco_rl.environments.jax_native import gridworld
from disco_rl.environments.jax_native import gridworld_tasks
from disco_rl.evaluation import normalization

LEFT, RIGHT = 3, 4


def build(layout: str, limit: int, **options: object) -> gridworld.GridWorld:
  kinds = [gridworld.Kind(1.0, 0.5, 0.25)]
  sizes = {'size': (2, 3), 'num_slots': 2, 'num_kinds': 1}
  return gridworld.build(layout, kinds, limit, **sizes, **options)  # type: ignore[arg-type]


def test_by_hand() -> None:
  """A corridor: right, right collects; then away and back, if it respawns."""
  # Random actions go right twice in two steps with probability 1 / 25.
  random, best = exact_returns.of_grid_world(build('@.a', 2))
  assert random == pytest.approx(1 / 25)
  assert best == pytest.approx(1.0)
  # In step 2 it is collected, in step 3 the agent leaves, and it reappears
  # with probability 1/4; in step 4 the agent is back, if the episode goes on.
  _, best = exact_returns.of_grid_world(build('@.a', 4))
  assert best == pytest.approx(1.0 + 0.5 * 0.25)
  # Random starts: next to it, or two steps away.
  random, best = exact_returns.of_grid_world(build('..a', 1))
  assert (random, best) == (pytest.approx(1 / 10), pytest.approx(1 / 2))


def test_action_values_of_a_policy_by_hand() -> None:
  """To the object's cell, back, and so on, for ever."""
  world, discount = build('@.a', 1), 0.9
  # By cell; the second row of the board is wall.
  policy = np.zeros((6, 4, 5))
  policy[:, :, RIGHT] = 1.0
  policy[2] = np.eye(5)[LEFT]
  q_value = exact_returns.of_policy(world, policy, discount)
  # With x, the value in the object's cell, and 1/4, that it has reappeared:
  # x = discount (1/4 (1 + 1/2 discount x) + 3/4 discount x).
  x = discount / 4 / (1 - discount**2 * (1 / 8 + 3 / 4))
  collected = 1 + discount * x / 2
  assert q_value[2, 0, LEFT] == pytest.approx(x, abs=1e-5)
  assert q_value[1, 1, RIGHT] == pytest.approx(collected, abs=1e-5)
  assert q_value[0, 1, RIGHT] == pytest.approx(discount * collected, abs=1e-5)
  # It does not reappear under the agent, which stays at the edge.
  assert q_value[2, 0, RIGHT] == pytest.approx(discount * x, abs=1e-5)
  # A step costs 1, and half of the actions are random: 1/5 of them, right.
  costly = build('@.a', 1, step_reward=-1.0, slip=0.5)
  q_value = exact_returns.of_policy(costly, policy, 0.0)
  assert q_value[1, 1, RIGHT] == pytest.approx(-1 + 0.6)
  assert q_value[1, 1, LEFT] == pytest.approx(-1 + 0.1)


@pytest.mark.parametrize(
  'name',
  [
    *(f'gridworld/{i:02}' for i in range(21)),
    *(f'gridworld/held_out_{i:02}' for i in range(7)),
  ],
)
def test_grid_worlds_of_the_suite(name: str) -> None:
  """The table is from another implementation, in the tests of that suite."""
  world = registry.make(name, 1, 0)
  assert isinstance(world, gridworld.GridWorld)
  got = exact_returns.of_grid_world(world)
  assert got == pytest.approx(gridworld_tasks.RETURNS[name], abs=1e-3)


def test_random_places_are_refused() -> None:
  world = build('..a', 4, random_objects=True)
  with pytest.raises(ValueError, match='are random; measure'):
    exact_returns.of_grid_world(world)
  with pytest.raises(ValueError, match='are random; measure'):
    exact_returns.of_policy(world, np.ones((6, 4, 5)) / 5, 0.9)


def test_scales_of_random_tasks() -> None:
  chain = normalization.find_scale('random_chain/4')
  assert chain is not None
  assert chain.normalize([0.0, 1.0]).tolist() == [0.0, 1.0]
  for name in ('random_grid/5', 'lpg/sparse/2'):
    scale = normalization.find_scale(name)
    assert scale is not None
    assert scale.low < scale.high
    assert scale.benchmark.name == name.split('/')[0]
  # All sparse boards have a goal that can be reached within the limit.
  assert scale.high == pytest.approx(1.0)
  # What an agent draws is not known from the name.
  for name in ('random_grid', 'lpg/dense'):
    assert normalization.find_scale(name) is None
