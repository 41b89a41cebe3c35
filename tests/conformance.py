"""Checks environments against the protocol of base.py, by playing."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

import chex
import jax
import numpy as np
import pytest

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import registry
from disco_rl.environments.host import adapters
from disco_rl.environments.host import wrapper

Environment = base.JaxEnvironment | base.HostEnvironment


@dataclasses.dataclass(frozen=True)
class Trajectory:
  """A trajectory of random actions, as NumPy arrays.

  Attributes:
    observation: A tree of [T+1, B, ...].
    action: [T, B] int32.
    timestep: The outcomes [T, B, ...]; its observation is `observation[1:]`.
  """

  observation: Any
  action: np.ndarray
  timestep: types.TimeStep


def check(
  make: Callable[[int], Environment], num_steps: int, num_environments: int = 96
) -> Trajectory:
  """Asserts that an environment keeps to the protocol in base.py.

  Args:
    make: seed -> the environment. A host environment must have
      `num_environments`. A JAX environment is batched here, with a key from the
      seed.
    num_steps: T, enough for an episode to end and the next to begin.
    num_environments: B, at least 2.

  Returns:
    The trajectory of seed 0, for checks that know the environment.
  """
  environment = make(0)
  spec = environment.spec
  action = random_actions(spec.num_actions, num_steps, num_environments)
  if isinstance(environment, base.JaxEnvironment):
    jitted = jax.jit(jax_rollout(environment))
    played = [jitted(jax.random.key(seed), action) for seed in (0, 0, 1)]
  else:
    environment.close()
    played = [_host_rollout(make, seed, action) for seed in (0, 0, 1)]
  first, again, other = (_trajectory(x, action, y) for x, y in played)

  _check_observation(first.observation, spec, (num_steps + 1, num_environments))
  _check_timestep(first.timestep, (num_steps, num_environments))
  if isinstance(environment, base.JaxEnvironment):
    is_cut_short = first.timestep.is_last & ~first.timestep.mask
    np.testing.assert_array_equal(~first.timestep.mask, is_cut_short)
  assert _equal(first.observation, again.observation), 'same seed, but differs'
  assert _equal(first.timestep, again.timestep), 'same seed, but differs'
  assert not _equal(first.observation, other.observation), 'the seed is unused'
  return first


def random_actions(num_actions: int, *size: int) -> np.ndarray:
  rng = np.random.default_rng(0)
  return rng.integers(num_actions, size=size, dtype=np.int32)


def skip_without(name: str) -> None:
  """Skips a test where the package of an environment is not installed."""
  try:
    registry.validate(name)
  except ImportError as error:
    pytest.skip(str(error))


def check_mark_of_time_limit(timestep: types.TimeStep, limit: int) -> None:
  """Asserts that each episode is truncated and reset in its `limit`-th step."""
  is_last = np.arange(len(timestep.mask))[:, None] % limit == limit - 1
  is_last = np.broadcast_to(is_last, timestep.mask.shape)
  np.testing.assert_array_equal(timestep.is_last, is_last)
  np.testing.assert_array_equal(timestep.mask, ~is_last)
  np.testing.assert_array_equal(timestep.is_terminal, is_last)


def check_truncations(timestep: types.TimeStep, limit: int) -> None:
  """Asserts that each episode is truncated after `limit` steps, then reset."""
  time = np.arange(len(timestep.mask))[:, None] % (limit + 1)
  time = np.broadcast_to(time, timestep.mask.shape)
  np.testing.assert_array_equal(timestep.is_last, time == limit - 1)
  np.testing.assert_array_equal(timestep.mask, time != limit)
  np.testing.assert_array_equal(timestep.is_terminal, ~timestep.mask)


def check_independence(name: str, num_steps: int) -> None:
  """Asserts that the first 2 of 32 environments are those of a batch of 2."""
  large, small = (registry.make(name, size, seed=0) for size in (32, 2))
  assert _equal(jax.tree.map(lambda x: x[:2], large.reset()), small.reset())
  rng = np.random.default_rng(0)
  for _ in range(num_steps):
    action = rng.integers(large.spec.num_actions, size=32)
    got, want = large.step(action), small.step(action[:2])
    assert _equal(jax.tree.map(lambda x: x[:2], got), want)
  frames = jax.tree.leaves(got.observation)
  assert any(len({x.tobytes() for x in leaf}) > 16 for leaf in frames)
  large.close()
  small.close()


def check_restored(
  make: Callable[[], base.HostEnvironment], num_steps: int, at: Sequence[int]
) -> None:
  """Saves environments at some steps; others continue exactly from there."""
  games = make()
  actions = random_actions(
    games.spec.num_actions, num_steps, games.num_environments
  )
  games.reset()
  timesteps, saved = [], {}
  for t, action in enumerate(actions):
    if t in at:
      saved[t] = games.save_state()
    timesteps.append(games.step(action))
  games.close()
  for t, state in saved.items():
    assert state is not None
    restored = make()
    restored.reset()
    restored.step(actions[-1])
    restored.restore_state(state)
    for action, timestep in zip(actions[t:], timesteps[t:]):
      jax.tree.map(
        np.testing.assert_array_equal, restored.step(action), timestep
      )
    restored.close()


def jax_rollout(
  environment: base.JaxEnvironment,
) -> Callable[[Any, Any], tuple[Any, types.TimeStep]]:
  """Returns (key, actions [T, B]) -> first observation, outcomes [T, B]."""

  def rollout(key: Any, action: Any) -> tuple[Any, types.TimeStep]:
    reset_key, step_key = jax.random.split(key)
    state, first = jax.vmap(environment.reset)(
      jax.random.split(reset_key, action.shape[1])
    )
    _, timesteps = jax.lax.scan(
      lambda state, x: jax.vmap(environment.step_autoreset)(state, *x),
      state,
      (action, jax.random.split(step_key, action.shape)),
    )
    return first, timesteps

  return rollout


def stacked(
  frame: np.ndarray, is_first: np.ndarray, num_frames: int
) -> np.ndarray:
  """Stacks the single frames of a trajectory.

  Args:
    frame: [T+1, B, ...].
    is_first: [T+1, B] bool, whether the frame begins an episode.
    num_frames: S.

  Returns:
    [T+1, B, ..., S], the newest last. The first frame of an episode is repeated
    for those before it.
  """
  time = np.arange(len(frame))[:, None]
  start = np.maximum.accumulate(np.where(is_first, time, 0))
  row = np.arange(frame.shape[1])
  return np.stack(
    [
      frame[np.maximum(time - ago, start), row]
      for ago in reversed(range(num_frames))
    ],
    axis=-1,
  )


def _host_rollout(
  make: Callable[[int], Environment], seed: int, action: np.ndarray
) -> tuple[Any, types.TimeStep]:
  environment = make(seed)
  assert isinstance(environment, base.HostEnvironment)
  assert environment.num_environments == action.shape[1]
  inner = environment
  while isinstance(inner, wrapper.Wrapper):
    inner = inner._environment
  if isinstance(inner, adapters.Adapter):  # Errors name both.
    assert isinstance(inner._name, str) and inner._seed == seed
  first = environment.reset()
  copies = [jax.tree.map(np.copy, first)]
  timesteps = []
  for a in action:
    timesteps.append(environment.step(a))
    copies.append(jax.tree.map(np.copy, timesteps[-1]))
  environment.close()
  for leaf in jax.tree.leaves((first, timesteps)):
    assert isinstance(leaf, np.ndarray), f'{type(leaf)} is not of NumPy'
  assert _equal([first, *timesteps], copies), 'wrote into what it had returned'
  return first, jax.tree.map(lambda *x: np.stack(x), *timesteps)


def _trajectory(
  first: Any, action: np.ndarray, timestep: types.TimeStep
) -> Trajectory:
  timestep = jax.tree.map(np.asarray, timestep)
  observation = jax.tree.map(
    lambda x, y: np.concatenate([np.asarray(x)[None], y]),
    first,
    timestep.observation,
  )
  return Trajectory(observation, action, timestep)


def _check_observation(
  observation: Any, spec: types.EnvironmentSpec, batch: tuple[int, int]
) -> None:
  chex.assert_trees_all_equal_structs(observation, spec.observation)
  for (path, want), got in zip(
    jax.tree.leaves_with_path(spec.observation), jax.tree.leaves(observation)
  ):
    name = f'observation{jax.tree_util.keystr(path)}'
    assert got.shape == (*batch, *want.shape), f'{name}: {got.shape}'
    assert got.dtype == want.dtype, f'{name}: {got.dtype}'
  assert any(
    (leaf != leaf[:, :1]).any() for leaf in jax.tree.leaves(observation)
  ), 'all environments of the batch are the same'


def _check_timestep(timestep: types.TimeStep, batch: tuple[int, int]) -> None:
  for name, dtype in (
    ('reward', np.float32),
    ('is_terminal', np.bool_),
    ('is_last', np.bool_),
    ('mask', np.bool_),
  ):
    field = getattr(timestep, name)
    assert field.shape == batch, f'{name}: {field.shape}'
    assert field.dtype == dtype, f'{name}: {field.dtype}'

  mask, is_last = timestep.mask, timestep.is_last
  assert np.isfinite(timestep.reward).all()
  assert is_last[:-1].any(), 'no episode ended: raise num_steps'
  assert is_last[mask & timestep.is_terminal].all(), 'terminal but not last'
  assert timestep.is_terminal[~mask].all(), 'a masked step is not terminal'
  resets = (
    ~mask & ~is_last
  )  # Steps that only reset; some environments have none.
  if resets.any():
    assert not resets[0].any(), 'the first step resets'
    np.testing.assert_array_equal(resets[1:], is_last[:-1])
    assert not timestep.reward[resets].any(), 'a step that resets is rewarded'
    assert mask[is_last].all(), 'the last observation is shown, but masked'


def _equal(x: Any, y: Any) -> bool:
  """Returns whether two trees of equal structure have equal arrays."""
  return all(jax.tree.leaves(jax.tree.map(np.array_equal, x, y)))
