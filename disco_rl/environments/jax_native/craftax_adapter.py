"""Craftax, and Crafter in JAX; an optional extra of this package."""

from collections.abc import Callable
import dataclasses
import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from disco_rl import extras
from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments import family
from disco_rl.environments import packages
from disco_rl.environments.jax_native import trees

# Our names -> names in the package.
VARIANTS = {
  'classic_pixels': 'Craftax-Classic-Pixels-v1',
  'classic_symbolic': 'Craftax-Classic-Symbolic-v1',
  'pixels': 'Craftax-Pixels-v1',
  'symbolic': 'Craftax-Symbolic-v1',
}
# The size of a cell in pictures; the package has textures of this size.
_CELL_PIXELS = 16
_NEVER = jnp.iinfo(jnp.int32).max


@types.record
class Craftax(base.JaxEnvironment):
  """Craftax (Matthews et al., 2024), or the rules of Crafter (Hafner, 2021).

  The observation is one of
    classic_symbolic [1345] float32: the contents of each cell in view, the
      inventory, the player's needs, the light;
    classic_pixels [63, 63, 3] uint8;
    symbolic [8268] float32, pixels [130, 110, 3] uint8: the same for Craftax,
      with nine floors, 43 actions, and programs that take minutes to compile.

  An episode ends with death, and is truncated after 10,000 steps (in Craftax
  100,000). Generating a world takes much longer than a step. Every episode
  has its own world, which is only generated when an episode ends: the duration
  of a step increases with the number of episodes that end in it.

  Attributes:
    params: A record of arrays, the parameters of the game that can be changed
      without recompilation.
    variant: One of `VARIANTS`.
  """

  frames_per_second = 10.0

  params: types.PyTree
  variant: str = dataclasses.field(metadata={'static': True})

  @property
  def spec(self) -> types.EnvironmentSpec:
    """The spec of one environment, even if several are stacked."""
    env = _package_env(self.variant)
    shape = env.observation_space(env.default_params).shape
    dtype = jnp.uint8 if self._has_pixels else jnp.float32
    return types.EnvironmentSpec(
      observation=jax.ShapeDtypeStruct(shape, dtype),
      num_actions=env.num_actions,
    )

  def reset(self, key: types.Array) -> tuple[types.PyTree, types.Array]:
    """Implements `JaxEnvironment.reset`; the state is a record of Craftax."""
    state = trees.make_few_at_once(
      functools.partial(_first_state, self.variant), key, self.params
    )
    return state, self._observe(state)

  def step(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Takes one action; a step at a time limit is not terminal."""
    env = _package_env(self.variant)
    _, state, reward, is_last, _ = env.step_env(
      jax.random.key_data(key), state, action, self.params
    )
    without_limit = self.params.replace(max_timesteps=_NEVER)
    return state, types.TimeStep(
      observation=self._observe(state),
      reward=reward.astype(jnp.float32),
      is_terminal=env.is_terminal(state, without_limit),
      is_last=is_last,
      mask=jnp.bool_(True),
    )

  def step_autoreset(
    self, state: types.PyTree, action: types.Array, key: types.Array
  ) -> tuple[types.PyTree, types.TimeStep]:
    """Implements `JaxEnvironment.step_autoreset`, with the same results."""
    step_key, reset_key = jax.random.split(key)
    del key
    state, timestep = self.step(state, action, step_key)
    state = trees.replace_where(
      functools.partial(_first_state, self.variant),
      timestep.is_last,
      state,
      reset_key,
      self.params,
    )
    return state, base.mark_time_limit(timestep, self._observe(state))

  def render(self, state: types.PyTree) -> np.ndarray:
    """Draws all cells in view, and the inventory."""
    return np.asarray(_draw(self.variant)(state)).round().astype(np.uint8)

  @property
  def _has_pixels(self) -> bool:
    return self.variant.endswith('pixels')

  def _observe(self, state: types.PyTree) -> types.Array:
    observation = _package_env(self.variant).get_obs(state)
    if self._has_pixels:
      return jnp.round(255 * observation).astype(jnp.uint8)
    return observation.astype(jnp.float32)


def make(variant: str) -> Craftax:
  """Makes one of `VARIANTS` with Craftax's default parameters.

  After an installation, the first environment with pixels takes five minutes of
  processor time, while the package scales its images and caches them in its own
  folder.

  Raises:
    ImportError: craftax is not installed.
  """
  params = trees.strong_types(_package_env(variant).default_params)
  return Craftax(params=params, variant=variant)


def import_package() -> ModuleType:
  """Returns craftax.craftax_env; raises ImportError if it is not installed."""
  return packages.load(
    'craftax.craftax_env',
    "'craftax/...'",
    'the package craftax (1.6.1 or later)',
    extras.install('craftax'),
  )


@functools.cache
def _package_env(variant: str) -> Any:
  # Environments hold arrays, which must not become part of a traced program.
  with jax.ensure_compile_time_eval():
    return import_package().make_craftax_env_from_name(
      VARIANTS[variant], auto_reset=False
    )


@functools.cache
def _draw(variant: str) -> Callable[[types.PyTree], types.Array]:
  """Compiles the package's renderer, which is slow otherwise."""
  with jax.ensure_compile_time_eval():
    game = 'craftax_classic' if variant.startswith('classic') else 'craftax'
    renderer = packages.load(
      f'craftax.{game}.renderer', "'craftax/...'", 'craftax', ''
    )
    return jax.jit(renderer.make_craftax_pixel_renderer(_CELL_PIXELS))


def _first_state(
  variant: str, key: types.Array, params: types.PyTree
) -> types.PyTree:
  """Returns the state at the beginning of an episode.

  The state has a key, which must be an array of integers for
  `trees.replace_where`.
  """
  _, state = _package_env(variant).reset_env(jax.random.key_data(key), params)
  return trees.strong_types(state)


def _find(variant: str | None, _: None) -> family.Builder | None:
  """Returns the builder of a variant."""
  if variant is None or variant not in VARIANTS:
    return None
  import_package()
  return lambda *_: make(variant)


FAMILIES = {
  'craftax': family.Family(
    form='craftax/VARIANT (craftax/classic_symbolic)',
    kind='device',
    names=lambda: (f'craftax/{name}' for name in VARIANTS),
    find=_find,
  )
}
