"""Environments of the Gymnasium API, an optional extra of this package.

`make` takes the id of a registered environment, `from_factory` a function that
returns an environment, and `GymnasiumEnvironment` a vector environment.
"""

from collections.abc import Callable
import dataclasses
import importlib
from typing import TYPE_CHECKING
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import packages
from disco_rl.environments.host import adapters

if TYPE_CHECKING:
  import gymnasium


@dataclasses.dataclass(frozen=True)
class _Leaf:
  """One array of an observation.

  Attributes:
    spec: of one environment.
    values: of a Discrete space, which is one-hot encoded; None for a Box.
  """

  spec: jax.ShapeDtypeStruct
  values: np.ndarray | None = None

  def read(self, value: Any) -> np.ndarray:
    """Returns a new array [B, ...], as the argument may be reused."""
    if self.values is None:
      return np.array(value, self.spec.dtype)
    return (np.asarray(value)[:, None] == self.values).astype(np.float32)


class GymnasiumEnvironment(adapters.Adapter):
  """Any vector environment of Gymnasium with discrete actions.

  Actions count from 0, whatever the `start` of the action space. Observations
  may be `Box` (64-bit types are narrowed to 32 bits), `Discrete` (one-hot
  float32), and `Dict` and `Tuple` of these.

  The environments reset in the next or the same step, as the vector environment
  does; where its autoreset mode is "disabled", they are reset in the same step
  by `options['reset_mask']`.
  """

  def __init__(
    self, env: 'gymnasium.vector.VectorEnv', seed: int, name: str | None = None
  ):
    """Wraps a vector environment.

    Args:
      env: used by this object alone from now on.
      seed: of the batch; see `adapters.sub_seeds`. It is used in the first
        reset; later ones continue the random streams.
      name: for messages; None: the name in the vector environment's spec.

    Raises:
      ImportError: if gymnasium is not installed.
      ValueError: if the action space, the observation space or the autoreset
        mode is not supported.
    """
    modes = _import_gymnasium().vector.AutoresetMode
    name = name or (str(env) if env.spec is None else env.spec.id)
    mode = _autoreset_mode(env, name)
    self._env = env
    self._is_seeded = False
    self._must_be_reset = mode == modes.DISABLED
    self._leaves = _leaves(env.single_observation_space, name)
    num_actions, self._first_action = _discrete_actions(
      env.single_action_space, name
    )
    spec = types.EnvironmentSpec(
      observation=jax.tree.map(lambda leaf: leaf.spec, self._leaves),
      num_actions=num_actions,
    )
    super().__init__(
      name, int(seed), spec, env.num_envs, mode == modes.NEXT_STEP
    )

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    self._env.close()

  def _reset(self) -> types.PyTree:
    observation, _ = self._env.reset(
      seed=None if self._is_seeded else _reset_seeds(self._env, self._seed)
    )
    self._is_seeded = True
    return self._read(observation)

  def _step(self, action: np.ndarray) -> tuple[Any, ...]:
    observation, reward, is_terminated, is_truncated, _ = self._env.step(
      action.astype(self._env.action_space.dtype) + self._first_action
    )
    is_last = np.logical_or(is_terminated, is_truncated)
    if self._must_be_reset and is_last.any():
      observation, _ = self._env.reset(options={'reset_mask': is_last})
    return self._read(observation), reward, is_terminated, is_truncated

  def _read(self, observation: Any) -> types.PyTree:
    return jax.tree.map(
      lambda leaf, value: leaf.read(value), self._leaves, observation
    )


def make(env_id: str, num_environments: int, seed: int) -> GymnasiumEnvironment:
  """Makes copies of a registered environment that step one after the other.

  Args:
    env_id: as `gymnasium.make` takes.
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`.

  Returns:
    The batch of environments, which reset in the next step.

  Raises:
    ImportError: if gymnasium, or a package that the environment needs, is not
      installed.
    ValueError: if the environment's spaces are not supported.
    gymnasium.error.Error: if there is no such environment.
  """
  gymnasium = _import_gymnasium()
  try:
    env = gymnasium.make_vec(
      env_id, num_environments, vectorization_mode='sync'
    )
  except gymnasium.error.DependencyNotInstalled as error:
    raise ImportError(
      f'gymnasium/{env_id} needs a package that is not installed: {error}'
    ) from error
  return GymnasiumEnvironment(env, seed)


