"""A custom environment, on the device and on the host.

  python -m examples.own_environment
  python -m examples.own_environment --on_host

An agent starts in the middle of a corridor. It sees where it is and which end
is open: +1 for leaving there, -1 for walking into the other end. `Corridor` is
written in JAX and steps on the device together with the agent; `HostCorridor`
is the same game as a Gymnasium environment.
"""

import argparse
import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import disco_rl
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry


# Shown as: jax
@types.record
class State:
  """The state of the game.

  Attributes:
    position: The agent's cell, [] int32.
    goal: The open end, 0 or the last cell, [] int32.
    num_steps: The steps since the episode began, [] int32.
  """

  position: types.Array
  goal: types.Array
  num_steps: types.Array


@types.record
class Corridor(base.JaxEnvironment):
  """One corridor, as pure functions; the agent's program maps over many.

  Attributes:
    length: The number of cells. It determines shapes, so it is static.
    max_steps: The maximal length of an episode.
  """

  length: int = dataclasses.field(default=7, metadata={'static': True})
  max_steps: int = dataclasses.field(default=20, metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """One-hot position and goal; the actions are left and right."""
    observation = jax.ShapeDtypeStruct((2, self.length), jnp.float32)
    return types.EnvironmentSpec(observation=observation, num_actions=2)

  def reset(self, key: types.Array) -> tuple[State, types.Array]:
    """Draws the open end."""
    state = State(
      position=jnp.int32(self.length // 2),
      goal=jax.random.bernoulli(key).astype(jnp.int32) * (self.length - 1),
      num_steps=jnp.int32(0),
    )
    return state, self._observe(state)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    """Takes one step."""
    del key  # Nothing is random after the reset.
    state = State(
      position=state.position + 2 * action - 1,
      goal=state.goal,
      num_steps=state.num_steps + 1,
    )
    is_at_end = (state.position == 0) | (state.position == self.length - 1)
    won = state.position == state.goal
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=jnp.where(is_at_end, jnp.where(won, 1.0, -1.0), 0.0),
      is_terminal=is_at_end,
      is_last=is_at_end | (state.num_steps >= self.max_steps),
      mask=jnp.bool_(True),
    )

  def _observe(self, state: State) -> types.Array:
    return jax.nn.one_hot(jnp.stack([state.position, state.goal]), self.length)

  # End of: jax


# Shown as: names
# They are called with the number of environments and a seed.
registry.register('corridor_7', lambda *_: Corridor(7), 'device')
registry.register('corridor_9', lambda *_: Corridor(9), 'device')
# End of: names


# Shown as: host
class HostCorridor(gymnasium.Env):
  """The same game for Gymnasium."""

  def __init__(self, length: int = 7):
    self._length = length
    self.action_space = gymnasium.spaces.Discrete(2)
    self.observation_space = gymnasium.spaces.Box(0, 1, (2, length))

  def reset(
    self, *, seed: int | None = None, options: Any = None
  ) -> tuple[np.ndarray, dict]:
    """Draws the open end."""
    super().reset(seed=seed, options=options)
    self._position = self._length // 2
    self._goal = int(self.np_random.integers(2)) * (self._length - 1)
    return self._observe(), {}

  def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
    """Takes one step."""
    self._position += 2 * int(action) - 1
    is_at_end = self._position in (0, self._length - 1)
    reward = 1.0 if self._position == self._goal else -1.0
    return self._observe(), reward * is_at_end, is_at_end, False, {}

  def _observe(self) -> np.ndarray:
    cells = np.eye(self._length, dtype=np.float32)
    return cells[[self._position, self._goal]]


gymnasium.register(
  'Corridor-v0',
  entry_point=f'{__name__}:HostCorridor',
  max_episode_steps=20,
)
# End of: host


# Shown as: train
def train(environment: Any, rule: str, updates: int) -> np.ndarray:
  """Trains an agent; returns its mean return, every ten updates."""
  trainer = disco_rl.Trainer(
    environment,
    rule,
    hidden_sizes=(64, 64),
    num_environments=16,
    batch_size=32,
    unroll_length=16,
    learning_rate=1e-2,
  )
  returns = trainer.train(updates)['return']
  trainer.close()
  return returns
  # End of: train


def main() -> None:
  """Trains, and prints how the return grows."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--on_host', action='store_true')
  parser.add_argument('--rule', default='disco103')
  parser.add_argument('--updates', type=int, default=300)
  flags = parser.parse_args()
  # The class has no limit of 20 steps; its registration does.
  environment = 'gymnasium/Corridor-v0' if flags.on_host else Corridor()
  returns = train(environment, flags.rule, flags.updates)
  for update, mean_return in zip(range(10, flags.updates + 10, 10), returns):
    print(f'update {min(update, flags.updates)}: return {mean_return:.2f}')


if __name__ == '__main__':
  main()
