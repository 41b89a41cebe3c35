"""Games in which an illegal action ends the episode with -1."""

import dataclasses
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import types
from disco_rl.environments import base

NUM_DOORS = 5
LENGTH = 4


@types.record
class State:
  """The legal actions, [A] bool, and the step, [] int32."""

  legal: types.Array
  step: types.Array


@types.record
class Doors(base.JaxEnvironment):
  """One to four of five doors are open; the first open one pays 1.

  Attributes:
    dead_end: Whether no door is open in the third step.
  """

  dead_end: bool = dataclasses.field(default=False, metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    observation = {
      'step': jax.ShapeDtypeStruct((1,), jnp.float32),
      'action_mask': jax.ShapeDtypeStruct((NUM_DOORS,), bool),
    }
    return types.EnvironmentSpec(observation, NUM_DOORS)

  def reset(self, key: types.Array) -> tuple[State, types.PyTree]:
    state = State(self._open(key, jnp.int32(0)), jnp.int32(0))
    return state, self._observe(state)

  def step(
    self, state: State, action: types.Array, key: types.Array
  ) -> tuple[State, types.TimeStep]:
    was_legal = state.legal[action]
    is_first = action == jnp.argmax(state.legal)
    is_last = (state.step + 1 == LENGTH) | ~was_legal
    # As in board games, nothing is legal after the end.
    legal = self._open(key, state.step + 1) & ~is_last
    state = State(legal, state.step + 1)
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=jnp.where(was_legal, is_first.astype(jnp.float32), -1.0),
      is_terminal=is_last,
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def render(self, state: State) -> np.ndarray:
    row = np.asarray(state.legal, np.uint8)[None, :, None]
    return np.tile(255 * row, (1, 1, 3))

  def _open(self, key: types.Array, step: types.Array) -> types.Array:
    open_key, door_key = jax.random.split(key)
    legal = jax.random.bernoulli(open_key, 0.4, (NUM_DOORS,))
    doors = jnp.arange(NUM_DOORS)
    legal |= doors == jax.random.randint(door_key, (), 0, NUM_DOORS - 1)
    legal &= doors != NUM_DOORS - 1
    return legal & ~((step == 2) & self.dead_end)

  def _observe(self, state: State) -> types.PyTree:
    step = state.step[None].astype(jnp.float32)
    return {'step': step, 'action_mask': state.legal}


class InfoDoors(gymnasium.Env):
  """The same game for Gymnasium, where an illegal action raises."""

  observation_space = gymnasium.spaces.Box(0, LENGTH, (1,), np.float32)
  action_space = gymnasium.spaces.Discrete(NUM_DOORS)

  def reset(
    self, *, seed: int | None = None, options: Any = None
  ) -> tuple[np.ndarray, dict]:
    super().reset(seed=seed, options=options)
    self._step = 0
    return self._observe(), self._info()

  def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
    if not self._legal[action]:
      raise RuntimeError(f'door {action} is closed')
    reward = float(action == np.argmax(self._legal))
    self._step += 1
    is_over = self._step == LENGTH
    observation = self._observe()
    self._legal = self._legal & (not is_over)
    return observation, reward, is_over, False, self._info()

  def _observe(self) -> np.ndarray:
    self._legal = self.np_random.random(NUM_DOORS) < 0.4
    self._legal[self.np_random.integers(NUM_DOORS - 1)] = True
    self._legal[-1] = False
    return np.array([self._step], np.float32)

  def _info(self) -> dict[str, Any]:
    return {'action_mask': self._legal.astype(np.int8)}


class HostDoors(InfoDoors):
  """The same game with the method of sb3-contrib."""

  def action_masks(self) -> np.ndarray:
    return self._legal


class DeadEnd(HostDoors):
  """A game in which no door is open after the first step."""

  def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
    outcome = super().step(action)
    self._legal[:] = False
    return outcome


gymnasium.register('InfoDoors-v0', entry_point='masked:InfoDoors')
gymnasium.register('HostDoors-v0', entry_point='masked:HostDoors')