def from_factory(
  make_env: Callable[[], 'gymnasium.Env'], num_environments: int, seed: int
) -> GymnasiumEnvironment:
  """Makes environments by a function; they step one after the other.

  Args:
    make_env: returns a new environment.
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`. The environments receive
      theirs in the first reset.

  Returns:
    The batch of environments, which reset in the next step.

  Raises:
    ImportError: if gymnasium is not installed.
    ValueError: if the environment's spaces are not supported.
  """
  vector = _import_gymnasium().vector
  env = vector.SyncVectorEnv([make_env] * num_environments)
  return GymnasiumEnvironment(env, seed, name=str(env.envs[0]))


def registered_ids() -> tuple[str, ...]:
  """Returns the ids that `make` takes; none if gymnasium is not installed."""
  try:
    return tuple(_import_gymnasium().registry)
  except ImportError:
    return ()


def is_registered(env_id: str) -> bool:
  """Whether `make` would find an environment; builds nothing.

  Args:
    env_id: an id with its version. An id of the form MODULE:ID imports the
      module first, so that other packages can register their environments.

  Raises:
    ImportError: if gymnasium or the module is not installed.
  """
  gymnasium = _import_gymnasium()
  module, colon, registered_id = env_id.rpartition(':')
  if colon:
    # Nothing else can be imported, least of all a path.
    if not all(part.isidentifier() for part in module.split('.')):
      return False
    importlib.import_module(module)
  return registered_id in gymnasium.registry


def _import_gymnasium() -> Any:
  return packages.load(
    'gymnasium',
    "'gymnasium/...'",
    'the package gymnasium',
    "pip install 'disco_rl[gymnasium]'",
  )


def _autoreset_mode(env: Any, name: str) -> Any:
  modes = _import_gymnasium().vector.AutoresetMode
  mode = env.metadata.get('autoreset_mode')
  try:
    # Some environments give the value of the mode in place of the mode.
    return modes(mode)
  except ValueError as error:
    raise ValueError(
      f"{name} has metadata['autoreset_mode'] = {mode}, which does not say how "
      'it resets: set it to the mode of the environment, one of '
      f'{", ".join(map(str, modes))}.'
    ) from error


def _reset_seeds(env: Any, seed: int) -> Any:
  """Returns the argument of the first reset: a seed, or one per environment."""
  vector = _import_gymnasium().vector
  if isinstance(env.unwrapped, (vector.SyncVectorEnv, vector.AsyncVectorEnv)):
    return adapters.sub_seeds(seed, env.num_envs).tolist()
  # Only these two accept a seed for each environment. Others may count up from
  # the seed they receive, hence seeds that are far apart.
  return int(adapters.sub_seeds(seed, 1)[0])


def _discrete_actions(space: Any, name: str) -> tuple[int, int]:
  """Returns the number of actions and the first of them."""
  if not isinstance(space, _import_gymnasium().spaces.Discrete):
    raise ValueError(
      f'{name} has the action space {space}: only Discrete is supported.'
    )
  return int(space.n), int(space.start)


def _leaves(space: Any, path: str) -> types.PyTree:
  """Returns the tree of `_Leaf` of an observation space; `path` names it."""
  spaces = _import_gymnasium().spaces
  if isinstance(space, spaces.Dict):
    return {k: _leaves(s, f'{path}[{k!r}]') for k, s in space.spaces.items()}
  if isinstance(space, spaces.Tuple):
    return tuple(_leaves(s, f'{path}[{i}]') for i, s in enumerate(space.spaces))
  if isinstance(space, spaces.Discrete):
    values = np.arange(space.start, space.start + space.n)
    return _Leaf(jax.ShapeDtypeStruct(values.shape, np.float32), values)
  if isinstance(space, spaces.Box):
    # JAX would narrow the type anyway, so that the spec would not hold.
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    return _Leaf(jax.ShapeDtypeStruct(space.shape, dtype))
  raise ValueError(
    f'{path} has the observation space {space}: only Box, Discrete, and Dict '
    'and Tuple of those are supported.'
  )
