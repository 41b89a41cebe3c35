"""Environments of the Gymnasium API, an optional extra of this package.

`make` takes the id of a registered environment, `from_factory` a function that
makes one of your own, and `GymnasiumEnvironment` a vector environment.
"""

from collections.abc import Callable
import dataclasses
import importlib
from typing import TYPE_CHECKING
from typing import Any

import jax
import numpy as np

from disco_rl import types
from disco_rl.environments import base
from disco_rl.environments.host import adapters

if TYPE_CHECKING:
  import gymnasium


@dataclasses.dataclass(frozen=True)
class _Leaf:
  """One array of an observation.

  Attributes:
    spec: of one environment.
    read: what the vector environment returns -> a new array [B, ...].
  """

  spec: jax.ShapeDtypeStruct
  read: Callable[[Any], np.ndarray]


class GymnasiumEnvironment(base.HostEnvironment):
  """Any vector environment of Gymnasium with discrete actions.

  Actions count from 0, whatever the `start` of the action space. Observations
  may be `Box` (64-bit types are narrowed to 32 bits), `Discrete` (one-hot
  float32), and `Dict` and `Tuple` of such.

  Resetting follows the vector environment's own mode:
    next step: the step after the last one of an episode ignores its action and
      returns the first observation of the next episode. This transition has
      mask False, reward 0 and is_terminal True, so that nothing passes from one
      episode to the other. A truncated episode is not terminal: the observation
      returned is truly its last, and may be bootstrapped from.
    same step: the last step returns the first observation of the next episode.
      The last observation is not seen, hence truncation counts as termination.
    disabled: as in the same step, by resetting with `options['reset_mask']`.
  """

  def __init__(
    self,
    env: 'gymnasium.vector.VectorEnv',
    seed: int,
    name: str | None = None,
  ):
    """Takes over a vector environment.

    Args:
      env: is used by this object alone from now on.
      seed: of the batch; see `adapters.sub_seeds`. It is used in the first
        reset; later ones continue the random streams.
      name: for messages; None: what the vector environment says of itself.

    Raises:
      ImportError: if gymnasium is not installed.
      ValueError: if the action space, the observation space or the autoreset
        mode is not supported.
    """
    modes = _import_gymnasium().vector.AutoresetMode
    self._env = env
    self._name = name or (str(env) if env.spec is None else env.spec.id)
    self._seed = int(seed)
    self._num_steps = 0
    self._is_seeded = False
    mode = _autoreset_mode(env, self._name)
    self._resets_in_next_step = mode == modes.NEXT_STEP
    self._must_be_reset = mode == modes.DISABLED
    self._leaves = _leaves(env.single_observation_space, self._name)
    self.num_environments = env.num_envs
    self._is_resetting = np.zeros(self.num_environments, bool)
    num_actions, self._first_action = _discrete_actions(
      env.single_action_space, self._name
    )
    self.spec = types.EnvironmentSpec(
      observation=jax.tree.map(lambda leaf: leaf.spec, self._leaves),
      num_actions=num_actions,
    )

  def reset(self) -> types.PyTree:
    """As `HostEnvironment.reset`.

    Raises:
      RuntimeError: if an environment raised.
    """
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      observation, _ = self._env.reset(
        seed=None if self._is_seeded else _reset_seeds(self._env, self._seed)
      )
    self._is_seeded = True
    self._is_resetting = np.zeros(self.num_environments, bool)
    return self._read(observation)

  def step(self, action: Any) -> types.TimeStep:
    """As `HostEnvironment.step`.

    Raises:
      RuntimeError: if an environment raised.
    """
    self._num_steps += 1
    with adapters.located_errors(self._name, self._seed, self._num_steps):
      observation, reward, terminated, truncated, _ = self._env.step(
        np.asarray(action, self._env.action_space.dtype) + self._first_action
      )
      is_last = np.logical_or(terminated, truncated)
      if self._must_be_reset and is_last.any():
        observation, _ = self._env.reset(options={'reset_mask': is_last})
    is_dummy = self._is_resetting
    if self._resets_in_next_step:
      is_terminal = np.logical_or(terminated, is_dummy)
      self._is_resetting = is_last
    else:
      is_terminal = is_last
    outcome: dict[str, Any] = {
      # Wrappers that shift rewards pay in the step that resets, too.
      'reward': np.where(is_dummy, 0.0, reward).astype(np.float32),
      'is_terminal': is_terminal,
      'is_last': is_last,
      'mask': ~is_dummy,
    }
    return types.TimeStep(observation=self._read(observation), **outcome)

  def close(self) -> None:
    """As `HostEnvironment.close`."""
    self._env.close()

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
  """Makes environments of the user's own, which step one after the other.

  Args:
    make_env: returns a new environment.
    num_environments: B.
    seed: of the batch; see `adapters.sub_seeds`. The environments get theirs in
      their first reset.

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
  """Whether `make` would find an environment, which is not built.

  Args:
    env_id: an id with its version. An id of the form MODULE:ID imports the
      module first, which is how other packages register their environments.

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
  try:
    import gymnasium
  except ImportError as error:
    raise ImportError(
      "Environments named 'gymnasium/...' need the package gymnasium, which "
      f"cannot be imported ({error}): pip install 'disco_rl[gymnasium]'"
    ) from error
  return gymnasium


def _autoreset_mode(env: Any, name: str) -> Any:
  modes = _import_gymnasium().vector.AutoresetMode
  mode = env.metadata.get('autoreset_mode')
  try:
    # Some environments give the value of the mode in place of the mode.
    return modes(mode)
  except ValueError as error:
    raise ValueError(
      f"{name} has metadata['autoreset_mode'] = {mode}, which does not say how "
      'it resets: set it to what the environment does, one of '
      f'{", ".join(map(str, modes))}.'
    ) from error


def _reset_seeds(env: Any, seed: int) -> Any:
  """Returns what the first reset is given: a seed, or one per environment."""
  vector = _import_gymnasium().vector
  if isinstance(env.unwrapped, (vector.SyncVectorEnv, vector.AsyncVectorEnv)):
    return adapters.sub_seeds(seed, env.num_envs).tolist()
  # Only these two take a seed for each environment. Others may count up from
  # the one they get, hence seeds that are far apart.
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
    return _one_hot(int(space.n), int(space.start))
  if isinstance(space, spaces.Box):
    # JAX would narrow the type in transit, so that the spec would not hold.
    return _array(space.shape, jax.dtypes.canonicalize_dtype(space.dtype))
  raise ValueError(
    f'{path} has the observation space {space}: only Box, Discrete, and Dict '
    'and Tuple of those are supported.'
  )


def _one_hot(size: int, start: int) -> _Leaf:
  values = np.arange(start, start + size)

  def read(value: Any) -> np.ndarray:
    return (np.asarray(value)[:, None] == values).astype(np.float32)

  return _Leaf(jax.ShapeDtypeStruct((size,), np.float32), read)


def _array(shape: tuple[int, ...], dtype: np.dtype) -> _Leaf:
  def read(value: Any) -> np.ndarray:
    # A copy, because vector environments may write into the array later.
    return np.array(value, dtype)

  return _Leaf(jax.ShapeDtypeStruct(shape, dtype), read)
